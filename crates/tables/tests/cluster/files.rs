//! What the simulation has in place of the engine: tablets whose rows are lists, commits
//! that append a number to a list, and files of commits. A number that is read twice, out
//! of order or not at all tells what went wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use stele_engine::config::{FileName, Reference, TabletConfig};
use stele_engine::log::LogEntry;
use stele_engine::log::objects::LogObject;
use stele_engine::{Result, RowRange, Txn};
use stele_tables::recover::{Finished, Rebuild, Rebuilding};
use stele_tables::rows::{OwnedRow, StoredRow};

/// A commit: appends a number to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Append {
    pub txn: Txn,
    pub row: u8,
    pub number: u64,
}

impl Append {
    pub fn entry(&self) -> LogEntry {
        let mut payload = vec![self.row];
        payload.extend_from_slice(&self.number.to_le_bytes());
        LogEntry { stream: 0, index: self.txn.raw(), payload: Bytes::from(payload) }
    }

    fn of(entry: &LogEntry) -> Append {
        let number = entry.payload[1..9].try_into().expect("eight bytes");
        Append {
            txn: Txn::from_raw(entry.index).expect("a txn"),
            row: entry.payload[0],
            number: u64::from_le_bytes(number),
        }
    }
}

/// The files of a cluster. Clones share them.
#[derive(Clone, Default)]
pub struct Files {
    files: Arc<Mutex<BTreeMap<FileName, Vec<Append>>>>,
}

impl Files {
    /// Returns a tablet with one more file.
    pub fn add(&self, config: &TabletConfig, name: FileName, appends: Vec<Append>) -> TabletConfig {
        let mut config = config.clone();
        let txns = || appends.iter().map(|append| append.txn);
        let (Some(txn_min), Some(txn_max)) = (txns().min(), txns().max()) else { return config };
        let chain = &mut config.chains[0];
        chain.flushed = chain.flushed.max(txn_max);
        chain.files.push(Reference {
            name,
            bytes: 100,
            cells: appends.len() as u64,
            txn_min,
            txn_max,
            rows: Some(RowRange::all()),
            families: None,
            facts: None,
            share: 100,
            unit: 0,
            joins: false,
        });
        assert!(self.files.lock().insert(name, appends).is_none(), "{name} was used twice");
        config
    }

    /// Returns all commits in the files of a tablet.
    pub fn of(&self, config: &TabletConfig) -> Vec<Append> {
        let files = self.files.lock();
        config.files().flat_map(|file| files[&file.name].clone()).collect()
    }
}

/// Mints the names of the files of one incarnation.
pub struct Names {
    pub epoch: u64,
    next: AtomicU64,
}

impl Names {
    pub fn of(epoch: u64) -> Names {
        Names { epoch, next: AtomicU64::new(0) }
    }

    pub fn next(&self) -> FileName {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        FileName { incarnation: self.epoch, number }
    }
}

/// Builds files from the log of a dead server.
pub struct Builder {
    pub files: Files,
    pub names: Arc<Names>,
    /// R8.5: commits that are in files are not replayed.
    pub skip_flushed: bool,
}

struct Building {
    files: Files,
    names: Arc<Names>,
    skip_flushed: bool,
    rows: Vec<(OwnedRow, Vec<Append>)>,
}

impl Rebuild for Builder {
    fn begin(&self, rows: &[StoredRow]) -> Result<Box<dyn Rebuilding>> {
        let (files, names) = (self.files.clone(), self.names.clone());
        let rows = rows.iter().map(|stored| (stored.row.clone(), Vec::new())).collect();
        Ok(Box::new(Building { files, names, skip_flushed: self.skip_flushed, rows }))
    }
}

impl Rebuilding for Building {
    fn replay(&mut self, object: &LogObject) -> Result<()> {
        for entry in object.entries()? {
            let append = Append::of(&entry);
            for (row, appends) in &mut self.rows {
                let from = row.log.map_or(0, |log| log.from);
                let is_flushed = self.skip_flushed && append.txn <= row.config.chains[0].flushed;
                if object.at.slot >= from && !is_flushed {
                    appends.push(append);
                }
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Finished> {
        let Building { files, names, rows, .. } = *self;
        let build =
            |(row, appends): (OwnedRow, Vec<Append>)| files.add(&row.config, names.next(), appends);
        let configs = rows.into_iter().map(build).collect();
        Ok(Finished { configs, outcome_known: Box::new(|| ()) })
    }
}
