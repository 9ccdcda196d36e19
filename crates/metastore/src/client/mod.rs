//! A client of the metastore's own API: reads at any retained revision or time,
//! watches, transactions with automatic retry, sessions that report their loss,
//! locks with fencing tokens, and snapshots for backups.
//!
//! [`Client`] (`connection`) has the plain calls; `transaction`, `session`,
//! `watch` and `snapshot` build on it. `auth` has the calls of etcd's API for users,
//! roles and elections; `token` identifies the caller of all calls.

mod auth;
mod connection;
mod error;
mod range;
mod session;
mod snapshot;
mod token;
mod transaction;
mod watch;

pub use connection::{At, Client, Page};
pub use error::{Error, Result};
pub use range::Range;
pub use session::{HeldLock, Mode, Session};
pub use transaction::{RetryOptions, Transaction};
pub use watch::Watch;

pub use crate::proto::native::{
    ClusterStatusResponse, CreateBackupResponse, Event, GetClientResponse, HistoryResponse,
    KeyValue, Lock, MemberStatus, Quota, StatusResponse, TopRequest, TopResponse, event::Change,
};
