//! The servers of a coordinator. One is in use; when it fails, the next one is.

use std::sync::atomic::{AtomicUsize, Ordering};

use stele_grpc::{Tls, Transport, endpoint};

use super::InvalidAddress;

pub(super) struct Endpoints {
    transports: Vec<Transport>,
    /// Counts failures; its remainder is the server in use.
    current: AtomicUsize,
}

impl Endpoints {
    /// Returns servers to which connections are opened when they are needed, again after
    /// each loss.
    pub(super) fn connect(addresses: &[String], tls: &Tls) -> Result<Endpoints, InvalidAddress> {
        let lazily = |address: &String| {
            let endpoint = endpoint(address, tls).map_err(InvalidAddress)?;
            Ok(Transport::Channel(endpoint.connect_lazy()))
        };
        let transports = addresses.iter().map(lazily).collect::<Result<Vec<_>, _>>()?;
        if transports.is_empty() {
            return Err(InvalidAddress("the coordinator has no address".into()));
        }
        Ok(Endpoints { transports, current: AtomicUsize::new(0) })
    }

    pub(super) fn one(transport: Transport) -> Endpoints {
        Endpoints { transports: vec![transport], current: AtomicUsize::new(0) }
    }

    pub(super) fn len(&self) -> usize {
        self.transports.len()
    }

    /// Returns the server in use, with the number by which [`Endpoints::failed`] knows it.
    pub(super) fn current(&self) -> (usize, Transport) {
        let number = self.current.load(Ordering::Relaxed);
        (number, self.transports[number % self.transports.len()].clone())
    }

    /// Uses the next server. Several requests that failed with the same one count once.
    pub(super) fn failed(&self, number: usize) {
        let next = number.wrapping_add(1);
        let _ = self.current.compare_exchange(number, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}
