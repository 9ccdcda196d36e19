//! The data service: reading and writing rows.

mod check;
mod chunks;
mod emit;
mod features;
mod modify;
mod mutation;
mod read;
mod request;
mod rows;
mod sample;
mod server;
mod stats;
mod target;
mod tokens;
mod write;

use std::sync::Arc;

pub use server::DataServer;
use stele_engine::Txn;
use stele_engine::world::{Clock, Random};
use tokens::Tokens;

use crate::error::{Error, Result};
use crate::table::Tables;

/// Serves the rows of a store's tables.
pub struct Data {
    tables: Arc<Tables>,
    tokens: Tokens,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// How often a commit lets the other tasks go first at most.
const GATHER_TURNS: usize = 8;

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

    /// Waits until everything up to `txn` is durable, which is the end of a
    /// small write.
    ///
    /// The other tasks go first, as long as they bring more commits: one sync
    /// then serves all. The first task to come back leads it, so that nothing
    /// has to be passed to another thread and back; those who find it under
    /// way are told of the next.
    async fn durable(&self, txn: Txn) -> Result<()> {
        let store = self.tables.store();
        let (mut durable, mut latest) = store.progress();
        for _ in 0..GATHER_TURNS {
            if durable >= txn {
                return Ok(());
            }
            tokio::task::yield_now().await;
            let before = latest;
            (durable, latest) = store.progress();
            if latest == before {
                break;
            }
        }
        match store.sync_if_free(txn) {
            Some(done) => done.map_err(Error::Engine),
            None => self.told_durable(txn).await,
        }
    }

    /// The same for a large write: the log's own thread writes and syncs it.
    async fn told_durable(&self, txn: Txn) -> Result<()> {
        let store = self.tables.store();
        let (told, durable) = tokio::sync::oneshot::channel();
        store.on_durable(txn, move |outcome| {
            // Whoever asked may have gone away.
            let _ = told.send(outcome);
        });
        let closed = |_| Err(stele_engine::Error::Closed);
        durable.await.unwrap_or_else(closed).map_err(Error::Engine)
    }
}
