//! Serializable transactions, compaction, and what remains after it.

use std::time::Duration;

use stele_metastore::Error;
use stele_metastore::command::{
    Command, Delete, Execute, KeyRange, Order, Put, RangeQuery, Target, Write,
};
use stele_metastore::state::Floor;
use stele_metastore::watch::EventKind;

use crate::machine::harness::{Member, prefix, refused, text};

fn write(key: &'static str, value: &'static str) -> Write {
    Write { key: key.into(), value: Some(value.into()), lease: 0 }
}

fn execute(read_revision: i64, reads: Vec<KeyRange>, writes: Vec<Write>) -> Command {
    Command::Execute(Execute { read_revision, reads, writes, locks: Vec::new() })
}

fn conflicts(member: &mut Member, command: Command) -> bool {
    match member.propose(command) {
        Ok(_) => false,
        Err(Error::Conflict { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn two_transactions_that_read_the_same_do_not_both_write_it() {
    let mut member = Member::new();
    let read = member.put("k", "0");
    let increment = || execute(read, vec![KeyRange::single("k")], vec![write("k", "1")]);
    // In one entry, where neither sees the other in the store.
    let answers = member.entry(&[increment(), increment()]);
    assert!(answers[0].is_ok());
    assert!(matches!(&answers[1], Err(Error::Conflict { changed: 3, .. })));
    assert!(conflicts(&mut member, increment()));
}

#[test]
fn a_key_that_was_put_and_deleted_again_has_changed() {
    let mut member = Member::new();
    let read = member.put("a", "1");
    member.put("b", "1");
    member.delete(KeyRange::single("b"));
    let over = |from: &'static str, to: &'static str| {
        execute(read, vec![KeyRange::from_wire(from.into(), to.into())], vec![])
    };
    for compacted in [false, true] {
        assert!(conflicts(&mut member, over("b", "c")), "{compacted}");
        assert!(conflicts(&mut member, over("b", "")));
        assert!(!conflicts(&mut member, over("a", "b")), "a phantom elsewhere is none");
        assert!(!conflicts(&mut member, over("c", "\0")));
        member.flush();
        let state = &member.parts().state;
        state.store().compact(state.tables.user).unwrap();
    }
}

#[test]
fn old_reads_are_checked_by_reading_and_new_ones_by_what_changed() {
    let mut member = Member::new();
    let read = member.put("a", "1");
    let puts: Vec<_> = (0..1000).map(|at| Command::Put(Put::new(format!("m{at}"), ""))).collect();
    member.entry(&puts);
    let near = member.revision();
    member.put("z", "");
    for (revision, range, conflict) in [
        (read, "a", false),
        (read, "m", true),
        (read, "z", true),
        (near, "m", false),
        (near, "z", true),
        (near, "", true),
    ] {
        let command = execute(revision, vec![KeyRange::prefix(range)], vec![]);
        assert_eq!(conflicts(&mut member, command), conflict, "{range} since {revision}");
    }
}

#[test]
fn a_transaction_cannot_have_read_the_future_or_what_is_gone() {
    let mut member = Member::new();
    member.put("a", "1");
    let newest = member.put("a", "2");
    let refusal = refused(member.propose(execute(newest + 1, vec![], vec![])));
    assert!(matches!(refusal, Error::FutureRead { .. }));
    // etcd's Compact does not affect native transactions; the waterline does.
    member.propose(Command::Compact { revision: newest }).unwrap();
    member.propose(execute(2, vec![KeyRange::single("b")], vec![])).unwrap();
    member.propose(Command::Waterline { revision: newest }).unwrap();
    let refusal = refused(member.propose(execute(2, vec![], vec![])));
    assert!(matches!(refusal, Error::TooOld { revision: 2, waterline: 3 }));
    member.propose(execute(newest, vec![KeyRange::all()], vec![])).unwrap();
}

#[test]
fn writes_of_a_transaction_are_one_revision_or_none() {
    let mut member = Member::new();
    member.put("a", "1");
    let erase = |key: &'static str| Write { key: key.into(), value: None, lease: 0 };
    let writes = vec![write("b", "2"), erase("a"), erase("missing")];
    assert_eq!(member.propose(execute(2, vec![], writes)).unwrap().revision, 3);
    assert_eq!(member.keys(&prefix("")), ["b"]);
    let twice = vec![write("c", "1"), erase("c")];
    assert!(matches!(refused(member.propose(execute(3, vec![], twice))), Error::DuplicateKey));
    let nothing = member.propose(execute(3, vec![], vec![erase("missing")])).unwrap();
    assert_eq!(nothing.revision, 3);
}

#[test]
fn compact_goes_forward_only_and_not_beyond_the_newest_revision() {
    let mut member = Member::new();
    for at in 0..8 {
        member.propose(Command::Put(Put::new("k", at.to_string()))).unwrap();
    }
    let newest = member.revision();
    let mut compact = |revision| member.propose(Command::Compact { revision });
    assert!(matches!(refused(compact(newest + 1)), Error::FutureRevision));
    assert_eq!(compact(4).unwrap().revision, newest);
    for gone in [4, 3, 0, -7] {
        assert!(matches!(refused(compact(gone)), Error::Compacted { compacted: 4 }));
    }
    compact(newest).unwrap();
    assert!(matches!(refused(compact(newest)), Error::Compacted { .. }));
    assert_eq!(member.range(&prefix("").at(newest)).unwrap().0.len(), 1);
    member.restart();
    let refusal = refused(member.range(&prefix("").at(newest - 1)));
    assert!(matches!(refusal, Error::Compacted { compacted: 9 }), "it is remembered");
}

/// Moves the waterline and makes the engine act on it.
fn drop_history(member: &mut Member, revision: i64) {
    member.propose(Command::Waterline { revision }).unwrap();
    member.flush();
    member.parts().applier.sync_engine_waterline().unwrap();
    let state = &member.parts().state;
    assert_eq!(state.tables.engine_waterline(&state.store()).unwrap(), revision);
    state.store().compact(state.tables.user).unwrap();
}

#[test]
fn the_waterline_keeps_what_reads_at_or_above_it_see() {
    for line in 2..=9 {
        let mut member = Member::new();
        member.put("a", "1"); // 2
        member.put("b", "1"); // 3
        member.put("a", "2"); // 4
        member.delete(KeyRange::single("b")); // 5
        member.put("c", "1"); // 6
        member.delete(KeyRange::single("a")); // 7
        member.put("b", "2"); // 8
        member.delete(KeyRange::single("c")); // 9
        let copy = |member: &Member, revision| {
            member.range_down_to(&prefix("").at(revision), Floor::Retained)
        };
        let copies: Vec<_> = (1..=9).map(|at| copy(&member, at).unwrap().0).collect();
        let events = member.events_from(line).unwrap();
        drop_history(&mut member, line);
        for restarted in [false, true] {
            for at in 1..=9 {
                match copy(&member, at) {
                    Ok((found, _)) => assert_eq!(found, copies[at as usize - 1], "{line} {at}"),
                    Err(error) => assert!(at < line && matches!(error, Error::TooOld { .. })),
                }
            }
            // The event at the line itself is still sent, even if it is a
            // deletion.
            let still: Vec<_> = member.events_from(line).unwrap();
            assert_eq!(still.len(), events.len(), "{line} {restarted}");
            assert_eq!((still[0].revision, still[0].kind), (events[0].revision, events[0].kind));
            let below = member.events_from(line - 1);
            assert!(matches!(refused(below), Error::Compacted { .. }));
            member.restart();
        }
    }
}

#[test]
fn a_compacted_deletion_is_still_sent_to_a_watcher_that_starts_at_it() {
    let mut member = Member::new();
    member.put("a", "1");
    member.delete(KeyRange::single("a"));
    member.put("b", "1");
    member.propose(Command::Compact { revision: 3 }).unwrap();
    drop_history(&mut member, 3);
    let events = member.events_from(3).unwrap();
    assert_eq!((events.len(), events[0].kind), (2, EventKind::Delete));
    assert_eq!(events[0].prev_value(), None, "what was before is gone");
}

#[test]
fn a_replayed_log_decides_as_it_did_the_first_time_though_history_was_dropped_since() {
    let mut member = Member::new();
    let read = member.put("a", "1");
    member.put("b", "1");
    member.delete(KeyRange::single("b"));
    member.flush();
    // Refused the first time because of history that is dropped later.
    let phantom = execute(read, vec![KeyRange::prefix("b")], vec![write("x", "1")]);
    assert!(conflicts(&mut member, phantom));
    member.put("c", "1");
    member.propose(Command::Waterline { revision: 5 }).unwrap();
    member.parts().applier.sync_engine_waterline().unwrap();
    let state = &member.parts().state;
    state.store().compact(state.tables.user).unwrap();
    let hash = state.hash(0).unwrap();
    member.restart();
    assert_eq!(member.keys(&prefix("x")), [""; 0]);
    assert_eq!(member.parts().state.hash(0).unwrap(), hash);
}

#[test]
fn the_hash_of_a_revision_does_not_depend_on_what_is_retained_below_it() {
    let mut member = Member::new();
    for at in 0..30 {
        member.propose(Command::Put(Put::new(format!("k{}", at % 5), at.to_string()))).unwrap();
        if at % 7 == 0 {
            member.propose(Command::Delete(Delete::new(KeyRange::single("k2")))).unwrap();
        }
    }
    member.propose(Command::Compact { revision: 20 }).unwrap();
    let hashes: Vec<_> = (20..30).map(|at| member.parts().state.hash(at).unwrap()).collect();
    assert!(hashes.windows(2).all(|pair| pair[0].hash != pair[1].hash));
    drop_history(&mut member, 20);
    let again: Vec<_> = (20..30).map(|at| member.parts().state.hash(at).unwrap()).collect();
    assert_eq!(again, hashes);
    assert!(member.parts().state.hash(19).is_err());
}

#[test]
fn the_times_of_revisions_do_not_run_back_with_the_clock() {
    let mut member = Member::new();
    member.clock.set_wall(5_000_000);
    member.put("a", "1");
    member.clock.set_wall(1_000_000);
    member.put("a", "2");
    member.clock.set_wall(6_000_000);
    member.put("a", "3");
    let at = |micros| member.parts().state.revision_at(micros).unwrap();
    assert_eq!(
        [at(0), at(4_999_999), at(5_000_000), at(5_999_999), at(6_000_000)],
        [1, 1, 3, 3, 4]
    );
    member.clock.run(Duration::from_secs(1));
    drop_history(&mut member, 3);
    let refusal = refused(member.parts().state.revision_at(4_000_000));
    assert!(matches!(refusal, Error::TimeTooOld { waterline: 3 }));
    assert_eq!(member.parts().state.revision_at(5_500_000).unwrap(), 3);
}

#[test]
fn a_user_key_reaches_no_table_but_its_own() {
    let mut member = Member::new();
    let state = &member.parts().state;
    let tables = [state.tables.meta, state.tables.counts, state.tables.changes];
    let rows = |member: &Member, table| {
        let mut rows = Vec::new();
        let spec = stele_engine::ScanSpec::default();
        member.parts().state.store().read(table, spec, |cell| rows.push(text(cell.row))).unwrap();
        rows
    };
    for key in ["numbers", "alarms", "waterline", "b", "bnumbers", "\0\0\0\0\0\0\0\u{2}\0\0\0\0"] {
        member.propose(Command::Put(Put::new(key, "x"))).unwrap();
        member.delete(KeyRange::single(key));
    }
    assert_eq!(rows(&member, tables[0]), ["numbers"]);
    assert_eq!(rows(&member, tables[1]), ["b"], "one bucket, which starts at the empty key");
    assert_eq!(rows(&member, tables[2]).len(), 12);
    member.restart();
    assert_eq!(member.range(&RangeQuery::new(KeyRange::all())).unwrap().1.count, 0);
}

#[test]
fn a_reader_that_stalls_goes_on_where_it_was() {
    let mut member = Member::new();
    for _ in 0..3 {
        for key in ["a", "b", "c", "d", "e"] {
            member.put(key, "value");
        }
    }
    let all = RangeQuery::new(KeyRange::all());
    let descending = RangeQuery { order: Order::Descend, ..all.clone() };
    let sorted = RangeQuery { target: Target::Mod, ..all.clone() };
    let filtered = RangeQuery { mod_min: 14, limit: 2, ..all.clone() };
    let limited = RangeQuery { limit: 3, ..all.clone() };
    for (query, expected, more) in [
        (all, "abcde", false),
        (descending, "edcba", false),
        (sorted, "abcde", false),
        (filtered, "cd", true),
        (limited, "abc", true),
    ] {
        let state = &member.parts().state;
        let mut scan = state.open_range(&query, Floor::Compacted).unwrap();
        let mut keys = String::new();
        let summary = loop {
            let next = scan.next(1, &mut |view| keys.push(view.key[0] as char));
            if let Some(summary) = next.unwrap() {
                break summary;
            }
            // The engine keeps the snapshot of a partly read row for only a few
            // minutes.
            member.clock.run(Duration::from_secs(3600));
        };
        assert_eq!((&keys[..], summary.more, summary.count), (expected, more, 5));
    }
}

#[test]
fn a_range_whose_history_goes_while_it_is_read_ends_with_etcds_refusal() {
    let mut member = Member::new();
    for key in ["a", "b", "c"] {
        member.put(key, "1");
    }
    let revision = member.revision();
    let query = RangeQuery::new(KeyRange::all()).at(revision);
    let mut scans = [Floor::Compacted, Floor::Retained]
        .map(|floor| member.parts().state.open_range(&query, floor).unwrap());
    for key in ["a", "b", "c"] {
        member.put(key, "2");
    }
    member.propose(Command::Waterline { revision: revision + 3 }).unwrap();
    let mut errors = Vec::new();
    for scan in &mut scans {
        let next = scan.next(1, &mut |_| {});
        errors.push(next.unwrap_err());
    }
    assert!(matches!(errors[0], Error::Compacted { .. }), "{}", errors[0]);
    assert!(matches!(errors[1], Error::TooOld { .. }), "{}", errors[1]);
}
