//! The regular expressions of row filters: RE2 syntax over Latin-1 bytes.
//!
//! Bigtable's filters match a pattern against a *whole* row key, family,
//! qualifier or value, byte by byte. A [`Pattern`] is built in three steps:
//! `parse` reads RE2's syntax (with `escape`, `group`, `class` and `unicode`)
//! into `node`s that track their own size; `literals` finds the strings or the
//! prefix that a scan can use instead of the pattern; and `pattern` passes the
//! rest to the `regex-automata` engine, anchored at both ends. The patterns of a
//! filter share one [`PatternBudget`].
//!
//! Where the dialect leaves a choice, RE2 as released in 2025 decides:
//!
//! * A byte is a character. `\x{100}`, `\400` and other values above `\xFF` are
//!   errors; `\p{Greek}` is known but empty.
//! * `(?i)` folds only the letters a to z. RE2 of 2022 still treated `é` and `É` as
//!   one letter in Latin-1.
//! * `^` and `$` match at the ends of the text, or of a line under `(?m)`; `\b` uses
//!   ASCII words.
//! * Laziness (`*?`, `(?U)`) is parsed but has no effect, because a whole match does
//!   not depend on how the text is divided among the parts.
//!
//! Everything is bounded: pattern length, repeat counts (1000, with nested
//! repeats multiplied, as in RE2), tree height, states after expansion, and
//! memory while matching. A pattern that exceeds a bound is rejected before
//! anything is built, and matching takes time linear in the text.
//!
//! ```
//! use stele_re2::Pattern;
//!
//! let pattern = Pattern::new(b"user#[0-9]+").unwrap();
//! assert!(pattern.matches(b"user#42"));
//! assert!(!pattern.matches(b"a user#42"));
//! assert_eq!(pattern.prefix(), b"user#");
//! assert_eq!(Pattern::new(b"user#(").unwrap_err().offset, 5);
//! ```
#![forbid(unsafe_code)]

mod budget;
mod byte_set;
mod class;
mod cursor;
mod error;
mod escape;
mod group;
mod literals;
mod node;
mod parse;
mod pattern;
mod unicode;

#[cfg(test)]
mod tests;

pub use budget::PatternBudget;
pub use error::PatternError;
pub use pattern::Pattern;
