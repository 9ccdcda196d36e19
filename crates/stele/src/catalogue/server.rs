//! Which server the commands for catalogues speak to.

use anyhow::{Context, anyhow};
use clap::Args;
use stele_catalogue::client::{Client, Tls};
use tonic::{Code, Status};

use crate::certificates::Certificates;
use crate::connection::ENDPOINT;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct Server {
    /// host:port, or https://host for TLS
    #[arg(long, env = "STELE_ENDPOINT", hide_env_values = true, default_value = ENDPOINT)]
    endpoint: String,
    #[command(flatten)]
    certificates: Certificates,
}

impl Server {
    /// Connects, and does `work` with the client.
    pub fn run<T>(&self, work: impl AsyncFnOnce(Client) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the runtime for network calls cannot be started")?;
        runtime.block_on(async {
            let client = Client::connect(&self.endpoint, &self.tls()?).await.map_err(advise)?;
            work(client).await
        })
    }

    fn tls(&self) -> anyhow::Result<Tls> {
        let (ca, identity) = self.certificates.read()?;
        Ok(Tls { ca, identity })
    }
}

/// The error with what to do about it.
pub fn advise(status: Status) -> anyhow::Error {
    let advice = match status.code() {
        Code::Unavailable if status.message().starts_with("cannot reach") => {
            "start a server with `stele serve`, or say where one is with --endpoint"
        }
        Code::Unavailable => "is the server still running? It may be worth trying again",
        Code::NotFound => "`stele catalogue list` shows the catalogues there are",
        Code::Unimplemented => "the server's settings leave catalogues out",
        _ => return anyhow!("{}", status.message()),
    };
    anyhow!("{}; {advice}", status.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_with_advice() {
        let told = advise(Status::not_found("there is no catalogue 1:2")).to_string();
        assert_eq!(
            told,
            "there is no catalogue 1:2; `stele catalogue list` shows the catalogues there are"
        );
        assert_eq!(advise(Status::invalid_argument("no")).to_string(), "no");
    }
}
