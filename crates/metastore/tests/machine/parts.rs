//! Entries with many changes: one revision each, in bounded memory, and the
//! same after a crash in the middle.

use bytes::Bytes;
use stele_metastore::Error;
use stele_metastore::command::{
    Command, Delete, Execute, KeyRange, Op, Put, RangeQuery, Reply, Txn, Write, encode,
};
use stele_metastore::machine::{EXPIRED_KEYS_MAX, MachineSettings};
use stele_metastore::state::{Floor, KeyView};
use stele_metastore::watch::EventKind;

use crate::machine::harness::{Member, refused};

/// With long keys, few of them fill the parts of an entry.
const KEYS: usize = 2_500;

fn key(at: usize) -> Bytes {
    let mut key = format!("k{at:06}").into_bytes();
    key.resize(4 << 10, b'.');
    key.into()
}

/// Creates a member whose memory is too small for an entry, so that parts of it
/// are on disk before it ends.
fn small_member() -> Member {
    let mut settings = MachineSettings::default();
    settings.engine.memory.budget_bytes = 12 << 20;
    Member::with(settings)
}

fn fill(member: &mut Member) {
    for first in (0..KEYS).step_by(500) {
        let puts = (first..first + 500).map(|at| {
            let lease = if at % 3 == 0 { 7 } else { 0 };
            Command::Put(Put { lease: Some(lease), ..Put::new(key(at), "value") })
        });
        let answers = member.entry(&puts.collect::<Vec<_>>());
        assert!(answers.iter().all(Result::is_ok));
    }
}

/// Everything that a reader can see.
#[derive(Debug, PartialEq)]
struct Seen {
    kvs: Vec<(Bytes, Bytes)>,
    count: i64,
    live_bytes: i64,
    events: Vec<(i64, EventKind, Bytes)>,
    leased: usize,
}

fn seen(member: &Member) -> Seen {
    let mut kvs = Vec::new();
    let all = RangeQuery::new(KeyRange::all());
    let summary = member.parts().state.range(&all, Floor::Compacted, &mut |view: KeyView<'_>| {
        kvs.push((Bytes::copy_from_slice(view.key), Bytes::copy_from_slice(view.tail)));
    });
    let count = member.parts().state.count(&KeyRange::all(), member.revision()).unwrap();
    assert_eq!(summary.unwrap().count, count);
    let events = member.events_from(2).unwrap();
    let events = events
        .iter()
        .map(|event| (event.revision, event.kind, Bytes::copy_from_slice(event.key())));
    let leased = member.parts().leases.keys(7).unwrap().len();
    let live_bytes = member.parts().state.live_bytes();
    Seen { kvs, count, live_bytes, events: events.collect(), leased }
}

fn large_entry() -> Vec<Command> {
    let (first, last) = (key(10), key(KEYS - 10));
    let range = KeyRange::from_wire(first, last.clone());
    let write = Write { key: key(KEYS + 1), value: Some("new".into()), lease: 0 };
    let execute = |reads: KeyRange, read_revision| {
        let (reads, writes) = (vec![reads], vec![write.clone()]);
        Command::Execute(Execute { read_revision, reads, writes, ..Execute::default() })
    };
    let before = KEYS as i64 + 1;
    vec![
        Command::Put(Put::new(key(20), "changed first")),
        // Sees no change yet, even when parts of the deletion are on disk.
        execute(KeyRange::single(key(30)), before),
        Command::Delete(Delete::new(range)),
        execute(KeyRange::single(key(30)), before),
        execute(KeyRange::single(last), before),
        Command::Put(Put::new(key(40), "put again")),
        Command::Delete(Delete::new(KeyRange::from_wire(key(0), key(50)))),
    ]
}

#[test]
fn a_large_deletion_is_one_revision_and_the_same_after_a_crash_in_the_middle() {
    let mut ample = Member::new();
    let mut small = small_member();
    for member in [&mut ample, &mut small] {
        member.lease(7, 600);
        fill(member);
        let before = member.revision();
        assert_eq!(before, KEYS as i64 + 1);
        member.flush();
        let answers = member.entry(&large_entry());
        let deleted = |at: usize| match &answers[at] {
            Ok(answer) => match &answer.reply {
                Reply::Delete(deleted) => deleted.deleted,
                other => panic!("{other:?}"),
            },
            Err(error) => panic!("{error}"),
        };
        assert_eq!(deleted(2), KEYS as i64 - 20);
        assert_eq!(deleted(6), 11);
        assert!(answers[1].is_ok() && answers[4].is_ok() && answers[5].is_ok());
        assert!(matches!(&answers[3], Err(Error::Conflict { .. })), "{:?}", answers[3]);
    }
    let expected = seen(&ample);
    assert_eq!(expected.count, 11);
    assert_eq!(seen(&small), expected);
    // Replays the entry over those of its parts that were flushed.
    small.restart();
    assert_eq!(seen(&small), expected);
    ample.restart();
    assert_eq!(seen(&ample), expected);
    small.flush();
    small.restart();
    assert_eq!(seen(&small), expected);
    assert_eq!(small.put("later", ""), ample.put("later", ""));
}

#[test]
fn many_proposals_that_copy_a_large_value_make_an_entry_in_parts() {
    let mut member = small_member();
    member.put_with(Put::new("large", vec![7; 1 << 20])).unwrap();
    let touch = Command::Put(Put { value: None, ..Put::new("large", "") });
    let mut commands = vec![touch; 40];
    commands.push(Command::Put(Put::new("large", "small")));
    for answer in member.entry(&commands) {
        answer.unwrap();
    }
    for _ in 0..2 {
        assert_eq!(member.revision(), 43);
        let (kvs, _) = member.range(&RangeQuery::new(KeyRange::all())).unwrap();
        assert_eq!(kvs, [("large".to_string(), "small".to_string())]);
        let old = member.range(&RangeQuery::new(KeyRange::all()).at(30)).unwrap().0;
        assert_eq!(old[0].1.len(), 1 << 20);
        assert_eq!(member.parts().state.live_bytes(), 10);
        member.restart();
    }
}

#[test]
fn an_expiry_deletes_a_bounded_number_of_keys_per_entry() {
    let mut member = Member::new();
    let keys = 2 * EXPIRED_KEYS_MAX + 100;
    for id in [7, 8] {
        member.lease(id, 600);
    }
    let put = |at: usize| {
        let lease = if at < keys { 7 } else { 8 };
        Command::Put(Put { lease: Some(lease), ..Put::new(format!("{at:06}"), "") })
    };
    let puts: Vec<Command> = (0..keys + 10).map(put).collect();
    for chunk in puts.chunks(2_000) {
        member.entry(chunk);
    }
    let expire = Command::Expire { ids: vec![7, 8] };
    let mut left = Vec::new();
    for _ in 0..3 {
        member.propose(expire.clone()).unwrap();
        left.push(member.parts().state.count(&KeyRange::all(), member.revision()).unwrap());
    }
    assert_eq!(left, [keys as i64 + 10 - 5_000, 110, 0]);
    assert!(!member.parts().leases.exists(7) && !member.parts().leases.exists(8));
    member.restart();
    assert!(!member.parts().leases.exists(7) && !member.parts().leases.exists(8));
}

#[test]
fn an_expiry_of_an_older_log_ends_its_leases_at_once() {
    let mut member = Member::new();
    member.lease(7, 600);
    let keys = EXPIRED_KEYS_MAX + 1;
    let put = |at: usize| Put { lease: Some(7), ..Put::new(format!("{at:06}"), "") };
    let puts: Vec<Command> = (0..keys).map(|at| Command::Put(put(at))).collect();
    for chunk in puts.chunks(2_000) {
        member.entry(chunk);
    }
    let mut old = encode(&Command::Expire { ids: vec![7] }, 0).to_vec();
    old[0] = 1;
    member.entry_of_bytes(vec![old.into()]).pop().unwrap().unwrap();
    assert!(!member.parts().leases.exists(7));
    assert_eq!(member.parts().state.count(&KeyRange::all(), member.revision()).unwrap(), 0);
}

#[test]
fn what_a_transaction_returns_is_bounded_before_anything_is_written() {
    let mut member = Member::new();
    for at in 0..40 {
        member.put_with(Put::new(format!("{at:02}"), vec![1; 1 << 20])).unwrap();
    }
    let revision = member.revision();
    let put = || Op::Put(Put::new("new", ""));
    let ranges = |ops: Vec<Op>| Txn { success: ops, ..Txn::default() };
    let all = || RangeQuery::new(KeyRange::all());
    let first = RangeQuery { limit: 10, ..all() };
    let touch = |at: usize| Op::Put(Put { value: None, ..Put::new(format!("{at:02}"), "") });
    for ops in [
        vec![put(), Op::Range(all())],
        vec![put(), Op::Range(first.clone()), Op::Range(first.clone()), Op::Range(first.clone())],
        vec![Op::Delete(Delete { range: KeyRange::all(), prev_kv: true })],
        (0..40).map(touch).collect(),
    ] {
        assert!(matches!(refused(member.txn(ranges(ops))), Error::Limit { .. }));
    }
    assert_eq!(member.revision(), revision, "nothing has happened");
    let count = RangeQuery { count_only: true, ..all() };
    let ops = vec![put(), Op::Range(first), Op::Range(count)];
    assert!(member.txn(ranges(ops)).unwrap().1.succeeded);
    let delete = Op::Delete(Delete::new(KeyRange::all()));
    assert!(member.txn(ranges(vec![delete])).unwrap().1.succeeded);
}

#[test]
fn events_of_a_large_revision_are_taken_in_bounded_pieces() {
    let mut member = Member::new();
    for at in 0..40 {
        member.put_with(Put::new(format!("{at:02}"), vec![1; 1 << 20])).unwrap();
    }
    let mut cursor = member.parts().hub.cursor(member.revision() + 1);
    let mut lagging = member.parts().hub.cursor(2);
    member.propose(Command::Delete(Delete::new(KeyRange::all()))).unwrap();
    let mut all = Vec::new();
    while cursor.next() <= member.revision() {
        let mut taken = Vec::new();
        cursor.take(i64::MAX, &mut |_| true, &mut taken).unwrap();
        let bytes: usize = taken.iter().map(|event| event.bytes()).sum();
        assert!(bytes < 20 << 20, "{bytes}");
        all.extend(taken);
    }
    let keys: Vec<String> =
        all.iter().map(|event| String::from_utf8(event.key().to_vec()).unwrap()).collect();
    assert_eq!(keys, (0..40).map(|at| format!("{at:02}")).collect::<Vec<_>>());
    assert!(all.iter().all(|event| event.prev_value().is_some_and(|value| value.len() == 1 << 20)));
    let mut count = 0;
    while lagging.next() <= member.revision() {
        let mut taken = Vec::new();
        lagging.take(i64::MAX, &mut |_| true, &mut taken).unwrap();
        let bytes: usize = taken.iter().map(|event| event.bytes()).sum();
        assert!(bytes < 20 << 20, "{bytes}");
        count += taken.len();
    }
    assert_eq!(count, 80);
}
