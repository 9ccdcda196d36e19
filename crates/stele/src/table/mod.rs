//! `stele table`: creates, shows, changes and drops tables (`commands`), and shows their
//! definitions (`render`).

mod commands;
mod render;

pub use commands::{Command, run};
