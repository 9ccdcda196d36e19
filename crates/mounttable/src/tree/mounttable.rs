//! One naming server.

use std::sync::{Arc, Weak};

use stele_bigtable_client::Client;
use stele_grpc::Pending;
use tokio::sync::OnceCell;

use super::Options;
use super::clearing::Clearing;
use super::setup::create_tables;
use crate::error::Result;
use crate::rows::NodeRows;

/// A naming server on a nodes table and its counters. Any number of servers may share
/// the tables.
pub struct Mounttable {
    pub(super) client: Client,
    pub(super) rows: NodeRows,
    pub(super) options: Options,
    /// Set when the tables and the first nodes exist.
    pub(super) ready: OnceCell<()>,
    pub(super) clearing: Clearing,
    /// This server, for tasks that outlive the operation that starts them.
    pub(super) this: Weak<Mounttable>,
}

impl Mounttable {
    pub fn new(client: &Client, options: Options) -> Result<Arc<Mounttable>> {
        let rows = NodeRows::new(client, &options.table, options.clock.clone(), options.cache)?;
        Ok(Arc::new_cyclic(|this| Mounttable {
            client: client.clone(),
            rows,
            options,
            ready: OnceCell::new(),
            clearing: Clearing::default(),
            this: this.clone(),
        }))
    }

    /// Creates missing tables and first nodes, once. A server that is never used does
    /// not create them.
    pub async fn ready(&self) -> Result<()> {
        match self.ready.get() {
            Some(()) => Ok(()),
            None => self.set_up_once().await,
        }
    }

    fn set_up_once(&self) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            let set_up = || async {
                create_tables(&self.client, &self.options.table).await?;
                self.set_up(&self.options.first_nodes).await
            };
            self.ready.get_or_try_init(set_up).await.copied()
        })
    }

    /// Returns true if the tables exist.
    pub fn has_tables(&self) -> Pending<'_, Result<bool>> {
        Box::pin(async move { Ok(self.client.list_tables().await?.contains(&self.options.table)) })
    }

    /// Returns whether there are names to resolve. Creates no tables, so that a query
    /// from anywhere on the network leaves nothing behind.
    pub async fn is_in_use(&self) -> Result<bool> {
        if !self.ready.initialized() && !self.has_tables().await? {
            return Ok(false);
        }
        self.ready().await.map(|()| true)
    }

    pub fn rows(&self) -> &NodeRows {
        &self.rows
    }

    pub(crate) fn now(&self) -> i64 {
        self.rows.clock.now()
    }
}
