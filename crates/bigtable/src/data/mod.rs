//! The data service: reading and writing rows.

mod check;
mod chunk_fields;
mod chunks;
mod commit;
mod emit;
mod features;
mod modify;
mod mutation;
mod outcomes;
mod pace;
mod plan;
mod read;
pub(crate) mod request;
mod response_memory;
mod retries;
mod row_read;
mod rows;
mod sample;
mod server;
mod stats;
mod target;
mod tokens;
mod write;

use std::sync::Arc;

pub use server::DataServer;
use stele_engine::world::{Clock, Random};
use tokens::Tokens;

use crate::error::Result;
use crate::table::Tables;

pub(crate) use mutation::MUTATIONS_MAX;

/// The maximum number of entries of a MutateRows request.
pub(crate) const ENTRIES_MAX: usize = 100_000;
/// The maximum number of row keys and ranges of a ReadRows request.
pub(crate) const ROWS_MAX: usize = 100_000;
/// The maximum size of a read request in bytes. Google's service accepts about 1
/// MiB.
pub(crate) const READ_REQUEST_BYTES_MAX: usize = 4 << 20;

/// Serves the rows of a store's tables.
pub struct Data {
    tables: Arc<Tables>,
    tokens: Tokens,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl Data {
    pub fn new(
        tables: Arc<Tables>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Data> {
        let tokens = Tokens::open(tables.store().clone())?;
        Ok(Data { tables, tokens, clock, random })
    }

    fn now_micros(&self) -> i64 {
        self.clock.now_micros()
    }
}
