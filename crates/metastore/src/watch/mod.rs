//! Streams of changes, live and from history.

mod event;
mod hub;

pub use event::{Event, EventKind};
pub use hub::{Cursor, HistoryTurn, Hub};
