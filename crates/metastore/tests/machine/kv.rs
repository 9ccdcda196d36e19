//! Puts, deletes, ranges and transactions, one test for each of etcd's rules.

use stele_metastore::Error;
use stele_metastore::command::{
    Command, Compare, Delete, KeyRange, Op, OpAnswer, Operand, Order, Put, RangeQuery, Relation,
    Target, Txn,
};
use stele_metastore::machine::MachineSettings;

use crate::machine::harness::{Member, prefix, refused, text};

#[test]
fn a_fresh_store_is_at_revision_1_and_its_first_write_at_2() {
    let mut member = Member::new();
    assert_eq!(member.revision(), 1);
    assert_eq!(member.put("a", "1"), 2);
}

#[test]
fn a_put_of_the_same_value_is_a_change_too() {
    let mut member = Member::new();
    member.put("a", "1");
    let put = Put { prev_kv: true, ..Put::new("a", "1") };
    let answer = member.put_with(put).unwrap();
    let prev = answer.prev.unwrap();
    assert_eq!((answer.revision, prev.view().version()), (3, 1));
    let tail = member.parts().state.get(b"a", 3).unwrap().unwrap();
    let fields = stele_metastore::state::Tail::parse(&tail);
    assert_eq!((fields.create_revision, fields.mod_revision, fields.version), (2, 3, 2));
}

#[test]
fn a_key_that_was_deleted_starts_over() {
    let mut member = Member::new();
    member.put("a", "1");
    member.put("a", "2");
    let deleted = member.delete(KeyRange::single("a"));
    assert_eq!((deleted.deleted, deleted.revision), (1, 4));
    assert_eq!(deleted.prev[0].view().value(), b"2");
    member.put("a", "3");
    let tail = member.parts().state.get(b"a", 5).unwrap().unwrap();
    let fields = stele_metastore::state::Tail::parse(&tail);
    assert_eq!((fields.create_revision, fields.version), (5, 1));
}

#[test]
fn deleting_nothing_changes_nothing() {
    let mut member = Member::new();
    member.put("b", "1");
    for range in [KeyRange::single("a"), KeyRange::from_wire("z".into(), "a".into())] {
        let answer = member.delete(range);
        assert_eq!((answer.deleted, answer.revision), (0, 2));
    }
    assert_eq!(member.revision(), 2);
}

#[test]
fn a_put_can_keep_the_value_or_the_lease_that_is_there() {
    let mut member = Member::new();
    member.lease(7, 60);
    let kept = Put { value: None, ..Put::new("a", "") };
    assert!(matches!(refused(member.put_with(kept.clone())), Error::KeyNotFound));
    let unleased = Put { lease: None, ..Put::new("a", "x") };
    assert!(matches!(refused(member.put_with(unleased.clone())), Error::KeyNotFound));
    member.put_with(Put { lease: Some(7), ..Put::new("a", "1") }).unwrap();
    member.put_with(unleased).unwrap();
    let seen = |member: &Member| {
        let tail = member.parts().state.get(b"a", member.revision()).unwrap().unwrap();
        let fields = stele_metastore::state::Tail::parse(&tail);
        (fields.lease, text(fields.value))
    };
    assert_eq!(seen(&member), (7, "x".to_string()));
    member.put_with(kept).unwrap();
    assert_eq!(seen(&member), (0, "x".to_string()));
    let unknown = Put { lease: Some(8), value: None, ..Put::new("none", "") };
    assert!(
        matches!(refused(member.put_with(unknown)), Error::LeaseNotFound),
        "the lease comes first"
    );
}

#[test]
fn a_range_is_read_at_any_revision_that_is_not_gone_or_to_come() {
    let mut member = Member::new();
    member.put("a", "1");
    member.put("b", "1");
    member.put("a", "2");
    member.delete(KeyRange::single("b"));
    let at = |revision| member.range(&prefix("").at(revision)).unwrap();
    let pairs = |revision| at(revision).0.into_iter().map(|(k, v)| k + &v).collect::<Vec<_>>();
    assert_eq!(pairs(2), ["a1"]);
    assert_eq!(pairs(3), ["a1", "b1"]);
    assert_eq!(pairs(4), ["a2", "b1"]);
    assert_eq!(pairs(0), ["a2"]);
    assert_eq!(at(2).1.revision, 5, "the header tells the newest revision");
    assert!(matches!(refused(member.range(&prefix("").at(6))), Error::FutureRevision));
    member.propose(Command::Compact { revision: 4 }).unwrap();
    assert!(matches!(refused(member.range(&prefix("").at(3))), Error::Compacted { compacted: 4 }));
    assert!(member.range(&prefix("").at(4)).is_ok());
}

fn abc() -> Member {
    let mut member = Member::new();
    for (key, value) in [("a", "3"), ("b", "1"), ("c", "2"), ("b", "0")] {
        member.put(key, value);
    }
    member
}

#[test]
fn a_limit_tells_that_there_is_more_and_the_count_ignores_it() {
    let member = abc();
    let limited = |limit| {
        let (found, summary) = member.range(&RangeQuery { limit, ..prefix("") }).unwrap();
        (found.len(), summary.more, summary.count)
    };
    assert_eq!(limited(2), (2, true, 3));
    assert_eq!(limited(3), (3, false, 3));
    assert_eq!(limited(-5), (3, false, 3));
    let counted = member.range(&RangeQuery { count_only: true, limit: 1, ..prefix("") }).unwrap();
    assert_eq!((counted.0.len(), counted.1.more, counted.1.count), (0, false, 3));
}

#[test]
fn ranges_are_ordered_and_filtered_as_requested() {
    let member = abc();
    let keys = |query: RangeQuery| member.keys(&query).concat();
    let by = |target, order| RangeQuery { target, order, ..prefix("") };
    assert_eq!(keys(by(Target::Key, Order::Descend)), "cba");
    assert_eq!(keys(by(Target::Mod, Order::Ascend)), "acb");
    assert_eq!(keys(by(Target::Create, Order::Descend)), "cba");
    assert_eq!(keys(by(Target::Value, Order::Ascend)), "bca");
    assert_eq!(keys(by(Target::Version, Order::Descend)), "bac");
    assert_eq!(keys(RangeQuery { limit: 2, ..by(Target::Key, Order::Descend) }), "cb");
    assert_eq!(keys(RangeQuery { limit: 1, ..by(Target::Value, Order::Ascend) }), "b");
    // An implied order is applied after the limit: c is not examined.
    assert_eq!(keys(RangeQuery { limit: 1, ..by(Target::Mod, Order::None) }), "a");
    let filtered = RangeQuery { mod_min: 4, limit: 1, ..prefix("") };
    let (found, summary) = member.range(&filtered).unwrap();
    assert_eq!((found[0].0.as_str(), summary.more, summary.count), ("b", true, 3));
    let old = RangeQuery { create_max: 3, mod_max: 4, ..prefix("") };
    assert_eq!(keys(old), "a");
}

#[test]
fn keys_only_leaves_out_values_and_nothing_else() {
    let member = abc();
    let query = RangeQuery { keys_only: true, ..prefix("b") };
    let mut found = Vec::new();
    let floor = stele_metastore::state::Floor::Compacted;
    let sink = &mut |view: stele_metastore::state::KeyView<'_>| {
        found.push((text(view.key), view.version(), view.value().len()));
    };
    member.parts().state.range(&query, floor, sink).unwrap();
    assert_eq!(found, [("b".to_string(), 2, 0)]);
}

fn compare(key: &'static str, relation: Relation, operand: Operand) -> Compare {
    Compare { range: KeyRange::single(key), relation, operand }
}

fn succeeds(member: &mut Member, compare: Compare) -> bool {
    member.txn(Txn { compares: vec![compare], ..Txn::default() }).unwrap().1.succeeded
}

#[test]
fn compares_follow_their_table() {
    let mut member = abc();
    let mut is = |key, relation, operand| succeeds(&mut member, compare(key, relation, operand));
    use Operand::{Create, Lease, Mod, Unknown, Value, Version};
    use Relation::{Any, Equal, Greater, Less, NotEqual};
    assert!(is("b", Equal, Version(2)) && is("b", Equal, Mod(5)) && is("b", Equal, Create(3)));
    assert!(is("b", Greater, Mod(4)) && is("b", Less, Mod(6)) && !is("b", NotEqual, Mod(5)));
    assert!(is("b", Equal, Value("0".into())) && is("b", Less, Value("1".into())));
    assert!(is("b", Equal, Lease(0)));
    // A missing key is all zeros, but has no value.
    assert!(is("x", Equal, Version(0)) && is("x", Less, Mod(1)) && is("x", Equal, Lease(0)));
    assert!(!is("x", Equal, Value("".into())) && !is("x", NotEqual, Value("a".into())));
    // Operands of a later protocol.
    assert!(is("b", Any, Version(9)) && is("b", Equal, Unknown) && !is("b", NotEqual, Unknown));
}

#[test]
fn a_compare_of_a_range_holds_for_every_key_of_it() {
    let mut member = abc();
    let mut over = |from: &'static str, to: &'static str, operand| {
        let range = KeyRange::from_wire(from.into(), to.into());
        succeeds(&mut member, Compare { range, relation: Relation::Less, operand })
    };
    assert!(over("a", "d", Operand::Mod(6)));
    assert!(!over("a", "d", Operand::Mod(5)));
    assert!(over("a", "b", Operand::Mod(5)));
    assert!(over("x", "\0", Operand::Mod(1)), "an empty range is like one key of zeros");
    assert!(!over("x", "\0", Operand::Value("a".into())));
}

fn put(key: &'static str, value: &'static str) -> Op {
    Op::Put(Put::new(key, value))
}

#[test]
fn operations_of_a_txn_see_those_before_them_at_one_revision() {
    let mut member = abc();
    let txn = Txn {
        success: vec![
            Op::Range(prefix("")),
            put("d", "4"),
            Op::Range(RangeQuery { limit: 2, ..prefix("b") }),
            Op::Delete(Delete::new(KeyRange::prefix("b"))),
            Op::Range(RangeQuery { limit: 2, ..prefix("") }),
            Op::Range(RangeQuery { count_only: true, ..prefix("") }),
        ],
        ..Txn::default()
    };
    let (revision, answer) = member.txn(txn).unwrap();
    assert_eq!((revision, answer.succeeded), (6, true));
    let results: Vec<String> = answer.ops.iter().map(show).collect();
    assert_eq!(
        results,
        ["5 abc 3", "put 6", "6 b 1", "deleted 1 at 6", "6 ac 3 and more", "6  3",]
    );
}

#[test]
fn a_range_of_a_txn_descends_over_stored_and_changed_keys() {
    let mut member = abc();
    let descending = || RangeQuery { order: Order::Descend, ..prefix("") };
    let txn = Txn {
        success: vec![
            put("d", "4"),
            Op::Delete(Delete::new(KeyRange::prefix("b"))),
            put("aa", "5"),
            Op::Range(descending()),
            Op::Range(RangeQuery { limit: 3, ..descending() }),
            Op::Range(RangeQuery { limit: 1, ..descending() }.at(5)),
        ],
        ..Txn::default()
    };
    let (_, answer) = member.txn(txn).unwrap();
    let results: Vec<String> = answer.ops[3..].iter().map(show).collect();
    assert_eq!(results, ["6 dcaaa 4", "6 dcaa 4 and more", "6 c 3 and more"]);
}

fn show(answer: &OpAnswer) -> String {
    match answer {
        OpAnswer::Range(range) => {
            let keys: Vec<String> = range.kvs.iter().map(|kv| text(&kv.key)).collect();
            let more = if range.more { " and more" } else { "" };
            format!("{} {} {}{more}", range.revision, keys.concat(), range.count)
        }
        OpAnswer::Put(put) => format!("put {}", put.revision),
        OpAnswer::Delete(delete) => format!("deleted {} at {}", delete.deleted, delete.revision),
        OpAnswer::Txn(txn) => {
            let ops: Vec<String> = txn.ops.iter().map(show).collect();
            format!("{} [{}]", txn.succeeded, ops.join(", "))
        }
    }
}

#[test]
fn nested_compares_look_at_the_state_before_the_txn() {
    let mut member = abc();
    let inner = Txn {
        compares: vec![compare("d", Relation::Equal, Operand::Version(0))],
        success: vec![put("e", "then")],
        failure: vec![put("e", "else")],
    };
    let txn = Txn { success: vec![put("d", "4"), Op::Txn(inner)], ..Txn::default() };
    let (_, answer) = member.txn(txn).unwrap();
    assert_eq!(show(&OpAnswer::Txn(answer)), "true [put 6, true [put 6]]");
    assert_eq!(member.range(&prefix("e")).unwrap().0[0].1, "then");
}

#[test]
fn a_txn_that_cannot_be_done_in_full_is_not_done_at_all() {
    let mut member = abc();
    member.propose(Command::Compact { revision: 4 }).unwrap();
    let failing = [
        Op::Put(Put { value: None, ..Put::new("missing", "") }),
        Op::Put(Put { lease: Some(99), ..Put::new("x", "") }),
        Op::Range(prefix("").at(3)),
        Op::Range(prefix("").at(6)),
    ];
    for op in failing {
        let txn = Txn { success: vec![put("d", "4"), op], ..Txn::default() };
        member.txn(txn).unwrap_err();
        assert_eq!((member.revision(), member.keys(&prefix("d")).len()), (5, 0));
    }
    // Operations that are not on the chosen path are not checked.
    let txn = Txn {
        compares: vec![compare("a", Relation::Equal, Operand::Version(9))],
        success: vec![Op::Put(Put { value: None, ..Put::new("missing", "") })],
        failure: vec![],
    };
    assert_eq!(member.txn(txn).unwrap().0, 5);
}

#[test]
fn proposals_of_one_entry_see_those_before_them_each_at_its_own_revision() {
    let mut member = Member::new();
    let answers = member.entry(&[
        Command::Put(Put::new("a", "1")),
        Command::Put(Put { prev_kv: true, ..Put::new("a", "2") }),
        Command::LeaseGrant { id: 5, ttl_seconds: 60 },
        Command::Put(Put { lease: Some(5), ..Put::new("b", "1") }),
        Command::LeaseRevoke { id: 5 },
        Command::Delete(Delete::new(KeyRange::prefix(""))),
        Command::Put(Put::new("a", "3")),
    ]);
    let revisions: Vec<i64> = answers.into_iter().map(|answer| answer.unwrap().revision).collect();
    assert_eq!(revisions, [2, 3, 3, 4, 5, 6, 7]);
    assert_eq!(member.range(&prefix("").at(4)).unwrap().0.len(), 2);
    assert_eq!(member.range(&prefix("").at(5)).unwrap().0, [("a".into(), "2".into())]);
    assert_eq!(member.range(&prefix("").at(6)).unwrap().0, []);
    assert_eq!(member.range(&prefix("")).unwrap().0, [("a".into(), "3".into())]);
    assert_eq!(member.parts().state.counts.read().total(), 1);
}

#[test]
fn keys_are_any_bytes_and_as_long_as_a_request() {
    let mut member = Member::new();
    let long = vec![0xFFu8; 1 << 20];
    for key in [&b"\0"[..], b"\0\0", b"v", b"numbers", b"\xFF", &long] {
        member.propose(Command::Put(Put::new(key.to_vec(), "x"))).unwrap();
    }
    member.flush();
    member.restart();
    let all = KeyRange::from_wire(vec![0].into(), vec![0].into());
    assert_eq!(member.range(&RangeQuery::new(all)).unwrap().0.len(), 6);
    assert!(matches!(refused(member.propose(Command::Put(Put::new("", "x")))), Error::EmptyKey));
}

#[test]
fn the_count_of_a_large_range_is_kept_and_exact_at_every_revision() {
    let mut member = Member::new();
    let name = |at: usize| format!("k{at:05}");
    for chunk in (0..4000).collect::<Vec<_>>().chunks(500) {
        let puts = chunk.iter().map(|&at| Command::Put(Put::new(name(at), "v")));
        member.entry(&puts.collect::<Vec<_>>());
    }
    for at in (0..4000).step_by(7) {
        member.propose(Command::Delete(Delete::new(KeyRange::single(name(at))))).unwrap();
    }
    let newest = member.revision();
    for restarted in [false, true] {
        for (from, to) in [(0, 4000), (1, 3999), (1000, 1001), (513, 2600), (3990, 5000)] {
            let range = KeyRange::from_wire(name(from).into(), name(to).into());
            let live = (from..to.min(4000)).filter(|at| at % 7 != 0).count() as i64;
            let state = &member.parts().state;
            assert_eq!(state.count(&range, newest).unwrap(), live, "{from}..{to} {restarted}");
            assert_eq!(state.count(&range, 4001).unwrap(), (to.min(4000) - from) as i64);
            let more = RangeQuery { limit: 1, ..RangeQuery::new(range) };
            assert_eq!(member.range(&more).unwrap().1.count, live);
        }
        member.flush();
        member.restart();
    }
}

#[test]
fn a_range_of_too_many_keys_is_not_deleted_at_once_and_the_limit_is_named() {
    let settings = MachineSettings { deleted_keys_max: 3, ..MachineSettings::default() };
    let mut member = Member::with(settings);
    for key in ["a1", "a2", "b1", "b2", "b3", "b4"] {
        member.put(key, "");
    }
    let all = || Delete::new(KeyRange::all());
    let refusal = refused(member.propose(Command::Delete(all()))).to_string();
    assert_eq!(refusal, "keys deleted at once: 6 is over the limit of 3");
    let txn = Txn { success: vec![put("c", ""), Op::Delete(all())], ..Txn::default() };
    assert!(matches!(refused(member.txn(txn)), Error::Limit { .. }));
    assert_eq!(member.keys(&prefix("")).len(), 6, "nothing has happened");
    assert_eq!(member.delete(KeyRange::prefix("a")).deleted, 2);
    assert_eq!(member.delete(KeyRange::single("b1")).deleted, 1);
    assert_eq!(member.delete(KeyRange::all()).deleted, 3);
}

#[test]
fn a_range_that_is_sorted_in_memory_is_bounded_after_its_limit() {
    const VALUE_BYTES: usize = 1 << 20;
    let mut member = Member::new();
    for at in 0..65 {
        member.propose(Command::Put(Put::new(format!("{at:02}"), vec![7; VALUE_BYTES]))).unwrap();
    }
    let sorted = RangeQuery { target: Target::Mod, ..RangeQuery::new(KeyRange::all()) };
    let refusal = refused(member.range(&sorted));
    assert!(matches!(refusal, Error::Limit { .. }), "{refusal}");
    let newest = RangeQuery { limit: 1, order: Order::Descend, ..sorted };
    assert_eq!(member.keys(&newest), ["64"], "what the limit leaves out is not kept");
}
