//! Guarantees of the state machine, driven entry by entry without a network.

mod deadlines;
mod harness;
mod history;
mod kv;
mod limits;
mod lock;
mod model;
mod parts;
mod random;
mod watch;
