//! Checks one table of an open store, file by file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chains;
use super::files::NamedFile;
use super::report::{FragmentReport, Problem, Report};
use crate::config::{Configs, FileName, TableConfig};
use crate::error::Result;
use crate::tablet::Link;
use crate::world::{Files, FragmentStore};

/// A check of the files that a table refers to at one point in time. The files are kept
/// until they are checked, even if the table no longer needs them.
pub struct TableCheck {
    files: Arc<dyn Files>,
    dir: PathBuf,
    /// Where the files are, if not in the directory.
    remote: Option<Arc<dyn FragmentStore>>,
    /// Problems of the tablets and chains themselves.
    problems: Vec<Problem>,
    tablets: u64,
    /// The files to check, the next one last.
    pending: Vec<NamedFile>,
    held: BTreeMap<FileName, Arc<Link>>,
}

/// A file that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedFile {
    pub report: FragmentReport,
    pub problems: Vec<Problem>,
}

impl TableCheck {
    /// Checks the tablets and chains of `table`. `held` keeps its files.
    pub(crate) fn new(
        files: &Arc<dyn Files>,
        dir: &Path,
        remote: Option<&Arc<dyn FragmentStore>>,
        table: &TableConfig,
        configs: &Configs,
        held: BTreeMap<FileName, Arc<Link>>,
    ) -> TableCheck {
        let mut report = Report::default();
        let mut pending = chains::check_table(dir, table, configs, &mut report);
        pending.reverse();
        TableCheck {
            files: files.clone(),
            dir: dir.to_path_buf(),
            remote: remote.cloned(),
            problems: report.problems,
            tablets: report.tablets,
            pending,
            held,
        }
    }

    /// Returns the contradictions found in the tablets and chains.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns the number of tablets.
    pub fn tablets(&self) -> u64 {
        self.tablets
    }

    /// Returns the number and the total size of the files not checked yet.
    pub fn pending(&self) -> (u64, u64) {
        (self.pending.len() as u64, self.pending.iter().map(|named| named.file.bytes).sum())
    }

    /// Reads and checks the next file; `None` after the last. Damage is part of the
    /// result; an error means that the file could not be checked.
    pub fn check_next(&mut self) -> Result<Option<CheckedFile>> {
        let Some(named) = self.pending.pop() else { return Ok(None) };
        let mut problems = Vec::new();
        let report = named.check(&self.files, &self.dir, self.remote.as_ref(), &mut problems)?;
        self.held.remove(&named.file.name);
        Ok(Some(CheckedFile { report, problems }))
    }
}
