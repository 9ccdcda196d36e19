//! The Auth service: users, roles, permissions and tokens.

use bytes::Bytes;
use prost::Message;
use stele_grpc::frame;

use super::api::decode;
use super::methods::Method;
use super::{Etcd, proto, response};
use crate::auth::{Access, AuthError, AuthState, NewToken};
use crate::command::{AuthCommand, Caller, Command};
use crate::{Error, Result};

/// How often a login is repeated because users or roles changed meanwhile.
const LOGIN_ATTEMPTS: usize = 5;

/// Executes a method that changes users or roles.
pub async fn change(
    etcd: &Etcd,
    caller: Option<&Caller>,
    method: Method,
    message: Bytes,
) -> Result<Bytes> {
    etcd.by(caller).permit(Access::Root)?;
    let command = match method {
        Method::AuthEnable => AuthCommand::Enable,
        Method::AuthDisable => AuthCommand::Disable,
        Method::UserAdd => {
            let mut request: proto::AuthUserAddRequest = decode(message)?;
            let password = std::mem::take(&mut request.password);
            request.hashed_password = match request.options {
                Some(proto::UserAddOptions { no_password: true }) => String::new(),
                _ => etcd.login().hash(password).await?,
            };
            AuthCommand::UserAdd(request)
        }
        Method::UserChangePassword => {
            let mut request: proto::AuthUserChangePasswordRequest = decode(message)?;
            let password = std::mem::take(&mut request.password);
            request.hashed_password = etcd.login().hash(password).await?;
            AuthCommand::UserChangePassword(request)
        }
        Method::UserDelete => AuthCommand::UserDelete(decode(message)?),
        Method::UserGrantRole => AuthCommand::UserGrantRole(decode(message)?),
        Method::UserRevokeRole => AuthCommand::UserRevokeRole(decode(message)?),
        Method::RoleAdd => AuthCommand::RoleAdd(decode(message)?),
        Method::RoleDelete => AuthCommand::RoleDelete(decode(message)?),
        Method::RoleGrantPermission => AuthCommand::RoleGrantPermission(decode(message)?),
        Method::RoleRevokePermission => AuthCommand::RoleRevokePermission(decode(message)?),
        _ => return Err(Error::Internal("the method does not change users or roles".into())),
    };
    let answer = etcd.by(caller).propose(Command::Auth(command)).await?;
    // All responses of this kind have only a header.
    Ok(response::header_only(etcd.header(answer.revision)))
}

pub async fn status(etcd: &Etcd) -> Result<Bytes> {
    etcd.node().barrier().await?;
    let auth = etcd.node().auth().get();
    Ok(frame::encode(&proto::AuthStatusResponse {
        header: header(etcd),
        enabled: auth.is_enabled(),
        auth_revision: auth.revision(),
    }))
}

/// Exchanges a password for a token.
pub async fn authenticate(etcd: &Etcd, request: proto::AuthenticateRequest) -> Result<Bytes> {
    let (node, login) = (etcd.node(), etcd.login());
    node.barrier().await?;
    for _ in 0..LOGIN_ATTEMPTS {
        let auth = node.auth().get();
        let caller = login.verify(&auth, &request.name, &request.password).await?;
        let token = match login.new_token(&caller)? {
            NewToken::Signed(token) => token,
            NewToken::Remembered(letters) => {
                let token = format!("{letters}.{}", node.status().applied);
                let (name, password) = (request.name.clone(), token.clone());
                let request = proto::AuthenticateRequest { name, password };
                let auth_revision = caller.auth_revision;
                let issued = AuthCommand::Token { auth_revision, request };
                match node.propose(Command::Auth(issued)).await {
                    Err(Error::Auth(AuthError::OldRevision)) => continue,
                    answer => answer?,
                };
                token
            }
        };
        return Ok(frame::encode(&proto::AuthenticateResponse { header: header(etcd), token }));
    }
    Err(AuthError::OldRevision.into())
}

pub async fn user_get(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: proto::AuthUserGetRequest,
) -> Result<Bytes> {
    read(etcd, caller, Access::User(&request.name), |auth| {
        let user = auth.user(&request.name).ok_or(AuthError::UserNotFound)?;
        Ok(proto::AuthUserGetResponse { header: header(etcd), roles: user.roles.clone() })
    })
    .await
}

pub async fn user_list(etcd: &Etcd, caller: Option<&Caller>) -> Result<Bytes> {
    read(etcd, caller, Access::Root, |auth| {
        Ok(proto::AuthUserListResponse { header: header(etcd), users: auth.user_names() })
    })
    .await
}

pub async fn role_get(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: proto::AuthRoleGetRequest,
) -> Result<Bytes> {
    read(etcd, caller, Access::Role(&request.role), |auth| {
        let perm = auth.permissions(&request.role)?;
        Ok(proto::AuthRoleGetResponse { header: header(etcd), perm })
    })
    .await
}

pub async fn role_list(etcd: &Etcd, caller: Option<&Caller>) -> Result<Bytes> {
    read(etcd, caller, Access::Root, |auth| {
        Ok(proto::AuthRoleListResponse { header: header(etcd), roles: auth.role_names() })
    })
    .await
}

/// Reads the users and roles as of now.
async fn read<M: Message>(
    etcd: &Etcd,
    caller: Option<&Caller>,
    access: Access<'_>,
    answer: impl Fn(&AuthState) -> Result<M>,
) -> Result<Bytes> {
    etcd.node().barrier().await?;
    etcd.by(caller).permit(access)?;
    Ok(frame::encode(&answer(&etcd.node().auth().get())?))
}

fn header(etcd: &Etcd) -> Option<proto::ResponseHeader> {
    Some(etcd.header(etcd.node().revision()).message())
}
