//! Writes the result of a merge to a new fragment, up to the size of one
//! fragment.

use std::path::PathBuf;
use std::sync::Arc;

use crate::cell::range_tombstone::RangeTombstones;
use crate::cell::rows::{RowRange, successor};
use crate::config::{FileConfig, FileName};
use crate::error::Result;
use crate::fragment::{FragmentOptions, FragmentWriter, Heat, Warmed, Warmer};
use crate::merge::{Cursor, Merge, Out, Rewrite, RewriteRules};
use crate::tables::Tables;
use crate::txn::Txn;

/// The result of rewriting some rows.
pub struct Part {
    /// A finished, synced file that is not yet in the config; `None` if there
    /// was nothing to write.
    pub file: Option<FileConfig>,
    /// The blocks of the file that are in the cache.
    pub warmed: Arc<Warmed>,
    /// The first row not rewritten; `None` if no rows are left.
    pub end: Option<Vec<u8>>,
}

/// Runs to merge into one.
pub struct Inputs<C> {
    pub merge: Merge<C>,
    /// The range tombstones of all runs.
    pub spans: RangeTombstones,
    /// The oldest and the newest commit of all runs.
    pub txns: (Txn, Txn),
    /// How much of the input was in the cache.
    pub heat: Arc<Heat>,
}

/// Rewrites merged runs into a new file, up to the row at which it reaches
/// `bytes_max`. Returns `None` if `proceed` returned false.
pub fn write_part<C: Cursor>(
    tables: &Tables,
    inputs: &mut Inputs<C>,
    rules: &RewriteRules<'_>,
    bytes_max: u64,
    proceed: &dyn Fn() -> bool,
) -> Result<Option<Part>> {
    let Inputs { merge, spans, txns, heat } = inputs;
    let group = &rules.schema.groups()[rules.group];
    let warmed = Warmed::new(&tables.cache);
    let mut output = Output {
        tables,
        options: FragmentOptions {
            compression: group.compression,
            block_bytes: group.block_bytes(),
        },
        txns: *txns,
        bytes_max,
        warmed: warmed.clone(),
        heat: heat.clone(),
        open: None,
    };
    match Rewrite::new(rules, merge, spans, &mut output).run(proceed) {
        Ok(Some(done)) => {
            let file = output.finish(done.spans)?;
            Ok(Some(Part { file, warmed, end: done.end }))
        }
        Ok(None) => {
            output.abandon();
            Ok(None)
        }
        Err(error) => {
            output.abandon();
            Err(error)
        }
    }
}

/// A file that is created with its first entry.
struct Output<'a> {
    tables: &'a Tables,
    options: FragmentOptions,
    txns: (Txn, Txn),
    bytes_max: u64,
    warmed: Arc<Warmed>,
    heat: Arc<Heat>,
    open: Option<Open>,
}

struct Open {
    name: FileName,
    path: PathBuf,
    writer: FragmentWriter,
}

impl Out for Output<'_> {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.open()?.writer.add(key, value)
    }

    fn is_full(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.writer.stored_bytes() >= self.bytes_max)
    }
}

impl Output<'_> {
    fn open(&mut self) -> Result<&mut Open> {
        if self.open.is_none() {
            let (name, path) = self.tables.mint();
            let files = &self.tables.world.files;
            let mut writer = FragmentWriter::create(files, &path, self.options)?;
            writer.set_warmer(Warmer::new(&self.warmed, &self.heat));
            self.open = Some(Open { name, path, writer });
        }
        Ok(self.open.as_mut().expect("it was just opened"))
    }

    fn finish(mut self, spans: RangeTombstones) -> Result<Option<FileConfig>> {
        if self.open.is_none() && spans.is_empty() {
            return Ok(None);
        }
        let hull = spans.hull();
        if let Err(error) = self.open().map(|open| open.writer.set_range_tombstones(spans)) {
            self.abandon();
            return Err(error);
        }
        let Open { name, path, writer } = self.open.take().expect("it was just opened");
        let meta = match writer.finish() {
            Ok(meta) => meta,
            Err(error) => {
                remove(self.tables, &path);
                return Err(error);
            }
        };
        let cells = meta
            .row_bounds
            .as_ref()
            .map(|(first, last)| RowRange { start: first.clone(), end: Some(successor(last)) });
        Ok(Some(FileConfig {
            name,
            bytes: meta.stored_bytes,
            cells: meta.cells,
            rows: RowRange::hull(cells, hull).expect("a file holds cells or spans"),
            txn_min: self.txns.0,
            txn_max: self.txns.1,
            joins: false,
        }))
    }

    fn abandon(self) {
        if let Some(open) = self.open
            && let Err(error) = open.writer.abandon()
        {
            tracing::warn!(%error, "an abandoned fragment stays until the next open");
        }
    }
}

/// Removes an unused file.
pub fn remove(tables: &Tables, path: &std::path::Path) {
    if let Err(error) = tables.world.files.remove(path) {
        let path = path.display();
        tracing::warn!(%path, %error, "an abandoned fragment stays until the next open");
    }
}
