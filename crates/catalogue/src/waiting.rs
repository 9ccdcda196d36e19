//! Waiting within a task of an asynchronous runtime.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does something slow. In a task of a runtime with several threads the
/// runtime is told first, so that the other tasks go on; elsewhere there is
/// nobody to tell.
pub fn waiting<T>(slow: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(slow),
        _ => slow(),
    }
}
