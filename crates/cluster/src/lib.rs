//! What the servers of a cluster share over the network.
//!
//! - [`Etcd`] (`etcd`) is the coordinator: etcd, or Stele's metastore on other machines or in
//!   this process
//! - [`Directory`] (`directory`): the tables of the cluster
//! - [`Routes`] (`routes`): which server owns the tablet of a row
//! - [`Router`] (`router`): answers the calls of clients, whoever owns their rows
//! - [`Relay`] (`relay`): the calls that other servers pass on; `peers` are the connections
//!   to them, `secret` is what they show
#![forbid(unsafe_code)]

mod directory;
mod etcd;
mod peers;
mod proto;
mod relay;
mod router;
mod routes;
mod secret;

pub use directory::{ChangeError, Directory, ListedTable, Member, NewRows, TableSink};
pub use etcd::{CoordinatorAddress, Etcd, InvalidAddress};
pub use peers::Peers;
pub use relay::{Relay, SERVICE as TABLETS_SERVICE, TabletOperator, TabletReply, TabletRequest};
pub use router::{Access, Front, FrontParts, Router, only_message};
pub use routes::{Route, RoutedTablet, Routes, Serving, TableRoutes};
pub use secret::{ClusterSecret, InvalidSecret, SECRET_HEADER};
