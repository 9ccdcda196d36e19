//! What the tests of the binary share: processes of `stele` (`server`), commands with a
//! clean environment (`command`), and services hosted in the test's own process
//! (`hosted`).

mod command;
mod hosted;
mod server;

pub use command::{Commands, command, refused};
pub use hosted::Hosted;
pub use server::{INSTANCE, Server, TABLE, TIMEOUT, make_table, ping, rows, spawn, until, write};
