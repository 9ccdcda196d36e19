//! Sends the same requests to a real etcd and to ours: all answers must be
//! equal field by field, except for ids and terms. Needs an etcd on the path,
//! or its path in `STELE_ETCD`; without one these tests report that and pass.
//!
//! Where etcd 3.4 differs from later versions on purpose, ours follows the
//! later ones, and the requests drawn here avoid the difference:
//!
//! - a put in a transaction that keeps the value of a missing key crashes etcd
//!   3.4; later versions refuse it
//! - since 3.4.34, a deletion at exactly the compacted revision is sent to
//!   watchers that start there
//! - since 3.5.8, a progress request is answered only when all watchers of the
//!   stream are up to date

mod answers;
mod auth;
mod compare;
mod draw;
mod watches;
