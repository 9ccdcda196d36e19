//! Catalogues: ordered key-value indices with vectored, atomic operations.
#![forbid(unsafe_code)]
