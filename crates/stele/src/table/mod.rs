//! `stele table`: creates, shows, changes and drops tables (`commands`), and shows their
//! definitions (`render`); shows and changes their locality groups (`schema`); administers
//! their tablets (`tablets`, `tablets_render`) and backups (`backups`, `backups_render`).

mod backups;
mod backups_render;
mod commands;
mod render;
mod schema;
mod tablets;
mod tablets_render;

pub use backups::Expiry;
pub use commands::{Command, run};
