//! Clusters in simulation: a few servers, clients, a coordinator and an object store in
//! one thread, from one seed. `docs/ownership.md` lists what is checked.

mod breakages;
mod clients;
mod engine_server;
mod files;
mod history;
mod promises;
mod root_rows;
mod server;
mod simulation;
