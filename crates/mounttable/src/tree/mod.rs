//! The tree of names: the operations of a naming server.
//!
//! `Mounttable` (`mounttable`) is one server with its `options`; a `call` names the caller
//! and the deadline of an operation, and an `entry` is its result.
//!
//! An operation walks down the name (`walk`), checks access, changes one node, and
//! starts again if another operation was faster (`attempts`). On the way it removes what has expired
//! (`collect`), if rows can be written (`clearing`); `sweep` does so for nodes that
//! nobody visits. The operations are in `mounting`, `removing`, `guarding`, `resolve`,
//! `glob` and `watch`; `setup` creates the tables and the first nodes.

mod attempts;
mod call;
mod clearing;
mod collect;
mod entry;
mod glob;
mod guarding;
mod mounting;
mod mounttable;
mod options;
mod removing;
mod resolve;
mod setup;
mod sweep;
mod walk;
mod watch;

use attempts::Attempts;
pub use call::Call;
pub use entry::Entry;
pub use glob::Found;
pub use mounting::{FOREVER_MICROS, Mount};
pub use mounttable::Mounttable;
pub use options::{Options, TABLE};
pub use setup::{FirstNodes, create_tables};
pub use watch::{Change, KnownNode, WatchEvent};
