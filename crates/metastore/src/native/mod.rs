//! The metastore's own API (`proto/metastore.proto`) of a
//! [`Node`](crate::Node), for what etcd's API cannot express. Served beside it
//! on the same port.
//!
//! `service` has reads and writes, `streams` long reads and watches, `locks`
//! sessions and locks, `history` what a key was and which keys use space, and
//! `operations` the calls of operators; `convert` converts messages to commands and
//! back.

mod convert;
mod history;
mod locks;
mod operations;
mod service;
mod streams;

pub use self::service::{Native, PATH, Service, is_endless, is_for_learners};
pub use crate::proto::native as proto;
pub use crate::proto::native::DESCRIPTORS;
