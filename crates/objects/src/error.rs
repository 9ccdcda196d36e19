//! Why a store cannot be opened, or a request failed.

use std::io;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL of the store is invalid.
    #[error("invalid store {url:?}: {why}")]
    Url { url: String, why: String },
    /// The settings do not fit together.
    #[error("{0}")]
    Settings(String),
    /// Cannot create a client for the store: credentials or environment.
    #[error("store {address} cannot be used: {why}; check its environment variables")]
    Client { address: String, why: String },
    /// The store breaks a promise that correctness depends on.
    #[error(
        "store {address} is refused: {why}. Stele needs a store whose create-if-absent is atomic \
         and whose listings show every completed write"
    )]
    Unfit { address: String, why: String },
    /// The files under the prefix belong to other tables.
    #[error(
        "store {address} belongs to cluster {found}, but this data directory to {expected}: use \
         the directory's own store, or an empty prefix with a new data directory"
    )]
    OtherCluster { address: String, found: String, expected: String },
    /// `cluster.json` is damaged.
    #[error("store {address}: {key} is damaged: {why}; restore it from a backup of the bucket")]
    Identity { address: String, key: String, why: String },
    /// The cache on the local disk cannot be opened.
    #[error("cache {dir}: {why}")]
    Cache { dir: String, why: io::Error },
    /// A request failed, after its retries.
    #[error("store {address}: {what} failed: {why}")]
    Request { address: String, what: String, kind: io::ErrorKind, why: String },
    /// No thread could be started.
    #[error("the threads of store {address} cannot be started: {why}")]
    Threads { address: String, why: io::Error },
}

impl Error {
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Error::Url { .. } | Error::Settings(_) => io::ErrorKind::InvalidInput,
            Error::Client { .. } | Error::Unfit { .. } | Error::OtherCluster { .. } => {
                io::ErrorKind::Unsupported
            }
            Error::Identity { .. } => io::ErrorKind::InvalidData,
            Error::Cache { why, .. } | Error::Threads { why, .. } => why.kind(),
            Error::Request { kind, .. } => *kind,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error.to_string())
    }
}
