//! Entries in the log can always be applied, and unreadable ones are not
//! skipped.

use bytes::Bytes;
use proptest::prelude::*;
use stele_metastore::Error;
use stele_metastore::command::{
    Acquire, Command, Execute, KEY_BYTES_MAX, KeyRange, Kv, LockMode, Op, PROPOSAL_BYTES_MAX, Put,
    ROW_BYTES_MAX, RangeQuery, Restore, Txn, Write, encode, pack,
};
use stele_metastore::consensus::{Committed, Machine};

use crate::machine::harness::{Member, refused};

const SESSION: i64 = 7;

fn key(bytes: usize) -> Bytes {
    vec![b'k'; bytes].into()
}

fn nested(levels: usize) -> Txn {
    (0..levels)
        .fold(Txn::default(), |inner, _| Txn { success: vec![Op::Txn(inner)], ..Txn::default() })
}

/// Returns every command that stores rows named after a key.
fn writes(key: &Bytes, lease: i64) -> Vec<Command> {
    let put = Put { lease: Some(lease), ..Put::new(key.clone(), "value") };
    let inner = Txn { success: vec![Op::Put(put.clone())], ..Txn::default() };
    let txn = Txn { success: vec![Op::Txn(inner)], ..Txn::default() };
    let mode = LockMode::Shared;
    let write = Write { key: key.clone(), value: Some("value".into()), lease };
    vec![
        Command::Put(put),
        Command::Txn(txn),
        Command::Execute(Execute { read_revision: 1, writes: vec![write], ..Execute::default() }),
        Command::Acquire(Acquire {
            key: key.clone(),
            session: SESSION,
            mode,
            no_wait: false,
            call_id: 1,
        }),
        Command::Release { key: key.clone(), session: SESSION, call_id: 0 },
    ]
}

#[test]
fn a_key_that_the_engine_would_refuse_is_not_proposed() {
    for lease in [0, SESSION] {
        for command in writes(&key(KEY_BYTES_MAX + 1), lease) {
            assert!(matches!(pack(&command, 0), Err(Error::Limit { .. })), "{lease}");
        }
        for command in writes(&key(KEY_BYTES_MAX), lease) {
            assert!(pack(&command, 0).is_ok(), "{lease}");
        }
    }
    let kv = Kv { key: key(KEY_BYTES_MAX + 1), tail: Bytes::new() };
    let restore = Command::Restore(Restore { kvs: vec![kv], ..Restore::default() });
    assert!(matches!(pack(&restore, 0), Err(Error::Limit { .. })));
    let large = Put::new("k", vec![0; PROPOSAL_BYTES_MAX]);
    assert!(matches!(pack(&Command::Put(large), 0), Err(Error::Limit { .. })));
    assert!(matches!(pack(&Command::Txn(nested(300)), 0), Err(Error::Limit { .. })));
    assert!(pack(&Command::Txn(nested(200)), 0).is_ok());
}

#[test]
fn a_log_with_a_key_that_was_too_long_is_applied_and_the_key_refused() {
    let mut member = Member::new();
    member.lease(SESSION, 60);
    let mut commands = vec![Command::Put(Put::new("before", ""))];
    commands.extend(writes(&key(ROW_BYTES_MAX + 1), 0));
    commands.extend(writes(&key(KEY_BYTES_MAX + 1), SESSION));
    commands.push(Command::Put(Put::new("after", "")));
    let answers = member.entry(&commands);
    let count = answers.len();
    for (at, answer) in answers.into_iter().enumerate() {
        match at {
            at if at == 0 || at == count - 1 => assert!(answer.is_ok()),
            // Releases of locks that nobody holds.
            5 | 10 => assert!(matches!(refused(answer), Error::LockNotHeld { .. })),
            _ => assert!(matches!(refused(answer), Error::Limit { .. })),
        }
    }
    for _ in 0..2 {
        let keys = member.keys(&RangeQuery::new(KeyRange::all()));
        assert_eq!(keys, ["after", "before"]);
        member.restart();
    }
    assert!(member.put("later", "") > 1);
}

#[test]
fn an_entry_of_a_newer_version_stops_the_member_and_says_so() {
    let mut member = Member::new();
    member.put("a", "1");
    let unknown_command = [&encode(&Command::Compact { revision: 1 }, 0)[..9], &[99, 1]].concat();
    let mut unknown_version = encode(&Command::Put(Put::new("k", "v")), 0).to_vec();
    unknown_version[0] = 99;
    for proposal in [unknown_command, unknown_version] {
        let known = encode(&Command::Put(Put::new("k", "v")), 0);
        let entry =
            Committed { index: 2, term: 1, proposals: vec![known, proposal.into()], awaited: true };
        let error = member.parts().applier.apply(entry.clone()).unwrap_err().to_string();
        assert!(error.starts_with("log entry 2 cannot be read"), "{error}");
        assert!(error.contains("newer version of stele"), "{error}");
        assert_eq!(
            member.keys(&RangeQuery::new(KeyRange::all())),
            ["a"],
            "nothing is half applied"
        );
        assert!(member.parts().applier.apply(entry).is_err(), "nor anything after it");
        member.restart();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_packed_is_applied(
        lengths in prop::collection::vec(
            prop_oneof![
                KEY_BYTES_MAX - 1..ROW_BYTES_MAX + 2,
                0usize..3,
                Just(ROW_BYTES_MAX / 2),
            ],
            1..4,
        ),
        leased in any::<bool>(),
    ) {
        let mut member = Member::new();
        member.lease(SESSION, 60);
        for length in lengths {
            for command in writes(&key(length), if leased { SESSION } else { 0 }) {
                let packed = pack(&command, 0).ok();
                // Applied in any case, as if logged by an older version.
                let answer = member.entry_of_bytes(vec![encode(&command, 0)]).pop().unwrap();
                let too_long = matches!(answer, Err(Error::Limit { .. }));
                prop_assert!(!(packed.is_some() && too_long), "{} {}", length, leased);
            }
        }
        member.flush();
        member.restart();
        prop_assert!(member.put("survivor", "") > 1);
    }
}
