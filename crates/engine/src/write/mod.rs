//! What a commit passes on its way in, before memory and log: validation and
//! conversion to key order ([`Prepared`]), the check for conflicting writes
//! ([`ConflictMemory`]), and its number ([`Sequencer`]). `store/apply.rs` puts
//! them together.

mod conflict;
mod prepare;
mod sequencer;

pub use conflict::{ConflictMemory, RowSlot};
pub use prepare::{Prepared, PreparedTable, Unknown};
pub use sequencer::Sequencer;
