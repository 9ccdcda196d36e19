//! A filter passes exactly the cells that a naive evaluator of the API's rules
//! passes, whether or not the scan was narrowed, and wherever the cells are
//! stored.
//!
//! `STELE_LONG=1` runs twenty times as many cases.

mod cells;
mod comparison;
mod generate;
mod naive;
mod ways;
