//! Three members of the metastore as processes (`members`) on this machine, whose
//! connections can be cut (`network`). Clients write and read meanwhile (`load`); what
//! they saw must be linearizable (`register`). `faults` kills, pauses, cuts off and
//! restarts members, `membership` adds and removes them, `secure` has certificates and users, `commands` the operator's
//! commands, and `etcdctl` those of etcd.

mod commands;
mod etcdctl;
mod faults;
mod load;
mod members;
mod membership;
mod network;
mod register;
mod secure;
