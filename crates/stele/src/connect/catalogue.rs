//! The server that the catalogue commands connect to, and the hints for its errors.

use clap::Args;
use stele_catalogue::client::Client;
use tonic::{Code, Status};

use super::address::Service;
use super::hint::{Hint, with_hint};
use super::runtime;
use super::server::ServerArgs;
use super::tls::TlsFiles;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct CatalogueServer {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    tls: TlsFiles,
}

impl CatalogueServer {
    /// Connects and runs `work` with the client.
    pub fn run<T>(&self, work: impl AsyncFnOnce(Client) -> anyhow::Result<T>) -> anyhow::Result<T> {
        runtime::run(async { work(self.connect().await?).await })
    }

    async fn connect(&self) -> anyhow::Result<Client> {
        let chosen = self.server.choose(&["STELE_ENDPOINT"])?;
        let tls = self.tls.or(chosen.context.as_ref());
        let target = self.server.find(&chosen, Service::Grpc, &tls)?;
        Client::connect(&target.endpoint(), &tls.read()?).await.map_err(with_hint)
    }
}

impl Hint for Status {
    fn message(&self) -> String {
        Status::message(self).to_string()
    }

    fn hint(&self) -> Option<&'static str> {
        match self.code() {
            Code::Unavailable if Status::message(self).starts_with("cannot reach") => {
                Some("start a server with `stele serve`, or pass its address with --server")
            }
            Code::Unavailable => Some("check that the server is running, then retry"),
            Code::NotFound => Some("`stele catalogue list` shows the existing catalogues"),
            Code::Unimplemented => Some("catalogues are disabled in the server's settings"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_with_advice() {
        let not_found = with_hint(Status::not_found("catalogue 1:2 not found")).to_string();
        assert_eq!(
            not_found,
            "catalogue 1:2 not found; `stele catalogue list` shows the existing catalogues"
        );
        assert_eq!(with_hint(Status::invalid_argument("no")).to_string(), "no");
    }
}
