//! How far an import came: a small file beside the source, which is replaced as rows are
//! acknowledged and removed at the end.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

/// The progress of an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    version: u32,
    /// What is imported, and where to.
    pub job: Job,
    /// Everything before this position of the source is done.
    pub offset: u64,
    pub records: u64,
    pub rejected: u64,
    pub rejects_bytes: u64,
    /// The time of cells whose records have none.
    pub at_micros: i64,
}

/// Identifies an import: another one does not continue it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub table: String,
    pub endpoint: String,
    /// The size and the modification time of the source.
    pub bytes: u64,
    pub modified_micros: i64,
    /// The options that decide what a record becomes.
    pub options: String,
}

impl Job {
    pub fn new(
        source: &Path,
        table: String,
        endpoint: String,
        options: String,
    ) -> anyhow::Result<Job> {
        let found = fs::metadata(source).with_context(|| format!("{}", source.display()))?;
        if !found.is_file() {
            bail!("{} is not a file", source.display());
        }
        let modified = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let modified_micros = i64::try_from(modified.as_micros()).unwrap_or(i64::MAX);
        Ok(Job { table, endpoint, bytes: found.len(), modified_micros, options })
    }
}

impl Checkpoint {
    /// The beginning of an import.
    pub fn begin(job: Job, at_micros: i64) -> Checkpoint {
        let (version, offset, records) = (VERSION, 0, 0);
        Checkpoint { version, job, offset, records, rejected: 0, rejects_bytes: 0, at_micros }
    }

    /// The path of the file for a source.
    pub fn path(source: &Path) -> PathBuf {
        with_suffix(source, ".import")
    }

    /// Reads the file of an interrupted import of the same job, if there is one.
    pub fn read(path: &Path, job: &Job) -> anyhow::Result<Option<Checkpoint>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("{}", path.display())),
        };
        let hint = "remove it, or pass --restart, to import everything again";
        let Ok(found) = serde_json::from_str::<Checkpoint>(&text) else {
            bail!("{} is not the progress of an import: {hint}", path.display());
        };
        if found.version != VERSION || found.job != *job {
            bail!(
                "{} belongs to another import, or the source has changed: {hint}",
                path.display()
            );
        }
        Ok(Some(found))
    }

    /// Replaces the file.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let partial = with_suffix(path, ".partial");
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&partial)?;
            file.write_all(&serde_json::to_vec(self).expect("it consists of text and numbers"))?;
            file.sync_data()?;
            fs::rename(&partial, path)
        };
        write().with_context(|| format!("{}", path.display()))
    }
}

pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_import_continues() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("a.csv");
        fs::write(&source, "key,f:q\n").unwrap();
        let job = |table: &str| {
            Job::new(&source, table.into(), "127.0.0.1:1".into(), "csv".into()).unwrap()
        };
        let path = Checkpoint::path(&source);
        assert_eq!(Checkpoint::read(&path, &job("t")).unwrap(), None);
        let begun = Checkpoint { offset: 7, ..Checkpoint::begin(job("t"), 5) };
        begun.write(&path).unwrap();
        assert_eq!(Checkpoint::read(&path, &job("t")).unwrap(), Some(begun));
        let other = Checkpoint::read(&path, &job("u")).unwrap_err().to_string();
        assert!(other.contains("another import"), "{other}");
        fs::write(&path, "{").unwrap();
        assert!(Checkpoint::read(&path, &job("t")).is_err());
    }
}
