//! Catalogues of a real server process: the commands, the settings, and kill -9 in the
//! middle of long operations.

mod commands;
mod killed;
mod server;
mod settings;
