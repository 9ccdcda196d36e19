//! `stele cluster`: creates a cluster, shows its servers and tablets, moves tablets and
//! checks that they are sound. The commands read the coordinator, and call servers with the
//! secret that it keeps.
//!
//! - `view`: what the coordinator has of a cluster
//! - `init`, `show` (status and servers), `moving`, `verify`: the commands

mod init;
mod moving;
mod show;
mod verify;
mod view;

use clap::{Args, Subcommand};

use crate::Outcome;
use crate::connect::threads;
use crate::escape::Typed;
use crate::serve::cluster::Access;

#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  stele cluster init --cluster c --coordinator etcd://10.0.0.1:2379 --store s3://bucket/c
  stele serve --cluster c --coordinator etcd://10.0.0.1:2379 --store s3://bucket/c
  stele cluster status --cluster c --coordinator etcd://10.0.0.1:2379
  stele cluster move projects/p/instances/i/tables/t --row user-1000 --to 3f2a9b1c5d7e8f01

docs/cluster.md describes how to run a cluster.")]
pub enum Command {
    /// Create a cluster: its id and its secret in the coordinator, its id in the store.
    Init {
        #[command(flatten)]
        cluster: ClusterFlags,
        /// The object store of the cluster: s3://, gs:// or az://bucket/prefix, or file:///dir
        #[arg(long, value_name = "URL", env = "STELE_STORE")]
        store: String,
    },
    /// Show the tables, and which servers serve how many of their tablets.
    Status(Show),
    /// Show the servers that are alive.
    Servers(Show),
    /// Move the tablet with a row to another server.
    Move {
        #[command(flatten)]
        cluster: ClusterFlags,
        /// projects/P/instances/I/tables/T
        table: String,
        /// A row of the tablet; bytes as in \xNN. Without it the first tablet is moved.
        #[arg(long, value_name = "ROW")]
        row: Option<Typed>,
        /// The id of the server, as `stele cluster servers` shows it, or its beginning.
        #[arg(long, value_name = "SERVER")]
        to: String,
    },
    /// Check that the tablets of each table have all rows once, and that live servers own
    /// them. Exit code 1 if not.
    Verify(Show),
}

/// The cluster, and where its coordinator is.
#[derive(Args)]
pub struct ClusterFlags {
    /// Name of the cluster
    #[arg(long = "cluster", value_name = "NAME", env = "STELE_CLUSTER")]
    name: String,
    /// Its coordinator: etcd://host:port,.../prefix. For servers with `embedded`: the
    /// metastore of any of them
    #[arg(long, value_name = "URL", env = "STELE_COORDINATOR")]
    coordinator: String,
}

#[derive(Args)]
pub struct Show {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

impl ClusterFlags {
    async fn open(&self) -> anyhow::Result<Access> {
        Access::open(&self.name, &self.coordinator.parse()?, None).await
    }
}

pub fn run(command: Command) -> anyhow::Result<Outcome> {
    threads(None)?.block_on(async {
        match command {
            Command::Init { cluster, store } => init::run(&cluster, &store).await,
            Command::Status(show) => show::status(&show).await,
            Command::Servers(show) => show::servers(&show).await,
            Command::Move { cluster, table, row, to } => {
                moving::run(&cluster, &table, row, &to).await
            }
            Command::Verify(show) => verify::run(&show).await,
        }
    })
}
