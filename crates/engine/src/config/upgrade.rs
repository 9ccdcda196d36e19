//! Completes a config that was written before version 4 of the manifest: ids of
//! tablets, txns flushed per table, and the units that interrupted compactions
//! left, which earlier versions inferred each time.

use std::sync::Arc;

use super::{Checkpoint, Configs, Reference, TableConfig, TabletConfig, TabletConfigs, TabletId};
use crate::txn::Txn;

impl Configs {
    /// Gives ids to the tablets that have none, in order.
    pub(super) fn assign_tablet_ids(&mut self) -> Result<(), String> {
        let last = &mut self.last_tablet;
        for table in self.tables.values_mut() {
            if table.tablets.iter().any(|tablet| tablet.id == TabletId::default()) {
                assign_ids(Arc::make_mut(table), last)?;
            }
        }
        Ok(())
    }

    /// Marks what interrupted compactions left, after all edits of an earlier
    /// version have been applied.
    pub(super) fn infer_units(&mut self) {
        for table in self.tables.values_mut() {
            infer_units(Arc::make_mut(table));
        }
        for checkpoint in self.checkpoints.values_mut() {
            Arc::make_mut(checkpoint).infer_units();
        }
    }
}

impl Checkpoint {
    /// Completes a checkpoint that was encoded by an earlier version.
    pub(super) fn complete(&mut self) -> Result<(), String> {
        let lacks_id = |table: &Arc<TableConfig>| {
            table.tablets.iter().any(|tablet| tablet.id == TabletId::default())
        };
        if self.tables.iter().any(lacks_id) {
            let mut last = 0;
            for table in &mut self.tables {
                assign_ids(Arc::make_mut(table), &mut last)?;
            }
            self.infer_units();
        }
        Ok(())
    }

    fn infer_units(&mut self) {
        self.tables.iter_mut().for_each(|table| infer_units(Arc::make_mut(table)));
    }
}

fn assign_ids(table: &mut TableConfig, last: &mut u32) -> Result<(), String> {
    let mut tablets = Vec::with_capacity(table.tablets.len());
    for tablet in table.tablets.iter() {
        *last = last.checked_add(1).ok_or("the numbers of tablets are exhausted")?;
        let id = TabletId { incarnation: 0, number: *last };
        tablets.push(Arc::new(TabletConfig { id, ..(**tablet).clone() }));
    }
    table.tablets = TabletConfigs::new(tablets);
    Ok(())
}

fn infer_units(table: &mut TableConfig) {
    let tablets = table.tablets.iter().map(|tablet| {
        let mut tablet = (**tablet).clone();
        for chain in &mut tablet.chains {
            let lengths: Vec<usize> = chain.runs().map(<[Reference]>::len).collect();
            mark_units(&mut chain.files, &lengths);
        }
        Arc::new(tablet)
    });
    table.tablets = TabletConfigs::new(tablets.collect());
}

/// Gives a common unit to runs whose txns overlap: the outputs of an interrupted
/// compaction are in the oldest of its runs but as new as the newest.
fn mark_units(files: &mut [Reference], lengths: &[usize]) {
    let mut newest: Option<Txn> = None;
    let (mut at, mut unit_start, mut runs) = (0, 0, 0);
    for &length in lengths {
        let run = &files[at..at + length];
        let oldest = run.iter().map(|file| file.txn_min).min();
        let run_newest = run.iter().map(|file| file.txn_max).max();
        if newest.is_some() && newest >= oldest {
            runs += 1;
        } else {
            (unit_start, runs) = (at, 1);
        }
        newest = newest.max(run_newest);
        at += length;
        if runs > 1 {
            let unit = files[unit_start].name;
            let unit = unit.incarnation << 32 | (unit.number & u64::from(u32::MAX));
            files[unit_start..at].iter_mut().for_each(|file| file.unit = unit.max(1));
        }
    }
}
