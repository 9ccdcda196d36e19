//! The API of a store in a temporary directory, called without a network: one
//! module per promise, one binary for all of them.
#![forbid(unsafe_code)]

mod data_calls;
mod server;

mod admin;
mod client;
mod conditional_writes;
mod filters;
mod loads;
mod reads;
mod tokens;
mod unreadable;
mod writes;
