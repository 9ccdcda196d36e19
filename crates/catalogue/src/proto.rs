//! Messages and services of `proto/catalogue.proto`.
#![allow(clippy::doc_markdown, missing_docs)]

tonic::include_proto!("stele.catalogue.v1");

/// The descriptors, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/catalogue.descriptors"));
