//! Folds: merge operations that combine an operand with a cell without reading the cell
//! first.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::key::Kind;
use crate::error::{Error, Result};

/// The id of a registered fold; stored with every operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FoldId(pub u8);

impl FoldId {
    /// Adds 64-bit integers (wrapping).
    pub const SUM: FoldId = FoldId(1);
    /// Keeps the smaller of two 64-bit integers.
    pub const MIN: FoldId = FoldId(2);
    /// Keeps the larger of two 64-bit integers.
    pub const MAX: FoldId = FoldId(3);
}

/// A merge operation.
///
/// It must be associative, because compaction folds adjacent operands before their base
/// is known: folding two operands yields an operand.
pub trait Fold: Send + Sync {
    /// Validates an operand before it is accepted; the error describes the problem.
    fn check(&self, operand: &[u8]) -> Result<(), String>;

    /// Folds `newer` into `older`. `older` may be a base value written by a plain put,
    /// with arbitrary contents.
    fn fold(&self, older: &[u8], newer: &[u8]) -> Vec<u8>;
}

/// The folds registered with a store.
#[derive(Clone)]
pub struct Folds {
    by_id: BTreeMap<FoldId, Arc<dyn Fold>>,
}

impl Default for Folds {
    fn default() -> Self {
        let mut folds = Folds { by_id: BTreeMap::new() };
        folds.register(FoldId::SUM, Arc::new(IntegerFold(i64::wrapping_add)));
        folds.register(FoldId::MIN, Arc::new(IntegerFold(i64::min)));
        folds.register(FoldId::MAX, Arc::new(IntegerFold(i64::max)));
        folds
    }
}

impl fmt::Debug for Folds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_id.keys()).finish()
    }
}

impl Folds {
    /// Registers a fold. Its id is written to disk with every operand, so its meaning
    /// must never change.
    pub fn register(&mut self, id: FoldId, fold: Arc<dyn Fold>) {
        assert!(id.0 <= Kind::FOLD_ID_MAX, "fold id {} is too large", id.0);
        let taken = self.by_id.insert(id, fold);
        assert!(taken.is_none(), "fold id {} is already registered", id.0);
    }

    pub fn get(&self, id: FoldId) -> Option<&dyn Fold> {
        self.by_id.get(&id).map(Arc::as_ref)
    }

    /// Folds two adjacent operands. Fails if the fold is not registered in this
    /// process: a later version of the program may have written the operands.
    pub fn fold(&self, id: FoldId, older: &[u8], newer: &[u8]) -> Result<Vec<u8>> {
        let fold = self.get(id).ok_or(Error::UnknownFold(id.0))?;
        Ok(fold.fold(older, newer))
    }
}

/// Folds 8-byte big-endian integers. A base that is not one counts as absent.
struct IntegerFold(fn(i64, i64) -> i64);

fn integer(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}

impl Fold for IntegerFold {
    fn check(&self, operand: &[u8]) -> Result<(), String> {
        integer(operand)
            .map(drop)
            .ok_or_else(|| format!("an integer operand must have 8 bytes, not {}", operand.len()))
    }

    fn fold(&self, older: &[u8], newer: &[u8]) -> Vec<u8> {
        match (integer(older), integer(newer)) {
            (Some(older), Some(newer)) => (self.0)(older, newer).to_be_bytes().to_vec(),
            _ => newer.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_folds_do_what_their_names_say() {
        let folds = Folds::default();
        let fold = |id, a: i64, b: i64| {
            let bytes = folds.fold(id, &a.to_be_bytes(), &b.to_be_bytes()).unwrap();
            i64::from_be_bytes(bytes.try_into().unwrap())
        };
        assert_eq!(fold(FoldId::SUM, 40, 2), 42);
        assert_eq!(fold(FoldId::SUM, i64::MAX, 1), i64::MIN);
        assert_eq!(fold(FoldId::MIN, -3, 7), -3);
        assert_eq!(fold(FoldId::MAX, -3, 7), 7);
    }

    #[test]
    fn a_base_that_is_no_integer_counts_as_absent() {
        let seven = 7i64.to_be_bytes();
        assert_eq!(Folds::default().fold(FoldId::SUM, b"text", &seven).unwrap(), seven);
        assert!(Folds::default().get(FoldId::SUM).unwrap().check(b"text").is_err());
    }
}
