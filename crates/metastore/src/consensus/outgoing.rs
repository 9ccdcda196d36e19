//! Sends the machine's state to a member that the log no longer reaches. One
//! checkpoint serves all members that need one, also when sending is interrupted
//! and resumed; the log after it is kept meanwhile.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_engine::fatal::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::log::RaftLog;
use super::message::{Request, SnapshotBegin, SnapshotChunk, SnapshotReply};
use super::outbox::Outbox;
use super::snapshot::Checkpoint;
use super::transport::Lane;
use super::types::Vote;
use crate::error::{Error, Result};

/// The bytes of a file in one message.
pub const CHUNK_BYTES: usize = 1 << 20;
/// A checkpoint that nobody has used for this long is released.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// How long a member may take to answer a message, and to install a snapshot.
const ANSWER_MAX: Duration = Duration::from_secs(7);
const INSTALL_MAX: Duration = Duration::from_secs(120);

/// Creates a checkpoint of the machine.
pub type Source = Box<dyn Fn() -> Result<Arc<dyn Checkpoint>> + Send + Sync>;

/// The snapshots that this member sends.
pub struct Outgoing {
    source: Source,
    log: RaftLog,
    held: Mutex<Option<Held>>,
    /// Held while a checkpoint is created, so that there is one.
    creating: tokio::sync::Mutex<()>,
    bytes_per_second: u64,
    /// Whether blocking work runs on other threads.
    offloads: bool,
}

struct Held {
    checkpoint: Arc<dyn Checkpoint>,
    used: Instant,
}

impl Outgoing {
    pub fn new(source: Source, log: RaftLog, bytes_per_second: u64, offloads: bool) -> Outgoing {
        let (held, creating) = (Mutex::new(None), tokio::sync::Mutex::default());
        Outgoing { source, log, held, creating, bytes_per_second, offloads }
    }

    /// Returns the entry that the checkpoint is as of, if there is one. Later
    /// entries must be kept.
    pub fn index(&self) -> Option<u64> {
        self.held.lock().as_ref().map(|held| held.checkpoint.index())
    }

    /// Releases a checkpoint that is no longer used.
    pub fn release_idle(&self) {
        let idle = |held: &mut Held| {
            Arc::strong_count(&held.checkpoint) == 1 && held.used.elapsed() >= IDLE_MAX
        };
        // Released without the lock.
        let idle = self.held.lock().take_if(idle);
        drop(idle);
    }

    /// Returns the checkpoint, or creates one if there is none of `index` or later.
    async fn checkpoint(self: &Arc<Self>, index: u64) -> Result<Arc<dyn Checkpoint>> {
        let _creating = self.creating.lock().await;
        if let Some(held) = self.held.lock().as_mut()
            && held.checkpoint.index() >= index
        {
            held.used = Instant::now();
            return Ok(held.checkpoint.clone());
        }
        let outgoing = self.clone();
        let checkpoint = offload(self.offloads, move || (outgoing.source)()).await?;
        if checkpoint.index() < index {
            return Err(Error::Internal("the checkpoint is older than what was flushed".into()));
        }
        let held = Held { checkpoint: checkpoint.clone(), used: Instant::now() };
        *self.held.lock() = Some(held);
        Ok(checkpoint)
    }

    /// Sends a snapshot as of entry `index` or a later one, and has it installed.
    /// Returns the receiver's vote. An attempt that fails is resumed by the next.
    pub async fn send(
        self: &Arc<Self>,
        outbox: &Outbox,
        to: u64,
        vote: Vote,
        index: u64,
    ) -> Result<Vote> {
        let checkpoint = self.checkpoint(index).await?;
        let (position, membership) = self.log.position_and_membership(checkpoint.index());
        let begin = SnapshotBegin {
            vote,
            position,
            membership,
            description: checkpoint.description(),
            files: checkpoint.files().to_vec(),
        };
        let bytes: u64 = begin.files.iter().map(|file| file.bytes).sum();
        tracing::info!(
            member = format_args!("{to:x}"),
            bytes,
            index = position.index,
            "sending a snapshot"
        );
        let request = Request::SnapshotBegin(begin).encode();
        let mut reply = call(outbox, to, request, ANSWER_MAX).await?;
        let (start, mut sent) = (Instant::now(), 0);
        loop {
            let (file, offset) = match reply {
                SnapshotReply::Next { file, offset } => (file as usize, offset),
                SnapshotReply::Vote(vote) => return Ok(vote),
                SnapshotReply::Failed(why) => return Err(Error::Internal(why)),
            };
            if file >= checkpoint.files().len() {
                let request = Request::SnapshotEnd { vote, position }.encode();
                reply = call(outbox, to, request, INSTALL_MAX).await?;
                continue;
            }
            let left = checkpoint.files()[file].bytes.saturating_sub(offset);
            let length = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let source = checkpoint.clone();
            let read = move || {
                let mut buffer = vec![0; length];
                source.read(file, offset, &mut buffer).map(|()| Bytes::from(buffer))
            };
            let bytes = offload(self.offloads, read).await?;
            sent += bytes.len() as u64;
            let chunk = SnapshotChunk { position, file: file as u32, offset, bytes };
            reply = call(outbox, to, Request::SnapshotChunk(chunk).encode(), ANSWER_MAX).await?;
            if let Some(held) = self.held.lock().as_mut() {
                held.used = Instant::now();
            }
            let due = Duration::from_secs_f64(sent as f64 / self.bytes_per_second.max(1) as f64);
            sleep(due.saturating_sub(start.elapsed())).await;
        }
    }
}

async fn call(
    outbox: &Outbox,
    to: u64,
    request: Bytes,
    answer_max: Duration,
) -> Result<SnapshotReply> {
    let called = timeout(answer_max, outbox.call(to, Lane::Snapshot, request)).await;
    let failed = |why: String| Error::Internal(format!("sending a snapshot to {to:x}: {why}"));
    let bytes = called.map_err(|_| failed(format!("no answer within {answer_max:?}")))?;
    let bytes = bytes.map_err(|why| failed(why.to_string()))?;
    SnapshotReply::decode(bytes).map_err(|what| failed(what.to_string()))
}

/// Runs blocking work on another thread, or here in the simulator.
pub async fn offload<T: Send + 'static>(
    offloads: bool,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if !offloads {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::Internal(format!("work on a snapshot failed: {error}"))),
    }
}
