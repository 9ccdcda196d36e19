//! Metrics of the server, under the names that dashboards for etcd use.
//! `counters` has the counters of the API, `calls` those of gRPC calls; `page`
//! writes them as text.

mod calls;
mod counters;
mod page;

pub use calls::counted;
pub use counters::Counters;
pub use page::text;
