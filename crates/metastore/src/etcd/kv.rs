//! The methods that change keys: Put, DeleteRange, Txn, Compact.

use bytes::Bytes;

use super::api::decode;
use super::results::reserve;
use super::{Etcd, proto, request, response};
use crate::auth::Access;
use crate::command::{Answer, Caller, Command, Reply, Txn};
use crate::{Error, Result};

fn check_size(etcd: &Etcd, message: &Bytes) -> Result<()> {
    let limit = etcd.options().request_bytes_max;
    if message.len() > limit { Err(Error::RequestTooLarge) } else { Ok(()) }
}

pub async fn put(etcd: &Etcd, caller: Option<&Caller>, message: Bytes) -> Result<Bytes> {
    check_size(etcd, &message)?;
    let put = request::put(decode(message)?)?;
    etcd.counters().puts.add(1);
    let command = Command::Put(put);
    let reserved = reserve(etcd, caller, &command).await?;
    match etcd.by(caller).propose(command).await? {
        Answer { revision, reply: Reply::Put(answer) } => {
            Ok(reserved.charge(response::put(etcd.header(revision), &answer)))
        }
        other => Err(unexpected(&other)),
    }
}

pub async fn delete_range(etcd: &Etcd, caller: Option<&Caller>, message: Bytes) -> Result<Bytes> {
    check_size(etcd, &message)?;
    let delete = request::delete_range(decode(message)?)?;
    etcd.counters().deletes.add(1);
    let command = Command::Delete(delete);
    let reserved = reserve(etcd, caller, &command).await?;
    match etcd.by(caller).propose(command).await? {
        Answer { revision, reply: Reply::Delete(answer) } => {
            Ok(reserved.charge(response::delete_range(etcd.header(revision), &answer)))
        }
        other => Err(unexpected(&other)),
    }
}

pub async fn txn(etcd: &Etcd, caller: Option<&Caller>, message: Bytes) -> Result<Bytes> {
    check_size(etcd, &message)?;
    let request: proto::TxnRequest = decode(message)?;
    let serializable = is_serializable(&request);
    let txn = request::txn(request, etcd.options().txn_ops_max)?;
    etcd.counters().txns.add(1);
    let command = Command::Txn(txn);
    let reserved = reserve(etcd, caller, &command).await?;
    let answered = match &command {
        Command::Txn(txn) if txn.is_read_only() => {
            if !serializable {
                etcd.node().barrier().await?;
            }
            etcd.by(caller).permit(Access::Txn(txn))?;
            read_txn(etcd, txn)?
        }
        _ => etcd.by(caller).propose(command).await?,
    };
    match answered {
        Answer { revision, reply: Reply::Txn(answer) } => {
            Ok(reserved.charge(response::txn(etcd.header(revision), &answer)))
        }
        other => Err(unexpected(&other)),
    }
}

/// Runs a read-only transaction. One that reads ranges, which may be of any
/// size, does not block other calls.
fn read_txn(etcd: &Etcd, txn: &Txn) -> Result<Answer> {
    match txn.reads_ranges() {
        true => stele_grpc::offload::in_place(|| etcd.node().read_txn(txn)),
        false => etcd.node().read_txn(txn),
    }
}

/// Returns whether all reads may be stale.
fn is_serializable(request: &proto::TxnRequest) -> bool {
    use proto::request_op::Request;
    request.success.iter().chain(&request.failure).all(|op| match &op.request {
        Some(Request::RequestRange(range)) => range.serializable,
        Some(Request::RequestTxn(txn)) => is_serializable(txn),
        _ => false,
    })
}

pub async fn compact(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: proto::CompactionRequest,
) -> Result<Bytes> {
    let answer = etcd.by(caller).compact(request.revision, request.physical).await?;
    Ok(response::header_only(etcd.header(answer.revision)))
}

/// Returns the error for an answer that does not match the proposal.
pub fn unexpected(answer: &Answer) -> Error {
    Error::Internal(format!("unexpected answer to a proposal: {:?}", answer.reply))
}
