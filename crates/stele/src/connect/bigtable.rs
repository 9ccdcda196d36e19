//! The Bigtable that commands connect to, and the hints for its errors.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use stele_bigtable_client::{Client, Credentials, Error, Options};
use tonic::Code;

use super::address::Service;
use super::contexts::Context;
use super::hint::{Hint, with_hint};
use super::runtime;
use super::server::{Chosen, GOOGLE, ServerArgs};
use super::tls::TlsFiles;
use crate::private::read_secret_text;

const PROJECT: &str = "stele";
const INSTANCE: &str = "stele";
/// The variables that name a Bigtable.
const VARIABLES: [&str; 2] = ["STELE_ENDPOINT", "BIGTABLE_EMULATOR_HOST"];

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct BigtableServer {
    #[command(flatten)]
    server: ServerArgs,
    /// Project that contains the instance [default: the context's, else stele]
    #[arg(long, env = "STELE_PROJECT", hide_env_values = true, verbatim_doc_comment)]
    project: Option<String>,
    /// Instance that contains the table [default: stele; traces for traces]
    #[arg(long, env = "STELE_INSTANCE", hide_env_values = true, verbatim_doc_comment)]
    instance: Option<String>,
    /// App profile to use.
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    app_profile: String,
    /// JSON key file, or "default" for the credentials of gcloud and the environment.
    #[arg(long, value_name = "FILE", env = "STELE_CREDS", hide_env_values = true)]
    creds: Option<String>,
    /// File that contains a token of `stele auth token create`.
    #[arg(
        long,
        value_name = "FILE",
        env = "STELE_TOKEN_FILE",
        hide_env_values = true,
        conflicts_with = "creds"
    )]
    token_file: Option<PathBuf>,
    /// Send credentials in plain text to other hosts too.
    #[arg(long)]
    insecure_token: bool,
    #[command(flatten)]
    tls: TlsFiles,
    /// Timeout of a call, in seconds; for a read, until the next row arrives.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// The instance of the command's service.
    #[arg(skip)]
    default_instance: Option<&'static str>,
}

impl BigtableServer {
    /// Sets the instance of a service unless one was given.
    pub fn within(mut self, instance: &'static str) -> BigtableServer {
        self.default_instance = Some(instance);
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

    /// Returns the server as chosen by flags, environment and contexts.
    pub fn chosen(&self) -> anyhow::Result<Chosen> {
        self.server.choose(&VARIABLES)
    }

    /// Returns how to reach the Bigtable: the server of Stele that every command uses,
    /// another one, or Google's if the server is "google".
    pub fn options(&self) -> anyhow::Result<Options> {
        let chosen = self.chosen()?;
        let context = chosen.context.as_ref();
        let tls = self.tls.or(context);
        let of_context =
            |value: fn(&Context) -> &Option<String>| context.and_then(|it| value(it).clone());
        let project = self.project.clone().or(of_context(|it| &it.project));
        let instance = self.instance.clone().or(of_context(|it| &it.instance));
        let project = project.as_deref().unwrap_or(PROJECT);
        let instance = instance.as_deref().or(self.default_instance).unwrap_or(INSTANCE);
        let endpoint = match &*chosen.typed {
            GOOGLE => GOOGLE.to_string(),
            _ => self.server.find(&chosen, Service::Grpc, &tls)?.endpoint(),
        };
        let mut options = options(&endpoint, project, instance);
        options.app_profile = self.app_profile.clone();
        options.deadline = Some(Duration::from_secs(self.timeout));
        if let Some(creds) = &self.creds {
            options.credentials = parse_credentials(creds);
        }
        if let Some(file) = &self.token_file {
            options.credentials = Credentials::Token(read_secret_text(file)?);
        }
        options.insecure_token = self.insecure_token;
        options.tls = tls.read()?;
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
                Some("start a server with `stele serve`, or pass its address with --server")
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
                Some("authenticate with --token-file FILE, or --creds FILE for Google's service")
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
             with --server"
        );
    }
}
