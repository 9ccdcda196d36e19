//! The file of records that could not be imported, with the reasons, as lines of JSON.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Value, json};

/// Created with the first record.
pub struct Rejects {
    path: PathBuf,
    file: Option<File>,
    /// The length of what was written.
    bytes: u64,
    pub count: u64,
}

impl Rejects {
    /// Continues a file of this length, discarding what an interrupted import wrote after it.
    pub fn open(path: PathBuf, bytes: u64, count: u64) -> anyhow::Result<Rejects> {
        let mut rejects = Rejects { path, file: None, bytes, count };
        if bytes > 0 {
            rejects.open_file()?.set_len(bytes)?;
        } else if rejects.path.exists() {
            rejects.open_file()?.set_len(0)?;
        }
        Ok(rejects)
    }

    fn open_file(&mut self) -> anyhow::Result<&mut File> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            let options = options.create(true).write(true).truncate(false);
            let file = options.open(&self.path);
            self.file = Some(file.with_context(|| format!("{}", self.path.display()))?);
        }
        Ok(self.file.as_mut().expect("it was just opened"))
    }

    /// Adds a record.
    pub fn add(&mut self, number: u64, reason: &str, record: &Value) -> anyhow::Result<()> {
        let mut line = json!({"record": number, "reason": reason, "fields": record}).to_string();
        line.push('\n');
        let at = self.bytes;
        let file = self.open_file()?;
        file.seek(SeekFrom::Start(at))?;
        file.write_all(line.as_bytes())?;
        self.bytes += line.len() as u64;
        self.count += 1;
        Ok(())
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
