//! Creates segments, reusing released ones where possible. A segment's space is
//! allocated ahead of use by writing zeros, which works on every file system;
//! syncs of its records then touch data alone.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::segment::{self, SegmentHeader};
use crate::error::{Error, Result};
use crate::world::{File, Files};

/// Source of the zeros; its size is that of one write.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A segment file and the number of bytes allocated on disk.
pub(super) struct SegmentFile {
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    /// A second handle, for the second of two groups that are under way: the
    /// kernel reports a failed write-back once per handle, possibly to a sync
    /// whose own bytes are sound.
    pub second: Arc<dyn File>,
    pub file_bytes: u64,
}

impl SegmentFile {
    /// Extends the file with zeros. A failure keeps what was allocated before
    /// it, and the next attempt continues from there.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<()> {
        while self.file_bytes < bytes {
            let step = (bytes - self.file_bytes).min(ZEROS.len() as u64);
            let written = self.file.write_all_at(&ZEROS[..step as usize], self.file_bytes);
            written.map_err(|error| Error::io("extending log segment", &self.path, error))?;
            self.file_bytes += step;
        }
        Ok(())
    }
}

/// The segments that are not in use yet.
pub(super) struct Pool {
    files: Arc<dyn Files>,
    dir: PathBuf,
    free: Vec<PathBuf>,
    free_max: usize,
    /// Segments prepared for use, in order.
    ready: VecDeque<SegmentFile>,
    sync: bool,
}

impl Pool {
    pub(super) fn new(files: Arc<dyn Files>, dir: &Path, free_max: usize, sync: bool) -> Pool {
        let (free, ready) = (Vec::new(), VecDeque::new());
        Pool { files, dir: dir.to_path_buf(), free, free_max, ready, sync }
    }

    /// Takes back an unused file, with its allocated space, for reuse; deletes
    /// it if there are enough.
    pub(super) fn release(&mut self, path: PathBuf) -> Result<()> {
        if self.free.len() < self.free_max {
            self.free.push(path);
            return Ok(());
        }
        self.files.remove(&path).map_err(|error| Error::io("removing log segment", &path, error))
    }

    /// Returns the allocated size of each prepared segment.
    pub(super) fn ready_bytes(&self) -> impl Iterator<Item = u64> {
        self.ready.iter().map(|space| space.file_bytes)
    }

    /// Returns the last prepared segment.
    pub(super) fn last_ready(&mut self) -> Option<&mut SegmentFile> {
        self.ready.back_mut()
    }

    /// Prepares another segment, with whatever space its file has. `sequence`
    /// is that of the next segment to be created.
    pub(super) fn prepare(&mut self, sequence: u64, incarnation: u64) -> Result<()> {
        let path = match self.free.last() {
            Some(path) => path.clone(),
            None => {
                let sequence = sequence + self.ready.len() as u64;
                self.dir.join(segment::unfinished_name(sequence, incarnation))
            }
        };
        let space = self.open(path)?;
        self.free.pop();
        self.ready.push_back(space);
        Ok(())
    }

    /// Moves a released segment of full size to the front of the prepared ones,
    /// because the last of those cannot grow. Returns whether there was one.
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

    /// Creates the segment whose first bytes are `head`: the header and the
    /// records synced with it. They are durable before the file gets its final
    /// name, and the name is durable on return.
    pub(super) fn create(&mut self, header: &SegmentHeader, head: &[u8]) -> Result<SegmentFile> {
        if self.ready.is_empty() {
            self.prepare(header.sequence, header.incarnation)?;
        }
        let mut space = self.ready.pop_front().expect("a segment was prepared just above");
        let path = self.dir.join(header.file_name());
        self.write_head(&space, head)
            .map_err(|error| Error::io("creating log segment", &space.path, error))?;
        self.files
            .rename(&space.path, &path)
            .map_err(|error| Error::io("renaming log segment to", &path, error))?;
        if self.sync {
            let synced = self.files.sync_dir(&self.dir);
            synced.map_err(|error| Error::io("syncing log directory", &self.dir, error))?;
        }
        space.path = path;
        space.file_bytes = space.file_bytes.max(head.len() as u64);
        Ok(space)
    }

    fn open(&self, path: PathBuf) -> Result<SegmentFile> {
        let open = || {
            let exists = self.files.exists(&path)?;
            let file = if exists { self.files.open(&path)? } else { self.files.create(&path)? };
            Ok((file.len()?, file, self.files.open(&path)?))
        };
        let (file_bytes, file, second) =
            open().map_err(|error| Error::io("creating log segment", &path, error))?;
        Ok(SegmentFile { path, file, second, file_bytes })
    }

    fn write_head(&self, space: &SegmentFile, head: &[u8]) -> io::Result<()> {
        space.file.write_all_at(head, 0)?;
        if self.sync {
            space.file.sync_data()?;
        }
        Ok(())
    }
}
