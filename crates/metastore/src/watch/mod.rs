//! Changes as they happen, and as they happened.

mod event;
mod hub;

pub use event::{Event, EventKind};
pub use hub::{Cursor, HistoryTurn, Hub};
