//! Changes of users, roles and permissions, with etcd's rules. Pure, so that
//! every member decides alike.

use std::sync::Arc;

use super::state::{AuthState, ROOT};
use super::{AuthError, password};
use crate::command::AuthCommand;
use crate::error::{Error, Result};
use crate::key::{KeyRange, RangeEnd};
use crate::proto::etcd::{
    AuthRoleGrantPermissionRequest, AuthRoleRevokePermissionRequest, AuthUserAddRequest,
    AuthUserChangePasswordRequest, AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest, Permission,
    Role, User, permission,
};

impl AuthState {
    /// Applies a change, or refuses it without an effect.
    pub fn apply(&mut self, command: &AuthCommand) -> Result<()> {
        match command {
            AuthCommand::Enable => return self.enable(),
            AuthCommand::Disable => {
                if !self.enabled {
                    return Ok(());
                }
                self.enabled = false;
            }
            AuthCommand::UserAdd(request) => self.add_user(request)?,
            AuthCommand::UserDelete(request) => {
                self.check_unprotected(request.name == ROOT)?;
                self.users.remove(&request.name).ok_or(AuthError::UserNotFound)?;
            }
            AuthCommand::UserChangePassword(request) => self.change_password(request)?,
            AuthCommand::UserGrantRole(request) => {
                if !self.grant_role(request)? {
                    return Ok(());
                }
            }
            AuthCommand::UserRevokeRole(request) => self.revoke_role(request)?,
            AuthCommand::RoleAdd(request) => {
                if request.name.is_empty() {
                    return Err(AuthError::RoleEmpty.into());
                }
                if self.roles.contains_key(&request.name) {
                    return Err(AuthError::RoleExists.into());
                }
                let name = request.name.clone();
                let role = Role { name: name.clone().into(), key_permission: Vec::new() };
                self.roles.insert(name, Arc::new(role));
            }
            AuthCommand::RoleDelete(request) => {
                self.check_unprotected(request.role == ROOT)?;
                self.roles.remove(&request.role).ok_or(AuthError::RoleNotFound)?;
                for user in self.users.values_mut() {
                    if user.roles.contains(&request.role) {
                        Arc::make_mut(user).roles.retain(|role| *role != request.role);
                    }
                }
            }
            AuthCommand::RoleGrantPermission(request) => self.grant_permission(request)?,
            AuthCommand::RoleRevokePermission(request) => self.revoke_permission(request)?,
            AuthCommand::Token { auth_revision, request } => {
                return self.check_token(*auth_revision, &request.name);
            }
            AuthCommand::Restore(rows) => return self.restore(rows),
        }
        self.revision += 1;
        Ok(())
    }

    /// Enables the checks. Only the root user can turn them off again, so there
    /// must be one. Enabling twice is not an error.
    fn enable(&mut self) -> Result<()> {
        if !self.enabled {
            let root = self.user(ROOT).ok_or(AuthError::NoRootUser)?;
            if !AuthState::has_root_role(root) {
                return Err(AuthError::NoRootRole.into());
            }
            self.enabled = true;
        }
        Ok(())
    }

    /// Refuses changes to the root user and role while they are needed.
    fn check_unprotected(&self, is_root: bool) -> Result<()> {
        if self.enabled && is_root { Err(AuthError::InvalidManagement.into()) } else { Ok(()) }
    }

    fn add_user(&mut self, request: &AuthUserAddRequest) -> Result<()> {
        if request.name.is_empty() {
            return Err(AuthError::UserEmpty.into());
        }
        if self.users.contains_key(&request.name) {
            return Err(AuthError::UserExists.into());
        }
        let mut user = User {
            name: request.name.clone().into(),
            options: Some(request.options.unwrap_or_default()),
            ..User::default()
        };
        if AuthState::has_password(&user) {
            password::check(&request.hashed_password)?;
            user.password = request.hashed_password.clone().into();
        }
        self.users.insert(request.name.clone(), Arc::new(user));
        Ok(())
    }

    fn user_mut(&mut self, name: &str) -> Result<&mut User> {
        let user = self.users.get_mut(name).ok_or(AuthError::UserNotFound)?;
        Ok(Arc::make_mut(user))
    }

    fn change_password(&mut self, request: &AuthUserChangePasswordRequest) -> Result<()> {
        let user = self.user_mut(&request.name)?;
        if AuthState::has_password(user) {
            password::check(&request.hashed_password)?;
            user.password = request.hashed_password.clone().into();
        }
        Ok(())
    }

    /// Grants a role. The root role need not exist. Returns whether the user did
    /// not have it.
    fn grant_role(&mut self, request: &AuthUserGrantRoleRequest) -> Result<bool> {
        let role_exists = request.role == ROOT || self.roles.contains_key(&request.role);
        let user = self.users.get_mut(&request.user).ok_or(AuthError::UserNotFound)?;
        if !role_exists {
            return Err(AuthError::RoleNotFound.into());
        }
        let Err(at) = user.roles.binary_search(&request.role) else { return Ok(false) };
        Arc::make_mut(user).roles.insert(at, request.role.clone());
        Ok(true)
    }

    fn revoke_role(&mut self, request: &AuthUserRevokeRoleRequest) -> Result<()> {
        self.check_unprotected(request.name == ROOT && request.role == ROOT)?;
        let user = self.users.get_mut(&request.name).ok_or(AuthError::UserNotFound)?;
        let granted = user.roles.binary_search(&request.role);
        let at = granted.map_err(|_| AuthError::RoleNotGranted)?;
        Arc::make_mut(user).roles.remove(at);
        Ok(())
    }

    /// Grants a permission; that of the same range is replaced.
    fn grant_permission(&mut self, request: &AuthRoleGrantPermissionRequest) -> Result<()> {
        let given = request.perm.as_ref().ok_or(AuthError::PermissionNotGiven)?;
        if !is_valid(given) {
            return Err(AuthError::InvalidManagement.into());
        }
        let role = self.roles.get_mut(&request.name).ok_or(AuthError::RoleNotFound)?;
        let permissions = &mut Arc::make_mut(role).key_permission;
        match permissions.binary_search_by(|known| order(known).cmp(&order(given))) {
            Ok(at) => permissions[at].perm_type = given.perm_type,
            Err(at) => permissions.insert(at, given.clone()),
        }
        Ok(())
    }

    fn revoke_permission(&mut self, request: &AuthRoleRevokePermissionRequest) -> Result<()> {
        let role = self.roles.get_mut(&request.role).ok_or(AuthError::RoleNotFound)?;
        let range = (&request.key, &request.range_end);
        let found = role.key_permission.binary_search_by(|known| order(known).cmp(&range));
        let at = found.map_err(|_| AuthError::PermissionNotGranted)?;
        Arc::make_mut(role).key_permission.remove(at);
        Ok(())
    }

    fn restore(&mut self, rows: &[(bytes::Bytes, bytes::Bytes)]) -> Result<()> {
        if *self != AuthState::default() {
            return Err(Error::Config("cannot restore: the store has users or roles".into()));
        }
        let mut restored = AuthState::default();
        let malformed = |_| Error::Malformed("a restored user or role is malformed");
        for (row, value) in rows {
            restored.read_row(row, value).map_err(malformed)?;
        }
        *self = restored;
        Ok(())
    }

    /// Refuses a token if the password may have changed since it was verified.
    fn check_token(&self, auth_revision: u64, user: &str) -> Result<()> {
        if !self.enabled {
            return Err(AuthError::NotEnabled.into());
        }
        if auth_revision != self.revision {
            return Err(AuthError::OldRevision.into());
        }
        let user = self.user(user).ok_or(AuthError::Failed)?;
        if AuthState::has_password(user) { Ok(()) } else { Err(AuthError::Failed.into()) }
    }
}

/// Permissions are stored in the order of their ranges.
fn order(permission: &Permission) -> (&bytes::Bytes, &bytes::Bytes) {
    (&permission.key, &permission.range_end)
}

/// Returns whether a permission is of a known type and for a range that can hold
/// keys.
fn is_valid(permission: &Permission) -> bool {
    let range = KeyRange::from_wire(permission.key.clone(), permission.range_end.clone());
    let starts = !range.start.is_empty();
    let ends = !matches!(&range.end, RangeEnd::Before(end) if *end <= range.start);
    starts && ends && permission::Type::try_from(permission.perm_type).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::etcd::{
        AuthRoleAddRequest, AuthRoleDeleteRequest, AuthUserDeleteRequest, UserAddOptions,
    };

    fn add_user(name: &str) -> AuthCommand {
        AuthCommand::UserAdd(AuthUserAddRequest {
            name: name.into(),
            options: Some(UserAddOptions { no_password: true }),
            ..Default::default()
        })
    }

    fn add_role(name: &str) -> AuthCommand {
        AuthCommand::RoleAdd(AuthRoleAddRequest { name: name.into() })
    }

    fn grant(user: &str, role: &str) -> AuthCommand {
        let (user, role) = (user.into(), role.into());
        AuthCommand::UserGrantRole(AuthUserGrantRoleRequest { user, role })
    }

    fn revoke(name: &str, role: &str) -> AuthCommand {
        let (name, role) = (name.into(), role.into());
        AuthCommand::UserRevokeRole(AuthUserRevokeRoleRequest { name, role })
    }

    fn permission(role: &str, key: &str, range_end: &str, perm_type: i32) -> AuthCommand {
        let (key, range_end) = (key.to_owned().into(), range_end.to_owned().into());
        let perm = Some(Permission { perm_type, key, range_end });
        AuthCommand::RoleGrantPermission(AuthRoleGrantPermissionRequest { name: role.into(), perm })
    }

    #[track_caller]
    fn refused(state: &mut AuthState, command: AuthCommand, expected: AuthError) {
        let before = state.clone();
        let refused = state.apply(&command);
        assert!(matches!(refused, Err(Error::Auth(error)) if error == expected), "{refused:?}");
        assert_eq!(*state, before, "a refusal has no effect");
    }

    #[test]
    fn the_checks_are_enabled_only_with_a_root_user_that_stays_one() {
        let mut state = AuthState::default();
        refused(&mut state, AuthCommand::Enable, AuthError::NoRootUser);
        state.apply(&add_user(ROOT)).unwrap();
        refused(&mut state, AuthCommand::Enable, AuthError::NoRootRole);
        state.apply(&grant(ROOT, ROOT)).unwrap();
        state.apply(&AuthCommand::Enable).unwrap();
        let revision = state.revision();
        state.apply(&AuthCommand::Enable).unwrap();
        state.apply(&grant(ROOT, ROOT)).unwrap();
        assert_eq!(state.revision(), revision, "nothing has changed");
        let delete = AuthUserDeleteRequest { name: ROOT.into() };
        refused(&mut state, AuthCommand::UserDelete(delete), AuthError::InvalidManagement);
        let delete = AuthRoleDeleteRequest { role: ROOT.into() };
        refused(&mut state, AuthCommand::RoleDelete(delete), AuthError::InvalidManagement);
        refused(&mut state, revoke(ROOT, ROOT), AuthError::InvalidManagement);
        state.apply(&AuthCommand::Disable).unwrap();
        assert_eq!(state.revision(), revision + 1);
        state.apply(&revoke(ROOT, ROOT)).unwrap();
    }

    #[test]
    fn every_refusal_names_its_reason() {
        let mut state = AuthState::default();
        state.apply(&add_user("ada")).unwrap();
        state.apply(&add_role("reader")).unwrap();
        for (command, expected) in [
            (add_user(""), AuthError::UserEmpty),
            (add_user("ada"), AuthError::UserExists),
            (add_role(""), AuthError::RoleEmpty),
            (add_role("reader"), AuthError::RoleExists),
            (grant("bob", "reader"), AuthError::UserNotFound),
            (grant("ada", "writer"), AuthError::RoleNotFound),
            (revoke("ada", "reader"), AuthError::RoleNotGranted),
            (permission("writer", "a", "", 0), AuthError::RoleNotFound),
            (permission("reader", "", "", 0), AuthError::InvalidManagement),
            (permission("reader", "b", "a", 0), AuthError::InvalidManagement),
            (permission("reader", "a", "", 3), AuthError::InvalidManagement),
        ] {
            refused(&mut state, command, expected);
        }
    }

    #[test]
    fn a_permission_of_the_same_range_is_replaced_and_a_deleted_role_is_revoked() {
        let mut state = AuthState::default();
        for command in [
            add_user("ada"),
            add_role("reader"),
            grant("ada", "reader"),
            permission("reader", "a", "b", 0),
            permission("reader", "a", "", 1),
            permission("reader", "a", "b", 2),
            permission("reader", "z", "\0", 2),
        ] {
            state.apply(&command).unwrap();
        }
        let types: Vec<i32> =
            state.permissions("reader").unwrap().iter().map(|known| known.perm_type).collect();
        assert_eq!(types, [1, 2, 2]);
        let delete = AuthRoleDeleteRequest { role: "reader".into() };
        state.apply(&AuthCommand::RoleDelete(delete)).unwrap();
        assert_eq!(state.user("ada").unwrap().roles, [""; 0]);
    }
}
