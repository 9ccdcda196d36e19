//! What the state machine costs without network and log: µs per put, per key
//! of a range, per event. `cargo run --release -p stele-metastore --example speed`.

use std::time::Instant;

use bytes::Bytes;
use stele_engine::world::World;
use stele_metastore::Result;
use stele_metastore::command::{
    Command, Compare, KeyRange, LEVEL_MAX, Op, Operand, Put, RangeQuery, Relation, Txn, encode,
};
use stele_metastore::consensus::{Committed, Machine};
use stele_metastore::machine::{self, MachineParts, MachineSettings};
use stele_metastore::state::{Floor, Identity};

const KEYS: usize = 100_000;

struct Member {
    parts: MachineParts,
    index: u64,
}

impl Member {
    fn apply(&mut self, proposals: Vec<Bytes>) -> Result<()> {
        self.index += 1;
        let entry = Committed { index: self.index, term: 1, proposals, awaited: true };
        self.parts.applier.apply(entry)?.into_iter().try_for_each(|answer| answer.map(drop))
    }

    fn apply_all(&mut self, what: &str, proposals: &[Bytes], per_entry: usize) -> Result<()> {
        let begun = Instant::now();
        for chunk in proposals.chunks(per_entry) {
            self.apply(chunk.to_vec())?;
        }
        let micros = begun.elapsed().as_secs_f64() * 1e6 / proposals.len() as f64;
        println!("{what}, {per_entry} per entry: {micros:.2} µs each");
        Ok(())
    }
}

fn key(at: usize) -> Bytes {
    // Spread, so that neighbours in time are not neighbours in order.
    Bytes::from(format!("key-{:08}", at * 7_919 % KEYS))
}

fn puts(value: &[u8]) -> Vec<Bytes> {
    let put = |at| Command::Put(Put::new(key(at), Bytes::copy_from_slice(value)));
    (0..KEYS).map(|at| encode(&put(at), 1_700_000_000_000_000 + at as i64)).collect()
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory for the store");
    let new = || Identity { cluster_id: 1, member_id: 1 };
    let parts = machine::open(dir.path(), MachineSettings::default(), World::real(), new)?;
    let mut member = Member { parts, index: 0 };
    // With the hashes that every put updates.
    member.apply(vec![encode(&Command::RaiseLevel { level: LEVEL_MAX }, 0)])?;
    member.apply_all("put of a new key", &puts(&[1; 256]), 64)?;
    member.apply_all("put of a known key", &puts(&[2; 256]), 64)?;
    member.apply_all("put of a known key", &puts(&[3; 256])[..20_000], 1)?;
    let cas = |at: usize| {
        Command::Txn(Txn {
            compares: vec![Compare {
                range: KeyRange::single(key(at)),
                relation: Relation::Greater,
                operand: Operand::Mod(0),
            }],
            success: vec![Op::Put(Put::new(key(at), vec![4; 256]))],
            failure: vec![],
        })
    };
    let cas: Vec<Bytes> = (0..50_000).map(|at| encode(&cas(at), 0)).collect();
    member.apply_all("compare and put", &cas, 64)?;

    let cursor = member.parts.hub.cursor(member.parts.state.revision() + 1);
    member.apply_all("put of a known key, watched", &puts(&[5; 256]), 64)?;
    let mut cursors: Vec<_> = (0..100).map(|_| member.parts.hub.cursor(cursor.next())).collect();
    let begun = Instant::now();
    let (mut events, mut taken) = (Vec::new(), 0);
    for cursor in &mut cursors {
        while cursor.next() <= member.parts.state.revision() {
            events.clear();
            cursor.take(i64::MAX, &mut |_| true, &mut events)?;
            taken += events.len();
        }
    }
    let micros = begun.elapsed().as_secs_f64() * 1e6 / taken as f64;
    println!("{taken} events of 100 watchers: {micros:.3} µs each");

    let state = &member.parts.state;
    for (what, flushed) in [("in memory", false), ("on disk", true)] {
        if flushed {
            state.store().flush(state.tables.user)?;
        }
        let query = RangeQuery::new(KeyRange::from_wire("key-0".into(), "key-00010000".into()));
        let (mut out, mut keys) = (Vec::with_capacity(8 << 20), 0);
        let begun = Instant::now();
        for _ in 0..20 {
            out.clear();
            state.range(&query, Floor::Compacted, &mut |view| {
                keys += 1;
                view.push_wire(&mut out);
            })?;
        }
        let micros = begun.elapsed().as_secs_f64() * 1e6 / f64::from(keys);
        println!("range of 10 k keys {what}: {micros:.3} µs a key");
        let begun = Instant::now();
        for at in 0..50_000 {
            let query = RangeQuery::new(KeyRange::single(key(at)));
            state.range(&query, Floor::Compacted, &mut |view| out.push(view.tail[0]))?;
        }
        println!("get {what}: {:.2} µs", begun.elapsed().as_secs_f64() * 1e6 / 50_000.0);
        let begun = Instant::now();
        for _ in 0..200 {
            let query =
                RangeQuery { count_only: true, ..RangeQuery::new(KeyRange::prefix("key-0")) };
            state.range(&query, Floor::Compacted, &mut |_| {})?;
        }
        println!(
            "count of 100 k keys {what}: {:.1} µs",
            begun.elapsed().as_secs_f64() * 1e6 / 200.0
        );
    }
    Ok(())
}
