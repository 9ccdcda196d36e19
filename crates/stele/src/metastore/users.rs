//! `stele metastore user`, `role` and `auth`: who may read and write which keys. They use
//! the Auth service of etcd's API, so they work with an etcd, too.

use std::io::{self, BufRead, Write};

use bytes::Bytes;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use stele_metastore::client::Client;
use stele_metastore::proto::etcd::permission::Type;
use stele_metastore::proto::etcd::*;

use super::commands::Connection;
use super::render::done;
use crate::escape::Typed;
use crate::output::{json_line, table, text};

#[derive(Subcommand)]
pub enum UserCommand {
    /// Add a user. Without --password, the password is read from standard input.
    Add {
        name: String,
        #[command(flatten)]
        password: NewPassword,
        #[command(flatten)]
        connection: Connection,
    },
    /// Delete a user.
    Delete {
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show the roles of a user.
    Get {
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the users with their roles.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Change the password of a user, whose tokens end.
    Passwd {
        name: String,
        /// New password; otherwise it is read from standard input.
        #[arg(long)]
        password: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Grant a role to a user.
    GrantRole {
        name: String,
        role: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Revoke a role from a user.
    RevokeRole {
        name: String,
        role: String,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Args)]
pub struct NewPassword {
    /// Password of the user.
    #[arg(long, conflicts_with = "no_password")]
    password: Option<String>,
    /// The user cannot log in with a password.
    #[arg(long)]
    no_password: bool,
}

#[derive(Subcommand)]
pub enum RoleCommand {
    /// Add a role without permissions.
    Add {
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Delete a role, also from its users.
    Delete {
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show the permissions of a role.
    Get {
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the roles.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Grant a permission on a key or a range.
    #[command(after_help = "Examples:\n  \
        stele metastore role grant reader read config/ --prefix\n  \
        stele metastore role grant owner readwrite a m")]
    Grant {
        name: String,
        #[arg(value_enum)]
        permission: PermissionKind,
        #[command(flatten)]
        keys: PermittedKeys,
        #[command(flatten)]
        connection: Connection,
    },
    /// Revoke the permission on a key or a range.
    Revoke {
        name: String,
        #[command(flatten)]
        keys: PermittedKeys,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum PermissionKind {
    Read,
    Write,
    Readwrite,
}

/// The keys of a permission.
#[derive(Args)]
pub struct PermittedKeys {
    /// Key, or start of a range.
    key: Typed,
    /// End of the range (exclusive).
    range_end: Option<Typed>,
    /// All keys that start with KEY.
    #[arg(long, conflicts_with = "range_end")]
    prefix: bool,
    /// All keys from KEY on.
    #[arg(long, conflicts_with_all = ["range_end", "prefix"])]
    from_key: bool,
}

impl PermittedKeys {
    /// Returns the key and the end as etcd's API has them.
    fn wire(&self) -> (Bytes, Bytes) {
        let Typed(key) = &self.key;
        let end = match &self.range_end {
            Some(Typed(end)) => end.clone(),
            None if self.from_key => vec![0].into(),
            None if self.prefix => after_prefix(key).into(),
            None => Bytes::new(),
        };
        (key.clone(), end)
    }
}

/// Returns the first key after all that start with a prefix; a zero byte if there is
/// none.
fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    match prefix.iter().rposition(|byte| *byte < u8::MAX) {
        Some(at) => {
            let mut end = prefix[..=at].to_vec();
            end[at] += 1;
            end
        }
        None => vec![0],
    }
}

#[derive(Subcommand)]
pub enum AuthCommand {
    /// Check callers from now on. Needs a user root with the role root.
    Enable {
        #[command(flatten)]
        connection: Connection,
    },
    /// Serve all callers again.
    Disable {
        #[command(flatten)]
        connection: Connection,
    },
    /// Show whether callers are checked, and the revision of users and roles.
    Status {
        #[command(flatten)]
        connection: Connection,
    },
}

/// Calls a method whose response has only a header.
async fn change<Q>(client: &Client, method: &'static str, request: Q) -> anyhow::Result<()>
where
    Q: prost::Message + 'static,
{
    let _: AuthEnableResponse = client.call_etcd(method, request).await?;
    Ok(())
}

fn given_password(password: Option<String>) -> anyhow::Result<String> {
    if let Some(password) = password {
        return Ok(password);
    }
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let password = line.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        anyhow::bail!("no password: pass --password, or write it to standard input");
    }
    Ok(password.to_owned())
}

pub fn run_user(command: UserCommand) -> anyhow::Result<()> {
    match command {
        UserCommand::Add { name, password, connection } => {
            let NewPassword { password, no_password } = password;
            let password = if no_password { String::new() } else { given_password(password)? };
            let options = Some(UserAddOptions { no_password });
            let request =
                AuthUserAddRequest { name: name.clone(), password, options, ..Default::default() };
            let method = "/etcdserverpb.Auth/UserAdd";
            connection.run(async |client| change(&client, method, request).await)?;
            finished("user", &name, "created", &connection)
        }
        UserCommand::Delete { name, connection } => {
            let request = AuthUserDeleteRequest { name: name.clone() };
            let method = "/etcdserverpb.Auth/UserDelete";
            connection.run(async |client| change(&client, method, request).await)?;
            finished("user", &name, "deleted", &connection)
        }
        UserCommand::Get { name, connection } => {
            let roles = connection.run(async |client| roles_of(&client, &name).await)?;
            print_users(vec![(name, roles)], connection.json)
        }
        UserCommand::List { connection } => {
            let users = connection.run(async |client| {
                let method = "/etcdserverpb.Auth/UserList";
                let list: AuthUserListResponse =
                    client.call_etcd(method, AuthUserListRequest {}).await?;
                let mut users = Vec::with_capacity(list.users.len());
                for name in list.users {
                    let roles = roles_of(&client, &name).await?;
                    users.push((name, roles));
                }
                Ok(users)
            })?;
            print_users(users, connection.json)
        }
        UserCommand::Passwd { name, password, connection } => {
            let password = given_password(password)?;
            let request = AuthUserChangePasswordRequest {
                name: name.clone(),
                password,
                ..Default::default()
            };
            let method = "/etcdserverpb.Auth/UserChangePassword";
            connection.run(async |client| change(&client, method, request).await)?;
            finished("password of user", &name, "updated", &connection)
        }
        UserCommand::GrantRole { name, role, connection } => {
            let request = AuthUserGrantRoleRequest { user: name.clone(), role: role.clone() };
            let method = "/etcdserverpb.Auth/UserGrantRole";
            connection.run(async |client| change(&client, method, request).await)?;
            finished("role", &role, &format!("granted to {name}"), &connection)
        }
        UserCommand::RevokeRole { name, role, connection } => {
            let request = AuthUserRevokeRoleRequest { name: name.clone(), role: role.clone() };
            let method = "/etcdserverpb.Auth/UserRevokeRole";
            connection.run(async |client| change(&client, method, request).await)?;
            finished("role", &role, &format!("revoked from {name}"), &connection)
        }
    }
}

async fn roles_of(client: &Client, name: &str) -> anyhow::Result<Vec<String>> {
    let request = AuthUserGetRequest { name: name.to_owned() };
    let user: AuthUserGetResponse = client.call_etcd("/etcdserverpb.Auth/UserGet", request).await?;
    Ok(user.roles)
}

fn print_users(users: Vec<(String, Vec<String>)>, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        for (name, roles) in users {
            json_line(&mut out, &json!({ "user": name, "roles": roles }))?;
        }
        return Ok(());
    }
    let mut listed = table(&["user", "roles"], 2);
    for (name, roles) in users {
        listed.add_row([name, roles.join(", ")]);
    }
    Ok(writeln!(out, "{listed}")?)
}

pub fn run_role(command: RoleCommand) -> anyhow::Result<()> {
    match command {
        RoleCommand::Add { name, connection } => {
            let request = AuthRoleAddRequest { name: name.clone() };
            let method = "/etcdserverpb.Auth/RoleAdd";
            connection.run(async |client| change(&client, method, request).await)?;
            finished("role", &name, "created", &connection)
        }
        RoleCommand::Delete { name, connection } => {
            let request = AuthRoleDeleteRequest { role: name.clone() };
            let method = "/etcdserverpb.Auth/RoleDelete";
            connection.run(async |client| change(&client, method, request).await)?;
            finished("role", &name, "deleted", &connection)
        }
        RoleCommand::Get { name, connection } => {
            let request = AuthRoleGetRequest { role: name };
            let role: AuthRoleGetResponse = connection.run(async |client| {
                Ok(client.call_etcd("/etcdserverpb.Auth/RoleGet", request).await?)
            })?;
            print_permissions(&role.perm, connection.json)
        }
        RoleCommand::List { connection } => {
            let list: AuthRoleListResponse = connection.run(async |client| {
                let method = "/etcdserverpb.Auth/RoleList";
                Ok(client.call_etcd(method, AuthRoleListRequest {}).await?)
            })?;
            let mut out = io::stdout().lock();
            if connection.json {
                return Ok(json_line(&mut out, &json!({ "roles": list.roles }))?);
            }
            list.roles.iter().try_for_each(|role| writeln!(out, "{role}"))?;
            Ok(())
        }
        RoleCommand::Grant { name, permission, keys, connection } => {
            let kind = match permission {
                PermissionKind::Read => Type::Read,
                PermissionKind::Write => Type::Write,
                PermissionKind::Readwrite => Type::Readwrite,
            };
            let (key, range_end) = keys.wire();
            let perm = Some(Permission { perm_type: kind.into(), key, range_end });
            let request = AuthRoleGrantPermissionRequest { name: name.clone(), perm };
            let method = "/etcdserverpb.Auth/RoleGrantPermission";
            connection.run(async |client| change(&client, method, request).await)?;
            finished("permission", kind_name(kind), &format!("granted to {name}"), &connection)
        }
        RoleCommand::Revoke { name, keys, connection } => {
            let (key, range_end) = keys.wire();
            let shown = text(&key);
            let role = name.clone();
            let request = AuthRoleRevokePermissionRequest { role, key, range_end };
            let method = "/etcdserverpb.Auth/RoleRevokePermission";
            connection.run(async |client| change(&client, method, request).await)?;
            finished("permission on", &shown, &format!("revoked from {name}"), &connection)
        }
    }
}

fn kind_name(kind: Type) -> &'static str {
    match kind {
        Type::Read => "read",
        Type::Write => "write",
        Type::Readwrite => "readwrite",
    }
}

fn print_permissions(permissions: &[Permission], json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        for permission in permissions {
            let kind = kind_name(permission.perm_type());
            let (key, end) = (text(&permission.key), text(&permission.range_end));
            let line = json!({ "permission": kind, "key": key, "range_end": end });
            json_line(&mut out, &line)?;
        }
        return Ok(());
    }
    let mut listed = table(&["permission", "from", "to"], 3);
    for permission in permissions {
        let end = match &permission.range_end[..] {
            [] => "(this key)".to_owned(),
            [0] => "(the end)".to_owned(),
            end => text(end),
        };
        let kind = kind_name(permission.perm_type()).to_owned();
        listed.add_row([kind, text(&permission.key), end]);
    }
    Ok(writeln!(out, "{listed}")?)
}

pub fn run_auth(command: AuthCommand) -> anyhow::Result<()> {
    match command {
        AuthCommand::Enable { connection } => {
            let method = "/etcdserverpb.Auth/AuthEnable";
            connection.run(async |client| change(&client, method, AuthEnableRequest {}).await)?;
            Ok(done("callers are checked", &json!({ "enabled": true }), connection.json)?)
        }
        AuthCommand::Disable { connection } => {
            let method = "/etcdserverpb.Auth/AuthDisable";
            connection.run(async |client| change(&client, method, AuthDisableRequest {}).await)?;
            Ok(done("callers are not checked", &json!({ "enabled": false }), connection.json)?)
        }
        AuthCommand::Status { connection } => {
            let status: AuthStatusResponse = connection.run(async |client| {
                let method = "/etcdserverpb.Auth/AuthStatus";
                Ok(client.call_etcd(method, AuthStatusRequest {}).await?)
            })?;
            let state = if status.enabled { "are checked" } else { "are not checked" };
            let revision = status.auth_revision;
            let line = format!("callers {state}; users and roles are at revision {revision}");
            let json = json!({ "enabled": status.enabled, "revision": revision });
            Ok(done(&line, &json, connection.json)?)
        }
    }
}

/// Reports a change of a thing.
fn finished(thing: &str, name: &str, what: &str, connection: &Connection) -> anyhow::Result<()> {
    let json = json!({ "name": name, "done": what });
    Ok(done(&format!("{thing} {name} {what}"), &json, connection.json)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key_that_does_not_start_with_it() {
        assert_eq!(after_prefix(b"a/"), b"a0");
        assert_eq!(after_prefix(b"a\xff"), b"b");
        assert_eq!(after_prefix(b"\xff\xff"), b"\0");
        assert_eq!(after_prefix(b""), b"\0");
    }
}
