//! A client of names: resolves a name from mounttable to mounttable, and caches the
//! results.
//!
//! A [`Namespace`] has roots, which are rooted names of mounttables. Names that are not
//! rooted start there. `connections` calls servers, `resolve` follows names, `cache`
//! stores results, `glob` searches across servers, and `publisher` keeps servers
//! mounted.

mod cache;
mod connections;
mod glob;
mod namespace;
mod publisher;
mod resolve;

pub use self::connections::{Credentials, Tls};
pub use self::namespace::{Location, Namespace, Options};
pub use self::publisher::{
    PERIOD as PUBLISH_PERIOD, Publisher, Status as PublishedStatus, Statuses as PublishedStatuses,
};
