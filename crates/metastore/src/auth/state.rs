//! The users, roles and permissions of a store, and their stored form: a row of
//! the table `meta` for each user and role, and one for the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use super::AuthError;
use crate::error::{Error, Result};
use crate::proto::etcd::{Permission, Role, User};

/// The name of the user and of the role that may do everything.
pub const ROOT: &str = "root";

/// The users, roles and permissions at one revision. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthState {
    pub(super) enabled: bool,
    /// Rises with every change; 1 before the first.
    pub(super) revision: u64,
    pub(super) users: BTreeMap<String, Arc<User>>,
    pub(super) roles: BTreeMap<String, Arc<Role>>,
}

impl Default for AuthState {
    fn default() -> AuthState {
        let (users, roles) = (BTreeMap::new(), BTreeMap::new());
        AuthState { enabled: false, revision: 1, users, roles }
    }
}

impl AuthState {
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name).map(|user| &**user)
    }

    /// Returns the names of all users, in order.
    pub fn user_names(&self) -> Vec<String> {
        self.users.keys().cloned().collect()
    }

    /// Returns the names of all roles, in order.
    pub fn role_names(&self) -> Vec<String> {
        self.roles.keys().cloned().collect()
    }

    /// Returns the permissions of a role. Those of the root role are implied.
    pub fn permissions(&self, role: &str) -> Result<Vec<Permission>> {
        let found = self.roles.get(role).ok_or(AuthError::RoleNotFound)?;
        if role == ROOT {
            let all = Permission { range_end: vec![0].into(), ..Permission::default() };
            let readwrite = crate::proto::etcd::permission::Type::Readwrite;
            return Ok(vec![Permission { perm_type: readwrite.into(), ..all }]);
        }
        Ok(found.key_permission.clone())
    }

    pub(super) fn has_root_role(user: &User) -> bool {
        user.roles.iter().any(|role| role == ROOT)
    }

    pub(super) fn has_password(user: &User) -> bool {
        !user.options.as_ref().is_some_and(|options| options.no_password)
    }
}

/// The first byte of the rows of users and roles, after [`ROW`].
const USER: u8 = b'u';
const ROLE: u8 = b'r';
/// The row of `meta` with the flag and the revision; those of users and roles
/// begin with it.
pub const ROW: &[u8] = b"auth";

/// A row of `meta` to be written; `None` removes it.
pub type Row = (Vec<u8>, Option<Vec<u8>>);

impl AuthState {
    /// Returns the rows that differ from those of an older state, in order.
    pub fn changed_rows(&self, old: &AuthState) -> Vec<Row> {
        let mut rows = Vec::new();
        if (self.enabled, self.revision) != (old.enabled, old.revision) {
            let mut head = vec![u8::from(self.enabled)];
            head.extend_from_slice(&self.revision.to_le_bytes());
            rows.push((ROW.to_vec(), Some(head)));
        }
        changed(&mut rows, ROLE, &self.roles, &old.roles);
        changed(&mut rows, USER, &self.users, &old.users);
        rows
    }

    /// Adds a stored row to the state that is being read.
    pub fn read_row(&mut self, row: &[u8], value: &[u8]) -> Result<()> {
        let malformed = || Error::Internal("cannot decode a stored user or role".into());
        let rest = row.strip_prefix(ROW).ok_or_else(malformed)?;
        let Some((kind, name)) = rest.split_first() else {
            let (enabled, revision) = value.split_first().ok_or_else(malformed)?;
            self.enabled = *enabled != 0;
            self.revision = revision.try_into().map(u64::from_le_bytes).map_err(|_| malformed())?;
            return Ok(());
        };
        let name = std::str::from_utf8(name).map_err(|_| malformed())?.to_owned();
        match *kind {
            ROLE => {
                let role = Role::decode(value).map_err(|_| malformed())?;
                self.roles.insert(name, Arc::new(role));
            }
            USER => {
                let user = User::decode(value).map_err(|_| malformed())?;
                self.users.insert(name, Arc::new(user));
            }
            _ => return Err(malformed()),
        }
        Ok(())
    }
}

fn changed<M: Message + PartialEq>(
    rows: &mut Vec<Row>,
    kind: u8,
    new: &BTreeMap<String, Arc<M>>,
    old: &BTreeMap<String, Arc<M>>,
) {
    let row = |name: &str| [ROW, &[kind], name.as_bytes()].concat();
    let begun = rows.len();
    for (name, record) in new {
        if old.get(name).is_none_or(|before| !Arc::ptr_eq(before, record) && before != record) {
            rows.push((row(name), Some(record.encode_to_vec())));
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        rows.push((row(name), None));
    }
    rows[begun..].sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> AuthState {
        let user = |name: &str| Arc::new(User { name: name.to_owned().into(), ..User::default() });
        let role = Arc::new(Role { name: "reader".into(), ..Role::default() });
        AuthState {
            enabled: true,
            revision: 7,
            users: [("ada".into(), user("ada")), ("bob".into(), user("bob"))].into(),
            roles: [("reader".into(), role)].into(),
        }
    }

    #[test]
    fn rows_restore_the_state_and_only_changed_ones_are_written() {
        let (state, mut read) = (example(), AuthState::default());
        let rows = state.changed_rows(&AuthState::default());
        assert!(rows.is_sorted() && rows.len() == 4);
        for (row, value) in &rows {
            read.read_row(row, value.as_deref().unwrap()).unwrap();
        }
        assert_eq!(read, state);
        let mut next = state.clone();
        next.users.remove("ada");
        next.revision += 1;
        let rows = next.changed_rows(&state);
        assert_eq!(
            rows.iter().map(|(row, _)| &row[..]).collect::<Vec<_>>(),
            [&b"auth"[..], b"authuada"]
        );
        assert_eq!(rows[1].1, None);
        assert_eq!(next.changed_rows(&next.clone()), []);
    }

    #[test]
    fn malformed_rows_are_refused() {
        let mut state = AuthState::default();
        for (row, value) in
            [(&b"other"[..], &b""[..]), (b"auth", b""), (b"auth", b"123"), (b"authxa", b"")]
        {
            assert!(state.read_row(row, value).is_err());
        }
        assert!(state.read_row(b"authu\xff", b"").is_err());
        assert!(state.read_row(b"authua", b"\xff").is_err());
    }
}
