//! Sessions, and the locks that they hold. A session is a lease: a renewal
//! moves a deadline in memory and writes nothing.

use std::sync::Arc;

use bytes::Bytes;

use super::proto::*;
use super::service::unlike;
use super::{Native, convert};
use crate::Node;
use crate::command::{Command, LockMode, Reply};
use crate::error::{Error, Result};
use crate::state::KeyLockInfo;
use crate::watch::EventKind;

impl Native {
    pub(super) async fn new_client(&self, request: NewClientRequest) -> Result<NewClientResponse> {
        let answer = self.node.lease_grant(0, request.ttl_seconds).await?;
        let Reply::LeaseGrant { id, ttl_seconds } = answer.reply else {
            return Err(unlike("a grant"));
        };
        Ok(NewClientResponse { client_id: id, ttl_seconds })
    }

    pub(super) async fn keep_alive(&self, request: KeepAliveRequest) -> Result<KeepAliveResponse> {
        self.node.barrier().await?;
        let ttl_seconds = self.node.leases().keep_alive(request.client_id);
        let ttl_seconds = ttl_seconds.ok_or(Error::LeaseNotFound)?;
        Ok(KeepAliveResponse { ttl_seconds })
    }

    pub(super) async fn close_client(
        &self,
        request: CloseClientRequest,
    ) -> Result<CloseClientResponse> {
        self.node.propose(Command::LeaseRevoke { id: request.client_id }).await?;
        Ok(CloseClientResponse {})
    }

    pub(super) async fn get_client(&self, request: GetClientRequest) -> Result<GetClientResponse> {
        self.node.barrier().await?;
        let leases = self.node.leases();
        let status = leases.time_to_live(request.client_id).ok_or(Error::LeaseNotFound)?;
        Ok(GetClientResponse {
            ttl_seconds: status.ttl_seconds,
            granted_seconds: status.granted_seconds,
            keys: leases.keys(request.client_id)?,
        })
    }

    pub(super) async fn list_clients(&self) -> Result<ListClientsResponse> {
        self.node.barrier().await?;
        Ok(ListClientsResponse { client_ids: self.node.leases().list() })
    }

    pub(super) async fn acquire(&self, request: AcquireRequest) -> Result<AcquireResponse> {
        let AcquireRequest { key, client_id: session, shared, no_wait } = request;
        let mode = if shared { LockMode::Shared } else { LockMode::Exclusive };
        // Opened first, so that the grant cannot be missed.
        let hub = self.node.watch();
        let mut cursor = hub.cursor_retained(hub.revision() + 1);
        let acquire = Command::Acquire { key: key.clone(), session, mode };
        let answer = self.node.propose(acquire).await?;
        let Reply::Acquire(grant) = answer.reply else { return Err(unlike("an acquisition")) };
        if let Some(grant) = grant {
            return Ok(AcquireResponse { granted: true, token: grant.token });
        }
        let place = Place { node: self.node.clone(), key: key.clone(), session, waits: true };
        if no_wait {
            return place.leave().await;
        }
        loop {
            cursor.changed().await;
            let mut events = Vec::new();
            cursor.take(i64::MAX, &mut |changed| key == changed, &mut events)?;
            let Some(last) = events.iter().rfind(|event| event.kind == EventKind::Lock) else {
                continue;
            };
            let lock = KeyLockInfo::parse(last.lock_info())?;
            if let Some(grant) = lock.holder(session) {
                return Ok(place.granted(grant.token));
            }
            if lock.waiter(session).is_none() {
                return Err(Error::LeaseNotFound);
            }
        }
    }

    pub(super) async fn release(&self, request: ReleaseRequest) -> Result<ReleaseResponse> {
        let ReleaseRequest { key, client_id: session } = request;
        self.node.propose(Command::Release { key, session }).await?;
        Ok(ReleaseResponse {})
    }

    pub(super) async fn get_lock(&self, request: GetLockRequest) -> Result<GetLockResponse> {
        self.node.barrier().await?;
        let info = self.node.lock(&request.key)?.unwrap_or_default();
        Ok(GetLockResponse { lock: Some(convert::lock(&info)) })
    }
}

/// A place in the queue of a lock, given up when its caller goes away.
struct Place {
    node: Arc<Node>,
    key: Bytes,
    session: i64,
    waits: bool,
}

impl Place {
    fn granted(mut self, token: i64) -> AcquireResponse {
        self.waits = false;
        AcquireResponse { granted: true, token }
    }

    async fn leave(mut self) -> Result<AcquireResponse> {
        self.waits = false;
        let (key, session) = (self.key.clone(), self.session);
        self.node.propose(Command::Release { key, session }).await?;
        Ok(AcquireResponse { granted: false, token: 0 })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.waits {
            let (node, key, session) = (self.node.clone(), self.key.clone(), self.session);
            tokio::spawn(async move {
                // Nobody is there to be told that it did not hold it.
                let _ = node.propose(Command::Release { key, session }).await;
            });
        }
    }
}
