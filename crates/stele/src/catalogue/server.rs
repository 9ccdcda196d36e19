//! The server that the catalogue commands connect to.

use anyhow::anyhow;
use clap::Args;
use stele_catalogue::client::Client;
use tonic::{Code, Status};

use crate::reach::{self, ENDPOINT, TlsFiles};

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct Server {
    /// Address of the server: host:port, or https://host for TLS
    #[arg(long, env = "STELE_ENDPOINT", hide_env_values = true, default_value = ENDPOINT)]
    endpoint: String,
    #[command(flatten)]
    tls: TlsFiles,
}

impl Server {
    /// Connects and runs `work` with the client.
    pub fn run<T>(&self, work: impl AsyncFnOnce(Client) -> anyhow::Result<T>) -> anyhow::Result<T> {
        reach::run(async {
            let client =
                Client::connect(&self.endpoint, &self.tls.read()?).await.map_err(advise)?;
            work(client).await
        })
    }
}

/// Adds advice on what to do to the error.
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
        let told = advise(Status::not_found("catalogue 1:2 not found")).to_string();
        assert_eq!(
            told,
            "catalogue 1:2 not found; `stele catalogue list` shows the catalogues there are"
        );
        assert_eq!(advise(Status::invalid_argument("no")).to_string(), "no");
    }
}
