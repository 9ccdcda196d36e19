//! The HTTP API behaves as its OpenAPI file describes: valid requests are answered,
//! invalid ones are rejected with the right status and store nothing, and every
//! response is documented.

mod api;
mod client;
mod fuzz;
mod schema;
