//! Row filters.
