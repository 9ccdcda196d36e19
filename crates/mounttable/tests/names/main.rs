//! Tests of names from the caller's view, on rows of a real Bigtable: Stele in this
//! process, or the server at STELE_NAMES_BIGTABLE (host:port).

mod access;
mod crash;
mod dns;
mod expiry;
mod globbing;
mod interleaving;
mod limits;
mod mending;
mod mounts;
mod racing;
mod serving;
mod storage;
mod untrusted;
mod watching;
mod world;
