//! The server's log: on standard error, as text or as JSON.

use std::env;
use std::io;

use anyhow::{Context, bail};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::settings::LogFormat;

const DEFAULT: &str = "info";
/// Libraries that log too much at `info`. A filter that names one enables it, as in
/// `info,openraft=debug`.
const NOISY: [&str; 2] = ["openraft", "hickory_server"];

/// Starts logging. `filter` overrides `RUST_LOG`.
pub fn start(filter: Option<&str>, format: LogFormat) -> anyhow::Result<()> {
    let filter = match filter {
        Some(filter) => parse(filter)?,
        None => env::var(EnvFilter::DEFAULT_ENV)
            .ok()
            .and_then(|filter| EnvFilter::try_new(with_quiet_libraries(&filter)).ok())
            .unwrap_or_else(|| EnvFilter::new(with_quiet_libraries(DEFAULT))),
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}

/// Parses `--log`. A word that is no level would be taken for the name of a module, and
/// nothing would be logged.
fn parse(filter: &str) -> anyhow::Result<EnvFilter> {
    let invalid = || {
        format!(
            "invalid --log {filter}: use error, warn, info, debug, trace or off, or a filter such as info,stele=debug"
        )
    };
    let is_word = filter.chars().all(char::is_alphanumeric);
    if is_word && filter.parse::<LevelFilter>().is_err() {
        bail!(invalid());
    }
    EnvFilter::try_new(with_quiet_libraries(filter)).with_context(invalid)
}

/// Limits the noisy libraries to warnings, unless the filter names them.
fn with_quiet_libraries(filter: &str) -> String {
    let unnamed = NOISY.iter().filter(|name| !filter.contains(*name));
    unnamed.fold(filter.to_string(), |filter, name| format!("{filter},{name}=warn"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for fine in ["info", "DEBUG", "off", "info,openraft=debug", "stele::audit"] {
            assert!(parse(fine).is_ok(), "{fine}");
        }
        for wrong in ["verbose", "=nonsense=["] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_talkative_are_heard_when_they_are_named() {
        assert_eq!(with_quiet_libraries("info"), "info,openraft=warn,hickory_server=warn");
        assert_eq!(with_quiet_libraries("openraft=debug"), "openraft=debug,hickory_server=warn");
    }
}
