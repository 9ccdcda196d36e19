//! `stele serve` as people, programs and clients use it: the real binary, started again
//! for every test.

mod full_disk;
mod hostile;
mod inject;
mod keeping;
mod metastore;
mod requests;
mod secure;
#[allow(dead_code, reason = "support shared with the tests in hostile/")]
mod server;
mod services;
mod settings;
mod shutdown;
mod start;
