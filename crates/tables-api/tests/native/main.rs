//! The native API of rows as its clients use it, one module per promise.

mod commits;
mod errors;
mod events;
mod fixture;
mod scans;
mod transactions;
