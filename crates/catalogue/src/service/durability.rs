//! Replies wait until the commits that they are based on are durable.

use stele_engine::Txn;

use super::Catalogues;
use crate::error::{Error, Result};

/// The reply to a request that may have written, and the commit that it is based on,
/// which must be durable before the reply is sent.
#[derive(Clone, Debug)]
pub struct Written<T> {
    pub reply: T,
    pub txn: Txn,
    /// Whether the caller set NO_WAIT.
    pub no_wait: bool,
}

impl Catalogues {
    /// Waits until everything up to `txn` is durable, without blocking a thread.
    pub async fn durable(&self, txn: Txn) -> Result<()> {
        if self.store.progress().0 >= txn {
            return Ok(());
        }
        let (send, durable) = tokio::sync::oneshot::channel();
        self.store.on_durable(txn, move |outcome| {
            // The receiver may have been dropped.
            let _ = send.send(outcome);
        });
        let closed = |_| Err(stele_engine::Error::Closed);
        Ok(durable.await.unwrap_or_else(closed)?)
    }

    /// Returns the reply when its commit is durable.
    pub async fn when_durable<T>(&self, written: Written<T>) -> Result<T> {
        if written.no_wait {
            // Request the sync, without waiting for it.
            self.store.on_durable(written.txn, |_| {});
        } else {
            self.durable(written.txn).await?;
        }
        Ok(written.reply)
    }

    /// Does the same as `when_durable`, blocking the thread.
    pub fn wait_until_durable<T>(&self, written: Written<T>) -> Result<T> {
        if !written.no_wait {
            self.store.sync(written.txn)?;
        }
        Ok(written.reply)
    }

    /// Checks that a txn can be awaited. The durability of txns of an earlier run is
    /// unknown.
    pub fn known_txn(&self, raw: u64) -> Result<Txn> {
        let txn = Txn::from_raw(raw).filter(|txn| *txn <= self.store.progress().1);
        let txn =
            txn.ok_or_else(|| Error::invalid(format!("there is no commit with txn {raw}")))?;
        if txn < self.opened_at { Err(Error::Forgotten(txn)) } else { Ok(txn) }
    }
}
