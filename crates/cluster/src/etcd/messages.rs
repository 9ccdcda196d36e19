//! Transactions and keys as the etcd API has them.

use bytes::Bytes;
use stele_tables::coordinate::{Compare, KeyValue, LeaseId, Op, Transacted, Transaction};

use crate::proto::etcd as proto;
use proto::compare::{CompareResult, CompareTarget, TargetUnion};
use proto::request_op::Request;
use proto::response_op::Response;

/// The prefix of all keys, which callers do not see.
pub(super) struct Namespace {
    prefix: Vec<u8>,
}

/// Returns whether a transaction only reads, so that it may be sent again.
pub(super) fn changes_nothing(transaction: &Transaction) -> bool {
    let mut ops = transaction.then.iter().chain(&transaction.otherwise);
    ops.all(|op| matches!(op, Op::Get(_) | Op::GetAll(_)))
}

impl Namespace {
    pub(super) fn new(prefix: &str) -> Namespace {
        Namespace { prefix: prefix.as_bytes().to_vec() }
    }

    pub(super) fn key(&self, key: &[u8]) -> Bytes {
        [&self.prefix[..], key].concat().into()
    }

    pub(super) fn request(&self, transaction: &Transaction) -> proto::TxnRequest {
        let ops = |ops: &[Op]| ops.iter().map(|op| self.op(op)).collect();
        proto::TxnRequest {
            compare: transaction.when.iter().map(|compare| self.compare(compare)).collect(),
            success: ops(&transaction.then),
            failure: ops(&transaction.otherwise),
        }
    }

    pub(super) fn transacted(&self, response: proto::TxnResponse) -> Transacted {
        let revision = response.header.map_or(0, |header| header.revision);
        let found = response.responses.into_iter().filter_map(|op| match op.response {
            Some(Response::ResponseRange(range)) => Some(range.kvs),
            _ => None,
        });
        let found = found.flatten().map(|kv| self.found(kv)).collect();
        Transacted { applied: response.succeeded, revision, found }
    }

    pub(super) fn found(&self, kv: proto::mvccpb::KeyValue) -> KeyValue {
        KeyValue {
            key: kv.key.get(self.prefix.len()..).unwrap_or_default().to_vec(),
            value: kv.value,
            created: kv.create_revision,
            modified: kv.mod_revision,
            lease: (kv.lease != 0).then_some(LeaseId(kv.lease)),
        }
    }

    fn compare(&self, compare: &Compare) -> proto::Compare {
        let (key, target, union) = match compare {
            Compare::Absent(key) => (key, CompareTarget::Create, TargetUnion::CreateRevision(0)),
            Compare::Created(key, at) => {
                (key, CompareTarget::Create, TargetUnion::CreateRevision(*at))
            }
            Compare::Modified(key, at) => (key, CompareTarget::Mod, TargetUnion::ModRevision(*at)),
        };
        proto::Compare {
            result: CompareResult::Equal as i32,
            target: target as i32,
            key: self.key(key),
            range_end: Bytes::new(),
            target_union: Some(union),
        }
    }

    fn op(&self, op: &Op) -> proto::RequestOp {
        let request = match op {
            Op::Put { key, value, lease } => Request::RequestPut(proto::PutRequest {
                key: self.key(key),
                value: value.clone(),
                lease: lease.map_or(0, |lease| lease.0),
                ..Default::default()
            }),
            Op::Delete(key) => Request::RequestDeleteRange(proto::DeleteRangeRequest {
                key: self.key(key),
                ..Default::default()
            }),
            Op::Get(key) => Request::RequestRange(proto::RangeRequest {
                key: self.key(key),
                ..Default::default()
            }),
            Op::GetAll(prefix) => {
                let key = self.key(prefix);
                let range_end = end_of_prefix(&key);
                Request::RequestRange(proto::RangeRequest { key, range_end, ..Default::default() })
            }
        };
        proto::RequestOp { request: Some(request) }
    }
}

/// Returns the first key after all keys with a prefix, as etcd writes it.
fn end_of_prefix(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end.into();
        }
    }
    // All keys: a zero byte.
    Bytes::from_static(b"\0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_first_key_after_it() {
        assert_eq!(end_of_prefix(b"a/"), "a0");
        assert_eq!(end_of_prefix(b"a\xff\xff"), "b");
        assert_eq!(end_of_prefix(b"\xff"), "\0");
        assert_eq!(end_of_prefix(b""), "\0");
    }

    #[test]
    fn only_transactions_without_changes_are_sent_again() {
        let get = Transaction { then: vec![Op::Get(b"k".to_vec())], ..Transaction::default() };
        assert!(changes_nothing(&get));
        let put = Transaction { otherwise: vec![Op::put(b"k".to_vec(), "v")], ..get };
        assert!(!changes_nothing(&put));
    }

    #[test]
    fn a_prefix_is_added_to_requests_and_removed_from_answers() {
        let namespace = Namespace::new("/p");
        assert_eq!(namespace.key(b"/k"), "/p/k");
        let kv = proto::mvccpb::KeyValue { key: "/p/k".into(), lease: 7, ..Default::default() };
        let found = namespace.found(kv);
        assert_eq!((&found.key[..], found.lease), (&b"/k"[..], Some(LeaseId(7))));
    }
}
