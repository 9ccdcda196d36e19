//! Random requests: few keys, so that requests interact, and options that
//! include unusual ones.

use bytes::Bytes;
use stele_metastore::etcd::proto::compare::TargetUnion;
use stele_metastore::etcd::proto::request_op::Request;
use stele_metastore::etcd::proto::*;

/// One request, or a few that belong together.
#[derive(Clone, Debug)]
pub enum Step {
    Range(RangeRequest),
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Txn(TxnRequest),
    Compact(CompactionRequest),
    Grant(LeaseGrantRequest),
    /// A lease so short that it would expire during the run if it were kept.
    GrantAndRevoke(LeaseGrantRequest),
    Revoke(LeaseRevokeRequest),
    TimeToLive(LeaseTimeToLiveRequest),
    Leases,
    KeepAlive(LeaseKeepAliveRequest),
    Watch(WatchCreateRequest),
    CancelWatch(i64),
}

/// A small pseudorandom generator (SplitMix64).
pub struct Draw(pub u64);

const KEYS: [&str; 10] = ["a", "ab", "abc", "b", "b\0", "c", "dir/1", "dir/2", "dir/3", "\u{7f}"];
const ENDS: [&str; 8] = ["", "", "\0", "b", "c", "dir0", "\u{7f}\u{7f}", "a"];
const LEASES: [i64; 4] = [0, 101, 102, 103];

impl Draw {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    fn key(&mut self) -> Bytes {
        match self.below(60) {
            0 => Bytes::new(),
            _ => self.of(&KEYS).into(),
        }
    }

    fn end(&mut self) -> Bytes {
        self.of(&ENDS).into()
    }

    fn value(&mut self) -> Bytes {
        match self.below(10) {
            0 => Bytes::new(),
            1 => vec![b'x'; self.below(3000) as usize].into(),
            _ => format!("v{}", self.below(5)).into(),
        }
    }

    /// Returns a revision near the newest, which is about `now`.
    fn revision(&mut self, now: i64) -> i64 {
        match self.below(12) {
            0 => -1,
            1 => now + 2,
            2..=8 => (now - self.below(12) as i64).max(0),
            _ => 0,
        }
    }

    pub fn step(&mut self, now: i64) -> Step {
        match self.below(100) {
            0..24 => Step::Range(self.range(now)),
            24..52 => Step::Put(self.put(false)),
            52..62 => Step::Delete(self.delete()),
            62..82 => Step::Txn(self.txn(now, 2)),
            82..84 => Step::Compact(CompactionRequest {
                revision: self.revision(now - 3),
                physical: false,
            }),
            84..87 => {
                let id = self.of(&LEASES[1..]);
                let ttl = self.of(&[1000, 5000, 9_000_000_001]);
                Step::Grant(LeaseGrantRequest { ttl, id })
            }
            87 => {
                let ttl = self.of(&[0, 1, -5, 2, 3]);
                Step::GrantAndRevoke(LeaseGrantRequest { ttl, id: 777 })
            }
            88..90 => Step::Revoke(LeaseRevokeRequest { id: self.of(&LEASES[1..]) }),
            90..92 => {
                let keys = self.one_in(2);
                Step::TimeToLive(LeaseTimeToLiveRequest { id: self.of(&LEASES[1..]), keys })
            }
            92 => Step::Leases,
            93 => Step::KeepAlive(LeaseKeepAliveRequest { id: self.of(&LEASES) }),
            94..98 => Step::Watch(self.watch(now)),
            _ => Step::CancelWatch(self.below(12) as i64),
        }
    }

    fn range(&mut self, now: i64) -> RangeRequest {
        let mut request = RangeRequest {
            key: self.key(),
            range_end: self.end(),
            revision: self.revision(now),
            serializable: self.one_in(3),
            ..Default::default()
        };
        if self.one_in(3) {
            request.limit = self.below(5) as i64 - 1;
        }
        if self.one_in(3) {
            request.sort_order = self.below(3) as i32;
            // Keys are unique; ties of other fields have no defined order.
            request.sort_target = if self.one_in(2) { 0 } else { self.below(5) as i32 };
            if request.sort_target != 0 {
                request.limit = 0;
            }
        }
        request.keys_only = self.one_in(6);
        request.count_only = self.one_in(8);
        for bound in [
            &mut request.min_mod_revision,
            &mut request.max_mod_revision,
            &mut request.min_create_revision,
            &mut request.max_create_revision,
        ] {
            if self.one_in(10) {
                *bound = self.below(now as u64 + 2) as i64;
            }
        }
        request
    }

    /// In etcd 3.4, a put in a transaction that keeps the value of a missing
    /// key crashes the server, so such puts are drawn only outside of
    /// transactions.
    fn put(&mut self, within_txn: bool) -> PutRequest {
        let mut request = PutRequest {
            key: self.key(),
            value: self.value(),
            prev_kv: self.one_in(3),
            ..Default::default()
        };
        if self.one_in(5) {
            request.lease = self.of(&LEASES);
        }
        if !within_txn {
            request.ignore_value = self.one_in(8);
            request.ignore_lease = self.one_in(8);
            if self.one_in(2) && request.ignore_value {
                request.value = Bytes::new();
            }
        }
        request
    }

    fn delete(&mut self) -> DeleteRangeRequest {
        DeleteRangeRequest { key: self.key(), range_end: self.end(), prev_kv: self.one_in(2) }
    }

    fn txn(&mut self, now: i64, depth: u32) -> TxnRequest {
        let compare = (0..self.below(3)).map(|_| self.compare(now)).collect();
        let mut branch = || -> Vec<RequestOp> {
            let count = self.below(4);
            (0..count).map(|_| self.op(now, depth)).collect()
        };
        let (success, failure) = (branch(), branch());
        TxnRequest { compare, success, failure }
    }

    fn op(&mut self, now: i64, depth: u32) -> RequestOp {
        let request = match self.below(10) {
            0..4 => Request::RequestPut(self.put(true)),
            4..7 => Request::RequestRange(self.range(now)),
            7..9 => Request::RequestDeleteRange(self.delete()),
            _ if depth > 0 => Request::RequestTxn(self.txn(now, depth - 1)),
            _ => Request::RequestPut(self.put(true)),
        };
        RequestOp { request: Some(request) }
    }

    fn compare(&mut self, now: i64) -> Compare {
        let number = if self.one_in(2) { 0 } else { self.below(now as u64 + 1) as i64 };
        let target_union = match self.below(7) {
            0 => Some(TargetUnion::Version(self.below(4) as i64)),
            1 => Some(TargetUnion::CreateRevision(number)),
            2 => Some(TargetUnion::ModRevision(number)),
            3 | 4 => Some(TargetUnion::Value(self.value())),
            5 => Some(TargetUnion::Lease(self.of(&LEASES))),
            _ => None,
        };
        let target = match (&target_union, self.one_in(12)) {
            (Some(TargetUnion::Version(_)), false) => 0,
            (Some(TargetUnion::CreateRevision(_)), false) => 1,
            (Some(TargetUnion::ModRevision(_)), false) => 2,
            (Some(TargetUnion::Value(_)), false) => 3,
            (Some(TargetUnion::Lease(_)), false) => 4,
            // The target and the given value do not match.
            _ => self.below(5) as i32,
        };
        Compare {
            result: self.below(4) as i32,
            target,
            key: self.key(),
            target_union,
            range_end: if self.one_in(3) { self.end() } else { Bytes::new() },
        }
    }

    fn watch(&mut self, now: i64) -> WatchCreateRequest {
        WatchCreateRequest {
            key: self.key(),
            range_end: self.end(),
            start_revision: self.revision(now).max(0),
            filters: match self.below(5) {
                0 => vec![0],
                1 => vec![1],
                _ => Vec::new(),
            },
            prev_kv: self.one_in(2),
            watch_id: if self.one_in(4) { 5 + self.below(3) as i64 } else { 0 },
            fragment: self.one_in(4),
            ..Default::default()
        }
    }
}
