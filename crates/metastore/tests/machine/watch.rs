//! Watches: no gaps, no duplicates, in order, however slow a watcher is.

use std::sync::Arc;

use bytes::Bytes;
use stele_metastore::Error;
use stele_metastore::command::{Command, Delete, KeyRange, Op, Put, Txn};
use stele_metastore::machine::MachineSettings;
use stele_metastore::watch::{Event, EventKind, Hub};

use crate::machine::harness::{Member, refused, text};
use crate::machine::model::{Model, ModelEvent};

pub fn plain(events: &[Event]) -> Vec<ModelEvent> {
    let plain = events.iter().map(|event| {
        let key = Bytes::copy_from_slice(event.key());
        (event.kind, key, event.revision, event.prev_value())
    });
    plain.collect()
}

/// Follows a key range up to a revision in small steps.
async fn follow(hub: Arc<Hub>, from: i64, to: i64, step: i64, range: KeyRange) -> Vec<ModelEvent> {
    let mut cursor = hub.cursor(from);
    let mut events = Vec::new();
    while cursor.next() <= to {
        cursor.changed().await;
        let until = cursor.next() + step;
        let mut taken = Vec::new();
        cursor.take(until, &mut |key| range.contains(key), &mut taken).unwrap();
        assert!(taken.iter().all(|event| event.revision < cursor.next()));
        events.extend(plain(&taken));
        tokio::task::yield_now().await;
    }
    events.retain(|(_, _, revision, _)| *revision <= to);
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_watcher_sees_every_change_once_and_in_order() {
    const ENTRIES: usize = 600;
    // The ring is so small that slow watchers fall behind it.
    let mut member =
        Member::with(MachineSettings { ring_bytes_max: 4096, ..MachineSettings::default() });
    let mut model = Model::new();
    let mut entries = Vec::new();
    for at in 0..ENTRIES {
        let key =
            |n: usize| format!("{}{}", if n.is_multiple_of(2) { "even" } else { "odd" }, n % 10);
        let mut commands = vec![Command::Put(Put::new(key(at * 7), at.to_string()))];
        if at % 5 == 0 {
            commands.push(Command::Put(Put::new(key(at * 3 + 1), "twice")));
        }
        if at % 9 == 0 {
            commands.push(Command::Delete(Delete::new(KeyRange::prefix("even"))));
        }
        for command in &commands {
            model.apply(command);
        }
        entries.push(commands);
    }
    let last = model.revision();
    let hub = member.parts().hub.clone();
    let ranges = [KeyRange::all(), KeyRange::prefix("even"), KeyRange::single("odd3")];
    let mut watchers = Vec::new();
    for (at, from) in [2, 2, 50, 300, last - 1, last].into_iter().enumerate() {
        for range in &ranges {
            let step = [0, 3, 1000][at % 3];
            let task = tokio::spawn(follow(hub.clone(), from, last, step, range.clone()));
            watchers.push((from, range.clone(), task));
        }
    }
    let writer = tokio::task::spawn_blocking(move || {
        for commands in &entries {
            member.entry(commands);
        }
        member
    });
    for (from, range, task) in watchers {
        let expected: Vec<_> = model
            .events
            .iter()
            .filter(|(_, key, revision, _)| *revision >= from && range.contains(key))
            .cloned()
            .collect();
        assert_eq!(task.await.unwrap(), expected, "from {from} over {range:?}");
    }
    drop(hub);
    let mut member = writer.await.unwrap();
    assert_eq!(member.revision(), last);
    member.restart();
    assert_eq!(plain(&member.events_from(2).unwrap()), model.events);
}

#[test]
fn events_carry_user_keys_their_values_and_what_was_before() {
    let mut member = Member::new();
    member.put("a", "1");
    let live = member.parts().hub.cursor(3);
    member.put("a", "2");
    drop(live);
    for _ in 0..2 {
        let events = member.events_from(2).unwrap();
        assert_eq!(events.len(), 2);
        assert_eq!((text(events[0].key()), events[0].created), ("a".to_string(), true));
        assert_eq!((events[0].prev_value(), events[1].prev_value()), (None, Some(b"1".to_vec())));
        assert!(!events[1].created);
        member.restart();
    }
}

#[test]
fn a_watcher_that_nobody_was_before_misses_nothing() {
    let mut member = Member::new();
    member.put("a", "1");
    let mut early = member.parts().hub.cursor(3);
    member.put("a", "2");
    let mut events = Vec::new();
    early.take(i64::MAX, &mut |_| true, &mut events).unwrap();
    assert_eq!((events.len(), early.next()), (1, 4));
    drop(early);
    member.put("a", "3");
    assert_eq!(member.events_from(3).unwrap().len(), 2);
    // A cursor that starts in the future gets nothing before that.
    let mut future = member.parts().hub.cursor(6);
    member.put("a", "4");
    events.clear();
    future.take(i64::MAX, &mut |_| true, &mut events).unwrap();
    assert_eq!((events.len(), future.next()), (0, 6));
    member.put("a", "5");
    future.take(i64::MAX, &mut |_| true, &mut events).unwrap();
    assert_eq!((events.len(), events[0].revision), (1, 6));
}

#[test]
fn a_watcher_that_compaction_overtakes_receives_the_start_of_history() {
    let mut member =
        Member::with(MachineSettings { ring_bytes_max: 0, ..MachineSettings::default() });
    let mut slow = member.parts().hub.cursor(2);
    for at in 0..10 {
        member.propose(Command::Put(Put::new("k", at.to_string()))).unwrap();
    }
    member.propose(Command::Compact { revision: 6 }).unwrap();
    let refusal = refused(slow.take(i64::MAX, &mut |_| true, &mut Vec::new()));
    assert!(matches!(refusal, Error::Compacted { compacted: 6 }));
    assert_eq!(member.events_from(6).unwrap().len(), 6);
    let mut native = member.parts().hub.cursor_retained(2);
    let mut events = Vec::new();
    native.take(i64::MAX, &mut |_| true, &mut events).unwrap();
    assert_eq!(events.len(), 10, "native watchers go down to the waterline");
}

#[test]
fn a_hundred_watchers_share_the_bytes_of_an_event() {
    let mut member = Member::new();
    let hub = member.parts().hub.clone();
    let mut cursors: Vec<_> = (0..100).map(|_| hub.cursor(2)).collect();
    member.propose(Command::Put(Put::new("k", vec![7; 10_000]))).unwrap();
    let mut places = std::collections::HashSet::new();
    for cursor in &mut cursors {
        let mut events = Vec::new();
        cursor.take(i64::MAX, &mut |_| true, &mut events).unwrap();
        places.insert(events[0].wire(true).as_ptr() as usize);
    }
    assert_eq!(places.len(), 1);
}

#[test]
fn a_key_that_one_transaction_puts_and_deletes_has_both_events() {
    let mut member = Member::new();
    member.put("b", "old");
    let all = || Op::Delete(Delete::new(KeyRange::from_wire("a".into(), vec![0].into())));
    let put = |key: &'static str| Op::Put(Put::new(key, "new"));
    let txn = |success| Command::Txn(Txn { success, ..Txn::default() });
    let mut live = member.parts().hub.cursor(3);
    member.propose(txn(vec![put("b"), put("c"), all()])).unwrap();
    member.propose(txn(vec![all(), put("b")])).unwrap();
    member.propose(txn(vec![all(), put("b")])).unwrap();
    let mut events = Vec::new();
    live.take(i64::MAX, &mut |_| true, &mut events).unwrap();
    drop(live);
    let old = Some(b"old".to_vec());
    let event = |kind, key: &'static str, revision, prev: &Option<Vec<u8>>| {
        (kind, Bytes::from(key), revision, prev.clone())
    };
    use EventKind::{Delete as Gone, Put as Set};
    let expected = [
        event(Set, "b", 3, &old),
        event(Set, "c", 3, &None),
        event(Gone, "b", 3, &old),
        event(Gone, "c", 3, &None),
        event(Set, "b", 4, &None),
        event(Gone, "b", 5, &Some(b"new".to_vec())),
        event(Set, "b", 5, &None),
    ];
    assert_eq!(plain(&events), expected);
    for flush in [false, true] {
        let history = member.events_from(3).unwrap();
        assert_eq!(plain(&history), expected);
        let wires =
            |events: &[Event]| events.iter().map(|e| e.wire(true).to_vec()).collect::<Vec<_>>();
        assert_eq!(wires(&history), wires(&events));
        assert_eq!(member.parts().state.counts.read().total(), 1);
        if flush {
            member.flush();
        }
        member.restart();
    }
}

fn poll<T>(future: &mut (impl Future<Output = T> + Unpin)) -> std::task::Poll<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(future).poll(&mut context)
}

#[tokio::test]
async fn watchers_that_lag_read_history_in_turn_and_those_that_do_not_lag_go_on() {
    let mut member = Member::new();
    member.put("k", "before anybody watched");
    let hub = member.parts().hub.clone();
    let mut live = hub.cursor(3);
    member.put("k", "recent");
    let mut turns = Vec::new();
    for _ in 0..Hub::history_readers_max() {
        turns.push(hub.history_permit().await);
    }
    let wants_all = || |_: &[u8]| true;
    let (mut events, mut wanted) = (Vec::new(), wants_all());
    let mut taking = Box::pin(live.take_with_permit(i64::MAX, &mut wanted, &mut events));
    assert!(poll(&mut taking).is_ready(), "the ring has what it wants");
    drop(taking);
    assert_eq!(events.len(), 1);
    let mut cursors: Vec<_> = (0..5).map(|_| hub.cursor(2)).collect();
    let mut taken: Vec<Vec<Event>> = vec![Vec::new(); cursors.len()];
    let mut wanted: Vec<_> = cursors.iter().map(|_| wants_all()).collect();
    let lagging = cursors.iter_mut().zip(&mut wanted).zip(&mut taken);
    let mut lagging: Vec<_> = lagging
        .map(|((cursor, wanted), taken)| Box::pin(cursor.take_with_permit(i64::MAX, wanted, taken)))
        .collect();
    assert!(lagging.iter_mut().all(|taking| poll(taking).is_pending()));
    assert_eq!(hub.history_reads(), 0, "all of them queue");
    drop(turns);
    for taking in lagging {
        taking.await.unwrap();
    }
    assert_eq!(hub.history_reads(), 5);
    assert!(taken.iter().all(|events| events.len() == 1));
}
