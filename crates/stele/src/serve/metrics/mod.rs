//! Metrics of a running server. Counting is cheap: relaxed atomics that live as long as
//! the process. Only a scrape costs more.

mod methods;
mod process;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use methods::{Method, Methods};
pub use process::Process;
pub use text::{process_numbers, render};

use stele_grpc::memory::CallPools;

pub struct Metrics {
    pub started: Instant,
    pub methods: Methods,
    /// Calls that shutdown waits for.
    pub in_flight: AtomicU64,
    pub memory: CallPools,
    /// Streams that were reset because their clients did not read.
    pub streams_stalled: AtomicU64,
    pub grpc: Connections,
    pub http: Connections,
    pub metastore: Connections,
}

/// The connections of one port.
#[derive(Default)]
pub struct Connections {
    pub accepted: AtomicU64,
    pub open: AtomicU64,
}

impl Metrics {
    pub fn new(memory: CallPools) -> Metrics {
        Metrics {
            started: Instant::now(),
            methods: Methods::default(),
            in_flight: AtomicU64::new(0),
            memory,
            streams_stalled: AtomicU64::new(0),
            grpc: Connections::default(),
            http: Connections::default(),
            metastore: Connections::default(),
        }
    }
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
