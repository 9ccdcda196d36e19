//! Makes segments, out of released ones where it can. A segment is made ready
//! before it is needed: its room is taken by writing zeros, which every file
//! system understands, and a sync of records in it then touches data alone.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::segment::{self, SegmentHeader};
use crate::error::{Error, Result};
use crate::world::{File, Files};

/// Zeros are written in steps of this.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A file that records go into, and how much of it is on disk.
pub(super) struct Space {
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    pub file_bytes: u64,
}

impl Space {
    /// Makes the file longer, with zeros. What was gained before a failure
    /// counts, and the next try goes on there.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<()> {
        while self.file_bytes < bytes {
            let step = (bytes - self.file_bytes).min(ZEROS.len() as u64);
            let written = self.file.write_all_at(&ZEROS[..step as usize], self.file_bytes);
            written.map_err(|error| Error::io("making room in log segment", &self.path, error))?;
            self.file_bytes += step;
        }
        Ok(())
    }
}

pub(super) struct Pool {
    files: Arc<dyn Files>,
    dir: PathBuf,
    free: Vec<PathBuf>,
    free_max: usize,
    /// Segments to come, in order.
    ready: VecDeque<Space>,
    sync: bool,
}

impl Pool {
    pub(super) fn new(files: Arc<dyn Files>, dir: &Path, free_max: usize, sync: bool) -> Pool {
        let (free, ready) = (Vec::new(), VecDeque::new());
        Pool { files, dir: dir.to_path_buf(), free, free_max, ready, sync }
    }

    /// Takes back a file that nothing needs any more. It keeps its room.
    pub(super) fn give(&mut self, path: PathBuf) -> Result<()> {
        if self.free.len() < self.free_max {
            self.free.push(path);
            return Ok(());
        }
        self.files.remove(&path).map_err(|error| Error::io("removing log segment", &path, error))
    }

    /// How much of each segment to come is on disk.
    pub(super) fn ready_bytes(&self) -> impl Iterator<Item = u64> {
        self.ready.iter().map(|space| space.file_bytes)
    }

    /// The last of the segments to come.
    pub(super) fn last_ready(&mut self) -> Option<&mut Space> {
        self.ready.back_mut()
    }

    /// Adds a segment to those to come, with the room that its file has.
    /// `sequence` is the next that will be made.
    pub(super) fn prepare(&mut self, sequence: u64, epoch: u64) -> Result<()> {
        let path = match self.free.last() {
            Some(path) => path.clone(),
            None => {
                let sequence = sequence + self.ready.len() as u64;
                self.dir.join(segment::unfinished_name(sequence, epoch))
            }
        };
        let space = self.open(path)?;
        self.free.pop();
        self.ready.push_back(space);
        Ok(())
    }

    /// Puts a released segment of full size before the others to come, of which
    /// the last one cannot grow. Tells whether there was one.
    pub(super) fn prepare_released(&mut self, segment_bytes: u64) -> Result<bool> {
        for at in (0..self.free.len()).rev() {
            let space = self.open(self.free[at].clone())?;
            if space.file_bytes >= segment_bytes {
                self.free.remove(at);
                self.ready.push_front(space);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the segment whose first bytes are `head`: the header and the
    /// records synced with it. They are durable before the file has its name,
    /// and the name is durable when this returns.
    pub(super) fn make(&mut self, header: &SegmentHeader, head: &[u8]) -> Result<Space> {
        if self.ready.is_empty() {
            self.prepare(header.sequence, header.epoch)?;
        }
        let mut space = self.ready.pop_front().expect("one was made ready just now");
        let path = self.dir.join(header.file_name());
        self.write_head(&space, head)
            .map_err(|error| Error::io("making log segment", &space.path, error))?;
        self.files
            .rename(&space.path, &path)
            .map_err(|error| Error::io("naming log segment", &path, error))?;
        if self.sync {
            let synced = self.files.sync_dir(&self.dir);
            synced.map_err(|error| Error::io("syncing log directory", &self.dir, error))?;
        }
        space.path = path;
        space.file_bytes = space.file_bytes.max(head.len() as u64);
        Ok(space)
    }

    fn open(&self, path: PathBuf) -> Result<Space> {
        let open = || {
            let exists = self.files.exists(&path)?;
            let file = if exists { self.files.open(&path)? } else { self.files.create(&path)? };
            Ok((file.len()?, file))
        };
        let (file_bytes, file) =
            open().map_err(|error| Error::io("making log segment", &path, error))?;
        Ok(Space { path, file, file_bytes })
    }

    fn write_head(&self, space: &Space, head: &[u8]) -> io::Result<()> {
        space.file.write_all_at(head, 0)?;
        if self.sync {
            space.file.sync_data()?;
        }
        Ok(())
    }
}
