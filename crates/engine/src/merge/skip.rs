//! How a reader skips what it does not return: the rest of a version, column, family or
//! row, and rows deleted by range tombstones.

use super::cursor::Cursor;
use super::read::Reader;
use super::state::Restart;
use super::view::{Flow, ReadBudget};
use crate::cell::key::{self, KeyParts};
use crate::error::Result;

/// The number of deleted cells to step over before checking whether a range tombstone
/// covers what follows.
const STEPS_BEFORE_LEAP: usize = 16;

impl<C: Cursor> Reader<'_, C> {
    /// Skips a deleted cell and the following ones that are known to be deleted.
    pub(super) fn skip_covered(&mut self, parts: &KeyParts, budget: &mut ReadBudget) -> Result<()> {
        let state = &mut *self.state;
        state.covered_steps += 1;
        if state.covered_steps >= STEPS_BEFORE_LEAP && !self.range_tombstones.is_empty() {
            state.covered_steps = 0;
            if self.leap_range_tombstones()? {
                return Ok(());
            }
        }
        // Older entries of the same version are deleted too.
        if self.state.column.covered.replace(parts.timestamp) == Some(parts.timestamp) {
            return self.skip_version(parts, budget);
        }
        self.merge.advance()
    }

    /// Moves every run that has nothing newer than a range tombstone over the current
    /// row to the end of that tombstone. Returns whether any moved.
    fn leap_range_tombstones(&mut self) -> Result<bool> {
        let mut moved = false;
        for tombstones in self.range_tombstones {
            let over = tombstones.covering_range(&self.state.row, self.rules.snapshot);
            let Some((rows, txn)) = over else { continue };
            let end = rows.end.as_deref().map(key::row_start);
            moved |= self.merge.leap_covered(end.as_deref(), txn)?;
        }
        Ok(moved)
    }

    /// Skips the rest of the current version.
    pub(super) fn skip_version(&mut self, parts: &KeyParts, budget: &mut ReadBudget) -> Result<()> {
        self.aim_at_prefix(parts.column_end);
        key::push_past_version(&mut self.state.target, parts.timestamp);
        self.skip_to_target(budget)
    }

    /// Continues after the last entry as the sink requested.
    #[cold]
    pub(super) fn follow(&mut self, flow: Flow, budget: &mut ReadBudget) -> Result<()> {
        let parts = self.state.parts.expect("an entry has been taken");
        match flow {
            Flow::Continue => Ok(()),
            Flow::NextColumn => {
                self.state.column.closed = true;
                self.skip_past(parts.column_end, budget)
            }
            Flow::NextRow => {
                self.state.restart = Restart::Row;
                self.skip_past(parts.row_end, budget)?;
                self.state.restart = Restart::Entry;
                Ok(())
            }
            Flow::Stop => {
                budget.stop();
                Ok(())
            }
        }
    }

    /// Skips the rest of the current family or column.
    pub(super) fn skip_past(&mut self, prefix_end: usize, budget: &mut ReadBudget) -> Result<()> {
        self.aim_at_prefix(prefix_end);
        key::push_past(&mut self.state.target);
        self.skip_to_target(budget)
    }

    /// Skips unselected columns to the next selected one of the family, or to the next
    /// family.
    pub(super) fn skip_to_wanted(
        &mut self,
        parts: &KeyParts,
        budget: &mut ReadBudget,
    ) -> Result<()> {
        let family = parts.family(&self.state.key);
        let wanted = self.rules.columns.next_wanted(family, &self.state.qualifier);
        let Some(qualifier) = wanted else { return self.skip_past(parts.family_end, budget) };
        self.aim_at_prefix(parts.family_end);
        key::push_qualifier(&mut self.state.target, qualifier);
        self.skip_to_target(budget)
    }

    /// Returns whether the cell is newer than the time range and the purge policy does
    /// not count such versions.
    pub(super) fn skips_newer_than(&self, parts: &KeyParts) -> bool {
        parts.timestamp > self.rules.times.max
            && self.state.family.is_some_and(|family| {
                self.rules.schema.purge(family).ignores_newer_than(self.rules.times.max)
            })
    }

    /// Skips the versions that are newer than the time range.
    pub(super) fn skip_newer(&mut self, parts: &KeyParts, budget: &mut ReadBudget) -> Result<()> {
        self.aim_at_prefix(parts.column_end);
        key::push_seek_timestamp(&mut self.state.target, self.rules.times.max);
        self.skip_to_target(budget)
    }

    pub(super) fn aim_at_prefix(&mut self, prefix_end: usize) {
        self.state.target.clear();
        self.state.target.extend_from_slice(&self.state.key[..prefix_end]);
    }

    pub(super) fn skip_to_target(&mut self, budget: &mut ReadBudget) -> Result<()> {
        let steps = self.merge.skip_to(&self.state.target)?;
        budget.work = budget.work.saturating_sub(steps);
        Ok(())
    }
}
