//! The web console of a server: pages that show and change what the services hold, and
//! the JSON API below `/console/v1` that they use.
//!
//! `routes` lists the paths, and `guard` refuses writes of other sites. `assets` holds the
//! pages, which are plain files in `web/`; `args` and `answer` read requests and write
//! responses. What the pages show comes from two sides: the server itself through
//! [`Host`] (`host`), with its recent past kept in `history` and shown by `overview`; and
//! its services through clients within the process: `tables` and `rows`, `metastore`, `names`,
//! `catalogues`. So the rules and limits of the services hold here as well. `events` sends
//! changes while a page is open; `calls` keeps the slow calls.
#![forbid(unsafe_code)]

mod answer;
mod args;
mod assets;
mod calls;
mod catalogues;
mod events;
mod guard;
mod history;
mod host;
mod metastore;
mod names;
mod overview;
mod routes;
mod rows;
mod tables;

pub use calls::{SlowCall, SlowCalls};
pub use history::{BUCKETS, History, Sample, quantile};
pub use host::{Attention, Facts, Group, Host, Level, MethodCounts, TableSummary, Tablet};
pub use routes::{Console, Mode, router};
