//! The commands of the metastore and their common flags.

use std::io;

use clap::{Args, Subcommand};
use serde_json::json;
use stele_metastore::client::{At, Client, Range};

use super::{
    backup, elect, history, lease, lock, member, members, quota, recover, render, snapshot, status,
    txn, users,
};
use crate::Outcome;
use crate::connect::MetastoreServer;
use crate::escape::Typed;
use crate::serve::metastore_only::{self, MetastoreFlags};
use crate::timestamp::Timestamp;

#[derive(Subcommand)]
pub enum Command {
    Serve(Box<MetastoreFlags>),
    /// Show a key, or the keys of a range.
    #[command(after_help = "Examples:\n  \
        stele metastore get config/db\n  \
        stele metastore get config/ --prefix --at-revision 17\n  \
        stele metastore get --all --json")]
    Get {
        #[command(flatten)]
        keys: Keys,
        /// Read at this revision.
        #[arg(long, value_name = "REVISION", conflicts_with = "at_time")]
        at_revision: Option<i64>,
        /// Read at this time: a date, a time, an age (10m) or microseconds.
        #[arg(long, value_name = "TIME")]
        at_time: Option<Timestamp>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Set a key.
    #[command(after_help = "Example:\n  stele metastore put config/db 'host=db1'")]
    Put {
        key: Typed,
        value: Typed,
        /// Session to attach the key to.
        #[arg(long, value_name = "ID", value_parser = lease::parse_id)]
        lease: Option<i64>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Delete a key, or the keys of a range.
    #[command(after_help = "Examples:\n  \
        stele metastore del config/db\n  stele metastore del config/ --prefix")]
    Del {
        #[command(flatten)]
        keys: Keys,
        #[command(flatten)]
        connection: Connection,
    },
    Txn(txn::Txn),
    /// Show changes as they happen, including those of locks.
    #[command(after_help = "Examples:\n  \
        stele metastore watch config/ --prefix\n  \
        stele metastore watch --all --from-revision 1 --count 10 --json")]
    Watch {
        #[command(flatten)]
        keys: Keys,
        /// Start at this revision instead of now.
        #[arg(long, value_name = "REVISION", default_value_t = 0, hide_default_value = true)]
        from_revision: i64,
        /// Exit after this many changes.
        #[arg(long)]
        count: Option<u64>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Manage sessions: grant, keep alive, show, list, revoke.
    #[command(subcommand, arg_required_else_help = true)]
    Lease(lease::Command),
    Lock(lock::Lock),
    Elect(elect::Elect),
    History(history::History),
    Top(history::Top),
    /// Manage the members: list, add, remove, update, promote.
    #[command(subcommand, arg_required_else_help = true)]
    Member(member::Command),
    /// Manage users: add, delete, show, list, passwords, roles.
    #[command(subcommand, arg_required_else_help = true)]
    User(users::UserCommand),
    /// Manage roles: add, delete, show, list, permissions.
    #[command(subcommand, arg_required_else_help = true)]
    Role(users::RoleCommand),
    /// Turn the check of callers on and off.
    #[command(subcommand, arg_required_else_help = true)]
    Auth(users::AuthCommand),
    /// Manage copies of all keys: save, check, restore.
    #[command(subcommand, arg_required_else_help = true)]
    Snapshot(snapshot::Command),
    /// Manage backups with history: create, list, verify.
    #[command(subcommand, arg_required_else_help = true)]
    Backup(backup::Command),
    Restore(backup::Restore),
    Recover(recover::Recover),
    /// Manage quotas of prefixes: set, list, delete.
    #[command(subcommand, arg_required_else_help = true)]
    Quota(quota::Command),
    /// Show or raise the feature level, after all members have been upgraded.
    #[command(after_help = "Examples:\n  \
        stele metastore level\n  stele metastore level --raise 2")]
    Level {
        /// Level to raise the metastore to. Older versions can no longer read its data.
        #[arg(long, value_name = "LEVEL")]
        raise: Option<u32>,
        #[command(flatten)]
        connection: Connection,
    },
    Status(status::Status),
    MoveLeader(members::MoveLeader),
    /// Hide history below a revision from etcd's clients.
    #[command(after_help = "Examples:\n  \
        stele metastore compact 1700\n  stele metastore compact 1700 --physical")]
    Compact {
        revision: i64,
        /// Drop the history for all clients, and return when its space is freed.
        #[arg(long)]
        physical: bool,
        #[command(flatten)]
        connection: Connection,
    },
}

/// The server and the output format.
#[derive(Args, Clone, Debug)]
pub struct Connection {
    #[command(flatten)]
    server: MetastoreServer,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

impl Connection {
    /// Connects and runs `work` with the client.
    pub fn run<T>(&self, work: impl AsyncFnOnce(Client) -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.server.run(work)
    }
}

/// The keys that a command applies to.
#[derive(Args, Clone, Debug)]
pub struct Keys {
    /// Key, or start of a range.
    #[arg(required_unless_present = "all")]
    key: Option<Typed>,
    /// End of the range (exclusive).
    range_end: Option<Typed>,
    /// All keys that start with KEY.
    #[arg(long, conflicts_with_all = ["range_end", "all"])]
    prefix: bool,
    /// All keys from KEY on.
    #[arg(long, conflicts_with_all = ["range_end", "prefix", "all"])]
    from_key: bool,
    /// All keys.
    #[arg(long, conflicts_with = "key")]
    all: bool,
}

impl Keys {
    pub fn range(&self) -> Range {
        match (&self.key, &self.range_end) {
            (None, _) => Range::all(),
            (Some(Typed(key)), Some(Typed(end))) => Range::between(key.clone(), end.clone()),
            (Some(Typed(key)), None) if self.prefix => Range::prefix(key.clone()),
            (Some(Typed(key)), None) if self.from_key => Range::From(key.clone()),
            (Some(Typed(key)), None) => Range::key(key.clone()),
        }
    }
}

pub fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Get { keys, at_revision, at_time, connection } => {
            return get(&keys, at_revision, at_time, &connection);
        }
        Command::Put { key: Typed(key), value: Typed(value), lease, connection } => {
            let revision = connection
                .run(async |client| Ok(client.put_with(key, value, lease.unwrap_or(0)).await?))?;
            render::revision(&mut io::stdout().lock(), "put", revision, connection.json)?;
        }
        Command::Del { keys, connection } => {
            let deleted =
                connection.run(async |client| Ok(client.delete(&keys.range()).await?))?;
            render::deleted(&mut io::stdout().lock(), deleted, connection.json)?;
            return Ok(if deleted > 0 { Outcome::Sound } else { Outcome::Absent });
        }
        Command::Serve(flags) => return metastore_only::run(*flags),
        Command::Txn(txn) => return txn.run(),
        Command::Watch { keys, from_revision, count, connection } => {
            watch(&keys, from_revision, count, &connection)?;
        }
        Command::Lease(command) => lease::run(command)?,
        Command::Lock(lock) => return lock.run(),
        Command::Member(command) => member::run(command)?,
        Command::Status(status) => return status.run(),
        Command::MoveLeader(move_leader) => move_leader.run()?,
        Command::Compact { revision, physical, connection } => {
            connection.run(async |client| Ok(client.compact(revision, physical).await?))?;
            let scope = if physical { "" } else { " for etcd clients" };
            let done = format!("compacted history below revision {revision}{scope}");
            render::done(&done, &json!({ "compacted": revision }), connection.json)?;
        }
        Command::Snapshot(command) => snapshot::run(command)?,
        Command::Backup(command) => backup::run(command)?,
        Command::Restore(restore) => restore.run()?,
        Command::Recover(recover) => recover.run()?,
        Command::Quota(command) => quota::run(command)?,
        Command::Level { raise, connection } => level(raise, &connection)?,
        Command::Elect(elect) => elect.run()?,
        Command::History(history) => return history.run(),
        Command::Top(top) => top.run()?,
        Command::User(command) => users::run_user(command)?,
        Command::Role(command) => users::run_role(command)?,
        Command::Auth(command) => users::run_auth(command)?,
    }
    Ok(Outcome::Sound)
}

fn level(raise: Option<u32>, connection: &Connection) -> anyhow::Result<()> {
    let (level, spoken) = connection.run(async |client| {
        if let Some(level) = raise {
            client.raise_level(level).await?;
        }
        let status = client.status().await?;
        Ok((status.level, status.level_spoken))
    })?;
    let text = match raise {
        Some(_) => format!("the metastore is at level {level}"),
        None => format!("level {level}; this member speaks levels up to {spoken}"),
    };
    Ok(render::done(&text, &json!({ "level": level, "level_spoken": spoken }), connection.json)?)
}

fn get(
    keys: &Keys,
    at_revision: Option<i64>,
    at_time: Option<Timestamp>,
    connection: &Connection,
) -> anyhow::Result<Outcome> {
    let at = match (at_revision, at_time) {
        (Some(revision), _) => At::Revision(revision),
        (None, Some(Timestamp(micros))) => At::Time(micros),
        (None, None) => At::Newest,
    };
    let found = connection.run(async |client| {
        let revision = client.snapshot(at).await?;
        let mut found = 0u64;
        let mut written = Ok(());
        let mut out = io::BufWriter::new(io::stdout());
        let mut each = |kv| {
            found += 1;
            if written.is_ok() {
                written = render::key_value(&mut out, &kv, connection.json);
            }
        };
        client.read(&keys.range(), revision, &mut each).await?;
        written?;
        io::Write::flush(&mut out)?;
        Ok(found)
    })?;
    Ok(if found > 0 { Outcome::Sound } else { Outcome::Absent })
}

fn watch(
    keys: &Keys,
    from_revision: i64,
    count: Option<u64>,
    connection: &Connection,
) -> anyhow::Result<()> {
    connection.run(async |client| {
        let mut watch = client.watch(&keys.range(), from_revision).await?;
        for _ in 0..count.unwrap_or(u64::MAX) {
            let event = watch.next().await?;
            render::event(&mut io::stdout().lock(), &event, connection.json)?;
        }
        Ok(())
    })
}
