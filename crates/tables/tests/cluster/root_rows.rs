//! The rows of META tablets keep the engine's contract for changing rows: applied once and
//! only to the row that is expected, whatever the coordinator loses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stele_engine::config::{
    Answer, Expected, FileName, Found, Mutation, OpId, Outcome, Reference, RowEdit, RowKey, Splice,
    Split, Submission, TabletConfig, TabletRow, TabletRows,
};
use stele_engine::world::sim::{Agenda, SimProcess};
use stele_engine::{RowRange, Rules, TabletId, Txn};
use stele_tables::coordinate::{Coordinator, EtcdFaults, Keys, Op, SimEtcd, Transaction};
use stele_tables::rows::{Holder, LogStart, OwnedRow, Owner, RootRows};
use stele_tables::{ClusterWorld, Incarnation, LeaseTimes};

use crate::simulation::{TABLE, schema};

/// The rows of one server, and what is around them.
struct Bench {
    agenda: Arc<Agenda>,
    etcd: SimEtcd,
    process: Arc<SimProcess>,
    rows: RootRows,
    next_slot: Arc<AtomicU64>,
}

const ID: TabletId = TabletId { incarnation: 1, number: 1 };

fn key(end: Option<&str>) -> RowKey {
    RowKey { table: TABLE, end: end.map(|end| end.as_bytes().to_vec()) }
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let agenda = Agenda::new(seed);
        let etcd = SimEtcd::new(&agenda);
        let process = SimProcess::start(&agenda);
        let sleeper = process.clone();
        let world = ClusterWorld {
            clock: agenda.clone(),
            sleep: Arc::new(move |time| Box::pin(sleeper.sleep(time))),
            coordinator: etcd.connect(&process),
            absent_for: Duration::ZERO,
            keys: Keys::of("one"),
            rules: Rules::CORRECTED,
        };
        let begun = Arc::new(Mutex::new(None));
        let slot = begun.clone();
        process.spawn(async move {
            let times = LeaseTimes::default();
            *slot.lock() = Some(Incarnation::begin(world, "s1", "sim", times).await);
        });
        assert!(agenda.run_for(Duration::from_secs(60), || begun.lock().is_some()));
        let incarnation = begun.lock().take().unwrap();
        process.spawn(incarnation.clone().keep());
        let next_slot = Arc::new(AtomicU64::new(0));
        let slots = next_slot.clone();
        let rows = RootRows::new(incarnation, move || slots.load(Ordering::SeqCst));
        rows.adopt(TABLE, Arc::new(schema()));
        let bench = Bench { agenda, etcd, process, rows, next_slot };
        let mut config = TabletConfig::new(ID, RowRange::all(), 1);
        config.loaded = false;
        let put = Op::put(Keys::of("one").tablet(TABLE, None), OwnedRow::new(config).encode());
        let transaction = Transaction { then: vec![put], ..Transaction::default() };
        bench.etcd.connect(&bench.process).transact(transaction, Box::new(|_| ()));
        bench.agenda.run_for(Duration::from_secs(1), || false);
        bench
    }

    fn wait<T>(&self, slot: &Mutex<Option<T>>) -> T {
        assert!(self.agenda.run_for(Duration::from_secs(600), || slot.lock().is_some()));
        slot.lock().take().unwrap()
    }

    fn submit(&self, mutation: &Mutation) -> Outcome {
        let slot = Arc::new(Mutex::new(None));
        let answered = slot.clone();
        let submission = Submission { mutations: vec![mutation.clone()], riders: Vec::new() };
        let done = move |answer: Answer| *answered.lock() = Some(answer);
        self.rows.submit(submission, Box::new(done));
        self.wait(&slot).outcomes.remove(0)
    }

    /// Reads a row, as often as necessary.
    fn read(&self, key: &RowKey) -> Option<TabletRow> {
        loop {
            let slot = Arc::new(Mutex::new(None));
            let answered = slot.clone();
            let done = move |found: Vec<Found>| *answered.lock() = Some(found);
            self.rows.read(vec![key.clone()], Box::new(done));
            match self.wait(&slot).remove(0) {
                Found::Row(row) => return Some(row),
                Found::Missing => return None,
                Found::Unknown => {}
            }
        }
    }

    fn stored(&self, end: Option<&str>) -> OwnedRow {
        let key = Keys::of("one").tablet(TABLE, end.map(str::as_bytes));
        OwnedRow::decode(&self.etcd.keys()[&key].value).unwrap()
    }

    /// Returns a mutation that loads or unloads the tablet.
    fn set_loaded(&self, number: u64, loaded: bool) -> Mutation {
        let (table, start, flushed) = (TABLE, Vec::new(), None);
        let edit = RowEdit::SetLoaded { table, tablet: ID, start, loaded, flushed };
        self.mutation(key(None), number, edit)
    }

    /// Returns a bench whose only tablet is loaded.
    fn loaded(seed: u64) -> Bench {
        let bench = Bench::new(seed);
        assert!(matches!(bench.submit(&bench.set_loaded(1000, true)), Outcome::Applied));
        bench
    }

    fn mutation(&self, key: RowKey, number: u64, edit: RowEdit) -> Mutation {
        let expected = self.read(&key).unwrap().expected();
        let op = OpId { incarnation: 1, number };
        Mutation { key, expected, lower: None, edits: vec![edit], op }
    }

    /// Returns a mutation that appends a file of the same number.
    fn append(&self, key: RowKey, number: u64) -> Mutation {
        let row = self.read(&key).unwrap();
        let edit = RowEdit::Splice(Splice {
            table: TABLE,
            tablet: row.config.id,
            load: row.config.load,
            start: row.config.rows.start.clone(),
            group: 0,
            remove: Vec::new(),
            add: vec![file(number)],
            flushed: None,
        });
        self.mutation(key, number, edit)
    }
}

fn file(number: u64) -> Reference {
    Reference {
        name: FileName { incarnation: 1, number },
        bytes: 100,
        cells: 1,
        txn_min: Txn::ZERO,
        txn_max: Txn::ZERO,
        rows: Some(RowRange::all()),
        families: None,
        facts: None,
        share: 100,
        unit: 0,
        joins: false,
    }
}

fn numbers(row: &TabletRow) -> Vec<u64> {
    row.config.files().map(|file| file.name.number).collect()
}

#[test]
fn scale_3_2_a_mutation_is_applied_once_and_only_to_the_row_that_it_expects() {
    let bench = Bench::loaded(1);
    let mutation = bench.append(key(None), 1);
    let before = bench.read(&key(None)).unwrap();
    let wrong = |change: fn(&mut Mutation)| {
        let mut mutation = mutation.clone();
        change(&mut mutation);
        let outcome = bench.submit(&mutation);
        let Outcome::Refused(found) = outcome else { panic!("{outcome:?}") };
        found
    };
    assert_eq!(wrong(|mutation| mutation.expected.rev += 1), Some(before.clone()));
    assert_eq!(wrong(|mutation| mutation.expected.load += 1), Some(before.clone()));
    assert_eq!(wrong(|mutation| mutation.expected.id.number += 7), Some(before.clone()));
    assert_eq!(wrong(|mutation| mutation.key.end = Some(b"n".to_vec())), None);
    assert_eq!(bench.read(&key(None)), Some(before.clone()));
    assert!(matches!(bench.submit(&mutation), Outcome::Applied));
    let after = bench.read(&key(None)).unwrap();
    assert!(after.config.rev > before.config.rev);
    assert_eq!((after.op, numbers(&after)), (Some(mutation.op), vec![1]));
    // A duplicate finds its own id in the row.
    let Outcome::Refused(found) = bench.submit(&mutation) else { panic!() };
    assert_eq!(found, Some(after));
}

#[test]
fn scale_3_2_changes_are_applied_once_whatever_is_lost_or_late() {
    for seed in 0..30 {
        let bench = Bench::loaded(seed);
        bench.etcd.set_faults(EtcdFaults { refused: 15, answer_lost: 15, late: 15 });
        for number in 1..20 {
            let mutation = bench.append(key(None), number);
            // The rule of R1.5 for outcomes that are unknown.
            loop {
                match bench.submit(&mutation) {
                    Outcome::Applied => break,
                    Outcome::Unknown => {}
                    Outcome::Refused(row)
                        if row.as_ref().and_then(|row| row.op) == Some(mutation.op) =>
                    {
                        break;
                    }
                    outcome => panic!("seed {seed}: {outcome:?}"),
                }
            }
        }
        bench.agenda.run_for(Duration::from_secs(5), || false);
        let row = bench.read(&key(None)).unwrap();
        assert_eq!(numbers(&row), (1..20).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn r3_3_a_load_names_owner_and_log_and_an_unload_clears_them() {
    let bench = Bench::new(1);
    bench.next_slot.store(7, Ordering::SeqCst);
    assert!(matches!(bench.submit(&bench.set_loaded(1, true)), Outcome::Applied));
    let row = bench.stored(None);
    let holder: Holder = bench.rows.holder();
    assert_eq!(row.log, Some(LogStart { epoch: holder.epoch, from: 7 }));
    assert_eq!((row.owner, row.config.load, row.config.loaded), (Owner::Server(holder), 2, true));
    assert!(matches!(bench.submit(&bench.set_loaded(2, false)), Outcome::Applied));
    let row = bench.stored(None);
    assert_eq!((row.owner, row.log, row.config.loaded), (Owner::Nobody, None, false));
}

#[test]
fn r8_8_a_split_and_a_join_are_one_transaction() {
    let bench = Bench::loaded(1);
    let row = bench.read(&key(None)).unwrap().config;
    let (tablet, load) = (row.id, row.load);
    let split = Split { table: TABLE, tablet, load, row: b"m".to_vec(), shares: Vec::new() };
    let split = bench.mutation(key(None), 2, RowEdit::Split(split));
    assert!(matches!(bench.submit(&split), Outcome::Applied));
    let [lower, upper] = [Some("m"), None].map(|end| bench.stored(end));
    assert_eq!(lower.config.rows, RowRange { start: Vec::new(), end: Some(b"m".to_vec()) });
    assert_eq!((upper.config.id, upper.op), (ID, Some(split.op)));
    // Both halves have the same owner and depend on the same log.
    assert_eq!((&lower.owner, lower.log), (&upper.owner, upper.log));
    assert_ne!(lower.config.id, upper.config.id);
    let held = |row: &OwnedRow| (row.config.id, row.config.load);
    let ids = (held(&lower), held(&upper));
    let join =
        stele_engine::config::Join { table: TABLE, row: b"m".to_vec(), lower: ids.0, upper: ids.1 };
    let mut join = bench.mutation(key(None), 3, RowEdit::Join(join));
    let TabletConfig { id, load, rev, .. } = *lower.config;
    join.lower = Some((key(Some("m")), Expected { id, load, rev }));
    assert!(matches!(bench.submit(&join), Outcome::Applied));
    let keys: BTreeMap<_, _> = bench.etcd.keys();
    let rows = keys.keys().filter(|key| key.starts_with(b"/stele/one/rows/"));
    assert_eq!(rows.count(), 1);
    assert_eq!(bench.stored(None).config.rows, RowRange::all());
}

#[test]
fn r2_2_a_server_without_its_lease_changes_nothing() {
    let bench = Bench::loaded(1);
    let mutation = bench.append(key(None), 1);
    let lease = bench.etcd.keys()[&Keys::of("one").server("s1")].lease.unwrap();
    bench.etcd.lose_lease(lease);
    assert!(matches!(bench.submit(&mutation), Outcome::Refused(Some(_))));
    // A server of the same id is another incarnation.
    let process = SimProcess::start(&bench.agenda);
    let put = Op::put(Keys::of("one").server("s1"), "x");
    let transaction = Transaction { then: vec![put], ..Transaction::default() };
    bench.etcd.connect(&process).transact(transaction, Box::new(|_| ()));
    bench.agenda.run_for(Duration::from_secs(1), || false);
    // By now the server knows that its lease has ended, and does not even try.
    assert!(matches!(bench.submit(&mutation), Outcome::Unknown));
    assert!(numbers(&bench.read(&key(None)).unwrap()).is_empty());
}
