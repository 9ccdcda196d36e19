//! The name server that the commands connect to, and the hints for its errors.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use stele_grpc::Tls;
use stele_mounttable::Error;
use stele_mounttable::client::{Credentials, Namespace, Options};
use tonic::Code;

use super::address::Service;
use super::hint::{Hint, with_hint};
use super::runtime::{block_on, threads};
use super::server::ServerArgs;
use super::tls::TlsFiles;
use crate::private::read_secret_text;

/// The number of threads on which a namespace makes its calls.
const THREADS: usize = 2;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct NameServer {
    #[command(flatten)]
    server: ServerArgs,
    /// File that contains the token to present.
    #[arg(long, value_name = "FILE", env = "STELE_NAMES_TOKEN_FILE", hide_env_values = true)]
    token_file: Option<PathBuf>,
    /// Send the token in plain text to other hosts too.
    #[arg(long)]
    pub insecure_token: bool,
    /// Mounted servers that may also receive the token if their certificate proves their
    /// identity: host names or *.domain, separated by commas. By default only the roots
    /// receive it.
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    trust_servers: Vec<String>,
    /// Use TLS.
    #[arg(long)]
    tls: bool,
    #[command(flatten)]
    tls_files: TlsFiles,
    /// Timeout of a call, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u64,
}

impl NameServer {
    /// Runs `work` with the namespace.
    pub fn run<T>(
        &self,
        work: impl AsyncFnOnce(Arc<Namespace>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        block_on(&threads(Some(THREADS))?, async { work(self.namespace()?).await })
    }

    pub fn namespace(&self) -> anyhow::Result<Arc<Namespace>> {
        let chosen = self.server.choose(&["STELE_NAMES", "STELE_ENDPOINT"])?;
        let files = self.tls_files.or(chosen.context.as_ref());
        let roots = self.server.find_all(&chosen, Service::Grpc, &files)?;
        let secure = self.tls || files.is_given() || roots.iter().all(|root| root.secure);
        let tls = secure.then(|| files.read()).transpose()?;
        let roots = roots.iter().map(|root| format!("/{}", root.authority));
        let namespace = Namespace::new(roots, self.options(tls)?).map_err(with_hint)?;
        Ok(Arc::new(namespace))
    }

    /// Returns the addresses of the roots.
    pub fn roots(&self) -> anyhow::Result<Vec<String>> {
        let chosen = self.server.choose(&["STELE_NAMES", "STELE_ENDPOINT"])?;
        let files = self.tls_files.or(chosen.context.as_ref());
        let roots = self.server.find_all(&chosen, Service::Grpc, &files)?;
        Ok(roots.into_iter().map(|root| root.authority).collect())
    }

    fn options(&self, tls: Option<Tls>) -> anyhow::Result<Options> {
        let token = self.token_file.as_deref().map(read_secret_text).transpose()?;
        Ok(Options {
            credentials: Credentials {
                token,
                tls,
                insecure_token: self.insecure_token,
                trusted_servers: self.trust_servers.clone(),
            },
            timeout: Duration::from_secs(self.timeout),
            ..Options::default()
        })
    }
}

impl Hint for Error {
    fn message(&self) -> String {
        self.to_string()
    }

    fn hint(&self) -> Option<&'static str> {
        match (self, self.code()) {
            (Error::Unreachable { .. }, _) => {
                Some("start a server with `stele serve`, or pass its address with --server")
            }
            (_, Code::PermissionDenied | Code::Unauthenticated) => Some(
                "`stele name acl get` shows the permissions; authenticate with --token-file or \
                 --tls-cert",
            ),
            (_, Code::Unimplemented) => Some("this server does not serve names"),
            _ => None,
        }
    }
}
