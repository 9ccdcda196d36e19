//! T5, T7, T8, T9, T11, D2 and the rules of conflicts: txns and what they decide.

use stele_engine::schema::{Family, Purge, Schema};
use stele_engine::*;

use super::fixture::*;

#[test]
fn t5_txn_decides_whatever_the_timestamps_and_the_order_of_fragments() {
    let machine = Machine::new(1);
    let store = machine.open();
    let table = store.create_table("t", schema()).unwrap();
    let at = |timestamp: i64, value: &str| {
        to_row(table, b"r", |c| c.set(b"f", b"q", timestamp, value.as_bytes()))
    };
    let expect = |store: &Store, values: &[&str]| {
        let found = cells(store, table, View::Durable);
        assert_eq!(found.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), values);
    };
    put(&store, &at(1000, "far ahead"));
    store.flush(table).unwrap();
    put(&store, &at(5, "one"));
    store.flush(table).unwrap();
    put(&store, &at(5, "two"));
    expect(&store, &["far ahead", "two"]);
    store.flush(table).unwrap();
    expect(&store, &["far ahead", "two"]);
    put(&store, &to_row(table, b"r", |c| c.delete_column(b"f", b"q")));
    store.flush(table).unwrap();
    put(&store, &at(3, "late"));
    expect(&store, &["late"]);
    store.flush(table).unwrap();
    expect(&store, &["late"]);
    store.compact(table).unwrap();
    expect(&store, &["late"]);
    let machine = machine.crash(store);
    expect(&machine.open(), &["late"]);
}

#[test]
fn t7_what_the_policy_purges_is_never_returned() {
    let machine = Machine::new(1);
    let store = machine.open();
    let purge = Purge::Any(vec![Purge::MaxVersions(2), Purge::MaxAge(50_000_000)]);
    let family = Family::with_purge("f", purge);
    let table = store.create_table("t", Schema::with_families([family]).unwrap()).unwrap();
    let now = 1_000_000_000;
    let at = |timestamp: i64| {
        let value = timestamp.to_string();
        to_row(table, b"r", |c| c.set(b"f", b"q", timestamp, value.as_bytes()))
    };
    let expect = |offsets: &[i64]| {
        let expected: Vec<_> =
            offsets.iter().map(|by| ("r".to_string(), (now + by).to_string())).collect();
        assert_eq!(cells(&store, table, View::Durable), expected);
    };
    let everywhere = |offsets: &[i64]| {
        expect(offsets);
        store.flush(table).unwrap();
        expect(offsets);
        store.compact(table).unwrap();
        expect(offsets);
    };
    put(&store, &at(now - 60_000_000));
    everywhere(&[]);
    put(&store, &at(now - 20_000_000));
    put(&store, &at(now - 30_000_000));
    everywhere(&[-20_000_000, -30_000_000]);
    put(&store, &at(now));
    everywhere(&[0, -20_000_000]);
    machine.clock.advance(std::time::Duration::from_secs(40));
    everywhere(&[0]);
}

#[test]
fn t8_a_txn_from_before_a_reopen_can_only_conflict() {
    let machine = Machine::new(1);
    let store = machine.open();
    let table = store.create_table("t", schema()).unwrap();
    let before = put(&store, &set(table, "r", "1"));
    store.close().unwrap();
    let store = machine.open();
    let stale = store.apply(&set(table, "r", "2"), before, Durability::Durable);
    assert!(matches!(&stale, Err(error @ Error::MutationConflict { .. }) if error.is_retryable()));
    let fresh = store.read(table, ScanSpec::row(b"r"), |_| {}).unwrap();
    assert!(fresh > before);
    store.apply(&set(table, "r", "2"), fresh, Durability::Durable).unwrap();
}

#[test]
fn t8_a_spent_counter_takes_a_new_generation_and_numbers_only_rise() {
    let machine = Machine::new(1);
    let mut options = Options::default();
    options.memory.generation_commits_max = 3;
    let mut last = Txn::ZERO;
    let mut table = None;
    for _ in 0..3 {
        let store = machine.open_with(options.clone());
        let table = *table.get_or_insert_with(|| store.create_table("t", schema()).unwrap());
        let first = store.progress().1.generation();
        for _ in 0..10 {
            let txn = put(&store, &count(table, "r"));
            assert!(txn > last && txn.counter() <= 3, "{txn} after {last}");
            last = txn;
        }
        assert_eq!(last.generation(), first + 3);
        assert_eq!(store.configs().unwrap().epoch, last.generation(), "it is not durable");
    }
    assert_eq!(sum(&machine.open(), table.unwrap(), View::Durable), 30);
}

#[test]
fn t9_a_commit_over_several_tables_is_all_or_nothing() {
    let machine = Machine::new(1);
    let store = machine.open();
    let [a, b] = ["a", "b"].map(|name| store.create_table(name, schema()).unwrap());
    let both = |family: &[u8], value: &[u8]| {
        let mut commit = CommitBuilder::new();
        commit.table(a).row(b"r").set(b"f", b"q", 1, value);
        commit.table(b).row(b"r").set(family, b"q", 1, value);
        commit.finish()
    };
    let refused = store.apply(&both(b"unknown", b"1"), Txn::MAX, Durability::Durable);
    assert!(matches!(refused, Err(Error::UnknownColumnFamily { .. })));
    let scanned = store.read(a, ScanSpec::default(), |_| {}).unwrap();
    put(&store, &set(b, "r", "other"));
    let refused = store.apply(&both(b"f", b"2"), scanned, Durability::Durable);
    assert!(matches!(refused, Err(Error::MutationConflict { .. })));
    assert_eq!(cells(&store, a, View::Latest), pairs(&[]));
    put(&store, &both(b"f", b"3"));
    for table in [a, b] {
        assert_eq!(cells(&store, table, View::Durable), pairs(&[("r", "3")]));
    }
}

#[test]
fn t9_two_stores_share_one_budget_and_one_cache() {
    let (one, two) = (Machine::new(1), Machine::new(2));
    let options = Options::default();
    let shared = Resources::new(&options);
    let open = |machine: &Machine| {
        let resources = shared.clone();
        Store::open_with(DIR.as_ref(), options.clone(), machine.world(), resources).unwrap()
    };
    let (one, two) = (open(&one), open(&two));
    let [a, b] = [&one, &two].map(|store| store.create_table("t", schema()).unwrap());
    let before = shared.budget.used();
    put(&one, &set(a, "r", &"x".repeat(100_000)));
    let with_one = shared.budget.used();
    put(&two, &set(b, "r", &"y".repeat(100_000)));
    let with_two = shared.budget.used();
    assert!(with_one >= before + 100_000 && with_two >= with_one + 100_000);
    assert_eq!(one.stats().memory_used_bytes, two.stats().memory_used_bytes);
    for (store, table, byte) in [(&one, a, 'x'), (&two, b, 'y')] {
        store.flush(table).unwrap();
        for _ in 0..2 {
            let value = &cells_in(store, table, ScanSpec::row(b"r"))[0].1;
            assert!(value.chars().all(|c| c == byte), "a block of the other store");
        }
    }
    assert!(one.stats().cache.hits > 0);
    assert_eq!(one.stats().cache, two.stats().cache);
}

#[test]
fn t11_a_range_delete_counts_where_the_row_filter_says_absent() {
    let machine = Machine::new(1);
    let store = machine.open();
    let table = store.create_table("t", schema()).unwrap();
    for row in ["a", "m", "z"] {
        put(&store, &set(table, row, "old"));
    }
    store.flush(table).unwrap();
    let mut commit = CommitBuilder::new();
    commit.table(table).delete_range(&RowRange::new("b", "y"));
    commit.row(b"n").set(b"f", b"q", 1, b"new");
    put(&store, &commit.finish());
    store.flush(table).unwrap();
    let expected = [("a", "old"), ("n", "new"), ("z", "old")];
    let check = |store: &Store| {
        assert_eq!(cells_in(store, table, ScanSpec::row(b"m")), pairs(&[]));
        assert_eq!(cells_in(store, table, ScanSpec::row(b"n")), pairs(&[("n", "new")]));
        assert_eq!(cells(store, table, View::Durable), pairs(&expected));
    };
    check(&store);
    let machine = machine.kill(store);
    let store = machine.open();
    check(&store);
    store.compact(table).unwrap();
    check(&store);
}

#[test]
fn d2_txns_keep_all_their_bits_everywhere() {
    let machine = Machine::new(1);
    let mut store = machine.open();
    let table = store.create_table("t", schema()).unwrap();
    // There must be something below it, or its txn need not be kept.
    put(&store, &set(table, "a", "0"));
    store.flush(table).unwrap();
    let txn = put(&store, &set(table, "r", "1"));
    assert!(txn.raw() > u64::from(u32::MAX));
    let check = |store: &Store| {
        let mut seen = Vec::new();
        let scanned = store.read(table, ScanSpec::row(b"r"), |cell| seen.push(cell.txn)).unwrap();
        assert_eq!(seen, [txn]);
        assert!(scanned >= txn);
    };
    check(&store);
    store = machine.open_again(store);
    check(&store);
    store.flush(table).unwrap();
    let configs = store.configs().unwrap();
    let file = configs.files().nth(1).unwrap();
    assert_eq!((file.txn_min, file.txn_max), (txn, txn));
    let chain = &configs.tables[&table].tablets[0].chains[0];
    assert_eq!(chain.flushed_through, txn);
    check(&store);
    check(&machine.open_again(store));
    let outcome = std::sync::Arc::new(parking_lot::Mutex::new(None));
    let store = machine.open();
    let later = put(&store, &set(table, "s", "2"));
    let seen = outcome.clone();
    store.on_durable(later, move |result| *seen.lock() = Some(result.is_ok()));
    assert_eq!(*outcome.lock(), Some(true));
    assert!(store.sync(later).unwrap() >= later);
}

#[test]
fn r1_1_8_conflict_memory_is_bounded_and_errs_on_the_safe_side() {
    let machine = Machine::new(1);
    let mut options = Options::default();
    options.memory.conflict_slots = 2;
    let store = machine.open_with(options);
    let table = store.create_table("t", schema()).unwrap();
    let early = store.read(table, ScanSpec::default(), |_| {}).unwrap();
    for number in 0..20 {
        put(&store, &set(table, &format!("{number}"), "x"));
    }
    let refused = store.apply(&set(table, "untouched", "x"), early, Durability::Durable);
    assert!(matches!(refused, Err(Error::MutationConflict { .. })));
    let now = store.read(table, ScanSpec::row(b"untouched"), |_| {}).unwrap();
    store.apply(&set(table, "untouched", "x"), now, Durability::Durable).unwrap();
}

#[test]
fn r1_1_9_of_two_inserts_if_absent_one_wins() {
    let machine = Machine::new(1);
    let store = machine.open();
    let table = store.create_table("t", schema()).unwrap();
    let absent = || {
        let mut found = 0;
        let txn = store.read(table, ScanSpec::row(b"r"), |_| found += 1).unwrap();
        (found == 0).then_some(txn)
    };
    let (one, two) = (absent().unwrap(), absent().unwrap());
    store.apply(&set(table, "r", "one"), one, Durability::Durable).unwrap();
    let second = store.apply(&set(table, "r", "two"), two, Durability::Durable);
    assert!(matches!(second, Err(Error::MutationConflict { .. })));
    assert!(absent().is_none());
    assert_eq!(cells(&store, table, View::Durable), pairs(&[("r", "one")]));
}

#[test]
fn r1_1_13_and_14_sync_answers_with_the_durable_txn_and_never_waits_for_the_future() {
    let machine = Machine::new(1);
    let store = machine.open();
    let table = store.create_table("t", schema()).unwrap();
    assert_eq!(store.sync(Txn::MAX).unwrap(), store.progress().1, "nothing to wait for");
    let first = put(&store, &set(table, "r", "1"));
    let last = put(&store, &set(table, "r", "2"));
    let syncs = machine.sim.counters().syncs;
    assert_eq!(store.sync(first).unwrap(), last);
    assert_eq!(store.sync(Txn::MAX).unwrap(), last);
    assert_eq!(machine.sim.counters().syncs, syncs, "an idle store has nothing to sync");
    let accepted = store.apply(&set(table, "r", "3"), Txn::MAX, Durability::Accepted).unwrap();
    assert_eq!(store.progress().0, last);
    assert_eq!(store.sync(Txn::MAX).unwrap(), accepted);
}

#[test]
fn r1_1_15_an_unknown_family_is_refused_and_nothing_is_applied() {
    let machine = Machine::new(1);
    let store = machine.open();
    let table = store.create_table("t", schema()).unwrap();
    let commit = to_row(table, b"r", |c| c.set(b"f", b"q", 1, b"x").set(b"no", b"q", 1, b"x"));
    let refused = store.apply(&commit, Txn::MAX, Durability::Durable).unwrap_err();
    assert_eq!(refused.to_string(), "table t has no column family \"no\"");
    assert_eq!(cells(&store, table, View::Latest), pairs(&[]));
}
