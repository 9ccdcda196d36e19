//! The ring of recent changes that all watchers share, and cursors over it.

use std::sync::Arc;

use super::event::Event;
use crate::error::Result;

/// Where changes are published and watched.
pub struct Hub {}

/// A place in the stream of changes.
pub struct Cursor {}

impl Hub {
    /// The newest published revision.
    pub fn revision(&self) -> i64 {
        todo!()
    }

    /// A cursor whose first event is of revision `next` or later.
    pub fn cursor(self: &Arc<Self>, next: i64) -> Cursor {
        let _ = next;
        todo!()
    }
}

impl Cursor {
    /// Everything below this revision has been taken.
    pub fn next(&self) -> i64 {
        todo!()
    }

    /// Takes events of whole revisions, up to and including `until`, and moves
    /// behind them. A call takes a bounded amount; it has caught up when
    /// `next()` is above `until` or the hub's revision. Events that `wanted`
    /// turns down are passed over (cheaply, also when read from history).
    /// Fails with `Compacted` when history does not reach back to `next()`.
    pub fn take(
        &mut self,
        until: i64,
        wanted: &mut dyn FnMut(&[u8]) -> bool,
        out: &mut Vec<Event>,
    ) -> Result<()> {
        let _ = (until, wanted, out);
        todo!()
    }

    /// Waits until a revision at or above `next()` is published.
    pub async fn changed(&mut self) {
        todo!()
    }
}
