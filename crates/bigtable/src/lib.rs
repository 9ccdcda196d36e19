//! The Cloud Bigtable API over Stele's tables.
//!
//! [`regex`] reads the patterns of row filters: RE2 syntax over bytes.
#![forbid(unsafe_code)]

pub mod regex;
