//! The end of a server, step by step: first nothing new is taken, then what
//! still runs is ended, then what is left is cut off.

use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub struct Phases {
    /// No new connections and calls; those that run may finish.
    pub draining: CancellationToken,
    /// Calls are answered UNAVAILABLE now.
    pub ending: CancellationToken,
    /// Connections are closed, whatever they do.
    pub closing: CancellationToken,
}
