//! Cells: their keys and order, the mutations that make them, and how a packed
//! commit of mutations becomes cells. Knows no files and no threads.

pub mod key;
pub mod rows;
pub mod span;
