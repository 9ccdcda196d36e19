//! Waits for tablets that are being loaded.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use super::engine::Engine;
use super::handle::Store;
use super::waiters::Stage;
use crate::cell::commit::TableId;
use crate::config::TabletId;
use crate::error::{Error, Result};

impl Store {
    /// Waits while the tablet with a row is being loaded. Runs on any executor. What
    /// happened to the tablet is up to the caller's request to find out: the load may
    /// have failed. Fails with `TabletNotLoaded` if too many requests wait for the
    /// tablet already, or after `LoadOptions::wait_max`.
    pub fn loaded<'a>(&'a self, table: TableId, row: &'a [u8]) -> LoadWait<'a> {
        LoadWait { engine: &self.engine, table, row, waiting: None }
    }

    /// Whether some rows of a table cannot be written or read now.
    pub fn is_restricted(&self, table: TableId) -> bool {
        self.engine.tables.map.get(table).is_ok_and(|table| !table.version().all_active)
    }

    /// Fails if a row cannot be written now, because its tablet is not loaded.
    pub fn check_write(&self, table: TableId, row: &[u8]) -> Result<()> {
        let table = self.engine.tables.map.get(table)?;
        table.version().tablets.of(row).check_write(&table, row)
    }

    /// Whether any tablet is being loaded.
    #[inline]
    pub fn any_loading(&self) -> bool {
        self.engine.loading.load(Ordering::Acquire) > 0
    }
}

/// A future that is ready when a tablet is not being loaded; see [`Store::loaded`].
pub struct LoadWait<'a> {
    engine: &'a Engine,
    table: TableId,
    row: &'a [u8],
    waiting: Option<WaitingRequest>,
}

#[derive(Clone, Copy)]
struct WaitingRequest {
    ticket: u64,
    /// When the request fails.
    deadline: Instant,
}

impl LoadWait<'_> {
    /// Whether the request has to wait, in which case it has a ticket afterwards.
    fn has_to_wait(&mut self) -> Result<bool> {
        if self.engine.is_stopping() {
            return Err(Error::Closed);
        }
        let table = self.engine.tables.map.get(self.table)?;
        let version = table.version();
        let tablet = version.tablets.of(self.row);
        if !tablet.state.is_loading() {
            return Ok(false);
        }
        let waits = match &self.waiting {
            Some(waiting) => Instant::now() < waiting.deadline,
            None => self.enter(tablet.id),
        };
        if waits { Ok(true) } else { Err(tablet.not_loaded(&table, self.row)) }
    }

    /// Takes a ticket, unless too many requests wait for the tablet.
    fn enter(&mut self, tablet: TabletId) -> bool {
        let options = &self.engine.tables.options.loads;
        let deadline = Instant::now() + options.wait_max;
        let ticket = self.engine.waiters.enter_load(tablet, options.waiters_max);
        self.waiting = ticket.map(|ticket| WaitingRequest { ticket, deadline });
        self.waiting.is_some()
    }
}

impl Future for LoadWait<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        if this.waiting.is_none() && this.engine.loading.load(Ordering::Acquire) == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            // The tablet is checked after the waker is registered, so that no wake-up is
            // lost.
            let registered = this.waiting.is_some();
            if let Some(WaitingRequest { ticket, deadline }) = this.waiting {
                let timer = Some(deadline);
                this.engine.waiters.watch(ticket, Stage::Load, context.waker(), timer);
            }
            match this.has_to_wait() {
                Ok(true) if registered => return Poll::Pending,
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Drop for LoadWait<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = &self.waiting {
            self.engine.waiters.leave(waiting.ticket);
        }
    }
}
