//! The permission check: one pure function of the users and roles, the caller
//! and the request.

use bytes::Bytes;

use super::intervals::Intervals;
use super::{AuthError, AuthState};
use crate::command::{AlarmAction, AuthCommand, Caller, Command, Execute, Op, Put, Txn};
use crate::error::Result;
use crate::key::KeyRange;
use crate::proto::etcd::permission::Type;

/// What a request does.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    /// Something that every user may do.
    AnyUser,
    /// Something that only users with the root role may do.
    Root,
    /// Reads or watches keys.
    Read(&'a KeyRange),
    /// Proposes a command.
    Command(&'a Command),
    /// Reads a transaction that is not proposed.
    Txn(&'a Txn),
    /// Shows the keys of a lease.
    LeaseKeys(i64),
    /// Renews or revokes a lease, and so decides about its keys.
    Lease(i64),
    /// Shows a user: root, or the user itself.
    User(&'a str),
    /// Shows a role: root, or a user that has it.
    Role(&'a str),
}

/// Returns the keys that are attached to a lease.
pub type KeysOfLease<'a> = &'a dyn Fn(i64) -> Result<Vec<Bytes>>;

/// Decides whether a caller may make a request. Without a caller, the request is
/// one of the member itself or of a client without a token.
pub fn permit(
    auth: &AuthState,
    caller: Option<&Caller>,
    access: Access<'_>,
    keys_of: KeysOfLease<'_>,
) -> Result<()> {
    if !auth.enabled || is_internal(access) {
        return Ok(());
    }
    let Some(caller) = caller else { return Err(AuthError::UserEmpty.into()) };
    let user = auth.user(&caller.user);
    match access {
        Access::AnyUser | Access::Command(Command::LeaseGrant { .. }) => {
            return user.map(drop).ok_or(AuthError::PermissionDenied.into());
        }
        Access::User(name) if user.is_some() && *name == *caller.user => return Ok(()),
        Access::Role(role) if user.is_some_and(|user| user.roles.iter().any(|has| has == role)) => {
            return Ok(());
        }
        _ => {}
    }
    let user = user.ok_or(AuthError::PermissionDenied)?;
    let root = AuthState::has_root_role(user);
    if is_management(access) {
        return if root { Ok(()) } else { Err(AuthError::PermissionDenied.into()) };
    }
    // A caller that was identified before the last change of permissions must
    // authenticate again.
    if caller.auth_revision < auth.revision {
        return Err(AuthError::OldRevision.into());
    }
    if root { Ok(()) } else { Rights::of(auth, &user.roles, keys_of).check(access) }
}

/// Returns whether only members propose this, or it needs no user.
fn is_internal(access: Access<'_>) -> bool {
    let Access::Command(command) = access else { return false };
    matches!(
        command,
        Command::Expire { .. }
            | Command::Sample { .. }
            | Command::Waterline { .. }
            | Command::LeaseDeadlines { .. }
            | Command::Restore(_)
            | Command::RestoreHistory(_)
            | Command::RaiseLevel { .. }
            | Command::Alarm(AlarmAction::Activate { .. } | AlarmAction::Deactivate { .. })
            | Command::Auth(AuthCommand::Token { .. } | AuthCommand::Restore(_))
    )
}

/// Returns whether this needs the root role, whatever the permissions are.
fn is_management(access: Access<'_>) -> bool {
    match access {
        Access::Root | Access::User(_) | Access::Role(_) => true,
        Access::Command(command) => {
            matches!(
                command,
                Command::Compact { .. }
                    | Command::Alarm(_)
                    | Command::Auth(_)
                    | Command::SetQuota { .. }
            )
        }
        _ => false,
    }
}

/// The keys that a user may read and write.
struct Rights<'a> {
    read: Intervals,
    write: Intervals,
    keys_of: KeysOfLease<'a>,
}

impl<'a> Rights<'a> {
    fn of(auth: &AuthState, roles: &[String], keys_of: KeysOfLease<'a>) -> Rights<'a> {
        let (mut read, mut write) = (Vec::new(), Vec::new());
        let roles = roles.iter().filter_map(|role| auth.roles.get(role));
        for permission in roles.flat_map(|role| &role.key_permission) {
            let (key, end) = (permission.key.clone(), permission.range_end.clone());
            let range = KeyRange::from_wire(key, end);
            match permission.perm_type() {
                Type::Read => read.push(range),
                Type::Write => write.push(range),
                Type::Readwrite => {
                    read.push(range.clone());
                    write.push(range);
                }
            }
        }
        let (read, write) = (Intervals::union(read.iter()), Intervals::union(write.iter()));
        Rights { read, write, keys_of }
    }

    fn check(&self, access: Access<'_>) -> Result<()> {
        match access {
            Access::Read(range) => self.read(range),
            Access::Txn(txn) => self.txn(txn),
            Access::LeaseKeys(id) => self.lease(id, &self.read),
            Access::Lease(id) => self.lease(id, &self.write),
            Access::Command(command) => self.command(command),
            Access::AnyUser => Ok(()),
            Access::Root | Access::User(_) | Access::Role(_) => {
                Err(AuthError::PermissionDenied.into())
            }
        }
    }

    fn command(&self, command: &Command) -> Result<()> {
        match command {
            Command::Put(put) => self.put(put),
            Command::Delete(delete) => self.delete(&delete.range, delete.prev_kv),
            Command::Txn(txn) => self.txn(txn),
            Command::LeaseRevoke { id } => self.lease(*id, &self.write),
            Command::Execute(execute) => self.execute(execute),
            Command::Acquire(acquire) => {
                self.write(&KeyRange::single(acquire.key.clone()))?;
                self.lease(acquire.session, &self.write)
            }
            Command::Release { key, session, .. } => {
                self.write(&KeyRange::single(key.clone()))?;
                self.lease(*session, &self.write)
            }
            // Decided before the permissions of keys are considered.
            Command::LeaseGrant { .. }
            | Command::Compact { .. }
            | Command::Expire { .. }
            | Command::Alarm(_)
            | Command::Sample { .. }
            | Command::Waterline { .. }
            | Command::LeaseDeadlines { .. }
            | Command::Restore(_)
            | Command::RestoreHistory(_)
            | Command::RaiseLevel { .. }
            | Command::SetQuota { .. }
            | Command::Auth(_) => Err(AuthError::PermissionDenied.into()),
        }
    }

    fn read(&self, range: &KeyRange) -> Result<()> {
        covered(&self.read, range)
    }

    fn write(&self, range: &KeyRange) -> Result<()> {
        covered(&self.write, range)
    }

    fn put(&self, put: &Put) -> Result<()> {
        let key = KeyRange::single(put.key.clone());
        self.write(&key)?;
        self.lease(put.lease.unwrap_or(0), &self.write)?;
        if put.prev_kv { self.read(&key) } else { Ok(()) }
    }

    fn delete(&self, range: &KeyRange, prev_kv: bool) -> Result<()> {
        self.write(range)?;
        if prev_kv { self.read(range) } else { Ok(()) }
    }

    /// Checks both branches: which one is executed would reveal keys, too.
    fn txn(&self, txn: &Txn) -> Result<()> {
        txn.compares.iter().try_for_each(|compare| self.read(&compare.range))?;
        txn.success.iter().chain(&txn.failure).try_for_each(|op| match op {
            Op::Range(query) => self.read(&query.range),
            Op::Put(put) => self.put(put),
            Op::Delete(delete) => self.delete(&delete.range, delete.prev_kv),
            Op::Txn(txn) => self.txn(txn),
        })
    }

    fn execute(&self, execute: &Execute) -> Result<()> {
        execute.reads.iter().try_for_each(|range| self.read(range))?;
        for write in &execute.writes {
            self.write(&KeyRange::single(write.key.clone()))?;
            self.lease(write.lease, &self.write)?;
        }
        execute.locks.iter().try_for_each(|lock| self.read(&KeyRange::single(lock.key.clone())))
    }

    /// Checks all keys of a lease: whoever may attach a key to it, renew it or
    /// revoke it decides about them.
    fn lease(&self, id: i64, granted: &Intervals) -> Result<()> {
        if id == 0 {
            return Ok(());
        }
        (self.keys_of)(id)?.into_iter().try_for_each(|key| covered(granted, &KeyRange::single(key)))
    }
}

fn covered(granted: &Intervals, range: &KeyRange) -> Result<()> {
    if granted.cover(range) { Ok(()) } else { Err(AuthError::PermissionDenied.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::ROOT;
    use crate::command::{
        Acquire, Alarm, Compare, Delete, HeldLock, LockMode, Operand, RangeQuery, Relation, Write,
    };
    use crate::error::Error;
    use crate::proto::etcd::{
        AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthUserAddRequest,
        AuthUserGrantRoleRequest, Permission, UserAddOptions,
    };

    /// Ada may read a..c, write c..e, and read and write from x on. Bob has no
    /// role.
    fn example() -> AuthState {
        let mut auth = AuthState::default();
        let mut apply = |command| auth.apply(&command).unwrap();
        for name in [ROOT, "ada", "bob"] {
            let options = Some(UserAddOptions { no_password: true });
            let name = name.into();
            let request = AuthUserAddRequest { name, options, ..Default::default() };
            apply(AuthCommand::UserAdd(request));
        }
        apply(AuthCommand::RoleAdd(AuthRoleAddRequest { name: "role".into() }));
        for (user, role) in [(ROOT, ROOT), ("ada", "role")] {
            let (user, role) = (user.into(), role.into());
            apply(AuthCommand::UserGrantRole(AuthUserGrantRoleRequest { user, role }));
        }
        for (kind, key, end) in [
            (Type::Read, "a", "c"),
            (Type::Write, "c", "d"),
            (Type::Write, "d", "e"),
            (Type::Readwrite, "x", "\0"),
        ] {
            let (perm_type, key, range_end) = (kind.into(), key.into(), end.into());
            let perm = Some(Permission { perm_type, key, range_end });
            let name = "role".into();
            let request = AuthRoleGrantPermissionRequest { name, perm };
            apply(AuthCommand::RoleGrantPermission(request));
        }
        apply(AuthCommand::Enable);
        auth
    }

    /// Lease 1 has a key that Ada may write, lease 2 one that she may only
    /// read, lease 3 both.
    fn keys_of(id: i64) -> Result<Vec<Bytes>> {
        Ok(match id {
            1 => vec!["c".into()],
            2 => vec!["a".into()],
            3 => vec!["c".into(), "a".into()],
            _ => vec![],
        })
    }

    fn caller(auth: &AuthState, user: &str) -> Caller {
        Caller { user: user.into(), auth_revision: auth.revision }
    }

    fn check(user: &str, access: Access<'_>) -> Option<AuthError> {
        let auth = example();
        match permit(&auth, Some(&caller(&auth, user)), access, &keys_of) {
            Ok(()) => None,
            Err(Error::Auth(error)) => Some(error),
            Err(other) => panic!("{other}"),
        }
    }

    #[track_caller]
    fn allowed(user: &str, access: Access<'_>) {
        assert_eq!(check(user, access), None, "{access:?}");
    }

    #[track_caller]
    fn denied(user: &str, access: Access<'_>) {
        assert_eq!(check(user, access), Some(AuthError::PermissionDenied), "{access:?}");
    }

    fn range(start: &'static str, end: &'static str) -> KeyRange {
        KeyRange::from_wire(start.into(), end.into())
    }

    #[test]
    fn a_read_needs_read_permission_on_the_whole_range() {
        allowed("ada", Access::Read(&range("a", "c")));
        allowed("ada", Access::Read(&range("x", "\0")));
        for (start, end) in [("c", ""), ("b", "d"), ("a", "\0"), ("\0", "\0"), ("w", "\0")] {
            denied("ada", Access::Read(&range(start, end)));
            allowed(ROOT, Access::Read(&range(start, end)));
        }
        denied("bob", Access::Read(&range("a", "")));
        denied("nobody", Access::Read(&range("a", "")));
    }

    #[test]
    fn a_write_needs_write_permission_and_previous_values_read_permission() {
        let put = |key: &'static str, lease, prev_kv| {
            Command::Put(Put { lease: Some(lease), prev_kv, ..Put::new(key, "") })
        };
        allowed("ada", Access::Command(&put("c", 0, false)));
        denied("ada", Access::Command(&put("a", 0, false)));
        denied("ada", Access::Command(&put("c", 0, true)));
        allowed("ada", Access::Command(&put("x", 0, true)));
        allowed("ada", Access::Command(&put("c", 1, false)));
        denied("ada", Access::Command(&put("c", 3, false)));
        let delete = |range, prev_kv| Command::Delete(Delete { range, prev_kv });
        allowed("ada", Access::Command(&delete(range("c", "e"), false)));
        denied("ada", Access::Command(&delete(range("c", "e"), true)));
        denied("ada", Access::Command(&delete(range("c", "f"), false)));
        allowed("ada", Access::Command(&delete(range("y", "\0"), true)));
    }

    #[test]
    fn all_parts_of_a_transaction_are_checked_whichever_is_executed() {
        let denied_ops = [
            Op::Put(Put::new("a", "")),
            Op::Range(RangeQuery::new(range("c", ""))),
            Op::Delete(Delete::new(range("a", ""))),
            Op::Put(Put { lease: Some(2), ..Put::new("c", "") }),
        ];
        let within = |op: Op| Op::Txn(Txn { failure: vec![op], ..Txn::default() });
        for op in denied_ops {
            for op in [op.clone(), within(op.clone()), within(within(op))] {
                let then = Txn { success: vec![op.clone()], ..Txn::default() };
                let other = Txn { failure: vec![op], ..Txn::default() };
                denied("ada", Access::Command(&Command::Txn(then)));
                denied("ada", Access::Txn(&other));
            }
        }
        let compare = |key: &'static str| Compare {
            range: KeyRange::single(key),
            relation: Relation::Equal,
            operand: Operand::Version(0),
        };
        let txn = |key| Txn { compares: vec![compare(key)], ..Txn::default() };
        denied("ada", Access::Txn(&txn("c")));
        denied("ada", Access::Txn(&Txn { success: vec![Op::Txn(txn("c"))], ..Txn::default() }));
        let fine = Txn { success: vec![Op::Put(Put::new("c", ""))], ..txn("a") };
        allowed("ada", Access::Command(&Command::Txn(fine)));
    }

    #[test]
    fn a_lease_is_managed_by_those_who_may_write_its_keys() {
        allowed("ada", Access::Command(&Command::LeaseGrant { id: 1, ttl_seconds: 1 }));
        allowed("bob", Access::Command(&Command::LeaseGrant { id: 1, ttl_seconds: 1 }));
        allowed("ada", Access::Lease(1));
        allowed("ada", Access::Command(&Command::LeaseRevoke { id: 1 }));
        denied("ada", Access::Lease(3));
        denied("ada", Access::Command(&Command::LeaseRevoke { id: 2 }));
        allowed("ada", Access::LeaseKeys(2));
        denied("ada", Access::LeaseKeys(3));
        allowed("bob", Access::Lease(99));
    }

    #[test]
    fn native_transactions_and_locks_are_checked_like_etcds() {
        let execute = |read, write: &'static str, lease, lock: &'static str| {
            Command::Execute(Execute {
                reads: vec![read],
                writes: vec![Write { key: write.into(), value: None, lease }],
                locks: vec![HeldLock { key: lock.into(), session: 1, token: 1 }],
                ..Execute::default()
            })
        };
        allowed("ada", Access::Command(&execute(range("a", "c"), "c", 1, "b")));
        denied("ada", Access::Command(&execute(range("a", "d"), "c", 1, "b")));
        denied("ada", Access::Command(&execute(range("a", "c"), "a", 1, "b")));
        denied("ada", Access::Command(&execute(range("a", "c"), "c", 2, "b")));
        denied("ada", Access::Command(&execute(range("a", "c"), "c", 1, "c")));
        let acquire = |key: &'static str, session| {
            let (key, mode) = (key.into(), LockMode::Exclusive);
            Command::Acquire(Acquire { key, session, mode, no_wait: false, call_id: 1 })
        };
        allowed("ada", Access::Command(&acquire("c", 1)));
        denied("ada", Access::Command(&acquire("a", 1)));
        denied("ada", Access::Command(&acquire("c", 2)));
    }

    #[test]
    fn management_needs_the_root_role() {
        let alarm = AlarmAction::ActivateByHand { member: 1, alarm: Alarm::NoSpace };
        for command in [
            Command::Compact { revision: 1 },
            Command::Auth(AuthCommand::Disable),
            Command::Alarm(alarm),
        ] {
            denied("ada", Access::Command(&command));
            allowed(ROOT, Access::Command(&command));
        }
        denied("ada", Access::Root);
        allowed("bob", Access::AnyUser);
        denied("nobody", Access::AnyUser);
        allowed("ada", Access::User("ada"));
        denied("ada", Access::User("bob"));
        allowed("ada", Access::Role("role"));
        denied("bob", Access::Role("role"));
    }

    #[test]
    fn callers_without_a_token_and_with_an_old_one_are_refused() {
        let auth = example();
        let read = range("a", "");
        for access in [Access::Read(&read), Access::AnyUser, Access::Root] {
            let refused = permit(&auth, None, access, &keys_of);
            assert!(matches!(refused, Err(Error::Auth(AuthError::UserEmpty))), "{refused:?}");
        }
        let old = Caller { auth_revision: auth.revision - 1, ..caller(&auth, "ada") };
        let refused = permit(&auth, Some(&old), Access::Read(&read), &keys_of);
        assert!(matches!(refused, Err(Error::Auth(AuthError::OldRevision))), "{refused:?}");
        let internal = Command::Sample { clock_micros: 1 };
        assert!(permit(&auth, None, Access::Command(&internal), &keys_of).is_ok());
        let off = AuthState { enabled: false, ..auth };
        assert!(permit(&off, None, Access::Root, &keys_of).is_ok());
    }
}
