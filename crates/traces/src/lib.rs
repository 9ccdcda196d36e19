//! Traces: one result per commit per parameter set, in Bigtable rows.
#![forbid(unsafe_code)]
