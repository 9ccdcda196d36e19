//! Cells: their keys and order, the mutations that create them, and the conversion of a
//! packed commit of mutations into cells. Independent of files and threads.

pub mod commit;
pub mod fold;
pub mod key;
pub mod normal;
pub mod prefix;
pub mod range_tombstone;
pub mod row_map;
pub mod rows;
pub(crate) mod separators;
