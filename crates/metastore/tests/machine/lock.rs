//! Sessions and locks: first come, first served, with fencing tokens.

use std::time::Duration;

use stele_metastore::command::{
    Acquire, Command, Execute, Grant, HeldLock, KeyRange, LockMode, Put, Reply, Write,
};
use stele_metastore::state::KeyLockInfo;
use stele_metastore::watch::EventKind;
use stele_metastore::{Error, Result};

use crate::machine::harness::{Member, refused, text};

/// Acquires without a call id, as in logs of older versions.
fn acquire(member: &mut Member, session: i64, mode: LockMode) -> Result<Option<Grant>> {
    call(member, session, mode, false, 0)
}

fn call(
    member: &mut Member,
    session: i64,
    mode: LockMode,
    no_wait: bool,
    call_id: u64,
) -> Result<Option<Grant>> {
    let acquire = Acquire { key: "door".into(), session, mode, no_wait, call_id };
    match member.propose(Command::Acquire(acquire))?.reply {
        Reply::Acquire(grant) => Ok(grant),
        other => panic!("{other:?}"),
    }
}

fn release(member: &mut Member, session: i64) -> Result<()> {
    cancel(member, session, 0)
}

fn cancel(member: &mut Member, session: i64, call_id: u64) -> Result<()> {
    member.propose(Command::Release { key: "door".into(), session, call_id }).map(|_| ())
}

fn holders(member: &Member) -> Vec<(i64, i64)> {
    let info = member.parts().state.lock_info(b"door").unwrap().unwrap_or_default();
    info.holders.iter().map(|holder| (holder.session, holder.token)).collect()
}

fn with_sessions() -> Member {
    let mut member = Member::new();
    for session in 1..=4 {
        member.lease(session, 60);
    }
    member
}

#[test]
fn a_lock_is_exclusive_or_shared_and_granted_in_the_order_of_requests() {
    let mut member = with_sessions();
    assert_eq!(acquire(&mut member, 1, LockMode::Shared).unwrap().unwrap().token, 2);
    assert_eq!(acquire(&mut member, 2, LockMode::Shared).unwrap().unwrap().token, 3);
    assert_eq!(acquire(&mut member, 3, LockMode::Exclusive).unwrap(), None);
    assert_eq!(acquire(&mut member, 4, LockMode::Shared).unwrap(), None, "nobody overtakes");
    release(&mut member, 1).unwrap();
    assert_eq!(holders(&member), [(2, 3)]);
    release(&mut member, 2).unwrap();
    assert_eq!(holders(&member), [(3, 7)], "the token is the revision of the grant");
    release(&mut member, 3).unwrap();
    assert_eq!(holders(&member), [(4, 8)]);
    release(&mut member, 4).unwrap();
    assert_eq!(holders(&member), []);
    assert!(matches!(refused(release(&mut member, 4)), Error::LockNotHeld { .. }));
}

#[test]
fn repeating_a_request_changes_nothing_and_a_different_one_is_refused() {
    let mut member = with_sessions();
    let grant = acquire(&mut member, 1, LockMode::Exclusive).unwrap();
    let revision = member.revision();
    assert_eq!(acquire(&mut member, 1, LockMode::Exclusive).unwrap(), grant);
    assert!(acquire(&mut member, 2, LockMode::Shared).unwrap().is_none());
    assert!(acquire(&mut member, 2, LockMode::Shared).unwrap().is_none());
    assert_eq!(member.revision(), revision + 1);
    for session in [1, 2] {
        let other = if session == 1 { LockMode::Shared } else { LockMode::Exclusive };
        let refusal = refused(acquire(&mut member, session, other));
        assert!(matches!(refusal, Error::LockModeDiffers { .. }));
    }
    assert!(matches!(refused(acquire(&mut member, 9, LockMode::Shared)), Error::LeaseNotFound));
}

#[test]
fn a_session_that_ends_gives_back_its_locks_and_its_place_in_the_queue() {
    let mut member = with_sessions();
    acquire(&mut member, 1, LockMode::Exclusive).unwrap();
    acquire(&mut member, 2, LockMode::Exclusive).unwrap();
    acquire(&mut member, 3, LockMode::Exclusive).unwrap();
    // The holder and the next waiter expire together.
    member.propose(Command::Expire { ids: vec![1, 2, 77] }).unwrap();
    assert_eq!(holders(&member), [(3, member.revision())]);
    member.propose(Command::LeaseRevoke { id: 3 }).unwrap();
    assert_eq!(holders(&member), []);
}

#[test]
fn locks_queues_and_tokens_survive_a_restart() {
    for flush in [false, true] {
        let mut member = with_sessions();
        let grant = acquire(&mut member, 1, LockMode::Exclusive).unwrap().unwrap();
        acquire(&mut member, 2, LockMode::Shared).unwrap();
        if flush {
            member.flush();
        }
        member.restart();
        assert_eq!(holders(&member), [(1, grant.token)]);
        assert_eq!(acquire(&mut member, 1, LockMode::Exclusive).unwrap(), Some(grant));
        member.propose(Command::LeaseRevoke { id: 1 }).unwrap();
        assert_eq!(holders(&member), [(2, member.revision())]);
    }
}

#[test]
fn grant_release_and_expiry_are_seen_by_watchers() {
    let mut member = with_sessions();
    let live = member.parts().hub.cursor(member.revision() + 1);
    acquire(&mut member, 1, LockMode::Exclusive).unwrap();
    acquire(&mut member, 2, LockMode::Exclusive).unwrap();
    release(&mut member, 1).unwrap();
    member.propose(Command::Expire { ids: vec![2] }).unwrap();
    drop(live);
    // From the ring, and from history after a restart.
    for _ in 0..2 {
        let events = member.events_from(2).unwrap();
        let found: Vec<_> = events
            .iter()
            .map(|event| {
                assert_eq!((event.kind, text(event.key())), (EventKind::Lock, "door".to_string()));
                let info = KeyLockInfo::parse(event.lock_info()).unwrap();
                let holders = info.holders.iter().map(|holder| holder.session).collect::<Vec<_>>();
                (event.revision, holders, info.waiters.len())
            })
            .collect();
        let expected = [(2, vec![1], 0), (3, vec![1], 1), (4, vec![2], 0), (5, vec![], 0)];
        assert_eq!(found, expected);
        member.restart();
    }
}

#[test]
fn a_transaction_can_require_a_lock_that_is_held() {
    let mut member = with_sessions();
    let grant = acquire(&mut member, 1, LockMode::Exclusive).unwrap().unwrap();
    let write = |session, token| {
        Command::Execute(Execute {
            read_revision: 1,
            reads: vec![],
            writes: vec![Write { key: "guarded".into(), value: Some("x".into()), lease: 0 }],
            locks: vec![HeldLock { key: "door".into(), session, token }],
        })
    };
    member.propose(write(1, grant.token)).unwrap();
    let not_held = |outcome| matches!(refused(outcome), Error::LockNotHeld { .. });
    assert!(not_held(member.propose(write(2, grant.token))));
    // The lock was lost and acquired again: the old token is fenced off.
    release(&mut member, 1).unwrap();
    let again = acquire(&mut member, 1, LockMode::Exclusive).unwrap().unwrap();
    assert!(not_held(member.propose(write(1, grant.token))));
    member.propose(write(1, again.token)).unwrap();
    member.clock.run(Duration::from_secs(100));
    let ids = member.parts().leases.expired(10);
    assert_eq!(ids.len(), 4);
    assert!(member.parts().leases.keep_alive(1).is_none(), "it is running out");
    member.propose(Command::Expire { ids }).unwrap();
    assert!(not_held(member.propose(write(1, again.token))));
}

#[test]
fn locks_and_values_of_a_key_do_not_meet() {
    let mut member = with_sessions();
    acquire(&mut member, 1, LockMode::Exclusive).unwrap();
    assert_eq!(member.parts().state.count(&KeyRange::all(), member.revision()).unwrap(), 0);
    let read_revision = member.revision();
    member.put("door", "open");
    member.propose(Command::Put(Put { lease: Some(2), ..Put::new("window", "") })).unwrap();
    acquire(&mut member, 2, LockMode::Exclusive).unwrap();
    assert_eq!(member.delete(KeyRange::single("door")).deleted, 1);
    assert_eq!(holders(&member).len(), 1);
    // Only a change of the value counts as a change of the key.
    release(&mut member, 1).unwrap();
    let execute = |read_revision| {
        Command::Execute(Execute {
            read_revision,
            reads: vec![KeyRange::single("door")],
            ..Execute::default()
        })
    };
    let outcome = member.propose(execute(read_revision));
    assert!(matches!(refused(outcome), Error::Conflict { .. }));
    member.propose(execute(member.revision() - 1)).unwrap();
}

#[test]
fn an_acquire_that_does_not_wait_leaves_no_trace_unless_it_is_granted() {
    let mut member = with_sessions();
    let exclusive = LockMode::Exclusive;
    assert!(call(&mut member, 1, exclusive, true, 10).unwrap().is_some(), "the lock was free");
    assert_eq!(call(&mut member, 2, exclusive, false, 20).unwrap(), None);
    let revision = member.revision();
    assert_eq!(call(&mut member, 2, exclusive, true, 21).unwrap(), None);
    assert_eq!(call(&mut member, 3, exclusive, true, 30).unwrap(), None);
    assert_eq!(member.revision(), revision);
    let info = member.parts().state.lock_info(b"door").unwrap().unwrap();
    assert!(info.waits(2, 20), "the other call of the session waits on");
    assert_eq!(info.waiters.len(), 1);
    assert!(member.parts().leases.exists(2));
}

#[test]
fn a_cancelled_call_takes_nothing_from_other_calls_of_its_session() {
    let mut member = with_sessions();
    let exclusive = LockMode::Exclusive;
    call(&mut member, 1, exclusive, false, 10).unwrap();
    call(&mut member, 2, exclusive, false, 20).unwrap();
    call(&mut member, 2, exclusive, false, 21).unwrap();
    cancel(&mut member, 2, 20).unwrap();
    release(&mut member, 1).unwrap();
    assert_eq!(holders(&member).len(), 1, "the second call got it");
    let token = holders(&member)[0].1;
    // The answer of the second call was lost; the client calls again.
    assert_eq!(call(&mut member, 2, exclusive, false, 22).unwrap().unwrap().token, token);
    cancel(&mut member, 2, 21).unwrap();
    assert_eq!(holders(&member), [(2, token)]);
    assert!(matches!(refused(cancel(&mut member, 2, 21)), Error::LockNotHeld { .. }));
    cancel(&mut member, 2, 22).unwrap();
    assert_eq!(holders(&member), []);
    member.restart();
    assert_eq!(holders(&member), []);
}
