//! `stele serve` as people, programs and clients use it: the real binary, started again
//! for every test.

mod auth;
mod full_disk;
mod hostile;
mod inject;
mod keeping;
mod metastore;
mod metastore_users;
mod object_store;
mod requests;
#[path = "../../../../objects/tests/support/s3d.rs"]
mod s3d;
pub mod secure;
mod services;
mod settings;
mod shutdown;
mod start;
