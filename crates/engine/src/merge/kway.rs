//! The k-way merge of sorted runs.

use super::cursor::{Cursor, EntryPlace};
use super::steps::{StepOf, count_step};
use crate::cell::key;
use crate::error::Result;
use crate::txn::Txn;

/// The number of entries to step over before a seek is considered cheaper.
const STEPS_BEFORE_SEEK: usize = 8;

/// Returns the start of the deleted rows around the row of a key, for a run with the
/// given maximum txn.
pub type Covered<'c> = dyn Fn(&[u8], Txn) -> Option<Vec<u8>> + 'c;

/// Cursors merged by key. Equal keys are returned in the order of the cursors.
pub struct Merge<C> {
    cursors: Vec<C>,
    /// The cursors that are positioned on an entry, smallest key first.
    order: Vec<usize>,
}

impl<C: Cursor> Merge<C> {
    pub fn new(cursors: Vec<C>) -> Merge<C> {
        Merge { order: Vec::with_capacity(cursors.len()), cursors }
    }

    pub fn valid(&self) -> bool {
        !self.order.is_empty()
    }

    /// Returns the place of the entry, if it can be read again by it.
    pub fn place(&self) -> Option<EntryPlace> {
        self.cursors[*self.order.first()?].place()
    }

    pub fn key(&self) -> &[u8] {
        self.cursors[self.order[0]].key()
    }

    pub fn value(&self) -> &[u8] {
        self.cursors[self.order[0]].value()
    }

    /// Moves to the first entry at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        count_step(StepOf::Merge);
        self.order.clear();
        for cursor in &mut self.cursors {
            cursor.seek(key)?;
        }
        self.arrange();
        Ok(())
    }

    pub fn advance(&mut self) -> Result<()> {
        count_step(StepOf::Merge);
        let first = self.order[0];
        self.cursors[first].next()?;
        if !self.cursors[first].valid() {
            self.order.remove(0);
            return Ok(());
        }
        // The cursor usually stays first or moves by one or two positions.
        let mut at = 0;
        while at + 1 < self.order.len() && self.before(self.order[at + 1], first) {
            self.order[at] = self.order[at + 1];
            at += 1;
        }
        self.order[at] = first;
        Ok(())
    }

    /// Moves forward to the first entry at or after `key`: by steps if it is near, by a
    /// seek otherwise. Returns the number of entries stepped over.
    pub fn skip_to(&mut self, key: &[u8]) -> Result<usize> {
        let mut steps = 0;
        while self.valid() && self.key() < key {
            if steps == STEPS_BEFORE_SEEK {
                self.leap_to(key)?;
                break;
            }
            self.advance()?;
            steps += 1;
        }
        Ok(steps)
    }

    /// Seeks forward to `key`; cursors already at or past it do not move.
    fn leap_to(&mut self, key: &[u8]) -> Result<()> {
        for cursor in &mut self.cursors {
            if cursor.valid() && cursor.key() < key {
                cursor.seek(key)?;
            }
        }
        self.arrange();
        Ok(())
    }

    /// Moves forward to `key` (`None`: to the end) the cursors before it whose runs
    /// contain nothing at or after `txn`. Returns whether any moved.
    pub fn leap_covered(&mut self, key: Option<&[u8]>, txn: Txn) -> Result<bool> {
        let mut moved = false;
        for cursor in &mut self.cursors {
            if !cursor.valid()
                || cursor.txn_max() >= txn
                || key.is_some_and(|key| cursor.key() >= key)
            {
                continue;
            }
            moved = true;
            match key {
                Some(key) => cursor.seek(key)?,
                None => {
                    cursor.seek_last()?;
                    if cursor.valid() {
                        cursor.next()?;
                    }
                }
            }
        }
        if moved {
            self.arrange();
        }
        Ok(moved)
    }

    /// Returns the row prefix of the last entry before `key` (`None`: of all entries)
    /// and leaves the merge unpositioned. If `covered` returns a key for a cursor's
    /// entry and the maximum txn of its run, that cursor continues before that key.
    pub fn row_before(
        &mut self,
        key: Option<&[u8]>,
        covered: &Covered<'_>,
    ) -> Result<Option<Vec<u8>>> {
        self.order.clear();
        let mut best: Option<&[u8]> = None;
        for cursor in &mut self.cursors {
            match key {
                Some(key) => cursor.seek_before(key)?,
                None => cursor.seek_last()?,
            }
            while cursor.valid()
                && let Some(start) = covered(cursor.key(), cursor.txn_max())
            {
                cursor.seek_before(&start)?;
            }
            if cursor.valid() {
                best = best.max(key::row_prefix(cursor.key()));
            }
        }
        Ok(best.map(<[u8]>::to_vec))
    }

    /// Returns the first and last row prefix of a stretch that is cheap to read through
    /// in all runs and ends with the last row before `key` (`None`: of all rows).
    /// Leaves the merge unpositioned.
    pub fn stretch_before(
        &mut self,
        key: Option<&[u8]>,
        covered: &Covered<'_>,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let Some(last) = self.row_before(key, covered)? else { return Ok(None) };
        let mut start: Option<&[u8]> = None;
        for cursor in self.cursors.iter_mut().filter(|cursor| cursor.valid()) {
            cursor.rewind()?;
            start = start.max(key::row_prefix(cursor.key()));
        }
        let start = start.expect("the cursor with the last row is valid").to_vec();
        Ok(Some((start, last)))
    }

    fn arrange(&mut self) {
        self.order.clear();
        self.order.extend((0..self.cursors.len()).filter(|&index| self.cursors[index].valid()));
        let cursors = &self.cursors;
        self.order.sort_by(|&a, &b| cursors[a].key().cmp(cursors[b].key()).then(a.cmp(&b)));
    }

    fn before(&self, a: usize, b: usize) -> bool {
        self.cursors[a].key().cmp(self.cursors[b].key()).then(a.cmp(&b)).is_lt()
    }
}
