//! The Lock service.

use bytes::Bytes;
use stele_grpc::frame;

use super::queue::{self, Leaving};
use crate::command::{Caller, Command, Delete, KeyRange};
use crate::etcd::proto::v3lockpb::{LockRequest, LockResponse, UnlockRequest};
use crate::etcd::{Etcd, response};
use crate::{Error, Result};

/// Waits until the caller holds the lock.
pub async fn lock(etcd: &Etcd, caller: Option<&Caller>, request: LockRequest) -> Result<Bytes> {
    let LockRequest { name, lease } = request;
    let place = queue::join(etcd, caller, &name, lease, Bytes::new()).await?;
    let leaving = Leaving::new(etcd, caller, &place);
    let mut revision = place.revision;
    if queue::wait(etcd, caller, &name, &place).await? {
        let (kv, now) = queue::get(etcd, caller, &place.key).await?;
        if kv.is_none() {
            return Err(Error::Recipe("mutex: session is expired"));
        }
        revision = now;
    }
    leaving.stay();
    let header = Some(etcd.header(revision).message());
    Ok(frame::encode(&LockResponse { header, key: place.key }))
}

/// Deletes the key of a lock, or any other key.
pub async fn unlock(etcd: &Etcd, caller: Option<&Caller>, request: UnlockRequest) -> Result<Bytes> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    let delete = Delete::new(KeyRange::single(request.key));
    let answer = etcd.by(caller).propose(Command::Delete(delete)).await?;
    Ok(response::header_only(etcd.header(answer.revision)))
}
