//! Makes segments, out of released ones where it can. Writing into blocks that
//! are allocated and written already lets a sync touch data alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::segment::{self, SegmentHeader};
use crate::error::{Error, Result};
use crate::world::{File, Files};

pub(super) struct Pool {
    files: Arc<dyn Files>,
    dir: PathBuf,
    free: Vec<PathBuf>,
    free_max: usize,
    sync: bool,
}

impl Pool {
    pub(super) fn new(files: Arc<dyn Files>, dir: &Path, free_max: usize, sync: bool) -> Pool {
        Pool { files, dir: dir.to_path_buf(), free: Vec::new(), free_max, sync }
    }

    /// Takes back a file that nothing needs any more.
    pub(super) fn give(&mut self, path: PathBuf) -> Result<()> {
        if self.free.len() < self.free_max {
            self.free.push(path);
            return Ok(());
        }
        self.files.remove(&path).map_err(|error| Error::io("removing log segment", &path, error))
    }

    /// Makes the segment whose first bytes are `head`: the header and the
    /// records synced with it. They are durable before the file has its name,
    /// and the name is durable when this returns.
    pub(super) fn make(
        &mut self,
        header: &SegmentHeader,
        head: &[u8],
    ) -> Result<(PathBuf, Arc<dyn File>)> {
        let unfinished = match self.free.pop() {
            Some(path) => path,
            None => self.dir.join(segment::unfinished_name(header.sequence, header.epoch)),
        };
        let path = self.dir.join(header.file_name());
        let file = self
            .write_head(&unfinished, head)
            .map_err(|error| Error::io("making log segment", &unfinished, error))?;
        self.files
            .rename(&unfinished, &path)
            .map_err(|error| Error::io("naming log segment", &path, error))?;
        if self.sync {
            let synced = self.files.sync_dir(&self.dir);
            synced.map_err(|error| Error::io("syncing log directory", &self.dir, error))?;
        }
        Ok((path, file))
    }

    fn write_head(&self, path: &Path, head: &[u8]) -> std::io::Result<Arc<dyn File>> {
        let file = if self.files.exists(path)? {
            self.files.open(path)?
        } else {
            self.files.create(path)?
        };
        file.write_all_at(head, 0)?;
        if self.sync {
            file.sync_data()?;
        }
        Ok(file)
    }
}
