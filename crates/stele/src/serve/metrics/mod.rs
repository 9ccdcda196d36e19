//! Metrics of a running server. Counting is cheap: relaxed atomics that live as long as
//! the process (`counts`, `methods`, `connections`). Only a scrape costs more: it reads
//! `process` and writes the `text`.

mod connections;
mod counts;
mod methods;
mod process;
mod text;

pub use connections::Connections;
pub use counts::Metrics;
pub use methods::{Method, Methods};
pub use process::Process;
pub use text::{process_numbers, render};
