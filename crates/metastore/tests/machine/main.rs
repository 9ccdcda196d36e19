//! Promises of the state machine, driven entry by entry without a network.

mod harness;
mod kv;
mod model;
mod random;
