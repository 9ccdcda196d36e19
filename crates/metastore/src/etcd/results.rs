//! Memory for the results of writes and transactions. It is reserved before
//! anything is written, from the pool that all large responses share, so that a
//! call is refused while that is still possible. Most calls return only a
//! header and reserve nothing.

use bytes::Bytes;
use stele_grpc::memory::{CallMemory, Share};
use stele_grpc::offload::in_place;

use super::Etcd;
use crate::auth::Access;
use crate::command::{Caller, Command, Delete, KeyRange, Op, Put, Txn};
use crate::machine::RESULT_BYTES_MAX;
use crate::{Error, Result};

/// The number of copies of the results that exist during encoding.
const COPIES: u64 = 2;
/// A call that may return more than one part in this many of the pool is
/// measured first.
const UNMEASURED_PART: u64 = 8;
/// Smaller responses are not accounted.
const FREE_BYTES: u64 = 16 << 10;

/// The memory reserved for the results of one call.
pub struct Reserved(Option<Share>);

/// A response with its memory reservation.
pub struct Charged<T> {
    data: T,
    _share: Share,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Charged<T> {
    fn as_ref(&self) -> &[u8] {
        self.data.as_ref()
    }
}

/// Returns the bytes, which release their share once they are sent.
pub fn charged<T: AsRef<[u8]> + Send + 'static>(data: T, share: Share) -> Bytes {
    Bytes::from_owner(Charged { data, _share: share })
}

/// Reserves memory for the results of a command: its upper bound if that is
/// small relative to the pool and available, otherwise what it would return
/// now.
/// Refuses a caller that may not propose the command.
pub async fn reserve(etcd: &Etcd, caller: Option<&Caller>, command: &Command) -> Result<Reserved> {
    etcd.by(caller).permit(Access::Command(command))?;
    // A value is not larger than the request that put it.
    let value_max = etcd.options().request_bytes_max as u64;
    let bound = COPIES * bytes_max(command, value_max);
    if bound == 0 {
        return Ok(Reserved(None));
    }
    let pool = CallMemory::current().responses();
    if bound <= pool.limit() / UNMEASURED_PART
        && let Some(share) = pool.try_take(bound)
    {
        return Ok(Reserved(Some(share)));
    }
    let bytes = COPIES * in_place(|| etcd.node().measure(command))? as u64;
    if bytes <= FREE_BYTES {
        return Ok(Reserved(None));
    }
    let share = pool.take(bytes).await.map_err(|_| Error::TooManyRequests)?;
    Ok(Reserved(Some(share)))
}

impl Reserved {
    /// Adjusts the reservation to the size of the actual response.
    pub fn charge(self, response: Bytes) -> Bytes {
        let bytes = response.len() as u64;
        if bytes <= FREE_BYTES {
            return response;
        }
        let unreserved = || CallMemory::current().responses().take_now(0);
        let mut share = self.0.unwrap_or_else(unreserved);
        match share.bytes() < bytes {
            true => share.grow_now(bytes - share.bytes()),
            false => share.shrink(share.bytes() - bytes),
        }
        charged(response, share)
    }
}

/// Returns an upper bound or estimate of the bytes of keys and values that a
/// command returns.
fn bytes_max(command: &Command, value_max: u64) -> u64 {
    match command {
        Command::Put(put) => put_bytes_max(put, value_max),
        Command::Delete(delete) => delete_bytes_max(delete, value_max),
        Command::Txn(txn) => txn_bytes_max(txn, value_max),
        _ => 0,
    }
}

fn put_bytes_max(put: &Put, value_max: u64) -> u64 {
    if put.prev_kv { value_max } else { 0 }
}

fn delete_bytes_max(delete: &Delete, value_max: u64) -> u64 {
    if delete.prev_kv { range_bytes_max(&delete.range, 0, value_max) } else { 0 }
}

fn range_bytes_max(range: &KeyRange, limit: i64, value_max: u64) -> u64 {
    let keys = if range.single_key().is_some() { 1 } else { u64::try_from(limit).unwrap_or(0) };
    match keys {
        0 => RESULT_BYTES_MAX as u64,
        keys => keys.saturating_mul(value_max).min(RESULT_BYTES_MAX as u64),
    }
}

fn txn_bytes_max(txn: &Txn, value_max: u64) -> u64 {
    let branch = |ops: &[Op]| {
        let bytes = ops.iter().map(|op| match op {
            Op::Range(query) if query.count_only => 0,
            Op::Range(query) => range_bytes_max(&query.range, query.limit, value_max),
            Op::Put(put) => put_bytes_max(put, value_max),
            Op::Delete(delete) => delete_bytes_max(delete, value_max),
            Op::Txn(txn) => txn_bytes_max(txn, value_max),
        });
        bytes.fold(0, u64::saturating_add).min(RESULT_BYTES_MAX as u64)
    };
    branch(&txn.success).max(branch(&txn.failure))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::time::Duration;

    use prost::Message;
    use stele_engine::world::World;
    use stele_grpc::frame;
    use stele_grpc::memory::CallPools;

    use super::super::{Options, kv, proto};
    use super::*;
    use crate::{Node, node};

    const LARGE: usize = 600 << 10;

    /// Runs a call whose memory is accounted.
    async fn counted<T>(pools: &'static CallPools, call: impl Future<Output = T>) -> T {
        let mut memory = CallMemory::new(pools);
        let mut call = pin!(call);
        std::future::poll_fn(move |context| memory.within(|| call.as_mut().poll(context))).await
    }

    async fn opened(dir: &std::path::Path) -> Etcd {
        let settings = node::NodeSettings::new(dir.to_path_buf(), World::real());
        let node = Node::open(node::NodeSettings { sync: false, ..settings }).await.unwrap();
        Etcd::new(Arc::new(node), Options::default())
    }

    fn put(key: &'static str, bytes: usize, prev_kv: bool) -> Bytes {
        let value = vec![7; bytes].into();
        let put = proto::PutRequest { key: key.into(), value, prev_kv, ..Default::default() };
        put.encode_to_vec().into()
    }

    fn delete(key: &'static str) -> Bytes {
        let delete =
            proto::DeleteRangeRequest { key: key.into(), prev_kv: true, ..Default::default() };
        delete.encode_to_vec().into()
    }

    fn read(key: &'static str) -> Bytes {
        let range = proto::RangeRequest { key: key.into(), ..Default::default() };
        let request = Some(proto::request_op::Request::RequestRange(range));
        let success = vec![proto::RequestOp { request }];
        proto::TxnRequest { success, ..Default::default() }.encode_to_vec().into()
    }

    #[tokio::test]
    async fn what_writes_and_transactions_return_is_charged_until_it_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let etcd = opened(dir.path()).await;
        kv::put(&etcd, None, put("large", LARGE, false)).await.unwrap();
        kv::put(&etcd, None, put("small", 10, false)).await.unwrap();
        let pools: &'static CallPools =
            Box::leak(Box::new(CallPools::new(1 << 20, 4 << 20, Duration::ZERO)));
        let pool = pools.buffered_responses();
        let answers = [
            counted(pools, kv::put(&etcd, None, put("large", LARGE, true))).await.unwrap(),
            counted(pools, kv::txn(&etcd, None, read("large"))).await.unwrap(),
            counted(pools, kv::put(&etcd, None, put("small", 10, true))).await.unwrap(),
        ];
        let bytes = (answers[0].len() + answers[1].len()) as u64;
        assert_eq!((pool.used(), bytes > 2 * LARGE as u64), (bytes, true));
        // There is no memory for a third of this size, and nothing has been
        // changed.
        let refused =
            counted(pools, kv::delete_range(&etcd, None, delete("large"))).await.unwrap_err();
        assert!(matches!(refused, Error::TooManyRequests), "{refused}");
        counted(pools, kv::txn(&etcd, None, read("small"))).await.expect("little is not counted");
        drop(answers);
        assert_eq!(pool.used(), 0);
        let deleted = counted(pools, kv::delete_range(&etcd, None, delete("large"))).await.unwrap();
        let deleted = proto::DeleteRangeResponse::decode(&deleted[frame::PREFIX_BYTES..]).unwrap();
        assert_eq!((deleted.deleted, deleted.prev_kvs[0].value.len()), (1, LARGE));
    }
}
