//! Tests of the service through a client within the process.

mod concurrency;
mod cookies;
mod copies;
mod loads;
mod served;
mod stories;
mod streams;
