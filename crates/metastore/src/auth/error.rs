//! Refusals of callers and of changes to users and roles, with etcd's codes and
//! texts.

use crate::error::Code;

/// A refusal of a caller, or of a change to users and roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("etcdserver: user name is empty")]
    UserEmpty,
    #[error("etcdserver: role name is empty")]
    RoleEmpty,
    #[error("etcdserver: authentication failed, invalid user ID or password")]
    Failed,
    #[error("auth: authentication failed, password was given for no password user")]
    NoPasswordUser,
    #[error("etcdserver: permission not given")]
    PermissionNotGiven,
    #[error("etcdserver: invalid auth management")]
    InvalidManagement,
    /// Users or roles have changed since the caller was identified.
    #[error("etcdserver: revision of auth store is old")]
    OldRevision,
    #[error("etcdserver: permission denied")]
    PermissionDenied,
    #[error("etcdserver: invalid auth token")]
    InvalidToken,
    #[error("etcdserver: root user does not exist")]
    NoRootUser,
    #[error("etcdserver: root user does not have root role")]
    NoRootRole,
    #[error("etcdserver: user name already exists")]
    UserExists,
    #[error("etcdserver: user name not found")]
    UserNotFound,
    #[error("etcdserver: role name already exists")]
    RoleExists,
    #[error("etcdserver: role name not found")]
    RoleNotFound,
    #[error("etcdserver: role is not granted to the user")]
    RoleNotGranted,
    #[error("etcdserver: permission is not granted to the role")]
    PermissionNotGranted,
    #[error("etcdserver: authentication is not enabled")]
    NotEnabled,
}

impl AuthError {
    /// Returns the status code of the error on the wire.
    pub fn code(self) -> Code {
        match self {
            AuthError::UserEmpty
            | AuthError::RoleEmpty
            | AuthError::Failed
            | AuthError::PermissionNotGiven
            | AuthError::InvalidManagement
            | AuthError::OldRevision => Code::InvalidArgument,
            AuthError::NoPasswordUser => Code::Unknown,
            AuthError::PermissionDenied => Code::PermissionDenied,
            AuthError::InvalidToken => Code::Unauthenticated,
            AuthError::NoRootUser
            | AuthError::NoRootRole
            | AuthError::UserExists
            | AuthError::UserNotFound
            | AuthError::RoleExists
            | AuthError::RoleNotFound
            | AuthError::RoleNotGranted
            | AuthError::PermissionNotGranted
            | AuthError::NotEnabled => Code::FailedPrecondition,
        }
    }
}
