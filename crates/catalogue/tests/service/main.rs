//! The service as its clients meet it, through calls within the process.

mod concurrency;
mod cookies;
mod copies;
mod served;
mod stories;
mod streams;
