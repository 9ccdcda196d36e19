//! What is stored and how it is read.

mod tail;

pub use tail::{KeyView, Tail, push_varint, varint_len};
