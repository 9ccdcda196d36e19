//! How commands reach a server. One file per kind of server holds its flags and the hints
//! for its errors (`bigtable`, `tables`, `catalogue`, `names`, `metastore`, `http`); they share the
//! certificates (`tls`), the search for the server (`server`, with named servers in
//! `contexts`, the `address` that names it, the `probe` of one port and `examine` for all), the runtime (`runtime`)
//! and the form of an error with a hint (`hint`).

mod address;
mod bigtable;
mod catalogue;
mod contexts;
mod examine;
mod hint;
mod http;
mod metastore;
mod names;
mod probe;
mod runtime;
mod server;
mod tables;
mod tls;

pub use bigtable::{BigtableServer, parse_credentials};
pub use catalogue::CatalogueServer;
pub use contexts::{Context, Contexts};
pub use examine::examine;
pub use hint::with_hint;
pub use http::HttpServer;
pub use metastore::MetastoreServer;
pub use names::NameServer;
pub use probe::PATH as PORTS_PATH;
pub use runtime::threads;
pub use server::ServerArgs;
pub use tables::TabletsError;
pub use tls::{TlsFiles, read};
