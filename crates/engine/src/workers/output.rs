//! Writes what a merge leaves over into a new fragment.

use std::path::PathBuf;

use crate::cell::rows::{RowRange, successor};
use crate::cell::span::Spans;
use crate::config::{FileConfig, FileName};
use crate::error::Result;
use crate::fragment::{FragmentOptions, FragmentWriter};
use crate::merge::{Cursor, Merge, Rewrite, RewriteRules};
use crate::tables::Tables;
use crate::txn::Txn;

/// How a rewrite ended.
pub enum Rewritten {
    /// A finished, synced file that no config names yet.
    File(FileConfig),
    /// Nothing was left to write.
    Nothing,
    Cancelled,
}

/// Merged runs that are to become one.
pub struct Runs<C> {
    pub merge: Merge<C>,
    /// The range tombstones of all of them.
    pub spans: Spans,
    /// The oldest and the newest commit in any of them.
    pub txns: (Txn, Txn),
}

/// Rewrites merged runs into a new file.
pub fn write_fragment<C: Cursor>(
    tables: &Tables,
    runs: &mut Runs<C>,
    rules: &RewriteRules<'_>,
    proceed: &dyn Fn() -> bool,
) -> Result<Rewritten> {
    let Runs { merge, spans, txns } = runs;
    let mut output = Output::new(tables, rules, *txns);
    let rewrite = Rewrite::new(rules, merge, spans, |key, value| output.add(key, value));
    let result = rewrite.run(proceed);
    match result {
        Ok(Some(spans)) => output.finish(spans),
        Ok(None) => {
            output.abandon();
            Ok(Rewritten::Cancelled)
        }
        Err(error) => {
            output.abandon();
            Err(error)
        }
    }
}

/// A file that is begun with its first entry.
struct Output<'a> {
    tables: &'a Tables,
    options: FragmentOptions,
    txns: (Txn, Txn),
    open: Option<Open>,
}

struct Open {
    name: FileName,
    path: PathBuf,
    writer: FragmentWriter,
}

impl<'a> Output<'a> {
    fn new(tables: &'a Tables, rules: &RewriteRules<'_>, txns: (Txn, Txn)) -> Output<'a> {
        let group = &rules.schema.groups()[rules.group];
        let options =
            FragmentOptions { compression: group.compression, block_bytes: group.block_bytes() };
        Output { tables, options, txns, open: None }
    }

    fn open(&mut self) -> Result<&mut Open> {
        if self.open.is_none() {
            let (name, path) = self.tables.mint();
            let writer = FragmentWriter::create(&self.tables.world.files, &path, self.options)?;
            self.open = Some(Open { name, path, writer });
        }
        Ok(self.open.as_mut().expect("it was just opened"))
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.open()?.writer.add(key, value)
    }

    fn finish(mut self, spans: Spans) -> Result<Rewritten> {
        if self.open.is_none() && spans.is_empty() {
            return Ok(Rewritten::Nothing);
        }
        let hull = spans.hull();
        if let Err(error) = self.open().map(|open| open.writer.set_spans(spans)) {
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
        Ok(Rewritten::File(FileConfig {
            name,
            bytes: meta.stored_bytes,
            cells: meta.cells,
            rows: RowRange::hull(cells, hull).expect("a file holds cells or spans"),
            txn_min: self.txns.0,
            txn_max: self.txns.1,
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

/// Removes a file that was written in vain.
pub fn remove(tables: &Tables, path: &std::path::Path) {
    if let Err(error) = tables.world.files.remove(path) {
        let path = path.display();
        tracing::warn!(%path, %error, "an abandoned fragment stays until the next open");
    }
}
