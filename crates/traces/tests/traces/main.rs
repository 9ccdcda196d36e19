//! Tests of traces over an in-process Bigtable, one module per promise. They share one
//! binary, which links much faster than one for each.

mod failures;
mod http;
mod racing;
mod registration;
mod scenarios;
mod store;
mod support;
