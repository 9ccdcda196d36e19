//! Streams of changes, live and from history.
//!
//! A [`Hub`] publishes the [`Event`]s of each log entry to a ring, where they are
//! encoded once for all watchers. A [`Cursor`] that keeps up reads from the ring.
//! A cursor that has fallen behind the ring reads history in ranges of revisions
//! until it has caught up. So a slow watcher costs no memory and delays nobody.
//! The number of concurrent readers of history is limited; the others queue, and
//! streams that miss the same share what one of them reads (`history`).

mod cursor;
mod event;
mod history;
mod hub;
mod ring;

pub use cursor::Cursor;
pub use event::{Event, EventKind};
pub use hub::{HistoryPermit, Hub};
