//! Tables as they are stored: what exists, in memory and on disk.
//!
//! [`Tables`] holds all tables of a store (`table_map`), the directory of their
//! files ([`FragmentDir`]) and their config. A [`Table`] has a current
//! [`TableVersion`]: its schema, the memory fragments of each group
//! ([`GroupMemory`]) and a [`TabletMap`]. A [`Tablet`] is a range of rows with one
//! chain per group. A chain is a list of [`Run`]s, oldest
//! first. A run is one or more [`Link`]s without common rows, read as one sorted
//! file. A link is a fragment file and the rows of it that are live; the file is opened
//! when it is first used. `registry` counts the references to each file; `removals`
//! removes those without any. `publish` changes the tablets of a table: first in the
//! config, then for its readers; `split` divides and joins them.

mod chain;
mod fragment_dir;
mod link;
mod publish;
mod registry;
mod removals;
mod run;
mod sizes;
mod split;
mod table;
mod table_map;
mod tables;

pub use chain::{ChainSummary, Tablet, TabletKey, TabletMap};
pub use fragment_dir::{FRAGMENTS_DIR, FragmentDir};
pub use link::{Link, file_facts, timestamp_max};
pub use publish::Publishing;
pub use run::{Run, RunCursor};
pub use sizes::TableSizes;
pub use table::{GroupMemory, Table, TableVersion};
pub use tables::Tables;
