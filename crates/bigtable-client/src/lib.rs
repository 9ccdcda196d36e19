//! A client of the Bigtable API, for Stele and for Google's service.
//!
//! A [`Client`] accesses one instance, over the network ([`Client::connect`]) or within the process
//! ([`Client::in_process`]); its clones share connections and tokens. [`Client::table`] returns a
//! [`Table`] for reading and writing rows.
//!
//! ```no_run
//! use stele_bigtable_client::{Client, GcRule, Mutation, NewTable, Options, Query};
//!
//! # async fn example() -> stele_bigtable_client::Result<()> {
//! let client = Client::connect(Options::new("localhost:8086", "project", "instance")).await?;
//! client.create_table(NewTable::new("pages").family("f", GcRule::MaxVersions(1))).await?;
//!
//! let pages = client.table("pages")?;
//! pages.mutate_row("com.example", [Mutation::set("f", "title", "An example")]).await?;
//! let mut rows = pages.read_rows(Query::prefix("com."));
//! while let Some(row) = rows.next().await? {
//!     println!("{:?}: {:?}", row.key, row.value("f", b"title"));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Map of the crate:
//!
//! - `client`, `options`: connections to an instance and how to make them
//! - `credentials`: tokens for Google's service
//! - `call`, `retry`, `error`: one call with its deadline and attempts; errors name the operation and
//!   its target
//! - `read`, `query`, `row_range`, `filter`: reads return [`Rows`], which resume where a broken
//!   stream ended
//! - `assembler`, `row`: the chunks of a response become rows and cells
//! - `write`, `mutation`, `row_entry`: writes are retried only if they are idempotent
//! - `admin`, `gc_rule`: tables and families; `resources`: instances, app profiles, backups, views
#![forbid(unsafe_code)]

mod admin;
mod assembler;
mod call;
mod client;
mod credentials;
mod error;
mod filter;
mod gc_rule;
mod mutation;
mod options;
mod query;
mod read;
mod resources;
mod retry;
mod row;
mod row_entry;
mod row_range;
#[cfg(test)]
mod tests;
mod write;

pub use admin::{FamilyChange, FamilyInfo, NewTable, TableInfo};
pub use client::{Client, Table};
pub use credentials::Credentials;
pub use error::{Action, Error, Result};
pub use filter::Filter;
pub use gc_rule::{GcRule, parse_age};
pub use mutation::{Mutation, RowMutations, Rule};
pub use options::Options;
pub use query::Query;
pub use read::{Rows, Sample};
pub use retry::Retry;
pub use row::{Cell, Row};
pub use row_entry::RowEntry;
pub use row_range::RowRange;
/// The messages of administration, for what has no type of its own here.
pub use stele_bigtable_proto::admin as admin_messages;
pub use stele_grpc::{Pending, Tls};
