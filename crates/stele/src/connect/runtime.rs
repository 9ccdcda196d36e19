//! The runtimes on which commands make calls.

use std::pin::{Pin, pin};

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};

const FAILED: &str = "cannot start the threads of the network runtime";

/// Runs `work` on this thread.
pub fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build().context(FAILED)?;
    block_on(&runtime, work)
}

/// Runs `work` on a runtime. Only this thin function is compiled for each kind of work.
pub fn block_on<T>(runtime: &Runtime, work: impl Future<Output = T>) -> T {
    let mut result = None;
    drive(runtime, pin!(async { result = Some(work.await) }));
    result.expect("the work has ended")
}

fn drive(runtime: &Runtime, work: Pin<&mut dyn Future<Output = ()>>) {
    runtime.block_on(work);
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
