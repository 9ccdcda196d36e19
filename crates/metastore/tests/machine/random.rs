//! Random steps against the model, and odd proposals that must not stop a
//! member.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use stele_metastore::Result;
use stele_metastore::command::{
    Acquire, Answer, Command, Compare, Delete, Execute, HeldLock, KeyRange, Kv, LockMode, Op,
    OpAnswer, Operand, Order, Put, RangeQuery, Relation, Reply, Target, Txn, TxnAnswer, Write,
    check_txn, decode, encode,
};
use stele_metastore::state::{Floor, KeyView};

use crate::machine::harness::Member;
use crate::machine::model::{Entry, Model, Outcome};
use crate::machine::watch::plain;

fn key() -> impl Strategy<Value = Bytes> {
    (0u8..12).prop_map(|at| Bytes::from(vec![b'a' + at / 3, b'0' + at % 3]))
}

fn range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        4 => key().prop_map(KeyRange::single),
        2 => (key(), key()).prop_map(|(from, to)| KeyRange::from_wire(from, to)),
        1 => key().prop_map(|key| KeyRange::prefix(key.slice(..1))),
        1 => key().prop_map(|key| KeyRange::from_wire(key, Bytes::from_static(&[0]))),
    ]
}

fn value() -> impl Strategy<Value = Bytes> {
    (0u8..6).prop_map(|byte| Bytes::from(vec![byte; byte as usize]))
}

fn lease() -> impl Strategy<Value = i64> {
    prop_oneof![3 => Just(0i64), 1 => 1i64..4]
}

fn put() -> impl Strategy<Value = Put> {
    let kept = |of: f64| prop::bool::weighted(of);
    (key(), value(), lease(), kept(0.1), kept(0.1), any::<bool>()).prop_map(
        |(key, value, lease, keeps_value, keeps_lease, prev_kv)| Put {
            key,
            value: (!keeps_value).then_some(value),
            lease: (!keeps_lease).then_some(lease),
            prev_kv,
        },
    )
}

fn delete() -> impl Strategy<Value = Delete> {
    (range(), any::<bool>()).prop_map(|(range, prev_kv)| Delete { range, prev_kv })
}

fn bound() -> impl Strategy<Value = i64> {
    prop_oneof![6 => Just(0i64), 1 => 1i64..40]
}

fn query() -> impl Strategy<Value = RangeQuery> {
    let order = prop_oneof![Just(Order::None), Just(Order::Ascend), Just(Order::Descend)];
    let target = prop_oneof![
        4 => Just(Target::Key), 1 => Just(Target::Version), 1 => Just(Target::Create),
        1 => Just(Target::Mod), 1 => Just(Target::Value),
    ];
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    let bounds = (bound(), bound(), bound(), bound());
    (range(), bound(), 0i64..5, order, target, flags, bounds).prop_map(
        |(range, revision, limit, order, target, (keys_only, count_only), bounds)| RangeQuery {
            revision,
            limit,
            order,
            target,
            keys_only,
            count_only,
            mod_min: bounds.0,
            mod_max: bounds.1,
            create_min: bounds.2,
            create_max: bounds.3,
            ..RangeQuery::new(range)
        },
    )
}

fn compare() -> impl Strategy<Value = Compare> {
    let number = 0i64..20;
    let operand = prop_oneof![
        (0i64..4).prop_map(Operand::Version),
        number.clone().prop_map(Operand::Create),
        number.prop_map(Operand::Mod),
        value().prop_map(Operand::Value),
        lease().prop_map(Operand::Lease),
    ];
    let relation = prop_oneof![
        Just(Relation::Equal),
        Just(Relation::Greater),
        Just(Relation::Less),
        Just(Relation::NotEqual)
    ];
    (range(), relation, operand).prop_map(|(range, relation, operand)| Compare {
        range,
        relation,
        operand,
    })
}

fn txn() -> impl Strategy<Value = Txn> {
    let op = prop_oneof![
        put().prop_map(Op::Put),
        delete().prop_map(Op::Delete),
        query().prop_map(Op::Range)
    ];
    let flat = (vec(compare(), 0..3), vec(op.clone(), 0..4), vec(op, 0..3))
        .prop_map(|(compares, success, failure)| Txn { compares, success, failure });
    flat.prop_recursive(2, 8, 3, |inner| {
        let op = prop_oneof![
            put().prop_map(Op::Put),
            query().prop_map(Op::Range),
            inner.prop_map(Op::Txn)
        ];
        (vec(compare(), 0..2), vec(op.clone(), 0..4), vec(op, 0..3))
            .prop_map(|(compares, success, failure)| Txn { compares, success, failure })
    })
}

fn execute() -> impl Strategy<Value = Execute> {
    let write = (key(), prop::option::of(value()), lease()).prop_map(|(key, value, lease)| Write {
        key,
        value,
        lease,
    });
    (1i64..60, vec(range(), 0..3), vec(write, 0..4)).prop_map(|(read_revision, reads, writes)| {
        let mut writes = writes;
        writes.sort_by(|a, b| a.key.cmp(&b.key));
        writes.dedup_by(|a, b| a.key == b.key);
        Execute { read_revision, reads, writes, locks: Vec::new() }
    })
}

#[derive(Clone, Debug)]
enum Move {
    Entry(Vec<Command>),
    Range(RangeQuery),
    Restart { flush: bool },
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        8 => put().prop_map(Command::Put),
        3 => delete().prop_map(Command::Delete),
        4 => txn().prop_map(Command::Txn),
        4 => execute().prop_map(Command::Execute),
        1 => (-1i64..40).prop_map(|revision| Command::Compact { revision }),
        2 => (1i64..4).prop_map(|id| Command::LeaseGrant { id, ttl_seconds: 10 }),
        1 => (1i64..4).prop_map(|id| Command::LeaseRevoke { id }),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        8 => vec(command(), 1..5).prop_map(Move::Entry),
        6 => query().prop_map(Move::Range),
        1 => any::<bool>().prop_map(|flush| Move::Restart { flush }),
    ];
    vec(one, 1..60)
}

fn entry(view: KeyView<'_>) -> (Bytes, Entry) {
    let fields = view.fields();
    let entry = Entry {
        create: fields.create_revision,
        modified: fields.mod_revision,
        version: fields.version,
        value: fields.value.to_vec(),
        lease: fields.lease,
    };
    (Bytes::copy_from_slice(view.key), entry)
}

fn entries(kvs: &[Kv]) -> Vec<(Bytes, Entry)> {
    kvs.iter().map(|kv| entry(kv.view())).collect()
}

fn of_txn(txn: &TxnAnswer) -> Outcome {
    let ops = txn.ops.iter().map(|op| match op {
        OpAnswer::Put(put) => Outcome::Put {
            revision: put.revision,
            prev: put.prev.as_ref().map(|kv| entry(kv.view()).1),
        },
        OpAnswer::Delete(delete) => Outcome::Delete {
            revision: delete.revision,
            prev: entries(&delete.prev),
            deleted: delete.deleted,
        },
        OpAnswer::Range(range) => Outcome::Range {
            revision: range.revision,
            kvs: entries(&range.kvs),
            more: range.more,
            count: range.count,
        },
        OpAnswer::Txn(txn) => of_txn(txn),
    });
    Outcome::Txn { succeeded: txn.succeeded, ops: ops.collect() }
}

/// Converts an answer. A conflict names one of the changes, but which one is
/// not defined.
fn outcome(answer: Result<Answer>) -> Outcome {
    match answer {
        Err(error) => Outcome::Refused(bare(&error.to_string())),
        Ok(Answer { revision, reply }) => match reply {
            Reply::Put(put) => Outcome::Put {
                revision: put.revision,
                prev: put.prev.as_ref().map(|kv| entry(kv.view()).1),
            },
            Reply::Delete(delete) => Outcome::Delete {
                revision: delete.revision,
                prev: entries(&delete.prev),
                deleted: delete.deleted,
            },
            Reply::Txn(txn) => of_txn(&txn),
            _ => Outcome::Done { revision },
        },
    }
}

fn bare(refusal: &str) -> String {
    refusal.split(", but key").next().unwrap_or_default().to_string()
}

fn check_everything(member: &Member, model: &Model) {
    assert_eq!(member.revision(), model.revision());
    let state = &member.parts().state;
    for revision in 1..=model.revision() {
        let mut found = Vec::new();
        let query = RangeQuery::new(KeyRange::all()).at(revision);
        let summary =
            state.range(&query, Floor::Retained, &mut |view| found.push(entry(view))).unwrap();
        let expected: Vec<_> = model.at(revision).clone().into_iter().collect();
        assert_eq!(found, expected, "at revision {revision}");
        assert_eq!(summary.count, expected.len() as i64);
        assert_eq!(state.count(&KeyRange::all(), revision).unwrap(), expected.len() as i64);
    }
    let bytes = model.at(model.revision()).iter().map(|(key, entry)| key.len() + entry.value.len());
    assert_eq!(state.live_bytes(), bytes.sum::<usize>() as i64);
    let from = model.compacted.max(1);
    let expected: Vec<_> =
        model.events.iter().filter(|(_, _, revision, _)| *revision >= from).cloned().collect();
    assert_eq!(plain(&member.events_from(from).unwrap()), expected);
    for id in 1..4 {
        let leased = model.at(model.revision()).iter().filter(|(_, entry)| entry.lease == id);
        let expected: Vec<_> = leased.map(|(key, _)| key.clone()).collect();
        assert_eq!(member.parts().leases.keys(id).unwrap(), expected);
        assert_eq!(member.parts().leases.exists(id), model.leases.contains(&id));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn keys_transactions_history_and_watches_are_as_a_naive_model_has_them(moves in moves()) {
        let (mut member, mut model) = (Member::new(), Model::new());
        let mut events = Vec::new();
        let mut live = Some(member.parts().hub.cursor(2));
        for step in moves {
            match step {
                Move::Entry(commands) => {
                    let refused = |command: &Command| match command {
                        Command::Txn(txn) => check_txn(txn, 128).is_err(),
                        _ => false,
                    };
                    let commands: Vec<_> =
                        commands.into_iter().filter(|command| !refused(command)).collect();
                    let answers = member.entry(&commands);
                    for (command, answer) in commands.iter().zip(answers) {
                        let expected = match model.apply(command) {
                            Outcome::Refused(text) => Outcome::Refused(bare(&text)),
                            other => other,
                        };
                        prop_assert_eq!(outcome(answer), expected, "{:?}", command);
                    }
                }
                Move::Range(query) => {
                    let mut kvs = Vec::new();
                    let range = member.parts().state.range(
                        &query,
                        Floor::Compacted,
                        &mut |view| kvs.push(entry(view)),
                    );
                    let found = match range {
                        Ok(summary) => Outcome::Range {
                            revision: summary.revision,
                            kvs,
                            more: summary.more,
                            count: summary.count,
                        },
                        Err(error) => Outcome::Refused(error.to_string()),
                    };
                    prop_assert_eq!(found, model.range(&query), "{:?}", query);
                }
                Move::Restart { flush } => {
                    if flush {
                        member.flush();
                    }
                    drop(live.take());
                    member.restart();
                    live = Some(member.parts().hub.cursor(model.revision() + 1));
                }
            }
            let cursor = live.as_mut().expect("there is one after every step");
            while cursor.next() <= member.revision() {
                cursor.take(i64::MAX, &mut |_| true, &mut events).unwrap();
            }
        }
        prop_assert_eq!(plain(&events), model.events.clone());
        check_everything(&member, &model);
        drop(live);
        member.restart();
        check_everything(&member, &model);
    }

    #[test]
    fn no_proposal_however_odd_stops_a_member(
        commands in vec(odd_command(), 1..30),
        noise in vec((0usize..30, 0usize..300, any::<u8>()), 0..40),
    ) {
        let mut member = Member::new();
        member.put("a0", "1");
        let mut proposals: Vec<Vec<u8>> =
            commands.iter().map(|command| encode(command, 0).to_vec()).collect();
        for (at, place, byte) in noise {
            let proposals_len = proposals.len();
            let proposal = &mut proposals[at % proposals_len];
            let place = place % proposal.len();
            proposal[place] = byte;
        }
        let before = member.range(&RangeQuery::new(KeyRange::single("survivor"))).unwrap().1.count;
        prop_assert_eq!(before, 0);
        // Proposals that do not decode stop a member: see `limits.rs`. So does one that raises
        // the level too high: see `levels.rs`.
        let mut proposals: Vec<Bytes> = proposals.into_iter().map(Bytes::from).collect();
        let raises = |command: &Command| matches!(command, Command::RaiseLevel { .. });
        proposals.retain(|bytes| decode(bytes).is_ok_and(|proposal| !raises(&proposal.command)));
        for chunk in proposals.chunks(4) {
            member.entry_of_bytes(chunk.to_vec());
        }
        member.restart();
        let newest = member.revision();
        prop_assert_eq!(member.put("survivor", "x"), newest + 1);
        prop_assert!(member.keys(&RangeQuery::new(KeyRange::all())).contains(&"survivor".to_string()));
    }
}

/// Any command that can be encoded, sensible or not.
fn odd_command() -> impl Strategy<Value = Command> {
    let number = prop_oneof![Just(i64::MIN), Just(-1), Just(0), 1i64..20, Just(i64::MAX)];
    let odd_key = prop_oneof![Just(Bytes::new()), key()];
    let mode = prop_oneof![Just(LockMode::Shared), Just(LockMode::Exclusive)];
    prop_oneof![
        command(),
        (odd_key.clone(), number.clone()).prop_map(|(key, lease)| {
            Command::Put(Put { lease: Some(lease), value: None, ..Put::new(key, "") })
        }),
        number.clone().prop_map(|revision| Command::Compact { revision }),
        number.clone().prop_map(|revision| Command::Waterline { revision }),
        number.clone().prop_map(|clock_micros| Command::Sample { clock_micros }),
        (number.clone(), number.clone())
            .prop_map(|(id, ttl_seconds)| Command::LeaseGrant { id, ttl_seconds }),
        vec(number.clone(), 0..4).prop_map(|ids| Command::Expire { ids }),
        (odd_key.clone(), number.clone(), mode, any::<bool>(), 0u64..4).prop_map(
            |(key, session, mode, no_wait, call_id)| {
                Command::Acquire(Acquire { key, session, mode, no_wait, call_id })
            }
        ),
        (odd_key.clone(), number.clone(), 0u64..4)
            .prop_map(|(key, session, call_id)| Command::Release { key, session, call_id }),
        (odd_key, number.clone(), number.clone(), number).prop_map(
            |(key, read_revision, session, token)| Command::Execute(Execute {
                read_revision,
                reads: vec![KeyRange::all()],
                writes: vec![Write { key: key.clone(), value: None, lease: session }],
                locks: vec![HeldLock { key, session, token }],
            })
        ),
    ]
}
