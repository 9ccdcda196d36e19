//! Counts of connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// The connections of one port.
#[derive(Default)]
pub struct Connections {
    pub accepted: AtomicU64,
    pub open: AtomicU64,
}

impl Connections {
    /// Counts a connection for as long as the returned guard lives.
    pub fn open(&'static self) -> OpenConnection {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self)
    }
}

pub struct OpenConnection(&'static Connections);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
