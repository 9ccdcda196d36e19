//! What the tests of several promises share: seeded choices, event counts, a file
//! layer whose power fails, and rows of tablets whose answers get lost.

pub mod die;
pub mod power;
#[macro_use]
pub mod tally;
pub mod unsure;
