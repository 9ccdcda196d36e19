//! Tests of catalogues: the service against a model through power cuts, and its promises
//! through a client.

mod model;
mod service;
