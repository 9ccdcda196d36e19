//! Uploads of new files. Small ones are one conditional put at the end; large ones are
//! sent in parts while they are written.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::{Condvar, Mutex};
use stele_engine::config::FileName;
use stele_engine::world::{Done, FragmentSink};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::bucket::{Bucket, Digest, Part, Upload};
use crate::cache::{PART_BYTES, PartKey};
use crate::key;
use crate::objects::Shared;
use crate::reply::{Reply, closed};
use crate::{Error, Result};

/// Smaller files are sent by one request.
const WHOLE_BYTES_MAX: usize = 16 << 20;
/// The size of all parts but the last.
const SENT_PART_BYTES: usize = 8 << 20;
/// Parts of a file that are under way; a writer that is faster waits.
const PARTS_MAX: usize = 4;

pub struct Sink {
    shared: Arc<Shared>,
    name: FileName,
    /// Bytes that do not fill a part yet.
    tail: BytesMut,
    /// Full parts, until the file is too large for a single request.
    parts: Vec<Bytes>,
    upload: Option<UnboundedSender<Message>>,
    window: Arc<Window>,
    digest: Digest,
    /// Bytes that the cache does not have yet, and the number of their part.
    uncached: BytesMut,
    cached_parts: u32,
    /// A part could not be sent, so the file can no longer be completed.
    failed: bool,
    finished: bool,
}

enum Message {
    Part(Bytes),
    Finish(Digest, Reply<()>),
}

/// Parts under way, and the error that ended the upload.
#[derive(Default)]
struct Window {
    state: Mutex<WindowState>,
    changed: Condvar,
}

#[derive(Default)]
struct WindowState {
    under_way: usize,
    failure: Option<(io::ErrorKind, String)>,
}

impl Sink {
    pub fn new(shared: Arc<Shared>, name: FileName) -> Sink {
        Sink {
            shared,
            name,
            tail: BytesMut::new(),
            parts: Vec::new(),
            upload: None,
            window: Arc::default(),
            digest: Digest::default(),
            uncached: BytesMut::new(),
            cached_parts: 0,
            failed: false,
            finished: false,
        }
    }

    /// Adds a full part. Once there is too much for a single request the upload starts.
    fn add(&mut self, part: Bytes) -> io::Result<()> {
        if let Some(upload) = &self.upload {
            self.window.enter()?;
            return send(upload, Message::Part(part));
        }
        self.parts.push(part);
        if self.parts.len() * SENT_PART_BYTES >= WHOLE_BYTES_MAX {
            self.start_upload()?;
        }
        Ok(())
    }

    fn start_upload(&mut self) -> io::Result<()> {
        let (upload, messages) = unbounded_channel();
        let task =
            Task { shared: self.shared.clone(), name: self.name, window: self.window.clone() };
        self.shared.handle.spawn(task.run(messages));
        for part in std::mem::take(&mut self.parts) {
            self.window.enter()?;
            send(&upload, Message::Part(part))?;
        }
        self.upload = Some(upload);
        Ok(())
    }

    /// Writes full parts of the cache through.
    fn cache(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = PART_BYTES as usize - self.uncached.len();
            let (now, later) = bytes.split_at(bytes.len().min(space));
            self.uncached.extend_from_slice(now);
            bytes = later;
            if self.uncached.len() as u64 == PART_BYTES {
                self.cache_part();
            }
        }
    }

    fn cache_part(&mut self) {
        let key = PartKey { name: self.name, part: self.cached_parts };
        self.shared.cache.insert(key, &self.uncached);
        self.uncached.clear();
        self.cached_parts += 1;
    }
}

impl FragmentSink for Sink {
    /// Waits while too many parts are under way.
    fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.digest = self.digest.with(bytes);
        self.cache(bytes);
        while !bytes.is_empty() {
            let space = SENT_PART_BYTES - self.tail.len();
            let (now, later) = bytes.split_at(bytes.len().min(space));
            self.tail.extend_from_slice(now);
            bytes = later;
            if self.tail.len() == SENT_PART_BYTES {
                let part = std::mem::take(&mut self.tail).freeze();
                self.add(part).inspect_err(|_| self.failed = true)?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, done: Done<()>) {
        if self.failed {
            let error = self.window.enter().err().unwrap_or_else(closed);
            drop(self);
            return done(Err(error));
        }
        self.finished = true;
        if !self.uncached.is_empty() {
            self.cache_part();
        }
        let tail = std::mem::take(&mut self.tail).freeze();
        let (shared, name) = (self.shared.clone(), self.name);
        let reply = Reply::new(forget_if_failed(shared.clone(), name, done));
        let Some(upload) = self.upload.take() else {
            let mut chunks = std::mem::take(&mut self.parts);
            chunks.push(tail);
            self.shared.handle.spawn(async move {
                let until = shared.bucket.deadline();
                let object = key::of_fragment(name);
                let created = shared.bucket.create_own(&object, &chunks, until).await;
                reply.send(created.map_err(io::Error::from));
            });
            return;
        };
        // If the threads have stopped, the dropped message reports it.
        if !tail.is_empty() {
            let _ = upload.send(Message::Part(tail));
        }
        let _ = upload.send(Message::Finish(self.digest, reply));
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // The closed channel aborts an upload.
        if !self.finished {
            self.shared.cache.forget_file(self.name);
        }
    }
}

fn forget_if_failed(shared: Arc<Shared>, name: FileName, done: Done<()>) -> Done<()> {
    Box::new(move |outcome| {
        if outcome.is_err() {
            shared.cache.forget_file(name);
        }
        done(outcome);
    })
}

fn send(upload: &UnboundedSender<Message>, message: Message) -> io::Result<()> {
    upload.send(message).map_err(|_| closed())
}

impl Window {
    /// Waits until another part may be sent. Fails if the upload has failed.
    fn enter(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        loop {
            if let Some((kind, why)) = &state.failure {
                return Err(io::Error::new(*kind, why.clone()));
            }
            if state.under_way < PARTS_MAX {
                state.under_way += 1;
                return Ok(());
            }
            self.changed.wait(&mut state);
        }
    }

    fn leave(&self) {
        let mut state = self.state.lock();
        state.under_way = state.under_way.saturating_sub(1);
        self.changed.notify_all();
    }

    /// Ends the upload for the writer. The first error counts.
    fn fail(&self, kind: io::ErrorKind, why: String) {
        self.state.lock().failure.get_or_insert((kind, why));
        self.changed.notify_all();
    }
}

/// Parts under way, with their indices.
type Sending = JoinSet<Result<(usize, Part)>>;

/// An upload in parts.
struct Task {
    shared: Arc<Shared>,
    name: FileName,
    window: Arc<Window>,
}

impl Drop for Task {
    /// Wakes a writer that waits although the store has been closed.
    fn drop(&mut self) {
        let error = closed();
        self.window.fail(error.kind(), error.to_string());
    }
}

impl Task {
    async fn run(self, mut messages: UnboundedReceiver<Message>) {
        let bucket = self.shared.bucket.clone();
        let object = key::of_fragment(self.name);
        let upload = match bucket.begin_upload(&object, bucket.deadline()).await {
            Ok(upload) => Arc::new(upload),
            Err(error) => return self.refuse(messages, error).await,
        };
        let mut sending = JoinSet::new();
        let outcome = self.send_parts(&upload, &mut messages, &mut sending).await;
        if let Err(error) = &outcome {
            self.window.fail(error.kind(), error.to_string());
        }
        // An upload is aborted only after its last part: a late one would stay in the store.
        while sending.join_next().await.is_some() {}
        match outcome {
            Ok(Some((parts, digest, reply))) => {
                let until = bucket.deadline();
                let completed = bucket.complete_upload(&upload, parts, digest, until).await;
                let failed = completed.is_err();
                reply.send(completed.map_err(io::Error::from));
                if failed {
                    abort(&bucket, &upload).await;
                }
            }
            // The writer has dropped the file, or knows the error.
            Ok(None) => abort(&bucket, &upload).await,
            Err(error) => {
                tokio::join!(abort(&bucket, &upload), self.refuse(messages, error));
            }
        }
    }

    /// Sends parts until the writer finishes the file.
    async fn send_parts(
        &self,
        upload: &Arc<Upload>,
        messages: &mut UnboundedReceiver<Message>,
        sending: &mut Sending,
    ) -> Result<Option<(Vec<Part>, Digest, Reply<()>)>> {
        let mut sent = BTreeMap::new();
        let parallel = self.shared.bucket.sends_parts_in_parallel();
        let mut count = 0;
        loop {
            tokio::select! {
                biased;
                Some(ended) = sending.join_next() => {
                    let (index, part) = self.joined(ended)?;
                    sent.insert(index, part);
                }
                message = messages.recv(), if parallel || sending.is_empty() => match message {
                    None => return Ok(None),
                    Some(Message::Part(bytes)) => {
                        self.send_part(sending, upload, count, bytes);
                        count += 1;
                    }
                    Some(Message::Finish(digest, reply)) => {
                        while let Some(ended) = sending.join_next().await {
                            match self.joined(ended) {
                                Ok((index, part)) => _ = sent.insert(index, part),
                                Err(error) => {
                                    reply.send(Err(error.into()));
                                    return Ok(None);
                                }
                            }
                        }
                        return Ok(Some((sent.into_values().collect(), digest, reply)));
                    }
                }
            }
        }
    }

    fn send_part(&self, sending: &mut Sending, upload: &Arc<Upload>, index: usize, bytes: Bytes) {
        let (bucket, upload) = (self.shared.bucket.clone(), upload.clone());
        let window = self.window.clone();
        sending.spawn(async move {
            let until = bucket.deadline();
            let outcome = bucket.put_part(&upload, index, bytes, until).await;
            window.leave();
            Ok((index, outcome?))
        });
    }

    fn joined(
        &self,
        ended: Result<Result<(usize, Part)>, tokio::task::JoinError>,
    ) -> Result<(usize, Part)> {
        ended.unwrap_or_else(|error| {
            let address = self.shared.bucket.address().to_string();
            Err(Error::Threads { address, why: io::Error::other(error) })
        })
    }

    /// Reports an error to the writer, now or when it finishes.
    async fn refuse(&self, mut messages: UnboundedReceiver<Message>, error: Error) {
        let error = io::Error::from(error);
        self.window.fail(error.kind(), error.to_string());
        while let Some(message) = messages.recv().await {
            if let Message::Finish(_, reply) = message {
                reply.send(Err(io::Error::new(error.kind(), error.to_string())));
            }
        }
    }
}

async fn abort(bucket: &Bucket, upload: &Upload) {
    if let Err(error) = bucket.abort_upload(upload, bucket.deadline()).await {
        tracing::warn!(%error, "an upload was not aborted: its parts stay in the store");
    }
}
