//! The service without the wire: each request is checked as a whole, and each write is
//! one commit of the engine.
//!
//! `catalogues` opens the catalogues of a store and finds the one that a request names.
//! `manage` creates, deletes and lists them; `change` writes records, after `admission`;
//! `get` and `walk` read them, `range` counts and deletes ranges. `deathrow` removes the
//! records of deleted catalogues in the background. `checks` enforces the limits,
//! `effort` ends steps of long reads, `cancellation` ends work whose caller has gone,
//! and `durability` holds replies back until their commits are durable.

mod admission;
mod cancellation;
mod catalogues;
mod change;
mod checks;
mod deathrow;
mod durability;
mod effort;
mod get;
mod manage;
mod range;
mod walk;

pub use self::cancellation::{Cancellation, Waiting};
pub use self::catalogues::{Catalogues, Counts};
pub use self::deathrow::Collector;
pub use self::durability::Written;
pub use self::get::{Answer, Get};
pub use self::range::key_range;
pub use self::walk::{Direction, Walk, WalkSink};
