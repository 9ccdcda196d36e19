//! A model of catalogues in memory.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use stele_catalogue::Fid;
use stele_catalogue::proto::{Code, DelRequest, Flag, Key, PutRequest, Range, Start};

pub fn has(flags: u32, flag: Flag) -> bool {
    flags & flag as u32 != 0
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub live: BTreeMap<Fid, Kept>,
    pub retired: BTreeSet<Fid>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Distinguishes catalogues with the same id.
    pub life: u64,
    pub records: BTreeMap<Bytes, Bytes>,
}

impl Kept {
    pub fn bytes(&self) -> u64 {
        self.records.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }

    pub fn range(&self, range: Option<&Range>) -> Vec<(&Bytes, &Bytes)> {
        let inside = |key: &Bytes| {
            range.is_none_or(|range| {
                *key >= range.start
                    && range.end.as_ref().is_none_or(|end| key < end)
                    && key.starts_with(&range.prefix)
            })
        };
        self.records.iter().filter(|(key, _)| inside(key)).collect()
    }

    /// Returns the records of one start, and its code.
    pub fn walk(
        &self,
        start: &Start,
        flags: u32,
        within: Option<&Range>,
        backward: bool,
    ) -> (Vec<(Bytes, Bytes)>, Code) {
        if !start.edge && !has(flags, Flag::Slant) && !self.records.contains_key(&start.key) {
            return (Vec::new(), Code::Absent);
        }
        let follows = |key: &Bytes| {
            if start.edge {
                return true;
            }
            if *key == start.key {
                return !has(flags, Flag::ExcludeStart);
            }
            (*key > start.key) != backward
        };
        let mut found: Vec<_> =
            self.range(within).into_iter().filter(|(key, _)| follows(key)).collect();
        if backward {
            found.reverse();
        }
        let enough = found.len() >= start.count as usize;
        found.truncate(start.count as usize);
        let value = |value: &Bytes| {
            if has(flags, Flag::KeysOnly) { Bytes::new() } else { value.clone() }
        };
        let found = found.into_iter().map(|(key, kept)| (key.clone(), value(kept))).collect();
        (found, if enough { Code::Ok } else { Code::End })
    }
}

/// The codes of a vector, how many changes took effect, and whether it was applied.
pub type Outcome = (Vec<Code>, u64, bool);

fn settle(kept: &mut Kept, next: Kept, codes: Vec<Code>, count: u64, flags: u32) -> Outcome {
    if has(flags, Flag::AllOrNothing) && codes.iter().any(|code| *code != Code::Ok) {
        return (codes, 0, false);
    }
    *kept = next;
    (codes, count, true)
}

pub fn put(kept: &mut Kept, request: &PutRequest) -> Outcome {
    let (mut next, mut codes, mut count) = (kept.clone(), Vec::new(), 0);
    for record in &request.records {
        let stored = next.records.get(&record.key);
        let code = match (stored, &record.expected) {
            (None, Some(_)) => Code::Absent,
            (Some(value), Some(expected)) if value != expected => Code::Unexpected,
            (Some(_), _) if has(request.flags, Flag::InsertOnly) => Code::Exists,
            (Some(_), _) if has(request.flags, Flag::CreateIfAbsent) => Code::Ok,
            _ => {
                next.records.insert(record.key.clone(), record.value.clone());
                count += 1;
                Code::Ok
            }
        };
        codes.push(code);
    }
    settle(kept, next, codes, count, request.flags)
}

pub fn del(kept: &mut Kept, request: &DelRequest) -> Outcome {
    let (mut next, mut codes, mut count) = (kept.clone(), Vec::new(), 0);
    for Key { key, expected, .. } in &request.keys {
        codes.push(match (next.records.get(key), expected) {
            (None, _) => Code::Absent,
            (Some(value), Some(expected)) if value != expected => Code::Unexpected,
            _ => {
                next.records.remove(key);
                count += 1;
                Code::Ok
            }
        });
    }
    settle(kept, next, codes, count, request.flags)
}

pub fn create(model: &mut Model, fids: &[Fid], flags: u32, life: &mut u64) -> Outcome {
    let (mut next, mut codes, mut count) = (model.clone(), Vec::new(), 0);
    for fid in fids {
        codes.push(if next.live.contains_key(fid) {
            Code::Exists
        } else if next.retired.contains(fid) && !has(flags, Flag::Reuse) {
            Code::Retired
        } else {
            *life += 1;
            count += 1;
            next.live.insert(*fid, Kept { life: *life, ..Kept::default() });
            Code::Ok
        });
    }
    if has(flags, Flag::AllOrNothing) && codes.iter().any(|code| *code != Code::Ok) {
        return (codes, 0, false);
    }
    *model = next;
    (codes, count, true)
}

pub fn delete(model: &mut Model, fids: &[Fid], flags: u32) -> Outcome {
    let (mut next, mut codes, mut count) = (model.clone(), Vec::new(), 0);
    let missing = if has(flags, Flag::MissingOk) { Code::Ok } else { Code::Absent };
    for fid in fids {
        codes.push(match next.live.remove(fid) {
            Some(_) => {
                next.retired.insert(*fid);
                count += 1;
                Code::Ok
            }
            None => missing,
        });
    }
    if has(flags, Flag::AllOrNothing) && codes.iter().any(|code| *code != Code::Ok) {
        return (codes, 0, false);
    }
    *model = next;
    (codes, count, true)
}
