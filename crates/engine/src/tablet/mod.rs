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
//! removes those without any, and `pending_names` are those of files being written. `publish` changes the tablets of a table: first in the
//! config, then for its readers, in the order of their `turns`; `split` divides and joins
//! them, `regroup` moves families between their groups (`family_cursor` reads only those
//! that are live in a chain). `kept` are tables that are not open: backups and deleted
//! ones. `state` says which of their rows are served, and `load_samples` which are busy.

mod chain;
mod family_cursor;
mod fragment_dir;
mod kept;
mod link;
mod load_samples;
mod pending_names;
mod publish;
mod registry;
mod regroup;
mod removals;
mod run;
mod sizes;
mod split;
mod state;
mod table;
mod table_map;
mod tables;
mod turns;

pub use chain::{Chain, ChainSummary, Tablet, TabletKey, TabletMap};
pub use fragment_dir::{FRAGMENTS_DIR, FragmentDir};
pub use link::{Link, file_facts, timestamp_max};
pub use load_samples::{INTERVAL as LOAD_INTERVAL, LoadInterval, is_sampled};
pub use publish::{Publishing, RunSplice};
pub use regroup::{contents_of, regrouped_memory, regrouped_tablets};
pub use run::{Run, RunCursor};
pub use sizes::TableSizes;
pub use state::TabletState;
pub use table::{GroupMemory, Table, TableVersion};
pub use tables::{Tables, WrapRows};
