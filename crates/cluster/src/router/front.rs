//! The front of a server: places rows, and sends calls to their owners.

use std::sync::Arc;

use bytes::Bytes;
use stele_engine::TableId;
use stele_grpc::{Services, Transport, chain};
use stele_tables::coordinate::Unreachable;
use stele_tables::rows::Holder;
use tonic::body::Body;
use tonic::{ConnectError, Status};
use tower_service::Service;

use super::call::Call;
use crate::directory::Directory;
use crate::peers::Peers;
use crate::routes::{Routes, Serving};
use crate::secret::ClusterSecret;

/// Refuses calls that name a resource which the caller may not access.
pub type Access = fn(&http::Extensions, &str) -> Result<(), Status>;

/// What a front is made of.
pub struct FrontParts {
    /// The data services of this process.
    pub local: Services,
    /// This server, as rows name it.
    pub me: Holder,
    pub directory: Arc<Directory>,
    pub routes: Routes,
    pub peers: Peers,
    pub secret: ClusterSecret,
    pub access: Access,
}

/// The front of a server.
pub struct Front(FrontParts);

/// Why a call has no answer.
pub enum NoAnswer {
    /// It was not sent, so it was not applied.
    NotSent(Status),
    /// Its outcome is unknown.
    Lost(Status),
}

impl Front {
    pub fn new(parts: FrontParts) -> Front {
        Front(parts)
    }

    pub fn routes(&self) -> &Routes {
        &self.0.routes
    }

    pub fn peers(&self) -> &Peers {
        &self.0.peers
    }

    /// Returns the table that a request names, if its rows can be routed: the caller may
    /// access it and it exists. Otherwise this process finds out what is wrong.
    pub async fn table(&self, call: &Call, name: &[u8]) -> Result<Option<TableId>, Status> {
        let Ok(name) = std::str::from_utf8(name) else { return Ok(None) };
        if (self.0.access)(call.extensions(), name).is_err() {
            return Ok(None);
        }
        if let Some(table) = self.0.directory.known(name) {
            return Ok(Some(table));
        }
        self.0.directory.find(name).await.map_err(|error| unreachable(&error))
    }

    /// Lets this process answer.
    pub async fn here(&self, call: &Call, frame: Bytes) -> http::Response<Body> {
        match self.0.local.call(call.to_here(frame)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Sends a call to a server.
    pub async fn send(
        &self,
        to: &Serving,
        call: &Call,
        frame: Bytes,
    ) -> Result<http::Response<Body>, NoAnswer> {
        if to.holder == self.0.me {
            return Ok(self.here(call, frame).await);
        }
        let mut transport = match self.0.peers.transport(&to.address) {
            Ok(transport) => transport,
            Err(status) => return Err(NoAnswer::NotSent(status)),
        };
        let request = call.to_peer(frame, &self.0.secret);
        let ready = std::future::poll_fn(|cx| transport.poll_ready(cx));
        if let Err(error) = ready.await {
            return Err(NoAnswer::NotSent(not_reached(to, &*error)));
        }
        let answered = Transport::call(&mut transport, request).await;
        answered.map_err(|error| match is_connect_error(&*error) {
            true => NoAnswer::NotSent(not_reached(to, &*error)),
            false => NoAnswer::Lost(lost(to, &chain(&*error))),
        })
    }
}

/// The status of a call whose answer was lost.
pub fn lost(to: &Serving, why: &str) -> Status {
    Status::unavailable(format!(
        "the answer of server {} at {} was lost ({why}): the call may have been applied",
        to.holder.id, to.address
    ))
}

/// The status of a call that could not be placed.
pub fn unreachable(error: &Unreachable) -> Status {
    Status::unavailable(error.to_string())
}

fn not_reached(to: &Serving, error: &(dyn std::error::Error + 'static)) -> Status {
    let (id, address) = (&to.holder.id, &to.address);
    Status::unavailable(format!("cannot reach server {id} at {address}: {}", chain(error)))
}

fn is_connect_error(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<ConnectError>() {
            return true;
        }
        next = error.source();
    }
    false
}
