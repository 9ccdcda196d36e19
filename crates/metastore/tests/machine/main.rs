//! Promises of the state machine, driven entry by entry without a network.

mod harness;
mod history;
mod kv;
mod lock;
mod model;
mod random;
mod watch;
