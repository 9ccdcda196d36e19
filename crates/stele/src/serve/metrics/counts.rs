//! The counts of a server.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use stele_console::SlowCalls;
use stele_grpc::memory::CallPools;

use super::{Connections, Methods};

pub struct Metrics {
    pub started: Instant,
    pub methods: Methods,
    /// Calls that shutdown waits for.
    pub in_flight: AtomicU64,
    pub memory: CallPools,
    /// Streams that were reset because their clients did not read.
    pub streams_stalled: AtomicU64,
    pub slow_calls: Arc<SlowCalls>,
    pub grpc: Connections,
    pub http: Connections,
    pub metastore: Connections,
}

impl Metrics {
    pub fn new(memory: CallPools) -> Metrics {
        Metrics {
            started: Instant::now(),
            methods: Methods::default(),
            in_flight: AtomicU64::new(0),
            memory,
            streams_stalled: AtomicU64::new(0),
            slow_calls: Arc::default(),
            grpc: Connections::default(),
            http: Connections::default(),
            metastore: Connections::default(),
        }
    }
}
