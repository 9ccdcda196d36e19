//! The tables of a server, as the services see them: where a row is, and reads
//! and writes of the rows that are here.
//!
//! Services hold [`Tables`] instead of the engine's store. They look up a table by
//! name, ask [`Tables::place`] where a row is, and get a [`Local`] for a row that
//! this process serves. A write is admitted, which may wait, and yields a
//! [`Permit`]; with it, the write is applied without waiting. Every result comes as
//! an [`Answer`], which only the [`Tenure`] of the tables opens: a reply cannot be
//! based on rows that this process has stopped serving.
//!
//! One process serves all rows, forever: every row is `Here`, and [`Tenure::Always`]
//! opens every answer at no cost.
//!
//! In a cluster (`docs/ownership.md`) the tables are those of a [`TabletServer`]: it serves the rows
//! of the tablets that it has loaded, as long as it has its lease. Its parts: [`coordinate`] is
//! the coordinator, [`Incarnation`] a server with its [`Lease`], [`rows`] the rows of tablets
//! with their owners, [`load`] and [`unload`] change owners, [`Floor`] truncates a log, and
//! [`recover`] brings back the tablets of a dead server.
//!
//! ```
//! use stele_engine::schema::{Family, Schema};
//! use stele_engine::world::World;
//! use stele_engine::{CommitBuilder, Options, Result, ScanSpec};
//! use stele_tables::{Placement, Tables};
//!
//! # fn main() -> Result<()> {
//! # let temporary = tempfile::tempdir().unwrap();
//! # let dir = temporary.path();
//! let tables = Tables::open(dir, Options::default(), World::real())?;
//! let users = tables.create("users", Schema::with_families([Family::new("profile")])?)?;
//! let mut commit = CommitBuilder::new();
//! commit.table(users).row(b"ada").set(b"profile", b"city", 1, b"London");
//! let commit = commit.finish();
//!
//! let Placement::Here(local) = tables.place(users, b"ada");
//! tables.tenure().open(local.apply_blocking(&commit))?;
//!
//! let mut cities = Vec::new();
//! let keep = |cell: &stele_engine::CellView<'_>| cities.push(cell.value.to_vec());
//! tables.tenure().open(local.read_row(b"ada", &ScanSpec::default(), keep))?;
//! assert_eq!(cities, [b"London"]);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod answer;
mod backups;
mod collect;
pub mod coordinate;
mod detached;
mod floor;
mod incarnation;
mod lease;
mod load;
mod local;
mod messages;
mod misses;
pub mod recover;
pub mod rows;
mod tables;
mod tablet_server;

pub use answer::{Answer, Tenure};
pub use collect::CollectedGarbage;
pub use floor::Floor;
pub use incarnation::{ClusterWorld, Incarnation, Sleep};
pub use lease::{Lease, LeaseTimes};
pub use load::{load, unload};
pub use local::{Local, Permit, Scan};
pub use messages::ServerInfo;
pub use misses::Misses;
pub use tables::{Placement, Tables};
pub use tablet_server::{LoadedTablet, Loads, Survey, TableEntry, TabletServer, TabletServerParts};
