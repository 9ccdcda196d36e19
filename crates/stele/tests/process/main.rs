//! The binary as people, programs and clients use it, one module per promise: a server
//! (`serve`, `wire`), its services (`catalogue`, `names`, `traces`) and the commands.
//! One test program for all of them, because each links the whole server. Attacks and
//! measurements of memory have one of their own, `hostile`.

mod backups;
mod catalogue;
mod cluster;
mod engine_tools;
mod finding;
mod manual;
mod metastore_commands;
mod names;
mod native_tables;
mod serve;
#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "support shared with the tests in hostile/")]
mod support;
mod tables_and_rows;
mod tablets;
mod traces;
mod wire;
