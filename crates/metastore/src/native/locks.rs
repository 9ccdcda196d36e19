//! Sessions and their locks. A session is a lease: a renewal moves a deadline
//! in memory and writes nothing.

use bytes::Bytes;

use super::proto::*;
use super::service::unexpected_answer;
use super::{Native, convert};
use crate::auth::Access;
use crate::command::{Acquire, Command, KeyRange, LockMode, Reply};
use crate::error::{Error, Result};

impl Native {
    pub(super) async fn new_client(&self, request: NewClientRequest) -> Result<NewClientResponse> {
        let answer = self.member().lease_grant(0, request.ttl_seconds).await?;
        let Reply::LeaseGrant { id, ttl_seconds } = answer.reply else {
            return Err(unexpected_answer("a grant"));
        };
        Ok(NewClientResponse { client_id: id, ttl_seconds })
    }

    pub(super) async fn keep_alive(&self, request: KeepAliveRequest) -> Result<KeepAliveResponse> {
        if self.caller.is_some() {
            // Its permissions depend on the keys of the session.
            self.node.barrier().await?;
        }
        self.member().permit(Access::Lease(request.client_id))?;
        let ttl_seconds = self.node.keep_alive(request.client_id).await?;
        let ttl_seconds = ttl_seconds.ok_or(Error::LeaseNotFound)?;
        Ok(KeepAliveResponse { ttl_seconds })
    }

    pub(super) async fn close_client(
        &self,
        request: CloseClientRequest,
    ) -> Result<CloseClientResponse> {
        self.member().lease_revoke(request.client_id).await?;
        Ok(CloseClientResponse {})
    }

    pub(super) async fn get_client(&self, request: GetClientRequest) -> Result<GetClientResponse> {
        let status = self.node.lease_status(request.client_id).await?;
        self.member().permit(Access::LeaseKeys(request.client_id))?;
        let (status, leases) = (status.ok_or(Error::LeaseNotFound)?, self.node.leases());
        Ok(GetClientResponse {
            ttl_seconds: status.ttl_seconds,
            granted_seconds: status.granted_seconds,
            keys: leases.keys(request.client_id)?,
        })
    }

    pub(super) async fn list_clients(&self) -> Result<ListClientsResponse> {
        self.node.barrier().await?;
        self.member().permit(Access::AnyUser)?;
        Ok(ListClientsResponse { client_ids: self.node.leases().list() })
    }

    pub(super) async fn acquire(&self, request: AcquireRequest) -> Result<AcquireResponse> {
        let AcquireRequest { key, client_id: session, shared, no_wait } = request;
        let mode = if shared { LockMode::Shared } else { LockMode::Exclusive };
        // Subscribe first, so that no change is missed.
        let changes = self.node.watch().lock_changes(&key);
        let call = AcquireCall::new(self, key.clone(), session);
        let place = call.place;
        let acquire = Acquire { key: key.clone(), session, mode, no_wait, call_id: place };
        let answer = match self.member().propose(Command::Acquire(acquire)).await {
            Ok(answer) => answer,
            Err(error) => {
                // Refused, or the member has stopped: there is nothing to
                // cancel.
                call.end();
                return Err(error);
            }
        };
        let Reply::Acquire(grant) = answer.reply else {
            return Err(unexpected_answer("an acquisition"));
        };
        if grant.is_some() || no_wait {
            call.end();
            return Ok(AcquireResponse {
                granted: grant.is_some(),
                token: grant.map_or(0, |grant| grant.token),
            });
        }
        loop {
            let changed = changes.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let lock = self.node.lock(&key)?.unwrap_or_default();
            if let Some(grant) = lock.holder(session) {
                call.end();
                return Ok(AcquireResponse { granted: true, token: grant.token });
            }
            if !lock.waits(session, place) {
                call.end();
                let session_exists = self.node.leases().exists(session);
                return Err(if session_exists {
                    Error::LockGivenUp { key }
                } else {
                    Error::LeaseNotFound
                });
            }
            changed.await;
        }
    }

    pub(super) async fn release(&self, request: ReleaseRequest) -> Result<ReleaseResponse> {
        let ReleaseRequest { key, client_id: session } = request;
        self.member().propose(Command::Release { key, session, call_id: 0 }).await?;
        Ok(ReleaseResponse {})
    }

    pub(super) async fn get_lock(&self, request: GetLockRequest) -> Result<GetLockResponse> {
        self.node.barrier().await?;
        self.member().permit(Access::Read(&KeyRange::single(request.key.clone())))?;
        let info = self.node.lock(&request.key)?.unwrap_or_default();
        Ok(GetLockResponse { lock: Some(convert::lock(&info)) })
    }
}

/// A call for a lock, which is cancelled if its caller disconnects before the
/// answer.
struct AcquireCall {
    native: Native,
    key: Bytes,
    session: i64,
    /// Identifies the call among those of its session.
    place: u64,
    /// Whether the call has not been answered.
    pending: bool,
}

impl AcquireCall {
    fn new(native: &Native, key: Bytes, session: i64) -> AcquireCall {
        let place = native.node.settings().world.random.next_u64().max(1);
        AcquireCall { native: native.clone(), key, session, place, pending: true }
    }

    /// Marks the call as answered.
    fn end(mut self) {
        self.pending = false;
    }
}

impl Drop for AcquireCall {
    fn drop(&mut self) {
        if self.pending {
            let (native, key) = (self.native.clone(), self.key.clone());
            let (session, place) = (self.session, self.place);
            tokio::spawn(async move {
                // There is no caller left to report a failure to.
                let release = Command::Release { key, session, call_id: place };
                let _ = native.member().propose(release).await;
            });
        }
    }
}
