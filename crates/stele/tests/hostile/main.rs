//! Attacks on a running server, one test each: a broken or malicious client must not stop
//! the server, exhaust its memory, or keep other clients waiting. One module per area;
//! each server is the real binary.

mod doors;
mod memory;
mod metastore;
mod reads;
mod services;
mod streams;
#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "support shared with the tests in process/")]
mod support;
mod throttled;
mod tombstones;
mod writes;
