//! Names: a hierarchical naming service whose state lives in Bigtable rows.
#![forbid(unsafe_code)]
