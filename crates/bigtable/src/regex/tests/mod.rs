//! Promises of the whole room: two tables that a person can read, and random
//! patterns beside a matcher that is too simple to be wrong.

mod naive;
mod random;
mod tables;
