//! Checks a file that the config names: that it is intact, and that the config states
//! what it holds.

use std::path::Path;
use std::sync::Arc;

use super::check::damage_or_fail;
use super::report::{FragmentReport, Problem};
use crate::cache::BlockCache;
use crate::cell::rows::RowRange;
use crate::config::Reference;
use crate::error::Result;
use crate::fragment::{FileHandle, FileHandles, Fragment, KnownSize};
use crate::tablet::{FRAGMENTS_DIR, file_facts};
use crate::txn::Txn;
use crate::world::{Files, FragmentStore, RemoteFile, WaitScope};

/// A file, with the first tablet that refers to it.
pub struct NamedFile {
    pub file: Reference,
    pub tablet: RowRange,
    pub table: String,
    pub group: String,
}

impl NamedFile {
    /// Reads the whole file, in the store of `dir` or in a store outside it, and appends
    /// the problems found to `problems`. May wait for the file.
    pub fn check(
        &self,
        files: &Arc<dyn Files>,
        dir: &Path,
        remote: Option<&Arc<dyn FragmentStore>>,
        problems: &mut Vec<Problem>,
    ) -> Result<FragmentReport> {
        let _wait = WaitScope::enter();
        let handle = match remote {
            None => {
                let path = dir.join(FRAGMENTS_DIR).join(self.file.name.to_string());
                FileHandle::new(files, &path, &FileHandles::new(1))
            }
            Some(store) => {
                let file = RemoteFile::new(store, self.file.name, self.file.bytes);
                Arc::new(FileHandle::Remote(file))
            }
        };
        let path = handle.path().to_path_buf();
        let before = problems.len();
        let mut report = FragmentReport {
            path: path.clone(),
            table: self.table.clone(),
            group: self.group.clone(),
            bytes: self.file.bytes,
            blocks: 0,
            rows: 0,
            cells: 0,
            tombstones: 0,
            range_tombstones: 0,
            sound: false,
        };
        // Nothing is read twice, so caching is useless.
        match Fragment::open_handle(handle, KnownSize::default(), 0, BlockCache::new(0)) {
            Ok(fragment) => {
                self.compare(&fragment, problems);
                let found = fragment.inspect(&mut |error| problems.push(Problem::of(error, &path)));
                report.blocks = found.blocks;
                report.rows = found.rows;
                report.cells = found.cells;
                report.tombstones = found.tombstones;
                report.range_tombstones = fragment.meta().range_tombstones;
            }
            Err(error) => problems.push(Problem::of(damage_or_fail(error)?, &path)),
        }
        report.sound = problems.len() == before;
        Ok(report)
    }

    /// Compares the footer with the config.
    fn compare(&self, fragment: &Fragment, problems: &mut Vec<Problem>) {
        let (file, meta) = (&self.file, fragment.meta());
        let footer_at = meta.data_bytes;
        let mut problem =
            |what: String| problems.push(Problem::new(fragment.path(), footer_at, what));
        if meta.stored_bytes != file.bytes {
            problem(format!(
                "the file has {} bytes, the manifest states {}",
                meta.stored_bytes, file.bytes
            ));
        }
        if meta.cells != file.cells {
            problem(format!(
                "the file has {} cells, the manifest states {}",
                meta.cells, file.cells
            ));
        }
        // Zero stands for a txn that no longer mattered.
        let too_old = meta.txn_min < file.txn_min && meta.txn_min != Txn::ZERO;
        if too_old || meta.txn_max > file.txn_max {
            problem(format!(
                "the file holds txns {} to {}, the manifest states {} to {}",
                meta.txn_min, meta.txn_max, file.txn_min, file.txn_max
            ));
        }
        // Rows of the file that its config does not name were rewritten or belong to
        // another tablet.
        let held = fragment.rows().unwrap_or(RowRange::new("", ""));
        let stated = file.facts.as_ref().is_none_or(|facts| facts.held == held);
        let live = file.live_rows(&self.tablet);
        let explicit = file.rows.as_ref().is_none_or(|rows| rows.intersection(&held) == *rows);
        if !stated || !explicit || live.is_empty() || live.intersection(&held) != live {
            problem("the manifest states rows that the file does not have".into());
        }
        let facts = file_facts(meta, held);
        if file.facts.as_ref().is_some_and(|stated| *stated != facts) && stated {
            problem("the manifest states sizes or times that the file does not have".into());
        }
    }
}
