//! Backups of the metastore in a bucket of an object store.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use stele_metastore::backup::{self, Location, ReadSeek, is_backup_name};
use stele_metastore::{Error, Result};
use stele_objects::{Folder, Settings};

/// The schemes of URLs of buckets.
const SCHEMES: [&str; 3] = ["s3", "gs", "az"];
/// The bytes that one request reads.
const READ_BYTES: u64 = 4 << 20;

/// Opens a location of backups: a bucket or a directory. Credentials of a bucket come
/// from the environment, as those of `--store`. Sends no request.
pub fn open_location(text: &str) -> Result<Arc<dyn Location>> {
    match text.split_once("://") {
        Some((scheme, _)) if SCHEMES.contains(&scheme) => {
            // There is nothing to cache: files are read once.
            let settings = Settings::new(std::env::temp_dir(), 0);
            let folder = Folder::open(text, &settings).map_err(failed)?;
            Ok(Arc::new(Bucket(Arc::new(folder))))
        }
        _ => backup::open_location(text),
    }
}

struct Bucket(Arc<Folder>);

impl Location for Bucket {
    fn names(&self) -> Result<Vec<String>> {
        let files = self.0.list().map_err(failed)?.into_iter();
        let mut names: Vec<String> =
            files.map(|(name, _)| name).filter(|name| is_backup_name(name)).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadSeek>> {
        let files = self.0.list().map_err(failed)?;
        let Some((name, size)) = files.into_iter().find(|(other, _)| other == name) else {
            let place = self.describe();
            return Err(Error::Config(format!("{place} has no backup {name}")));
        };
        Ok(Box::new(FileInBucket {
            folder: self.0.clone(),
            name,
            size,
            at: 0,
            fetched: Bytes::new(),
        }))
    }

    fn create(
        &self,
        name: &str,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let mut file = self.0.create(name);
        write(&mut file)?;
        file.finish().map_err(failed)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.delete(name).map_err(failed)
    }

    fn describe(&self) -> String {
        self.0.address().to_string()
    }
}

/// A file that is read from its position on.
struct FileInBucket {
    folder: Arc<Folder>,
    name: String,
    size: u64,
    at: u64,
    /// Bytes that follow the position.
    fetched: Bytes,
}

impl Read for FileInBucket {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.fetched.is_empty() && self.at < self.size {
            let end = self.size.min(self.at + READ_BYTES);
            self.fetched = self.folder.read(&self.name, self.at..end).map_err(io::Error::from)?;
        }
        let length = out.len().min(self.fetched.len());
        self.fetched.copy_to_slice(&mut out[..length]);
        self.at += length as u64;
        Ok(length)
    }
}

impl Seek for FileInBucket {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(offset) => self.size.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        let at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        if at != self.at {
            self.fetched = Bytes::new();
        }
        self.at = at;
        Ok(at)
    }
}

fn failed(error: stele_objects::Error) -> Error {
    Error::Config(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_a_bucket_is_read_from_any_position() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}", dir.path().display());
        let folder = Folder::open(&url, &Settings::new(dir.path(), 0)).unwrap();
        let bucket = Bucket(Arc::new(folder));
        let bytes: Vec<u8> = (0..READ_BYTES as usize + 100).map(|at| (at / 7) as u8).collect();
        let name = "full-00000000000000000001.backup";
        bucket.create(name, &mut |out| out.write_all(&bytes).map_err(|_| Error::Stopped)).unwrap();
        let mut file = bucket.open(name).unwrap();
        let mut all = Vec::new();
        file.read_to_end(&mut all).unwrap();
        assert!(all == bytes);
        file.seek(SeekFrom::End(-50)).unwrap();
        let mut end = Vec::new();
        file.read_to_end(&mut end).unwrap();
        assert_eq!(end, bytes[bytes.len() - 50..]);
        // Half a file is not visible.
        bucket
            .create("full-00000000000000000002.backup", &mut |_| Err(Error::Stopped))
            .unwrap_err();
        bucket.remove(name).unwrap();
        assert_eq!(bucket.names().unwrap(), [""; 0]);
        assert!(bucket.open(name).is_err());
        assert!(open_location("s3://bucket?x").err().unwrap().to_string().contains("invalid"));
    }
}
