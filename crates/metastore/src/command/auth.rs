//! Changes of users, roles and permissions, and the callers of commands.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use crate::error::{Error, Result};
use crate::proto::etcd::{
    AuthRoleAddRequest, AuthRoleDeleteRequest, AuthRoleGrantPermissionRequest,
    AuthRoleRevokePermissionRequest, AuthUserAddRequest, AuthUserChangePasswordRequest,
    AuthUserDeleteRequest, AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest,
    AuthenticateRequest,
};
use crate::proto::etcd::{KeyValue, RangeResponse};

/// The user on whose behalf a command is proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub user: Arc<str>,
    /// The revision of the users and roles at which the caller was identified.
    pub auth_revision: u64,
}

/// A change of users, roles and permissions, in etcd's messages. Passwords are
/// hashed before they are proposed, and cleared.
#[derive(Clone, Debug, PartialEq)]
pub enum AuthCommand {
    Enable,
    Disable,
    UserAdd(AuthUserAddRequest),
    UserDelete(AuthUserDeleteRequest),
    UserChangePassword(AuthUserChangePasswordRequest),
    UserGrantRole(AuthUserGrantRoleRequest),
    UserRevokeRole(AuthUserRevokeRoleRequest),
    RoleAdd(AuthRoleAddRequest),
    RoleDelete(AuthRoleDeleteRequest),
    RoleGrantPermission(AuthRoleGrantPermissionRequest),
    RoleRevokePermission(AuthRoleRevokePermissionRequest),
    /// Issues a token to a user whose password was verified at a revision. The
    /// message holds the token instead of the password.
    Token {
        auth_revision: u64,
        request: AuthenticateRequest,
    },
    /// Restores the stored rows of a snapshot into a store without users.
    /// Proposed only by the offline tool.
    Restore(Vec<(Bytes, Bytes)>),
}

impl Eq for AuthCommand {}

impl AuthCommand {
    /// Returns the number and the message of the command, as they are stored.
    pub(super) fn parts(&self) -> (u8, u64, Vec<u8>) {
        match self {
            AuthCommand::Enable => (1, 0, Vec::new()),
            AuthCommand::Disable => (2, 0, Vec::new()),
            AuthCommand::UserAdd(request) => (3, 0, request.encode_to_vec()),
            AuthCommand::UserDelete(request) => (4, 0, request.encode_to_vec()),
            AuthCommand::UserChangePassword(request) => (5, 0, request.encode_to_vec()),
            AuthCommand::UserGrantRole(request) => (6, 0, request.encode_to_vec()),
            AuthCommand::UserRevokeRole(request) => (7, 0, request.encode_to_vec()),
            AuthCommand::RoleAdd(request) => (8, 0, request.encode_to_vec()),
            AuthCommand::RoleDelete(request) => (9, 0, request.encode_to_vec()),
            AuthCommand::RoleGrantPermission(request) => (10, 0, request.encode_to_vec()),
            AuthCommand::RoleRevokePermission(request) => (11, 0, request.encode_to_vec()),
            AuthCommand::Token { auth_revision, request } => {
                (12, *auth_revision, request.encode_to_vec())
            }
            AuthCommand::Restore(rows) => {
                let row = |(key, value): &(Bytes, Bytes)| KeyValue {
                    key: key.clone(),
                    value: value.clone(),
                    ..KeyValue::default()
                };
                let kvs = rows.iter().map(row).collect();
                (13, 0, RangeResponse { kvs, ..RangeResponse::default() }.encode_to_vec())
            }
        }
    }

    pub(super) fn from_parts(number: u8, auth_revision: u64, message: Bytes) -> Result<Self> {
        let command = match number {
            1 => AuthCommand::Enable,
            2 => AuthCommand::Disable,
            3 => AuthCommand::UserAdd(decode(message)?),
            4 => AuthCommand::UserDelete(decode(message)?),
            5 => AuthCommand::UserChangePassword(decode(message)?),
            6 => AuthCommand::UserGrantRole(decode(message)?),
            7 => AuthCommand::UserRevokeRole(decode(message)?),
            8 => AuthCommand::RoleAdd(decode(message)?),
            9 => AuthCommand::RoleDelete(decode(message)?),
            10 => AuthCommand::RoleGrantPermission(decode(message)?),
            11 => AuthCommand::RoleRevokePermission(decode(message)?),
            12 => AuthCommand::Token { auth_revision, request: decode(message)? },
            13 => {
                let rows: RangeResponse = decode(message)?;
                AuthCommand::Restore(rows.kvs.into_iter().map(|kv| (kv.key, kv.value)).collect())
            }
            _ => return Err(Error::Malformed("unknown change of users and roles")),
        };
        Ok(command)
    }
}

fn decode<M: Message + Default>(message: Bytes) -> Result<M> {
    M::decode(message).map_err(|_| Error::Malformed("a change of users and roles is malformed"))
}
