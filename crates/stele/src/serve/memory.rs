//! How the memory of the process is shared out: between cells that are not on
//! disk yet, cached blocks, and requests that are being served.

use stele_engine::Options;

use super::settings::Settings;

/// A group of a table is flushed when it holds this share of the cells' part:
/// while one fragment is written the next can fill without anybody waiting.
const FRAGMENT_SHARE: u64 = 4;
const FRAGMENT_BYTES_MAX: u64 = 64 << 20;
const LOG_QUEUE_BYTES_MAX: u64 = 16 << 20;

/// The engine's options under these settings: a quarter of the memory for
/// cells, a quarter for blocks. The other half is for requests.
pub fn engine_options(settings: &Settings) -> Options {
    let quarter = settings.memory.0 / 4;
    let mut options = Options::default();
    options.memory.budget_bytes = usize::try_from(quarter).unwrap_or(usize::MAX);
    options.memory.cache_bytes = quarter;
    options.memory.log_queue_bytes_max = LOG_QUEUE_BYTES_MAX.min(quarter);
    let fragment = (quarter / FRAGMENT_SHARE).min(FRAGMENT_BYTES_MAX);
    options.flush.fragment_bytes = usize::try_from(fragment).unwrap_or(usize::MAX);
    options
}
