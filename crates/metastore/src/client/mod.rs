//! A client of the metastore's own API: reads at any retained revision or time,
//! watches, transactions with automatic retry, sessions that report their loss,
//! locks with fencing tokens, and snapshots for backups.
//!
//! [`Client`] (`connection`) has the plain calls; `transaction`, `session`,
//! `watch` and `snapshot` build on it.

mod connection;
mod error;
mod range;
mod session;
mod snapshot;
mod transaction;
mod watch;

pub use connection::{At, Client, Page};
pub use error::{Error, Result};
pub use range::Range;
pub use session::{HeldLock, Mode, Session};
pub use transaction::{RetryOptions, Transaction};
pub use watch::Watch;

pub use crate::proto::native::{
    Event, GetClientResponse, KeyValue, Lock, StatusResponse, event::Change,
};
