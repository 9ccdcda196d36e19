//! The log of the server: on standard error, as text or as JSON.

use std::io::{self, IsTerminal};

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use super::settings::LogFormat;

const DEFAULT: &str = "info";

/// Starts logging. What is said here wins over `RUST_LOG`.
pub fn start(filter: Option<&str>, format: LogFormat) -> anyhow::Result<()> {
    let filter = match filter {
        Some(filter) => EnvFilter::try_new(filter)
            .with_context(|| format!("--log {filter}: write for instance info, debug or warn"))?,
        None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT)),
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}
