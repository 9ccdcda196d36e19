//! `stele serve` as people, programs and clients meet it: the real binary,
//! started anew for every promise.

mod hostile;
mod keeping;
mod metastore;
mod requests;
mod secure;
mod server;
mod services;
mod settings;
mod shutdown;
mod start;
