//! Nodes as rows (`node_rows`): read through the `cache`, and changed with optimistic
//! concurrency control.
//!
//! Every change of a row checks the version that was read and writes the next one; the
//! only exception is the removal of a reference from a parent. Creating a node
//! (`create`) writes the parent's reference first, deleting one (`delete`) removes the
//! row first, so a crash in between leaves at worst a reference without a row. `adopt`
//! explains why concurrent creations and deletions leave no row without a reference.
//! `mount` changes servers and permissions; `counters` counts the nodes and servers of
//! each user, and `turns` prevents collisions between tasks of this process.
//!
//! A node may have many children, so most reads omit the references to them; `listing`
//! caches enough of them to add another.
//!
//! # Caches
//!
//! Each process caches what it has read or written. No change relies on a cached row: it
//! is applied only if the row still has the version that was read.
//!
//! | cache | file | entries | valid for | effect of a stale entry |
//! |---|---|---|---|---|
//! | rows without references | `cache` | `ROWS_CACHED`, `SERVERS_CACHED_MAX` servers | `ROW_FRESH`; own changes replace it | a name resolves as it did up to a second ago |
//! | rows that had children | `cache` | with the row | `CHILDREN_SEEN` | an empty node is removed later |
//! | rows whose parent refers to them | `adopt` | `REFERENCED_ROWS_MAX` | `REFERENCE_TRUSTED` | a reference lost in a crash is restored later |
//! | references of a node | `listing` | `REFERENCES_MAX` references | any time: brought up to the version of the row before use | a needless read of all references |

mod adopt;
mod cache;
mod counters;
mod create;
mod decoded;
mod delete;
mod listing;
mod mount;
mod node_rows;
mod turns;

pub use cache::CacheOptions;
pub use counters::{Counters, Kind, Limits};
pub use create::NewChild;
pub use decoded::{Branches, Decoded};
pub use node_rows::{NodeRows, counters_table};
pub use turns::Turn;
