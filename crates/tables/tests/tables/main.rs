//! The promises of `Tables` and `Local` in one process, by rule of the design.

mod admission;
mod answers;
mod backups;
mod fixture;
mod loads;
mod operations;
mod placement;
