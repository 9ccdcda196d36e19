//! Changes of keys: Put, DeleteRange, Txn, Compact.

use bytes::Bytes;

use super::{Etcd, decode, proto, request, response};
use crate::command::{Answer, Command, Reply};
use crate::{Error, Result};

/// The largest request that is proposed.
const REQUEST_BYTES_MAX: usize = 1536 << 10;

fn check_size(message: &Bytes) -> Result<()> {
    if message.len() > REQUEST_BYTES_MAX { Err(Error::RequestTooLarge) } else { Ok(()) }
}

pub async fn put(etcd: &Etcd, message: Bytes) -> Result<Bytes> {
    check_size(&message)?;
    let put = request::put(decode(message)?)?;
    etcd.counters().puts.add(1);
    match etcd.node().propose(Command::Put(put)).await? {
        Answer { revision, reply: Reply::Put(answer) } => {
            Ok(response::put(etcd.header(revision), &answer))
        }
        other => Err(unexpected(&other)),
    }
}

pub async fn delete_range(etcd: &Etcd, message: Bytes) -> Result<Bytes> {
    check_size(&message)?;
    let delete = request::delete_range(decode(message)?)?;
    etcd.counters().deletes.add(1);
    match etcd.node().propose(Command::Delete(delete)).await? {
        Answer { revision, reply: Reply::Delete(answer) } => {
            Ok(response::delete_range(etcd.header(revision), &answer))
        }
        other => Err(unexpected(&other)),
    }
}

pub async fn txn(etcd: &Etcd, message: Bytes) -> Result<Bytes> {
    check_size(&message)?;
    let request: proto::TxnRequest = decode(message)?;
    let serializable = is_serializable(&request);
    let txn = request::txn(request)?;
    etcd.counters().txns.add(1);
    let answered = if txn.is_read_only() {
        if !serializable {
            etcd.node().barrier().await?;
        }
        // Ranges of any size are read.
        stele_grpc::offload::in_place(|| etcd.node().read_txn(&txn))?
    } else {
        etcd.node().propose(Command::Txn(txn)).await?
    };
    match answered {
        Answer { revision, reply: Reply::Txn(answer) } => {
            Ok(response::txn(etcd.header(revision), &answer))
        }
        other => Err(unexpected(&other)),
    }
}

/// Whether all that is read may be stale.
fn is_serializable(request: &proto::TxnRequest) -> bool {
    use proto::request_op::Request;
    request.success.iter().chain(&request.failure).all(|op| match &op.request {
        Some(Request::RequestRange(range)) => range.serializable,
        Some(Request::RequestTxn(txn)) => is_serializable(txn),
        _ => false,
    })
}

pub async fn compact(etcd: &Etcd, request: proto::CompactionRequest) -> Result<Bytes> {
    let answer = etcd.node().compact(request.revision, request.physical).await?;
    Ok(response::header_only(etcd.header(answer.revision)))
}

/// An answer of another kind than what was proposed.
pub fn unexpected(answer: &Answer) -> Error {
    Error::Internal(format!("a proposal was answered with {:?}", answer.reply))
}
