//! Decodes proposals. Whatever the bytes are, this neither panics nor allocates
//! more than they hold.

use bytes::Bytes;
use prost::encoding::decode_varint;

use super::alarm::{Alarm, AlarmAction};
use super::check::TXN_DEPTH_MAX;
use super::encoding::{
    ACQUIRE, ALARM_OFF, ALARM_ON, AUTH, BY_HAND, CALLER, COMPACT, DELETE, EXECUTE, EXPIRE,
    LEASE_DEADLINES, LEASE_GRANT, LEASE_REVOKE, PUT, RAISE_LEVEL, RANGE, RELEASE, RESTORE,
    RESTORE_HISTORY, SAMPLE, SET_QUOTA, TXN, VERSION, VERSION_OF_LIMITS, WATERLINE,
};
use super::range::{Order, RangeQuery, Target};
use super::txn::{Compare, Delete, Execute, HeldLock, Op, Operand, Put, Relation, Txn, Write};
use super::{
    Acquire, AuthCommand, Caller, Command, LockMode, Quota, Restore, RestoreHistory,
    RestoredChange, RestoredVersion,
};
use crate::error::{Error, Result};
use crate::key::{KeyRange, Kv, RangeEnd};

/// A command with the time at which it was proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub version: u8,
    pub time_micros: i64,
    /// Present if the caller was identified.
    pub caller: Option<Caller>,
    pub command: Command,
}

/// Decodes a proposal. Its keys and values share its bytes.
pub fn decode(proposal: &Bytes) -> Result<Proposal> {
    let mut reader = Reader { bytes: proposal, at: 0, version: 0 };
    let version = reader.u8()?;
    if !(1..=VERSION).contains(&version) {
        return Err(Error::Malformed("unknown version"));
    }
    reader.version = version;
    let time_micros = i64::from_le_bytes(reader.array()?);
    let caller = reader.caller()?;
    let command = reader.command()?;
    if reader.at != proposal.len() {
        return Err(Error::Malformed("trailing bytes"));
    }
    Ok(Proposal { version, time_micros, caller, command })
}

struct Reader<'a> {
    bytes: &'a Bytes,
    at: usize,
    version: u8,
}

impl Reader<'_> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, count: usize) -> Result<Bytes> {
        if count > self.left() {
            return Err(Error::Malformed("truncated"));
        }
        let taken = self.bytes.slice(self.at..self.at + count);
        self.at += count;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8> {
        let byte = *self.bytes.get(self.at).ok_or(Error::Malformed("truncated"))?;
        self.at += 1;
        Ok(byte)
    }

    fn array(&mut self) -> Result<[u8; 8]> {
        let chunk = self.bytes[self.at..].first_chunk::<8>();
        let chunk = *chunk.ok_or(Error::Malformed("truncated"))?;
        self.at += 8;
        Ok(chunk)
    }

    fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Error::Malformed("a flag is neither 0 nor 1")),
        }
    }

    fn number(&mut self) -> Result<i64> {
        let mut rest = &self.bytes[self.at..];
        let value = decode_varint(&mut rest)
            .map_err(|_| Error::Malformed("a number is truncated or too large"))?;
        self.at = self.bytes.len() - rest.len();
        Ok(value as i64)
    }

    /// Reads the length of a list. Each item takes at least one byte, so a
    /// valid length is at most the number of remaining bytes.
    fn length(&mut self) -> Result<usize> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if count > self.left() { Err(Error::Malformed("truncated")) } else { Ok(count) }
    }

    fn bytes(&mut self) -> Result<Bytes> {
        let count = self.length()?;
        self.take(count)
    }

    fn optional(&mut self) -> Result<Option<Bytes>> {
        if self.flag()? { self.bytes().map(Some) } else { Ok(None) }
    }

    /// Reads a list, which grows with the items that are actually there.
    fn list<T>(&mut self, mut part: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        const PARTS_FEW: usize = 16;
        let count = self.length()?;
        let mut list = Vec::with_capacity(count.min(PARTS_FEW));
        for _ in 0..count {
            list.push(part(self)?);
        }
        Ok(list)
    }

    fn range(&mut self) -> Result<KeyRange> {
        let end = match self.u8()? {
            0 => RangeEnd::Single,
            1 => RangeEnd::Before(self.bytes()?),
            2 => RangeEnd::Unbounded,
            _ => return Err(Error::Malformed("unknown end of a range")),
        };
        Ok(KeyRange { start: self.bytes()?, end })
    }

    fn caller(&mut self) -> Result<Option<Caller>> {
        if self.bytes.get(self.at) != Some(&CALLER) {
            return Ok(None);
        }
        self.at += 1;
        let auth_revision = self.number()? as u64;
        let user = self.bytes()?;
        let user = std::str::from_utf8(&user)
            .map_err(|_| Error::Malformed("the name of the caller is not UTF-8"))?;
        Ok(Some(Caller { user: user.into(), auth_revision }))
    }

    fn auth(&mut self) -> Result<AuthCommand> {
        let number = self.u8()?;
        let auth_revision = u64::from_le_bytes(self.array()?);
        AuthCommand::from_parts(number, auth_revision, self.bytes()?)
    }

    fn command(&mut self) -> Result<Command> {
        Ok(match self.u8()? {
            PUT => Command::Put(self.put()?),
            DELETE => Command::Delete(self.delete()?),
            TXN => Command::Txn(self.txn(0)?),
            COMPACT => Command::Compact { revision: self.number()? },
            LEASE_GRANT => Command::LeaseGrant { id: self.number()?, ttl_seconds: self.number()? },
            LEASE_REVOKE => Command::LeaseRevoke { id: self.number()? },
            EXPIRE => Command::Expire { ids: self.list(Reader::number)? },
            ALARM_ON => Command::Alarm(match self.alarm()? {
                (member, alarm, false) => AlarmAction::Activate { member, alarm },
                (member, alarm, true) => AlarmAction::ActivateByHand { member, alarm },
            }),
            ALARM_OFF => match self.alarm()? {
                (member, alarm, false) => Command::Alarm(AlarmAction::Deactivate { member, alarm }),
                _ => return Err(Error::Malformed("unknown alarm")),
            },
            EXECUTE => Command::Execute(self.execute()?),
            ACQUIRE => {
                let session = self.number()?;
                let mode = match self.u8()? {
                    0 => LockMode::Shared,
                    1 => LockMode::Exclusive,
                    _ => return Err(Error::Malformed("unknown mode of a lock")),
                };
                let no_wait = self.version >= VERSION_OF_LIMITS && self.flag()?;
                let call_id = self.call_id()?;
                Command::Acquire(Acquire { key: self.bytes()?, session, mode, no_wait, call_id })
            }
            RELEASE => {
                let session = self.number()?;
                let call_id = self.call_id()?;
                Command::Release { key: self.bytes()?, session, call_id }
            }
            SAMPLE => Command::Sample { clock_micros: self.number()? },
            WATERLINE => Command::Waterline { revision: self.number()? },
            RESTORE => Command::Restore(self.restore()?),
            AUTH => Command::Auth(self.auth()?),
            RAISE_LEVEL => Command::RaiseLevel { level: self.small()? },
            SET_QUOTA => {
                let prefix = self.bytes()?;
                let quota = match self.flag()? {
                    true => Some(Quota { keys_max: self.number()?, bytes_max: self.number()? }),
                    false => None,
                };
                Command::SetQuota { prefix, quota }
            }
            RESTORE_HISTORY => Command::RestoreHistory(RestoreHistory {
                leases: self.leases()?,
                changes: self.list(Reader::restored_change)?,
            }),
            LEASE_DEADLINES => {
                Command::LeaseDeadlines { clock_micros: self.number()?, deadlines: self.leases()? }
            }
            _ => return Err(Error::Malformed("unknown command")),
        })
    }

    fn call_id(&mut self) -> Result<u64> {
        if self.version < VERSION_OF_LIMITS { Ok(0) } else { self.array().map(u64::from_le_bytes) }
    }

    fn alarm(&mut self) -> Result<(u64, Alarm, bool)> {
        let member = u64::from_le_bytes(self.array()?);
        let kind = self.u8()?;
        let alarm = match kind % BY_HAND {
            0 => Alarm::NoSpace,
            _ => Alarm::Corrupt,
        };
        if kind >= 2 * BY_HAND {
            return Err(Error::Malformed("unknown alarm"));
        }
        Ok((member, alarm, kind >= BY_HAND))
    }

    fn small(&mut self) -> Result<u32> {
        u32::try_from(self.number()?).map_err(|_| Error::Malformed("a number is too large"))
    }

    fn leases(&mut self) -> Result<Vec<(i64, i64)>> {
        self.list(|reader| Ok((reader.number()?, reader.number()?)))
    }

    fn restored_change(&mut self) -> Result<RestoredChange> {
        let (revision, sub, time_micros) = (self.number()?, self.small()?, self.number()?);
        let key = self.bytes()?;
        let what = match self.u8()? {
            0 => RestoredVersion::Put(self.bytes()?),
            1 => RestoredVersion::Delete,
            2 => RestoredVersion::Lock,
            _ => return Err(Error::Malformed("unknown kind of change")),
        };
        Ok(RestoredChange { revision, sub, time_micros, key, what })
    }

    fn restore(&mut self) -> Result<Restore> {
        Ok(Restore {
            revision: self.number()?,
            leases: self.leases()?,
            kvs: self.list(|reader| Ok(Kv { key: reader.bytes()?, tail: reader.bytes()? }))?,
        })
    }

    fn put(&mut self) -> Result<Put> {
        let prev_kv = self.flag()?;
        let (key, value) = (self.bytes()?, self.optional()?);
        let lease = if self.flag()? { Some(self.number()?) } else { None };
        Ok(Put { key, value, lease, prev_kv })
    }

    fn delete(&mut self) -> Result<Delete> {
        Ok(Delete { prev_kv: self.flag()?, range: self.range()? })
    }

    fn query(&mut self) -> Result<RangeQuery> {
        let range = self.range()?;
        let order = match self.u8()? {
            0 => Order::None,
            1 => Order::Ascend,
            2 => Order::Descend,
            _ => return Err(Error::Malformed("unknown order")),
        };
        let target = match self.u8()? {
            0 => Target::Key,
            1 => Target::Version,
            2 => Target::Create,
            3 => Target::Mod,
            4 => Target::Value,
            _ => return Err(Error::Malformed("unknown target")),
        };
        Ok(RangeQuery {
            range,
            order,
            target,
            keys_only: self.flag()?,
            count_only: self.flag()?,
            revision: self.number()?,
            limit: self.number()?,
            mod_min: self.number()?,
            mod_max: self.number()?,
            create_min: self.number()?,
            create_max: self.number()?,
        })
    }

    fn txn(&mut self, depth: usize) -> Result<Txn> {
        if depth > TXN_DEPTH_MAX {
            return Err(Error::Malformed("transactions are nested too deeply"));
        }
        let compares = self.list(Reader::compare)?;
        let success = self.list(|reader| reader.op(depth))?;
        let failure = self.list(|reader| reader.op(depth))?;
        Ok(Txn { compares, success, failure })
    }

    fn op(&mut self, depth: usize) -> Result<Op> {
        Ok(match self.u8()? {
            PUT => Op::Put(self.put()?),
            DELETE => Op::Delete(self.delete()?),
            RANGE => Op::Range(self.query()?),
            TXN => Op::Txn(self.txn(depth + 1)?),
            _ => return Err(Error::Malformed("unknown operation")),
        })
    }

    fn compare(&mut self) -> Result<Compare> {
        let relation = match self.u8()? {
            0 => Relation::Equal,
            1 => Relation::Greater,
            2 => Relation::Less,
            3 => Relation::NotEqual,
            4 => Relation::Any,
            _ => return Err(Error::Malformed("unknown relation")),
        };
        let tag = self.u8()?;
        let value = self.number()?;
        let operand = match tag {
            0 => Operand::Version(value),
            1 => Operand::Create(value),
            2 => Operand::Mod(value),
            3 => Operand::Lease(value),
            4 => Operand::Value(self.bytes()?),
            5 => Operand::Unknown,
            _ => return Err(Error::Malformed("unknown operand")),
        };
        Ok(Compare { range: self.range()?, relation, operand })
    }

    fn execute(&mut self) -> Result<Execute> {
        Ok(Execute {
            read_revision: self.number()?,
            reads: self.list(Reader::range)?,
            writes: self.list(|reader| {
                Ok(Write {
                    key: reader.bytes()?,
                    value: reader.optional()?,
                    lease: reader.number()?,
                })
            })?,
            locks: self.list(|reader| {
                Ok(HeldLock {
                    key: reader.bytes()?,
                    session: reader.number()?,
                    token: reader.number()?,
                })
            })?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::encoding::{encode, encode_as};
    use super::*;
    use crate::proto::etcd::AuthUserGrantRoleRequest;

    fn samples() -> Vec<Command> {
        let query = RangeQuery {
            limit: 3,
            revision: -1,
            order: Order::Descend,
            target: Target::Value,
            keys_only: true,
            create_max: i64::MAX,
            ..RangeQuery::new(KeyRange::prefix("p"))
        };
        let compare = |operand| Compare {
            range: KeyRange::from_wire("a".into(), "\0".into()),
            relation: Relation::NotEqual,
            operand,
        };
        let kept = Put { value: None, lease: None, prev_kv: true, ..Put::new("k", "") };
        let inner = Txn { success: vec![Op::Put(kept.clone())], ..Txn::default() };
        let txn = Txn {
            compares: vec![
                compare(Operand::Value("x".into())),
                compare(Operand::Lease(i64::MIN)),
                compare(Operand::Unknown),
            ],
            success: vec![Op::Range(query), Op::Txn(inner)],
            failure: vec![Op::Delete(Delete { range: KeyRange::single("d"), prev_kv: true })],
        };
        let execute = Execute {
            read_revision: 9,
            reads: vec![KeyRange::all(), KeyRange::single("k")],
            writes: vec![
                Write { key: "w".into(), value: Some("v".into()), lease: 4 },
                Write { key: "x".into(), value: None, lease: 0 },
            ],
            locks: vec![HeldLock { key: "l".into(), session: 7, token: 8 }],
        };
        vec![
            Command::Put(kept),
            Command::Delete(Delete::new(KeyRange::prefix("p"))),
            Command::Txn(txn),
            Command::Compact { revision: 5 },
            Command::LeaseGrant { id: 1, ttl_seconds: 60 },
            Command::LeaseRevoke { id: -1 },
            Command::Expire { ids: vec![1, i64::MAX, -5] },
            Command::Alarm(AlarmAction::Activate { member: u64::MAX, alarm: Alarm::NoSpace }),
            Command::Alarm(AlarmAction::Deactivate { member: 0, alarm: Alarm::Corrupt }),
            Command::Execute(execute),
            Command::Acquire(Acquire {
                key: "l".into(),
                session: 3,
                mode: LockMode::Exclusive,
                no_wait: true,
                call_id: u64::MAX,
            }),
            Command::Release { key: "l".into(), session: 3, call_id: 7 },
            Command::Sample { clock_micros: 77 },
            Command::Waterline { revision: 12 },
            Command::Restore(Restore {
                revision: 9,
                leases: vec![(3, 60), (-4, 5)],
                kvs: vec![Kv { key: "k".into(), tail: "tail".into() }],
            }),
            Command::Alarm(AlarmAction::ActivateByHand { member: 1, alarm: Alarm::Corrupt }),
            Command::Auth(AuthCommand::Enable),
            Command::Auth(AuthCommand::UserGrantRole(AuthUserGrantRoleRequest {
                user: "ada".into(),
                role: "root".into(),
            })),
            Command::RaiseLevel { level: 2 },
            Command::LeaseDeadlines { clock_micros: 5, deadlines: vec![(3, 60), (-4, i64::MIN)] },
            Command::SetQuota {
                prefix: "p/".into(),
                quota: Some(Quota { keys_max: 10, bytes_max: 0 }),
            },
            Command::SetQuota { prefix: "".into(), quota: None },
            Command::RestoreHistory(RestoreHistory {
                leases: vec![(3, 60)],
                changes: [
                    RestoredVersion::Put("tail".into()),
                    RestoredVersion::Delete,
                    RestoredVersion::Lock,
                ]
                .map(|what| RestoredChange {
                    revision: 7,
                    sub: 1,
                    time_micros: -5,
                    key: "k".into(),
                    what,
                })
                .to_vec(),
            }),
        ]
    }

    #[test]
    fn every_command_comes_back_as_it_was() {
        for command in samples() {
            let decoded = decode(&encode(&command, -3)).unwrap();
            let (version, time_micros) = (VERSION, -3);
            let plain = Proposal { version, time_micros, caller: None, command: command.clone() };
            assert_eq!(decoded, plain);
            let caller = Some(Caller { user: "ada".into(), auth_revision: u64::MAX });
            let decoded = decode(&encode_as(caller.as_ref(), &command, -3)).unwrap();
            assert_eq!(decoded, Proposal { caller, ..plain });
        }
    }

    #[test]
    fn proposals_of_the_first_version_are_read() {
        let time = [3, 0, 0, 0, 0, 0, 0, 0];
        let old = |body: &[u8]| decode(&[&[1], &time[..], body].concat().into()).unwrap();
        let put = old(b"\x01\x00\x01k\x01\x01v\x01\x00");
        let command = Command::Put(Put::new("k", "v"));
        assert_eq!(put, Proposal { version: 1, time_micros: 3, caller: None, command });
        let (key, session, mode) = (Bytes::from("l"), 7, LockMode::Exclusive);
        let acquire = Acquire { key: key.clone(), session, mode, no_wait: false, call_id: 0 };
        assert_eq!(old(b"\x0b\x07\x01\x01l").command, Command::Acquire(acquire));
        let release = Command::Release { key, session, call_id: 0 };
        assert_eq!(old(b"\x0c\x07\x01l").command, release);
    }

    #[test]
    fn a_proposal_that_is_cut_or_goes_on_is_refused() {
        for command in samples() {
            let whole = encode(&command, 0);
            for end in 0..whole.len() {
                assert!(decode(&whole.slice(..end)).is_err());
            }
            let longer: Bytes = [&whole[..], &[0]].concat().into();
            assert!(decode(&longer).is_err());
        }
    }

    #[test]
    fn transactions_that_nest_too_deep_are_refused() {
        let deep = (0..TXN_DEPTH_MAX + 2).fold(Txn::default(), |inner, _| Txn {
            success: vec![Op::Txn(inner)],
            ..Txn::default()
        });
        assert!(matches!(decode(&encode(&Command::Txn(deep), 0)), Err(Error::Malformed(_))));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(
            at in 0usize..22, noise in proptest::collection::vec((0usize..200, 0u8..), 0..8),
        ) {
            let mut bytes = encode(&samples()[at], 1).to_vec();
            for (place, byte) in noise {
                let place = place % bytes.len();
                bytes[place] = byte;
            }
            if let Ok(proposal) = decode(&bytes.into()) {
                let again = encode(&proposal.command, proposal.time_micros);
                proptest::prop_assert_eq!(decode(&again).unwrap().command, proposal.command);
            }
        }
    }
}
