//! The data service: reading and writing rows.
//!
//! `server` decodes a call and selects the method of [`Data`]. `request` resolves
//! the table or view that a request names.
//!
//! Writes: `write` (MutateRow and MutateRows), `check_and_mutate` and
//! `read_modify_write` validate a request as a whole (`mutation`) and turn it into
//! commits. The two conditional methods first read the row (`row_read`) and start
//! over if it has changed since (`retries`). `commit` admits and applies a commit,
//! `idempotency` makes repeated mutations apply once (`token_table` has the tokens of
//! earlier versions), and `outcomes` reports the entries of a bulk request. `packed` checks
//! mutations that arrive through the native API.
//!
//! Reads: `read_plan` validates a ReadRows request (`row_set`, `request_filter`),
//! and `read` streams its rows: a batch of cells (sized by `pace`) goes through
//! the residual filter (`read_sink`) into an encoder of chunks (`chunk_output`,
//! `chunks`, `chunk_fields`). `response_memory` charges what a call holds, `stats`
//! counts what a read sees, `features` are the capabilities of the client.
//! `sample` returns keys that divide a table.

mod check_and_mutate;
mod chunk_fields;
mod chunk_output;
mod chunks;
mod commit;
mod features;
mod idempotency;
mod mutation;
mod outcomes;
mod pace;
mod packed;
mod read;
mod read_modify_write;
mod read_plan;
mod read_sink;
pub(crate) mod request;
mod request_filter;
mod response_memory;
mod retries;
mod row_read;
mod row_set;
mod sample;
mod server;
mod service;
mod stats;
mod token_table;
mod write;

#[cfg(test)]
pub(crate) mod simulated;

pub(crate) use mutation::MUTATIONS_MAX;
pub use packed::check_packed;
pub(crate) use read_plan::READ_REQUEST_BYTES_MAX;
pub(crate) use row_set::ROWS_MAX;
pub use server::DataServer;
pub use service::Data;
pub(crate) use write::ENTRIES_MAX;
