//! Catalogues as a server process serves them: from the command line, with
//! settings, and killed in the middle of what takes long.

mod commands;
mod killed;
mod server;
mod settings;
