//! Cells: their keys and order, the mutations that make them, and how a packed
//! commit of mutations becomes cells. Knows no files and no threads.

pub mod commit;
pub mod fold;
pub mod key;
pub mod normal;
pub mod rows;
pub mod span;
