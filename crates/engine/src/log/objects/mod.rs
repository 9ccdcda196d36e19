//! A log of objects in a store that several servers share (`docs/ownership.md`).
//!
//! [`ObjectLog`] is the log of a live server: it groups entries into objects, keeps up to
//! four of them under way (`slots`), and reports them as durable in order. [`SealWalk`] closes the
//! log of a dead server, and [`SlotReader`] reads it. `object` is the format.

mod object;
mod object_log;
mod seal;
mod slot_reader;
mod slots;
#[cfg(test)]
mod tests;

pub use object::{LogObject, ObjectKind};
pub use object_log::{ObjectLog, ObjectLogOptions};
pub use seal::SealWalk;
pub use slot_reader::SlotReader;
