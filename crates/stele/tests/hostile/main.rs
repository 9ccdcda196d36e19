//! Attacks on a running server, one test each: a broken or malicious client must not stop
//! the server, exhaust its memory, or keep other clients waiting. One module per area;
//! each server is the real binary.

mod doors;
mod memory;
mod metastore;
mod reads;
#[path = "../serve/server.rs"]
#[allow(dead_code, reason = "support shared with the tests in serve/")]
mod server;
mod services;
mod streams;
mod throttled;
mod tombstones;
mod writes;
