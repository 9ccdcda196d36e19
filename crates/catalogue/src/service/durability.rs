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
        if self.durable_txn()? >= txn {
            return Ok(());
        }
        let durable = self.meta().durable_by_log(txn).await;
        Ok(self.tenure().open(durable)?)
    }

    /// Returns the reply when its commit is durable.
    pub async fn when_durable<T>(&self, written: Written<T>) -> Result<T> {
        if written.no_wait {
            self.meta().request_sync(written.txn);
        } else {
            self.durable(written.txn).await?;
        }
        Ok(written.reply)
    }

    /// Does the same as `when_durable`, blocking the thread.
    pub fn wait_until_durable<T>(&self, written: Written<T>) -> Result<T> {
        if !written.no_wait {
            self.tenure().open(self.meta().sync(written.txn))?;
        }
        Ok(written.reply)
    }

    /// Checks that a txn can be awaited. The durability of txns of an earlier run is
    /// unknown.
    pub fn known_txn(&self, raw: u64) -> Result<Txn> {
        let latest = self.latest()?;
        let txn = Txn::from_raw(raw).filter(|txn| *txn <= latest);
        let txn =
            txn.ok_or_else(|| Error::invalid(format!("there is no commit with txn {raw}")))?;
        if txn < self.opened_at { Err(Error::Forgotten(txn)) } else { Ok(txn) }
    }
}
