//! Encodes proposals for the log. `docs/metastore.md` specifies the format;
//! `decoding` reads it.

use bytes::{BufMut, Bytes};
use prost::encoding::encode_varint;

use super::range::RangeQuery;
use super::txn::{Delete, Execute, Op, Operand, Put, Txn};
use super::{
    Acquire, AlarmAction, AuthCommand, Caller, Command, Restore, RestoreHistory, RestoredVersion,
};
use crate::key::{KeyRange, RangeEnd};

/// The version of new proposals. A proposal is applied by the rules of its
/// version, so that a log yields the same state in every later version.
pub const VERSION: u8 = 2;
/// From this version on, the results of a proposal and the deletions of an
/// expiry are bounded, and each call that acquires a lock has an id.
pub const VERSION_OF_LIMITS: u8 = 2;

pub(super) const PUT: u8 = 1;
pub(super) const DELETE: u8 = 2;
pub(super) const TXN: u8 = 3;
pub(super) const COMPACT: u8 = 4;
pub(super) const LEASE_GRANT: u8 = 5;
pub(super) const LEASE_REVOKE: u8 = 6;
pub(super) const EXPIRE: u8 = 7;
pub(super) const ALARM_ON: u8 = 8;
pub(super) const ALARM_OFF: u8 = 9;
pub(super) const EXECUTE: u8 = 10;
pub(super) const ACQUIRE: u8 = 11;
pub(super) const RELEASE: u8 = 12;
pub(super) const SAMPLE: u8 = 13;
pub(super) const WATERLINE: u8 = 14;
pub(super) const RANGE: u8 = 15;
pub(super) const RESTORE: u8 = 16;
pub(super) const AUTH: u8 = 17;
/// Precedes the tag of a command that has a caller.
pub(super) const CALLER: u8 = 18;

/// Added to the kind of an alarm that an operator raised.
pub(super) const BY_HAND: u8 = 2;
pub(super) const RAISE_LEVEL: u8 = 32;
pub(super) const SET_QUOTA: u8 = 33;
pub(super) const RESTORE_HISTORY: u8 = 34;
pub(super) const LEASE_DEADLINES: u8 = 35;

/// Encodes a command as a proposal.
pub fn encode(command: &Command, time_micros: i64) -> Bytes {
    encode_as(None, command, time_micros)
}

/// Encodes a command of a caller as a proposal.
pub fn encode_as(caller: Option<&Caller>, command: &Command, time_micros: i64) -> Bytes {
    let mut out = Vec::with_capacity(256);
    out.push(VERSION);
    out.put_i64_le(time_micros);
    if let Some(Caller { user, auth_revision }) = caller {
        tagged(&mut out, CALLER, *auth_revision as i64);
        bytes(&mut out, user.as_bytes());
    }
    match command {
        Command::Put(put) => op_put(&mut out, put),
        Command::Delete(delete) => op_delete(&mut out, delete),
        Command::Txn(txn) => {
            out.push(TXN);
            push_txn(&mut out, txn);
        }
        Command::Compact { revision } => tagged(&mut out, COMPACT, *revision),
        Command::LeaseGrant { id, ttl_seconds } => {
            tagged(&mut out, LEASE_GRANT, *id);
            number(&mut out, *ttl_seconds);
        }
        Command::LeaseRevoke { id } => tagged(&mut out, LEASE_REVOKE, *id),
        Command::Expire { ids } => {
            out.push(EXPIRE);
            length(&mut out, ids.len());
            ids.iter().for_each(|id| number(&mut out, *id));
        }
        Command::Alarm(action) => push_alarm(&mut out, action),
        Command::Execute(execute) => push_execute(&mut out, execute),
        Command::Acquire(Acquire { key, session, mode, no_wait, call_id }) => {
            tagged(&mut out, ACQUIRE, *session);
            out.push(*mode as u8);
            out.push(u8::from(*no_wait));
            out.put_u64_le(*call_id);
            bytes(&mut out, key);
        }
        Command::Release { key, session, call_id } => {
            tagged(&mut out, RELEASE, *session);
            out.put_u64_le(*call_id);
            bytes(&mut out, key);
        }
        Command::Sample { clock_micros } => tagged(&mut out, SAMPLE, *clock_micros),
        Command::Waterline { revision } => tagged(&mut out, WATERLINE, *revision),
        Command::Restore(restore) => push_restore(&mut out, restore),
        Command::Auth(command) => push_auth(&mut out, command),
        Command::RaiseLevel { level } => tagged(&mut out, RAISE_LEVEL, i64::from(*level)),
        Command::SetQuota { prefix, quota } => {
            out.push(SET_QUOTA);
            bytes(&mut out, prefix);
            out.push(u8::from(quota.is_some()));
            if let Some(quota) = quota {
                number(&mut out, quota.keys_max);
                number(&mut out, quota.bytes_max);
            }
        }
        Command::RestoreHistory(history) => push_history(&mut out, history),
        Command::LeaseDeadlines { clock_micros, deadlines } => {
            tagged(&mut out, LEASE_DEADLINES, *clock_micros);
            push_leases(&mut out, deadlines);
        }
    }
    out.into()
}

fn tagged(out: &mut Vec<u8>, tag: u8, value: i64) {
    out.push(tag);
    number(out, value);
}

/// Writes two's complement in base 128, low bits first.
fn number(out: &mut Vec<u8>, value: i64) {
    encode_varint(value as u64, out);
}

fn length(out: &mut Vec<u8>, count: usize) {
    number(out, i64::try_from(count).expect("no request has 2^63 parts"));
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn optional(out: &mut Vec<u8>, value: &Option<Bytes>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        bytes(out, value);
    }
}

fn push_range(out: &mut Vec<u8>, range: &KeyRange) {
    match &range.end {
        RangeEnd::Single => out.push(0),
        RangeEnd::Before(end) => {
            out.push(1);
            bytes(out, end);
        }
        RangeEnd::Unbounded => out.push(2),
    }
    bytes(out, &range.start);
}

fn op_put(out: &mut Vec<u8>, put: &Put) {
    out.push(PUT);
    out.push(u8::from(put.prev_kv));
    bytes(out, &put.key);
    optional(out, &put.value);
    out.push(u8::from(put.lease.is_some()));
    if let Some(lease) = put.lease {
        number(out, lease);
    }
}

fn op_delete(out: &mut Vec<u8>, delete: &Delete) {
    out.push(DELETE);
    out.push(u8::from(delete.prev_kv));
    push_range(out, &delete.range);
}

fn op_range(out: &mut Vec<u8>, query: &RangeQuery) {
    out.push(RANGE);
    push_range(out, &query.range);
    out.push(query.order as u8);
    out.push(query.target as u8);
    out.push(u8::from(query.keys_only));
    out.push(u8::from(query.count_only));
    let numbers = [query.revision, query.limit, query.mod_min, query.mod_max];
    for value in numbers.into_iter().chain([query.create_min, query.create_max]) {
        number(out, value);
    }
}

fn push_txn(out: &mut Vec<u8>, txn: &Txn) {
    length(out, txn.compares.len());
    for compare in &txn.compares {
        out.push(compare.relation as u8);
        let (tag, value) = match &compare.operand {
            Operand::Version(value) => (0, *value),
            Operand::Create(value) => (1, *value),
            Operand::Mod(value) => (2, *value),
            Operand::Lease(value) => (3, *value),
            Operand::Value(_) => (4, 0),
            Operand::Unknown => (5, 0),
        };
        tagged(out, tag, value);
        if let Operand::Value(value) = &compare.operand {
            bytes(out, value);
        }
        push_range(out, &compare.range);
    }
    for branch in [&txn.success, &txn.failure] {
        length(out, branch.len());
        for op in branch {
            match op {
                Op::Put(put) => op_put(out, put),
                Op::Delete(delete) => op_delete(out, delete),
                Op::Range(query) => op_range(out, query),
                Op::Txn(txn) => {
                    out.push(TXN);
                    push_txn(out, txn);
                }
            }
        }
    }
}

fn push_alarm(out: &mut Vec<u8>, action: &AlarmAction) {
    let (tag, member, kind) = match action {
        AlarmAction::Activate { member, alarm } => (ALARM_ON, member, *alarm as u8),
        AlarmAction::ActivateByHand { member, alarm } => (ALARM_ON, member, *alarm as u8 + BY_HAND),
        AlarmAction::Deactivate { member, alarm } => (ALARM_OFF, member, *alarm as u8),
    };
    out.push(tag);
    out.put_u64_le(*member);
    out.push(kind);
}

fn push_auth(out: &mut Vec<u8>, command: &AuthCommand) {
    let (number, auth_revision, message) = command.parts();
    out.push(AUTH);
    out.push(number);
    out.put_u64_le(auth_revision);
    bytes(out, &message);
}

/// Writes ids of leases with their TTLs or deadlines.
fn push_leases(out: &mut Vec<u8>, leases: &[(i64, i64)]) {
    length(out, leases.len());
    for (id, time) in leases {
        number(out, *id);
        number(out, *time);
    }
}

fn push_history(out: &mut Vec<u8>, history: &RestoreHistory) {
    out.push(RESTORE_HISTORY);
    push_leases(out, &history.leases);
    length(out, history.changes.len());
    for change in &history.changes {
        number(out, change.revision);
        number(out, i64::from(change.sub));
        number(out, change.time_micros);
        bytes(out, &change.key);
        match &change.what {
            RestoredVersion::Put(tail) => {
                out.push(0);
                bytes(out, tail);
            }
            RestoredVersion::Delete => out.push(1),
            RestoredVersion::Lock => out.push(2),
        }
    }
}

fn push_restore(out: &mut Vec<u8>, restore: &Restore) {
    tagged(out, RESTORE, restore.revision);
    push_leases(out, &restore.leases);
    length(out, restore.kvs.len());
    for kv in &restore.kvs {
        bytes(out, &kv.key);
        bytes(out, &kv.tail);
    }
}

fn push_execute(out: &mut Vec<u8>, execute: &Execute) {
    tagged(out, EXECUTE, execute.read_revision);
    length(out, execute.reads.len());
    execute.reads.iter().for_each(|range| push_range(out, range));
    length(out, execute.writes.len());
    for write in &execute.writes {
        bytes(out, &write.key);
        optional(out, &write.value);
        number(out, write.lease);
    }
    length(out, execute.locks.len());
    for lock in &execute.locks {
        bytes(out, &lock.key);
        number(out, lock.session);
        number(out, lock.token);
    }
}
