//! Range and RangeStream: keys are copied once, from the store into the pieces
//! that are sent (`pieces`).
//!
//! A response must state its length before its first key. So most responses are
//! collected in memory, under a shared budget (`response`, `budget`). One that
//! is too large, or for which no budget is left, is read twice instead: once for
//! its length, and again as the client takes it (`large`). A stream of messages
//! does not need this (`stream`).

mod budget;
mod large;
mod pieces;
mod response;
mod stream;

pub use budget::Budget;
pub use response::range;
pub use stream::stream;

/// The approximate size of a piece: larger ones fall out of the processor's
/// cache before they are sent.
const PIECE_BYTES: usize = 128 << 10;
