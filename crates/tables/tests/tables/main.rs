//! The promises of `Tables` and `Local` in one process, by rule of the design.

mod admission;
mod answers;
mod fixture;
mod operations;
mod placement;
