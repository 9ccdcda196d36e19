//! Converts messages of the native API to commands and queries, and back.

use bytes::Bytes;

use super::proto;
use crate::command::{Execute, HeldLock, KeyRange, RangeEnd, RangeQuery, Write};
use crate::error::{Error, Result};
use crate::state::{KeyLockInfo, KeyView, Tail};
use crate::watch::{Event, EventKind};

pub fn key_range(range: Option<proto::KeyRange>) -> Result<KeyRange> {
    use proto::key_range::Bound;
    let proto::KeyRange { start, bound } =
        range.ok_or(Error::Malformed("the request has no range"))?;
    Ok(match bound {
        None => {
            return Err(Error::Malformed(
                "the range has no end: set end, single, prefix or unbounded",
            ));
        }
        Some(Bound::End(end)) => KeyRange { start, end: RangeEnd::Before(end) },
        Some(Bound::Single(_)) => KeyRange::single(start),
        Some(Bound::Prefix(_)) => KeyRange::prefix(start),
        Some(Bound::Unbounded(_)) => KeyRange { start, end: RangeEnd::Unbounded },
    })
}

pub fn query(range: KeyRange, revision: i64, keys_only: bool) -> RangeQuery {
    RangeQuery { keys_only, ..RangeQuery::new(range).at(revision) }
}

pub fn key_value(view: KeyView<'_>) -> proto::KeyValue {
    let Tail { create_revision, mod_revision, version, value, lease } = view.fields();
    proto::KeyValue {
        key: Bytes::copy_from_slice(view.key),
        value: Bytes::copy_from_slice(value),
        create_revision,
        mod_revision,
        version,
        client_id: lease,
    }
}

pub fn execute(request: proto::ExecuteRequest) -> Result<Execute> {
    let reads = request.reads.into_iter().map(|range| key_range(Some(range)));
    let write =
        |write: proto::Write| Write { key: write.key, value: write.value, lease: write.client_id };
    let lock = |lock: proto::HeldLock| HeldLock {
        key: lock.key,
        session: lock.client_id,
        token: lock.token,
    };
    Ok(Execute {
        read_revision: request.read_revision,
        reads: reads.collect::<Result<_>>()?,
        writes: request.writes.into_iter().map(write).collect(),
        locks: request.locks.into_iter().map(lock).collect(),
    })
}

pub fn lock(info: &KeyLockInfo) -> proto::Lock {
    let holders = info.holders.iter().map(|holder| proto::Holder {
        client_id: holder.session,
        shared: !holder.exclusive,
        token: holder.token,
    });
    let waiters = info
        .waiters
        .iter()
        .map(|waiter| proto::Waiter { client_id: waiter.session, shared: !waiter.exclusive });
    proto::Lock { holders: holders.collect(), waiters: waiters.collect() }
}

pub fn event(event: &Event, previous: bool) -> Result<proto::Event> {
    use proto::event::Change;
    let change = match event.kind {
        EventKind::Put => Change::Put(key_value(KeyView { key: event.key(), tail: event.tail() })),
        EventKind::Delete => Change::Deleted(true),
        EventKind::Lock => Change::Lock(lock(&KeyLockInfo::parse(event.lock_info())?)),
    };
    let previous = previous && event.kind != EventKind::Lock;
    Ok(proto::Event {
        revision: event.revision,
        key: Bytes::copy_from_slice(event.key()),
        change: Some(change),
        previous_value: if previous { event.prev_value().map(Bytes::from) } else { None },
    })
}
