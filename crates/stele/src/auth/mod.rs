//! `stele auth`: tokens, service-account keys and bindings in the directory of a server,
//! and questions to a running server about who may do what. Whoever may write to the
//! directory is an administrator, so the first administrator is created here too.

mod ask;
mod identities;
mod service_account;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use self::ask::{Can, WhoAmI};
use self::service_account::CreateKey;
use crate::Outcome;

#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  stele auth token create user:ada --role stele.admin > ada.token
  stele auth bind user:bob bigtable.reader projects/p/instances/i
  stele auth key create ci > ci.json
  stele auth whoami --token-file ada.token
  stele auth can --token-file ada.token --as user:bob bigtable.tables.readRows \\
      projects/p/instances/i/tables/t

A running server applies changes within a second; one that was started without any
identity must be started again. See docs/security.md.")]
pub enum Command {
    /// Create, list and revoke tokens.
    #[command(subcommand, arg_required_else_help = true)]
    Token(TokenCommand),
    /// Create, list and revoke keys of service accounts, in Google's format.
    #[command(subcommand, arg_required_else_help = true)]
    Key(KeyCommand),
    /// Give a role to a member.
    Bind(Bind),
    /// Take a role from a member.
    Unbind(Bind),
    /// Check a policy file.
    Check {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    Whoami(WhoAmI),
    Can(Can),
}

#[derive(Subcommand)]
pub enum TokenCommand {
    /// Create a token and print it; it is not shown again.
    Create {
        /// user:NAME or serviceAccount:NAME@CLUSTER
        principal: String,
        /// How long the token is valid, at most 400d
        #[arg(long, value_name = "TIME", default_value = "90d")]
        expires: String,
        /// Also give this role to the principal
        #[arg(long)]
        role: Option<String>,
        #[command(flatten)]
        dir: AuthDir,
    },
    /// Show all tokens, without their secrets.
    List {
        #[command(flatten)]
        dir: AuthDir,
    },
    /// Revoke a token by its id.
    Revoke {
        id: String,
        #[command(flatten)]
        dir: AuthDir,
    },
}

#[derive(Subcommand)]
pub enum KeyCommand {
    Create(CreateKey),
    /// Show all keys.
    List {
        #[command(flatten)]
        dir: AuthDir,
    },
    /// Revoke a key by its id.
    Revoke {
        id: String,
        #[command(flatten)]
        dir: AuthDir,
    },
}

#[derive(Args)]
pub struct Bind {
    /// user:NAME, group:NAME, serviceAccount:NAME@CLUSTER, principal://..., allCertificates
    member: String,
    /// Such as bigtable.reader
    role: String,
    /// Such as projects/P/instances/I; everything if left out
    #[arg(default_value = "", hide_default_value = true)]
    resource: String,
    #[command(flatten)]
    dir: AuthDir,
}

/// The directory of identities.
#[derive(Args, Clone, Debug)]
pub struct AuthDir {
    /// Data directory of the server [default: ./stele-data]
    #[arg(long, value_name = "DIR", env = "STELE_DATA", conflicts_with = "auth_dir")]
    data: Option<PathBuf>,
    /// Directory of identities, if the server has another --auth-dir
    #[arg(long, value_name = "DIR", env = "STELE_AUTH_DIR")]
    auth_dir: Option<PathBuf>,
}

impl AuthDir {
    fn path(&self) -> PathBuf {
        match (&self.auth_dir, &self.data) {
            (Some(dir), _) => dir.clone(),
            (None, Some(data)) => data.join("auth"),
            (None, None) => PathBuf::from("stele-data/auth"),
        }
    }
}

pub fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Token(TokenCommand::Create { principal, expires, role, dir }) => {
            identities::create_token(&dir, &principal, &expires, role)
        }
        Command::Token(TokenCommand::List { dir }) => identities::list_tokens(&dir),
        Command::Key(KeyCommand::Create(create)) => create.run(),
        Command::Key(KeyCommand::List { dir }) => identities::list_keys(&dir),
        Command::Token(TokenCommand::Revoke { id, dir })
        | Command::Key(KeyCommand::Revoke { id, dir }) => identities::revoke(&dir, &id),
        Command::Bind(bind) => identities::bind(bind),
        Command::Unbind(bind) => identities::unbind(bind),
        Command::Check { file } => identities::check(&file),
        Command::Whoami(whoami) => whoami.run(),
        Command::Can(can) => can.run(),
    }
}
