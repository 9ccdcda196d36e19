//! A log on a disk that fails on demand, opened again and again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::faulty_disk::FaultyDisk;
use crate::error::{Error, Result};
use crate::log::{ItemKind, LogEnd, LogEntry, LogItem, LogOptions, LogReader, LogWriter};

/// A log directory on its own disk.
pub struct TestLog {
    pub disk: Arc<FaultyDisk>,
    pub options: LogOptions,
    incarnation: u64,
    pub head: u64,
}

impl TestLog {
    pub fn new(segment_bytes: u64) -> TestLog {
        let options = LogOptions { segment_bytes, ..LogOptions::default() };
        TestLog { disk: Arc::default(), options, incarnation: 0, head: 0 }
    }

    pub fn dir(&self) -> &'static Path {
        Path::new("/store/log")
    }

    pub fn read(&self) -> Result<(Vec<LogItem>, LogEnd)> {
        let mut items = Vec::new();
        let end = LogReader::open(&*self.disk, self.dir(), self.head)?.replay(|item| {
            items.push(item);
            Ok(())
        })?;
        Ok((items, end))
    }

    /// Returns the entries in the log, as (index, payload).
    pub fn entries(&self) -> Result<Vec<(u64, Bytes)>> {
        let (items, _) = self.read()?;
        let data = items.into_iter().filter(|item| item.kind == ItemKind::Data);
        Ok(data.map(|item| (item.index, item.payload)).collect())
    }

    /// Starts a new incarnation.
    pub fn start(&mut self) -> LogWriter {
        let (_, end) = self.read().unwrap();
        self.incarnation += 1;
        LogWriter::start(self.disk.clone(), self.dir(), self.incarnation, 42, end, &self.options)
            .unwrap()
    }

    pub fn last_segment(&self) -> PathBuf {
        self.read().unwrap().1.segments.pop().unwrap().path
    }
}

pub fn entry(index: u64, payload: impl Into<Bytes>) -> LogEntry {
    LogEntry { stream: 0, index, payload: payload.into() }
}

/// Returns a payload that differs from those of other indices in every byte.
pub fn payload(index: u64, bytes: usize) -> Bytes {
    (0..bytes).map(|at| (index as usize * 31 + at * 7 + at / 251) as u8).collect()
}

pub fn is_data_loss<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::DataLoss { .. }))
}
