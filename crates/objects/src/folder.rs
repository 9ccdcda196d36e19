//! A folder of files that are written once and read whole, for backups. All calls
//! block, on any thread.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::bucket::{Bucket, Digest, Part, Upload};
use crate::counters::Counters;
use crate::objects::{Stopping, start_threads, wait};
use crate::{Address, Error, Result, Settings};

/// The size of all parts but the last. A smaller file is sent by one request.
const PART_BYTES: usize = 8 << 20;

/// A folder in a bucket.
pub struct Folder {
    bucket: Arc<Bucket>,
    /// Dropped last: its tasks use the bucket.
    threads: Stopping,
}

impl Folder {
    /// Opens the folder at a URL. Sends no request.
    pub fn open(url: &str, settings: &Settings) -> Result<Folder> {
        let address = Address::parse(url)?;
        if !address.is_tested() {
            tracing::warn!(store = %address, "stores of this kind are not covered by Stele's tests");
        }
        let threads = start_threads(&address)?;
        let bucket = Arc::new(Bucket::connect(address, settings, Arc::new(Counters::default()))?);
        Ok(Folder { bucket, threads })
    }

    /// Returns the names and sizes of all files, in no particular order.
    pub fn list(&self) -> Result<Vec<(String, u64)>> {
        let bucket = self.bucket.clone();
        self.run(async move { bucket.list("", bucket.deadline()).await })
    }

    /// Returns bytes of a file.
    pub fn read(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let (bucket, name) = (self.bucket.clone(), name.to_string());
        self.run(async move { bucket.get(&name, range, bucket.deadline()).await })
    }

    /// Begins a file. It exists once it is finished.
    pub fn create(&self, name: &str) -> NewFile<'_> {
        NewFile {
            folder: self,
            name: name.to_string(),
            tail: BytesMut::new(),
            digest: Digest::default(),
            upload: None,
            parts: Vec::new(),
        }
    }

    /// Deletes a file. Succeeds if there is none.
    pub fn delete(&self, name: &str) -> Result<()> {
        let (bucket, name) = (self.bucket.clone(), name.to_string());
        self.run(async move { bucket.delete(&name, bucket.deadline()).await })
    }

    pub fn address(&self) -> &Address {
        self.bucket.address()
    }

    fn run<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let lost = || {
            let why = io::Error::other("a task of the store panicked");
            Error::Threads { address: self.bucket.address().to_string(), why }
        };
        wait(self.threads.handle(), request).unwrap_or_else(|| Err(lost()))
    }
}

/// A file that is being written. Nothing is left of one that is dropped.
pub struct NewFile<'f> {
    folder: &'f Folder,
    name: String,
    /// Bytes that do not fill a part yet.
    tail: BytesMut,
    digest: Digest,
    /// `None` while there is no more than one part.
    upload: Option<Arc<Upload>>,
    parts: Vec<Part>,
}

impl NewFile<'_> {
    /// Makes the file visible. It is durable.
    pub fn finish(mut self) -> Result<()> {
        let (bucket, name) = (self.folder.bucket.clone(), self.name.clone());
        if self.upload.is_none() {
            let bytes = [self.tail.split().freeze()];
            return self
                .folder
                .run(async move { bucket.create_own(&name, &bytes, bucket.deadline()).await });
        }
        if !self.tail.is_empty() {
            self.send()?;
        }
        let Some(upload) = self.upload.clone() else { return Ok(()) };
        let (parts, digest) = (std::mem::take(&mut self.parts), self.digest);
        self.folder.run(async move {
            bucket.complete_upload(&upload, parts, digest, bucket.deadline()).await
        })?;
        self.upload = None;
        Ok(())
    }

    /// Sends what has been gathered as the next part.
    fn send(&mut self) -> Result<()> {
        let bucket = self.folder.bucket.clone();
        let upload = match &self.upload {
            Some(upload) => upload.clone(),
            None => {
                let (bucket, name) = (bucket.clone(), self.name.clone());
                let begun = self
                    .folder
                    .run(async move { bucket.begin_upload(&name, bucket.deadline()).await });
                self.upload.insert(Arc::new(begun?)).clone()
            }
        };
        let (index, bytes) = (self.parts.len(), self.tail.split().freeze());
        let sent = self
            .folder
            .run(async move { bucket.put_part(&upload, index, bytes, bucket.deadline()).await });
        self.parts.push(sent?);
        Ok(())
    }
}

impl Write for NewFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.tail.len() == PART_BYTES {
            self.send().map_err(io::Error::from)?;
        }
        let taken = &bytes[..bytes.len().min(PART_BYTES - self.tail.len())];
        self.tail.extend_from_slice(taken);
        self.digest = self.digest.with(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        let Some(upload) = self.upload.take() else { return };
        let bucket = self.folder.bucket.clone();
        let aborted =
            self.folder.run(async move { bucket.abort_upload(&upload, bucket.deadline()).await });
        if let Err(error) = aborted {
            tracing::debug!(%error, "an upload that failed was not aborted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_once_it_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}", dir.path().display());
        let folder = Folder::open(&url, &Settings::new(dir.path(), 0)).unwrap();
        assert!(folder.list().unwrap().is_empty());
        let large: Vec<u8> = (0..2 * PART_BYTES + 100).map(|number| (number / 7) as u8).collect();
        for (name, bytes) in [("small", &large[..100]), ("parts", &large), ("empty", &large[..0])] {
            let mut unfinished = folder.create(name);
            unfinished.write_all(bytes).unwrap();
            drop(unfinished);
            assert!(folder.list().unwrap().iter().all(|(other, _)| other != name));
            let mut file = folder.create(name);
            file.write_all(bytes).unwrap();
            file.finish().unwrap();
            let size = bytes.len() as u64;
            assert!(folder.list().unwrap().contains(&(name.to_string(), size)));
            if size > 10 {
                let end = folder.read(name, size - 10..size).unwrap();
                assert_eq!(end, bytes[bytes.len() - 10..]);
            }
        }
        folder.delete("parts").unwrap();
        folder.delete("parts").unwrap();
        assert_eq!(folder.list().unwrap().len(), 2);
    }
}
