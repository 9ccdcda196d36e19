//! The Watch service. A stream carries many watchers (`watcher`, `watchers`).
//! Those that are up to date share one cursor, so that an event is examined once
//! however many there are (`index`, `ranges`); those that requested history read
//! it together until they have caught up (`lagging`). A slow client costs a
//! position in the stream of changes, not a queue: what it has not taken is read
//! again from the ring, or from the store once the ring has moved on. `stream`
//! serves a call, `message` encodes its responses.

mod index;
mod lagging;
mod message;
mod ranges;
mod stream;
mod watcher;
mod watchers;

pub use stream::stream;
