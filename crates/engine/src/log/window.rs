//! A read window on a segment file: reads the file in large steps and returns
//! slices. Memory is bounded by one step or one record.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::world::File;

const STEP_BYTES: u64 = 1 << 20;

pub(super) struct Window<'a> {
    file: Arc<dyn File>,
    path: &'a Path,
    file_bytes: u64,
    chunk: Bytes,
    chunk_at: u64,
}

impl<'a> Window<'a> {
    pub(super) fn open(file: Arc<dyn File>, path: &'a Path) -> Result<Window<'a>> {
        let file_bytes = file.len().map_err(|error| reading(path, error))?;
        Ok(Window { file, path, file_bytes, chunk: Bytes::new(), chunk_at: 0 })
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Returns the bytes at `at`; `None` if the file ends before them. The
    /// slice shares the window's memory.
    pub(super) fn slice(&mut self, at: u64, bytes: usize) -> Result<Option<Bytes>> {
        if !self.load(at, bytes)? {
            return Ok(None);
        }
        let from = (at - self.chunk_at) as usize;
        Ok(Some(self.chunk.slice(from..from + bytes)))
    }

    /// Like `slice`, but borrows the bytes.
    pub(super) fn peek(&mut self, at: u64, bytes: usize) -> Result<Option<&[u8]>> {
        if !self.load(at, bytes)? {
            return Ok(None);
        }
        let from = (at - self.chunk_at) as usize;
        Ok(Some(&self.chunk[from..from + bytes]))
    }

    /// Loads `bytes` bytes at `at` into the chunk; returns false past the end.
    fn load(&mut self, at: u64, bytes: usize) -> Result<bool> {
        let Some(end) = at.checked_add(bytes as u64).filter(|end| *end <= self.file_bytes) else {
            return Ok(false);
        };
        if at >= self.chunk_at && end <= self.chunk_at + self.chunk.len() as u64 {
            return Ok(true);
        }
        let step = STEP_BYTES.max(bytes as u64).min(self.file_bytes - at);
        let mut chunk = vec![0; step as usize];
        self.file.read_exact_at(&mut chunk, at).map_err(|error| reading(self.path, error))?;
        self.chunk = Bytes::from(chunk);
        self.chunk_at = at;
        Ok(true)
    }
}

fn reading(path: &Path, error: std::io::Error) -> Error {
    Error::io("reading log segment", path, error)
}
