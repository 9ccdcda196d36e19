//! What the tests of several promises share: seeded choices, event counts, and a file
//! layer whose power fails.

pub mod die;
pub mod power;
#[macro_use]
pub mod tally;
