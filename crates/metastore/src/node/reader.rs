//! Reads of the local state. They are linearizable after a
//! [`barrier`](Node::barrier).

use std::sync::Arc;

use super::lifecycle::Node;
use crate::command::{Alarm, Answer, Command, RangeQuery, Txn};
use crate::error::{Error, Result};
use crate::key::{KeyRange, KeyView};
use crate::machine;
use crate::state::{Floor, Hash, KeyLockInfo, MemberState, RangeScan, RangeSummary};

/// Reads ranges of keys, as far back as its floor.
#[derive(Clone, Copy)]
pub struct Reader<'n> {
    state: &'n Arc<MemberState>,
    floor: Floor,
}

impl Reader<'_> {
    /// Passes the keys of a range to `sink`, with the semantics of etcd's
    /// Range. With `keys_only` the tails have no value.
    pub fn range(
        &self,
        query: &RangeQuery,
        sink: &mut impl FnMut(KeyView<'_>),
    ) -> Result<RangeSummary> {
        self.check_readable()?;
        self.state.range(query, self.floor, sink)
    }

    /// Opens a range to be read in batches, so that the caller can limit
    /// memory.
    pub fn open(&self, query: &RangeQuery) -> Result<RangeScan> {
        self.check_readable()?;
        self.state.open_range(query, self.floor)
    }

    fn check_readable(&self) -> Result<()> {
        if self.state.has_alarm(Alarm::Corrupt) { Err(Error::Corrupt) } else { Ok(()) }
    }
}

impl Node {
    /// Returns a reader of ranges: etcd's clients read down to
    /// [`Floor::Compacted`], native ones to [`Floor::Retained`].
    pub fn reader(&self, floor: Floor) -> Reader<'_> {
        Reader { state: &self.shared.state, floor }
    }

    /// Runs a read-only transaction on the local state.
    pub fn read_txn(&self, txn: &Txn) -> Result<Answer> {
        machine::read_txn(&self.shared.state, &self.shared.leases, txn)
    }

    /// Returns an upper bound on the bytes of keys and values that a command
    /// would return if it were applied now.
    pub fn measure(&self, command: &Command) -> Result<usize> {
        machine::measure(&self.shared.state, &self.shared.leases, command)
    }

    /// Waits until a read of the local state is linearizable.
    pub async fn barrier(&self) -> Result<()> {
        self.shared.group.barrier().await
    }

    /// Returns the number of keys in a range at a revision (0: the newest).
    pub fn count(&self, range: &KeyRange, revision: i64) -> Result<i64> {
        let (at, _) = self.shared.state.resolve(revision, Floor::Retained)?;
        self.shared.state.count(range, at)
    }

    /// Returns the revision that was the newest at a time.
    pub fn revision_at(&self, time_micros: i64) -> Result<i64> {
        self.shared.state.revision_at(time_micros)
    }

    /// Returns the holders and waiters of a key's lock.
    pub fn lock(&self, key: &[u8]) -> Result<Option<KeyLockInfo>> {
        self.shared.state.lock_info(key)
    }

    /// Returns a checksum of the keys at a revision (0: the newest).
    pub async fn hash(&self, revision: i64) -> Result<Hash> {
        // One at a time, because each reads all keys.
        let turn = self.shared.hashing.clone().lock_owned().await;
        let (state, work) = (self.shared.state.clone(), self.shared.work.clone());
        offload(move || {
            let hash = state.hash(revision);
            // Drop the state first: closing the node waits for `work` to be
            // dropped.
            drop(state);
            drop((turn, work));
            hash
        })
        .await
    }
}

impl Node {
    /// Runs long work on the state, on a thread that no other call waits for.
    /// Closing the node waits for it.
    pub(crate) async fn with_state<T: Send + 'static>(
        &self,
        work: impl FnOnce(Arc<MemberState>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (state, held) = (self.shared.state.clone(), self.shared.work.clone());
        offload(move || {
            let done = work(state);
            drop(held);
            done
        })
        .await
    }
}

/// Runs long work on a thread that no other call waits for.
pub(super) async fn offload<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    stele_grpc::offload::offload(work).await.map_err(|status| match status.code() {
        tonic::Code::ResourceExhausted => Error::TooManyRequests,
        tonic::Code::Unavailable => Error::Stopped,
        _ => Error::Internal(status.message().to_string()),
    })?
}
