//! Connections to the other servers, opened when they are needed.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use stele_grpc::{Tls, Transport, endpoint};
use tonic::Status;

/// A server on the same network answers within this time, or is gone.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pings that detect dead connections.
const KEEPALIVE: Duration = Duration::from_secs(2);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(4);
/// What a stream may have under way to a client that does not read.
const STREAM_WINDOW: u32 = 1 << 20;

pub struct Peers {
    tls: Tls,
    by_address: Mutex<HashMap<String, Transport>>,
}

impl Peers {
    pub fn new(tls: Tls) -> Peers {
        Peers { tls, by_address: Mutex::default() }
    }

    /// Returns the way to a server.
    pub fn transport(&self, address: &str) -> Result<Transport, Status> {
        let mut by_address = self.by_address.lock();
        if let Some(transport) = by_address.get(address) {
            return Ok(transport.clone());
        }
        let endpoint = endpoint(address, &self.tls).map_err(Status::internal)?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW);
        let transport = Transport::Channel(endpoint.connect_lazy());
        by_address.insert(address.into(), transport.clone());
        Ok(transport)
    }

    /// Closes the connections to servers that are not in use any more.
    pub fn keep(&self, is_live: impl Fn(&str) -> bool) {
        self.by_address.lock().retain(|address, _| is_live(address));
    }
}
