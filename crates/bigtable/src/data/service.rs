//! The data service: what its methods share.

use std::sync::Arc;

use stele_engine::world::{Clock, Random};

use super::idempotency::IdempotencyTokens;
use crate::error::Result;
use crate::table::Tables;

/// Serves the rows of tables. The files of the methods extend it.
pub struct Data {
    pub(super) tables: Arc<Tables>,
    pub(super) tokens: IdempotencyTokens,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
}

impl Data {
    pub fn new(
        tables: Arc<Tables>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Data> {
        let tokens = IdempotencyTokens::open(tables.clone(), clock.now_micros())?;
        Ok(Data { tables, tokens, clock, random })
    }

    pub(super) fn now_micros(&self) -> i64 {
        self.clock.now_micros()
    }
}
