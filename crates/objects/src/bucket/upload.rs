//! Uploads of large files in parts.

use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{
    Error as StoreError, MultipartId, MultipartUpload, PutMultipartOptions, PutPayload,
};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Bucket, Digest};
use crate::Result;
use crate::counters::{Outcome, Request};

/// An upload under way. It becomes visible when it is completed.
pub struct Upload {
    key: String,
    path: Path,
    target: Target,
}

enum Target {
    /// Parts may be sent in any order and again.
    Parts(MultipartId),
    /// Parts are written in order to a file that gets its name at the end.
    File(Mutex<Box<dyn MultipartUpload>>),
}

/// A part that the store has acknowledged.
pub struct Part(Option<PartId>);

impl Bucket {
    pub async fn begin_upload(&self, key: &str, until: Instant) -> Result<Upload> {
        let path = self.path(key);
        let target = match &self.parts {
            Some(parts) => {
                let id = self.retry(Request::Begin, until, || parts.create_multipart(&path));
                id.await.map(Target::Parts)
            }
            None => {
                let begin = self.retry(Request::Begin, until, || {
                    self.store.put_multipart_opts(&path, PutMultipartOptions::default())
                });
                begin.await.map(|upload| Target::File(Mutex::new(upload)))
            }
        };
        let target = target.map_err(|error| self.failed(Request::Begin, key, &error))?;
        Ok(Upload { key: key.into(), path, target })
    }

    /// Sends the part with this index. A directory takes parts in order only.
    pub async fn put_part(
        &self,
        upload: &Upload,
        index: usize,
        bytes: Bytes,
        until: Instant,
    ) -> Result<Part> {
        let sent = bytes.len() as u64;
        let outcome = match (&upload.target, &self.parts) {
            (Target::Parts(id), Some(parts)) => {
                let put = self.retry(Request::Part, until, || {
                    parts.put_part(&upload.path, id, index, PutPayload::from(bytes.clone()))
                });
                put.await.map(|part| Part(Some(part)))
            }
            (Target::File(file), _) => {
                let written = file.lock().await.put_part(PutPayload::from(bytes)).await;
                self.count(Request::Part, &written);
                written.map(|()| Part(None))
            }
            (Target::Parts(_), None) => unreachable!("only stores with parts begin such uploads"),
        };
        let part = outcome.map_err(|error| self.failed(Request::Part, &upload.key, &error))?;
        self.counters.sent_bytes.fetch_add(sent, std::sync::atomic::Ordering::Relaxed);
        Ok(part)
    }

    /// Makes the file visible. `parts` are in order; `digest` is that of the whole file. If
    /// an attempt is in doubt the file is read back.
    pub async fn complete_upload(
        &self,
        upload: &Upload,
        parts: Vec<Part>,
        digest: Digest,
        until: Instant,
    ) -> Result<()> {
        let ids: Vec<PartId> = parts.into_iter().filter_map(|part| part.0).collect();
        let mut earlier = 0;
        loop {
            let outcome = match (&upload.target, &self.parts) {
                (Target::Parts(id), Some(parts)) => {
                    let complete = self.retry(Request::Complete, until, || {
                        parts.complete_multipart(&upload.path, id, ids.clone())
                    });
                    complete.await.map(|_| ())
                }
                (Target::File(file), _) => {
                    let completed = file.lock().await.complete().await.map(|_| ());
                    self.count(Request::Complete, &completed);
                    completed
                }
                (Target::Parts(_), None) => {
                    unreachable!("only stores with parts begin such uploads")
                }
            };
            let error = match outcome {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // An upload that was completed by an earlier attempt is gone, and its file exists.
            let in_doubt = matches!(
                error,
                StoreError::AlreadyExists { .. }
                    | StoreError::Precondition { .. }
                    | StoreError::NotFound { .. }
            );
            if in_doubt && self.holds(&upload.key, digest, until).await? {
                return Ok(());
            }
            if !matches!(error, StoreError::AlreadyExists { .. }) {
                return Err(self.failed(Request::Complete, &upload.key, &error));
            }
            self.pause(Request::Complete, &upload.key, &mut earlier, until).await?;
        }
    }

    /// Gives up an upload. The store forgets its parts.
    pub async fn abort_upload(&self, upload: &Upload, until: Instant) -> Result<()> {
        let outcome = match (&upload.target, &self.parts) {
            (Target::Parts(id), Some(parts)) => {
                let abort =
                    self.retry(Request::Abort, until, || parts.abort_multipart(&upload.path, id));
                abort.await
            }
            (Target::File(file), _) => {
                let aborted = file.lock().await.abort().await;
                self.count(Request::Abort, &aborted);
                aborted
            }
            (Target::Parts(_), None) => unreachable!("only stores with parts begin such uploads"),
        };
        match outcome {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(Request::Abort, &upload.key, &error)),
        }
    }

    /// Reports whether parts may be sent at the same time.
    pub fn sends_parts_in_parallel(&self) -> bool {
        self.parts.is_some()
    }

    fn count<T>(&self, request: Request, outcome: &Result<T, StoreError>) {
        let outcome = if outcome.is_ok() { Outcome::Ok } else { Outcome::Error };
        self.counters.count(request, outcome);
    }
}
