//! The metastore that the commands connect to, and the hints for its errors.

use clap::Args;
use stele_metastore::client::{Client, Error};
use tonic::Code;

use super::address::Service;
use super::hint::{Hint, with_hint};
use super::runtime;
use super::server::ServerArgs;
use super::tls::TlsFiles;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct MetastoreServer {
    #[command(flatten)]
    server: ServerArgs,
    /// User of the metastore, as NAME:PASSWORD; needed if it checks callers.
    #[arg(long = "as", value_name = "USER", env = "STELE_METASTORE_USER", hide_env_values = true)]
    user: Option<String>,
    #[command(flatten)]
    tls: TlsFiles,
}

impl MetastoreServer {
    /// Connects and runs `work` with the client.
    pub fn run<T>(&self, work: impl AsyncFnOnce(Client) -> anyhow::Result<T>) -> anyhow::Result<T> {
        runtime::run(async { work(self.connect().await?).await }).map_err(with_hint_if_any)
    }

    async fn connect(&self) -> anyhow::Result<Client> {
        let chosen = self.server.choose(&["STELE_METASTORE"])?;
        let files = self.tls.or(chosen.context.as_ref());
        let target = self.server.find(&chosen, Service::Metastore, &files)?;
        let tls = match target.secure {
            true => Some(files.read()?.config()),
            false if files.is_given() => {
                anyhow::bail!(
                    "--server {} is plain text, but TLS certificates are given: use https://",
                    target.url()
                )
            }
            false => None,
        };
        let client = Client::connect_with(&target.url(), tls).await?;
        let Some(user) = &self.user else { return Ok(client) };
        let (name, password) = user.split_once(':').ok_or_else(|| {
            anyhow::anyhow!("invalid user: use --as NAME:PASSWORD, or STELE_METASTORE_USER")
        })?;
        Ok(client.login(name, password).await?)
    }
}

impl Hint for &Error {
    fn message(&self) -> String {
        self.to_string()
    }

    fn hint(&self) -> Option<&'static str> {
        let Error::Refused { code, message } = self else { return None };
        match Code::from(*code) {
            Code::ResourceExhausted if message.contains("space exceeded") => {
                Some("delete keys, or raise the server's quota with --metastore-quota")
            }
            Code::InvalidArgument if message.contains("user name is empty") => {
                Some("the server checks callers: pass --as NAME:PASSWORD")
            }
            Code::OutOfRange => {
                Some("`stele metastore status` shows the range of available history")
            }
            Code::Unimplemented => {
                Some("the server may be another kind, such as etcd: use etcdctl for it")
            }
            _ => None,
        }
    }
}

/// Adds a hint to an error of the metastore's client. Other errors stay as they are.
fn with_hint_if_any(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Error>() {
        Some(refused) if refused.hint().is_some() => with_hint(refused),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_comes_with_advice_where_there_is_any() {
        let refused = |code: Code, message: &str| {
            let error = Error::Refused { code: code as i32, message: message.into() };
            with_hint_if_any(error.into()).to_string()
        };
        let full = refused(Code::ResourceExhausted, "mvcc: database space exceeded");
        assert!(full.starts_with("mvcc: database space exceeded; delete keys"), "{full}");
        assert_eq!(refused(Code::InvalidArgument, "no"), "no");
        assert_eq!(with_hint_if_any(anyhow::anyhow!("other")).to_string(), "other");
    }
}
