//! The Bigtable that commands connect to, and the hints for its errors.

use std::time::Duration;

use clap::Args;
use stele_bigtable_client::{Client, Credentials, Error, Options};
use tonic::Code;

use super::address::ENDPOINT;
use super::hint::{Hint, with_hint};
use super::runtime;
use super::tls::TlsFiles;

pub const GOOGLE: &str = "google";
const INSTANCE: &str = "stele";

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct BigtableServer {
    /// Address: host:port, https://host for TLS, or "google" for Cloud Bigtable
    /// [default: $BIGTABLE_EMULATOR_HOST, else 127.0.0.1:8086]
    #[arg(long, env = "STELE_ENDPOINT", hide_env_values = true, verbatim_doc_comment)]
    endpoint: Option<String>,
    /// Project that contains the instance.
    #[arg(long, env = "STELE_PROJECT", hide_env_values = true, default_value = "stele")]
    project: String,
    /// Instance that contains the table [default: stele; traces for traces]
    #[arg(long, env = "STELE_INSTANCE", hide_env_values = true, verbatim_doc_comment)]
    instance: Option<String>,
    /// App profile to use.
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    app_profile: String,
    /// JSON key file, or "default" for the credentials of gcloud and the environment.
    #[arg(long, value_name = "FILE", env = "STELE_CREDS", hide_env_values = true)]
    creds: Option<String>,
    /// Send credentials in plain text to other hosts too.
    #[arg(long)]
    insecure_token: bool,
    #[command(flatten)]
    tls: TlsFiles,
    /// Timeout of a call, in seconds; for a read, until the next row arrives.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

impl BigtableServer {
    /// Sets the instance of a service unless one was given.
    pub fn within(mut self, instance: &str) -> BigtableServer {
        self.instance.get_or_insert_with(|| instance.into());
        self
    }

    /// Sets the instance that a command names.
    pub fn within_instance(mut self, instance: &str) -> BigtableServer {
        self.instance = Some(instance.into());
        self
    }

    /// Connects and runs `work` with the client.
    pub fn run<T>(&self, work: impl AsyncFnOnce(Client) -> anyhow::Result<T>) -> anyhow::Result<T> {
        runtime::run(async { work(self.connect().await?).await })
    }

    async fn connect(&self) -> anyhow::Result<Client> {
        Client::connect(self.options()?).await.map_err(with_hint)
    }

    /// Returns the address of the server.
    pub fn endpoint(&self) -> String {
        let from_environment = std::env::var("BIGTABLE_EMULATOR_HOST").ok();
        let endpoint = self.endpoint.clone().or(from_environment);
        endpoint.unwrap_or_else(|| ENDPOINT.into())
    }

    pub fn options(&self) -> anyhow::Result<Options> {
        let endpoint = self.endpoint();
        let instance = self.instance.as_deref().unwrap_or(INSTANCE);
        let mut options = options(&endpoint, &self.project, instance);
        options.app_profile = self.app_profile.clone();
        options.deadline = Some(Duration::from_secs(self.timeout));
        if let Some(creds) = &self.creds {
            options.credentials = parse_credentials(creds);
        }
        options.insecure_token = self.insecure_token;
        options.tls = self.tls.read()?;
        Ok(options)
    }
}

/// Returns the options of a Bigtable at an address or at Google.
fn options(endpoint: &str, project: &str, instance: &str) -> Options {
    match endpoint {
        GOOGLE => Options::google(project, instance),
        endpoint => Options::new(endpoint, project, instance),
    }
}

/// Parses `--creds`: a file, or "default".
pub fn parse_credentials(creds: &str) -> Credentials {
    match creds {
        "default" => Credentials::ApplicationDefault,
        file => Credentials::File(file.into()),
    }
}

impl Hint for Error {
    fn message(&self) -> String {
        Error::message(self)
    }

    fn hint(&self) -> Option<&'static str> {
        match (self, self.code()) {
            (Error::Unreachable { .. }, _) => {
                Some("start a server with `stele serve`, or pass its address with --endpoint")
            }
            (_, Code::Unavailable) => Some("check that the server is running, then retry"),
            (_, Code::DeadlineExceeded) => Some("allow more time with --timeout"),
            (_, Code::NotFound) if Error::message(self).contains("family") => {
                Some("`stele table describe` shows a table's families")
            }
            (_, Code::NotFound) => Some("`stele table list` shows the existing tables"),
            (_, Code::FailedPrecondition) if Error::message(self).contains("unloaded") => {
                Some("`stele table load` loads it")
            }
            (_, Code::AlreadyExists) => Some("`stele table describe` shows its definition"),
            (_, Code::Unauthenticated | Code::PermissionDenied) => {
                Some("authenticate with --creds FILE or --creds default")
            }
            (_, Code::Unimplemented) => Some("this server does not implement that call"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_server_comes_with_advice() {
        let error = Error::Unreachable { endpoint: "h:1".into(), why: "refused".into() };
        assert_eq!(
            with_hint(error).to_string(),
            "cannot reach h:1: refused; start a server with `stele serve`, or pass its address \
             with --endpoint"
        );
    }
}
