//! Writes the result of a merge to a new fragment, up to the size of one
//! fragment.

use std::sync::Arc;

use crate::cell::range_tombstone::RangeTombstones;
use crate::cell::rows::{RowRange, successor};
use crate::config::{FileName, Reference};
use crate::error::Result;
use crate::fragment::{FragmentOptions, FragmentWriter, Heat, Warmed, Warmer};
use crate::merge::{Cursor, Merge, Rewrite, RewriteOutput, RewriteRules};
use crate::schema::Group;
use crate::tablet::{FragmentDir, file_facts};
use crate::txn::Txn;

/// A compaction syncs its output in steps of this size, since no one waits for it.
const SYNC_STEP_BYTES: u64 = 16 << 20;

/// The result of rewriting some rows.
pub struct Output {
    /// A finished, synced file that is not yet in the config; `None` if there
    /// was nothing to write.
    pub file: Option<Reference>,
    /// The blocks of the file that are in the cache.
    pub warmed: Arc<Warmed>,
    /// The first row not rewritten; `None` if no rows are left.
    pub end: Option<Vec<u8>>,
}

/// Runs to merge into one.
pub struct Inputs<C> {
    pub merge: Merge<C>,
    /// The range tombstones of all runs.
    pub range_tombstones: RangeTombstones,
    /// The oldest and the newest commit of all runs.
    pub txns: (Txn, Txn),
    /// How much of the input was in the cache.
    pub heat: Arc<Heat>,
}

/// Rewrites merged runs into a new file, up to the row at which it reaches
/// `bytes_max`. Returns `None` if `proceed` returned false.
pub fn write_output<C: Cursor>(
    fragments: &FragmentDir,
    inputs: &mut Inputs<C>,
    rules: &RewriteRules<'_>,
    bytes_max: u64,
    proceed: &dyn Fn() -> bool,
) -> Result<Option<Output>> {
    let Inputs { merge, range_tombstones, txns, heat } = inputs;
    let group = &rules.schema.groups()[rules.group];
    let mut file = OutputFile::new(fragments, group, *txns, bytes_max, heat);
    file.sync_step_bytes = Some(SYNC_STEP_BYTES);
    let warmed = file.warmed.clone();
    match Rewrite::new(rules, merge, range_tombstones, &mut file).run(proceed) {
        Ok(Some(done)) => {
            let file = file.finish(done.range_tombstones)?;
            Ok(Some(Output { file, warmed, end: done.end }))
        }
        Ok(None) => {
            file.abandon();
            Ok(None)
        }
        Err(error) => {
            file.abandon();
            Err(error)
        }
    }
}

/// A file that is created with its first entry.
pub struct OutputFile<'a> {
    fragments: &'a FragmentDir,
    options: FragmentOptions,
    txns: (Txn, Txn),
    bytes_max: u64,
    warmed: Arc<Warmed>,
    heat: Arc<Heat>,
    /// The step in which the file is synced; `None` means once, at the end.
    sync_step_bytes: Option<u64>,
    entries: u64,
    open: Option<OpenFile>,
}

struct OpenFile {
    name: FileName,
    writer: FragmentWriter,
}

impl RewriteOutput for OutputFile<'_> {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.entries += 1;
        self.open()?.writer.add(key, value)
    }

    fn is_full(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.writer.stored_bytes() >= self.bytes_max)
    }
}

impl<'a> OutputFile<'a> {
    pub fn new(
        fragments: &'a FragmentDir,
        group: &Group,
        txns: (Txn, Txn),
        bytes_max: u64,
        heat: &Arc<Heat>,
    ) -> OutputFile<'a> {
        OutputFile {
            fragments,
            options: FragmentOptions {
                compression: group.compression,
                block_bytes: group.block_bytes(),
            },
            txns,
            bytes_max,
            warmed: Warmed::new(fragments.cache()),
            heat: heat.clone(),
            sync_step_bytes: None,
            entries: 0,
            open: None,
        }
    }

    /// Returns the number of entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the approximate size so far.
    pub fn stored_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.writer.stored_bytes())
    }

    fn open(&mut self) -> Result<&mut OpenFile> {
        if self.open.is_none() {
            let (name, path) = self.fragments.mint();
            let mut writer = match self.fragments.create(name, &path, self.options) {
                Ok(writer) => writer,
                Err(error) => {
                    self.fragments.outcome_known_of(name);
                    return Err(error);
                }
            };
            writer.set_warmer(Warmer::new(&self.warmed, &self.heat));
            if let Some(bytes) = self.sync_step_bytes {
                writer.sync_in_steps(bytes);
            }
            self.open = Some(OpenFile { name, writer });
        }
        Ok(self.open.as_mut().expect("it was just opened"))
    }

    /// Completes the file; `None` if there is nothing in it.
    pub fn finish(mut self, range_tombstones: RangeTombstones) -> Result<Option<Reference>> {
        if self.open.is_none() && range_tombstones.is_empty() {
            return Ok(None);
        }
        let hull = range_tombstones.hull();
        if let Err(error) =
            self.open().map(|open| open.writer.set_range_tombstones(range_tombstones))
        {
            self.abandon();
            return Err(error);
        }
        let OpenFile { name, writer } = self.open.take().expect("it was just opened");
        let meta = match writer.finish() {
            Ok(meta) => meta,
            Err(error) => {
                self.fragments.discard(name);
                return Err(error);
            }
        };
        let cells = meta
            .row_bounds
            .as_ref()
            .map(|(first, last)| RowRange { start: first.clone(), end: Some(successor(last)) });
        let held = RowRange::hull(cells, hull).expect("a file has cells or range tombstones");
        Ok(Some(Reference {
            name,
            bytes: meta.stored_bytes,
            cells: meta.cells,
            txn_min: self.txns.0,
            txn_max: self.txns.1,
            rows: None,
            families: None,
            facts: Some(file_facts(&meta, held)),
            share: meta.stored_bytes,
            unit: 0,
            joins: false,
        }))
    }

    pub fn abandon(self) {
        let Some(open) = self.open else { return };
        self.fragments.outcome_known_of(open.name);
        if let Err(error) = open.writer.abandon() {
            tracing::warn!(%error, "an unused fragment remains until the next open");
        }
    }
}
