//! The metastore: a small, strongly consistent key-value store and lock service
//! on one Raft group, in the place of Chubby, etcd and ZooKeeper.
#![forbid(unsafe_code)]
