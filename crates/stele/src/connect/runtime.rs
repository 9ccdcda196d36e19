//! The runtimes on which commands make calls.

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};

const FAILED: &str = "cannot start the threads of the network runtime";

/// Runs `work` on this thread.
pub fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    Builder::new_current_thread().enable_all().build().context(FAILED)?.block_on(work)
}

/// Creates a runtime for commands that serve, or whose calls run in parallel. `None` is
/// one thread per processor.
pub fn threads(number: Option<usize>) -> anyhow::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if let Some(number) = number {
        builder.worker_threads(number);
    }
    builder.enable_all().build().context(FAILED)
}
