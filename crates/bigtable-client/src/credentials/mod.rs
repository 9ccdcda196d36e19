//! Tokens for Google's service, fetched on demand and cached until shortly before they expire.
//!
//! - `source`: where the identity comes from
//! - `tokens`: the cache
//! - `identity`: who the client is and how it requests a token
//! - `file`: credentials files
//! - `jwt`, `external`, `impersonation`: the requests of service accounts, of workloads with an
//!   identity elsewhere, and of identities that act as another
//! - `http`: sends a request to a token server

mod external;
mod file;
mod http;
mod identity;
mod impersonation;
mod jwt;
mod source;
#[cfg(test)]
mod tests;
mod tokens;

pub use source::Credentials;
pub use tokens::Tokens;
