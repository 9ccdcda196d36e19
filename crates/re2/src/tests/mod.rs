//! Tests of the whole module: two readable tables of cases, and random patterns
//! compared with a matcher that is too simple to be wrong.

mod naive;
mod random;
mod tables;
