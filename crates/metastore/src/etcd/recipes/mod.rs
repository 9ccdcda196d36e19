//! The Lock and Election services: recipes of keys, leases and watches, which
//! clients can also follow by themselves and rely on. `queue` orders the keys
//! under a name by their creation; the oldest one holds the `lock`, or leads
//! (`election`).

mod election;
mod lock;
mod queue;

use bytes::Bytes;
use tonic::{Code, Status};

pub use election::{campaign, leader, observe, proclaim, resign};
pub use lock::{lock, unlock};

/// Returns the status of an answer. In etcd these services are clients of the
/// others and keep only the text of a refusal, so its code is UNKNOWN. Failures
/// keep their codes, by which clients decide to retry.
pub fn answered(answer: crate::Result<Bytes>) -> Result<Bytes, Status> {
    answer.map_err(|error| {
        let status = Status::from(error);
        match status.code() {
            Code::InvalidArgument
            | Code::NotFound
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unauthenticated => Status::unknown(status.message()),
            _ => status,
        }
    })
}
