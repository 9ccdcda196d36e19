//! `stele read`, `lookup`, `set`, `delete` and `count`: rows of a table.

mod column;
mod count;
mod delete;
mod read;
mod render;
mod set;

pub use column::Column;
pub use count::Count;
pub use delete::Delete;
pub use read::{Lookup, Read};
pub use render::put as put_bytes;
pub use set::Set;
