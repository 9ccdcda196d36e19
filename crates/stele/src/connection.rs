//! The server that the table and row commands connect to, and advice for its errors.

use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use stele_bigtable_client::{Client, Credentials, Error, Options};
use tonic::Code;

use crate::reach::{self, ENDPOINT, TlsFiles};

const GOOGLE: &str = "google";
const INSTANCE: &str = "stele";

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct Connection {
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

impl Connection {
    /// Sets the instance of a service unless one was given.
    pub fn within(mut self, instance: &str) -> Connection {
        self.instance.get_or_insert_with(|| instance.into());
        self
    }

    /// Connects and runs `work` with the client.
    pub fn run<T>(&self, work: impl AsyncFnOnce(Client) -> anyhow::Result<T>) -> anyhow::Result<T> {
        reach::run(async {
            let client = Client::connect(self.options()?).await.map_err(advise)?;
            work(client).await
        })
    }

    pub fn options(&self) -> anyhow::Result<Options> {
        let from_environment = std::env::var("BIGTABLE_EMULATOR_HOST").ok();
        let endpoint = self.endpoint.clone().or(from_environment);
        let endpoint = endpoint.unwrap_or_else(|| ENDPOINT.into());
        let instance = self.instance.as_deref().unwrap_or(INSTANCE);
        let mut options = if endpoint == GOOGLE {
            Options::google(&self.project, instance)
        } else {
            Options::new(endpoint, &self.project, instance)
        };
        options.app_profile = self.app_profile.clone();
        options.deadline = Some(Duration::from_secs(self.timeout));
        match self.creds.as_deref() {
            None => {}
            Some("default") => options.credentials = Credentials::ApplicationDefault,
            Some(file) => options.credentials = Credentials::File(file.into()),
        }
        options.insecure_token = self.insecure_token;
        options.tls = self.tls.read()?;
        Ok(options)
    }
}

/// Adds advice on what to do to the error.
pub fn advise(error: Error) -> anyhow::Error {
    let advice = match (&error, error.code()) {
        (Error::Unreachable { .. }, _) => {
            "start a server with `stele serve`, or say where one is with --endpoint"
        }
        (_, Code::Unavailable) => "is the server still running? It may be worth trying again",
        (_, Code::DeadlineExceeded) => "give it more time with --timeout",
        (_, Code::NotFound) if error.message().contains("family") => {
            "`stele table describe` shows a table's families"
        }
        (_, Code::NotFound) => "`stele table list` shows the tables there are",
        (_, Code::AlreadyExists) => "`stele table describe` shows how it is",
        (_, Code::Unauthenticated | Code::PermissionDenied) => "say who you are with --creds",
        (_, Code::Unimplemented) => "this server does not do that",
        _ => return anyhow!(error.message()),
    };
    anyhow!("{}; {advice}", error.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_server_comes_with_advice() {
        let error = Error::Unreachable { endpoint: "h:1".into(), why: "refused".into() };
        assert_eq!(
            advise(error).to_string(),
            "cannot reach h:1: refused; start a server with `stele serve`, or say where one is \
             with --endpoint"
        );
    }
}
