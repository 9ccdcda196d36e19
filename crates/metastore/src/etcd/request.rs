//! Converts requests from wire format to queries and commands. Refuses what
//! those cannot express (an option together with the value that it excludes, an
//! unknown order), in the order of etcd's checks.

use super::proto;
use super::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::range_request::{SortOrder, SortTarget};
use super::proto::request_op::Request;
use crate::command::{
    Compare, Delete, KeyRange, Op, Operand, Order, Put, RangeQuery, Relation, Target, Txn,
    check_txn,
};
use crate::{Error, Result};

/// The default maximum number of operations in a transaction: of compares, and
/// of each branch. A nested transaction may use what its parent leaves.
pub const TXN_OPS_MAX: usize = 128;

pub fn range(request: proto::RangeRequest) -> Result<RangeQuery> {
    check_key(&request.key)?;
    let order = match SortOrder::try_from(request.sort_order) {
        Ok(SortOrder::None) => Order::None,
        Ok(SortOrder::Ascend) => Order::Ascend,
        Ok(SortOrder::Descend) => Order::Descend,
        Err(_) => return Err(Error::InvalidSort),
    };
    let target = match SortTarget::try_from(request.sort_target) {
        Ok(SortTarget::Key) => Target::Key,
        Ok(SortTarget::Version) => Target::Version,
        Ok(SortTarget::Create) => Target::Create,
        Ok(SortTarget::Mod) => Target::Mod,
        Ok(SortTarget::Value) => Target::Value,
        Err(_) => return Err(Error::InvalidSort),
    };
    Ok(RangeQuery {
        range: KeyRange::from_wire(request.key, request.range_end),
        revision: request.revision,
        limit: request.limit,
        order,
        target,
        keys_only: request.keys_only,
        count_only: request.count_only,
        mod_min: request.min_mod_revision,
        mod_max: request.max_mod_revision,
        create_min: request.min_create_revision,
        create_max: request.max_create_revision,
    })
}

pub fn put(request: proto::PutRequest) -> Result<Put> {
    check_key(&request.key)?;
    if request.ignore_value && !request.value.is_empty() {
        return Err(Error::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Error::LeaseProvided);
    }
    Ok(Put {
        key: request.key,
        value: (!request.ignore_value).then_some(request.value),
        lease: (!request.ignore_lease).then_some(request.lease),
        prev_kv: request.prev_kv,
    })
}

pub fn delete_range(request: proto::DeleteRangeRequest) -> Result<Delete> {
    check_key(&request.key)?;
    let range = KeyRange::from_wire(request.key, request.range_end);
    Ok(Delete { range, prev_kv: request.prev_kv })
}

pub fn txn(request: proto::TxnRequest, ops_max: usize) -> Result<Txn> {
    let txn = tree(request)?;
    check_txn(&txn, ops_max)?;
    Ok(txn)
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() { Err(Error::EmptyKey) } else { Ok(()) }
}

/// Converts a transaction with its nested ones; prost limits their depth.
fn tree(request: proto::TxnRequest) -> Result<Txn> {
    let branch = |ops: Vec<proto::RequestOp>| ops.into_iter().map(op).collect::<Result<Vec<_>>>();
    Ok(Txn {
        compares: request.compare.into_iter().map(compare).collect(),
        success: branch(request.success)?,
        failure: branch(request.failure)?,
    })
}

fn op(request: proto::RequestOp) -> Result<Op> {
    match request.request {
        Some(Request::RequestRange(request)) => Ok(Op::Range(range(request)?)),
        Some(Request::RequestPut(request)) => Ok(Op::Put(put(request)?)),
        Some(Request::RequestDeleteRange(request)) => Ok(Op::Delete(delete_range(request)?)),
        Some(Request::RequestTxn(request)) => Ok(Op::Txn(tree(request)?)),
        // A client of a later protocol, or a broken one.
        None => Err(Error::KeyNotFound),
    }
}

/// Converts a compare. A given value of a different type than the compared
/// field counts as zero.
fn compare(request: proto::Compare) -> Compare {
    let relation = match CompareResult::try_from(request.result) {
        Ok(CompareResult::Equal) => Relation::Equal,
        Ok(CompareResult::Greater) => Relation::Greater,
        Ok(CompareResult::Less) => Relation::Less,
        Ok(CompareResult::NotEqual) => Relation::NotEqual,
        Err(_) => Relation::Any,
    };
    let given = request.target_union;
    let operand = match CompareTarget::try_from(request.target) {
        Ok(CompareTarget::Version) => Operand::Version(match given {
            Some(TargetUnion::Version(version)) => version,
            _ => 0,
        }),
        Ok(CompareTarget::Create) => Operand::Create(match given {
            Some(TargetUnion::CreateRevision(revision)) => revision,
            _ => 0,
        }),
        Ok(CompareTarget::Mod) => Operand::Mod(match given {
            Some(TargetUnion::ModRevision(revision)) => revision,
            _ => 0,
        }),
        Ok(CompareTarget::Value) => Operand::Value(match given {
            Some(TargetUnion::Value(value)) => value,
            _ => bytes::Bytes::new(),
        }),
        Ok(CompareTarget::Lease) => Operand::Lease(match given {
            Some(TargetUnion::Lease(lease)) => lease,
            _ => 0,
        }),
        Err(_) => Operand::Unknown,
    };
    let range = KeyRange::from_wire(request.key, request.range_end);
    Compare { range, relation, operand }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal<T>(result: Result<T>) -> String {
        result.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn an_option_excludes_what_it_says_to_ignore() {
        let request = proto::PutRequest {
            key: "k".into(),
            value: "v".into(),
            lease: 1,
            ignore_value: true,
            ignore_lease: true,
            ..Default::default()
        };
        let empty = proto::PutRequest { key: "".into(), ..request.clone() };
        assert_eq!(refusal(put(empty)), "etcdserver: key is not provided");
        assert_eq!(refusal(put(request.clone())), "etcdserver: value is provided");
        let request = proto::PutRequest { value: "".into(), ..request };
        assert_eq!(refusal(put(request.clone())), "etcdserver: lease is provided");
        let kept = put(proto::PutRequest { lease: 0, ..request }).unwrap();
        assert_eq!((kept.value, kept.lease), (None, None));
    }

    #[test]
    fn an_unknown_order_and_an_empty_operation_are_refused() {
        let sorted = proto::RangeRequest { key: "k".into(), sort_order: 3, ..Default::default() };
        assert_eq!(refusal(range(sorted.clone())), "etcdserver: invalid sort option");
        let sorted = proto::RangeRequest { sort_order: 2, sort_target: 5, ..sorted };
        assert_eq!(refusal(range(sorted)), "etcdserver: invalid sort option");
        let nothing = vec![proto::RequestOp { request: None }];
        let request = proto::TxnRequest { success: nothing, ..Default::default() };
        assert_eq!(refusal(txn(request, TXN_OPS_MAX)), "etcdserver: key not found");
    }

    #[test]
    fn a_compare_with_a_value_of_another_kind_is_one_with_zero() {
        let request = proto::Compare {
            key: "k".into(),
            target: CompareTarget::Mod.into(),
            target_union: Some(TargetUnion::Version(7)),
            ..Default::default()
        };
        assert_eq!(compare(request.clone()).operand, Operand::Mod(0));
        let later = compare(proto::Compare { result: 9, target: 9, ..request });
        assert_eq!((later.relation, later.operand), (Relation::Any, Operand::Unknown));
    }
}
