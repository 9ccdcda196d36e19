//! How commands reach a server. One file per kind of server holds its flags and the hints
//! for its errors (`bigtable`, `tables`, `catalogue`, `names`, `metastore`, `http`); they share the
//! certificates (`tls`), the addresses (`address`), the runtime (`runtime`) and the form
//! of an error with a hint (`hint`).

mod address;
mod bigtable;
mod catalogue;
mod hint;
mod http;
mod metastore;
mod names;
mod runtime;
mod tables;
mod tls;

pub use bigtable::{BigtableServer, parse_credentials};
pub use catalogue::CatalogueServer;
pub use hint::with_hint;
pub use http::HttpServer;
pub use metastore::MetastoreServer;
pub use names::NameServer;
pub use runtime::threads;
pub use tables::TabletsError;
pub use tls::read;
