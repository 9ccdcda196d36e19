//! Receives a snapshot from the leader, piece by piece, and has it installed.

use super::member::ClusterMember;
use super::message::{SnapshotBegin, SnapshotChunk, SnapshotReply};
use super::outgoing::offload;
use super::snapshot::{SnapshotFile, Staging};
use super::types::{Snapshot, SnapshotMeta, StoredMembership, Vote};
use super::{Machine, Position};
use crate::error::{Error, Result};

/// A snapshot that is being received.
pub struct Incoming {
    from: u64,
    position: Position,
    membership: StoredMembership,
    files: Vec<SnapshotFile>,
    /// `None` while a piece is being written, and if that has failed.
    staging: Option<Box<dyn Staging>>,
    /// What has been received: all files before this one, and so many of its bytes.
    file: usize,
    offset: u64,
}

impl Incoming {
    fn next(&mut self) -> SnapshotReply {
        // Empty files need no piece.
        while self.files.get(self.file).is_some_and(|file| file.bytes == self.offset) {
            (self.file, self.offset) = (self.file + 1, 0);
        }
        let file = u32::try_from(self.file).unwrap_or(u32::MAX);
        SnapshotReply::Next { file, offset: self.offset }
    }

    fn is_complete(&self) -> bool {
        self.file == self.files.len()
    }
}

impl<M: Machine> ClusterMember<M> {
    /// Prepares to receive a snapshot, or resumes one that was interrupted.
    pub(super) async fn begin_snapshot(&self, from: u64, begin: SnapshotBegin) -> SnapshotReply {
        if let Some(vote) = self.newer_vote(begin.vote) {
            return SnapshotReply::Vote(vote);
        }
        if begin.position.index <= self.shared.callers.applied() {
            return SnapshotReply::Vote(begin.vote);
        }
        let mut incoming = self.incoming.lock().await;
        let resumes = |incoming: &&mut Incoming| {
            let staged = incoming.staging.is_some();
            staged && (incoming.from, incoming.position) == (from, begin.position)
        };
        if let Some(incoming) = incoming.as_mut().filter(resumes) {
            return incoming.next();
        }
        // Frees the directory of the previous one.
        *incoming = None;
        let SnapshotBegin { position, membership, description, files, .. } = begin;
        let (machine, staged) = (self.machine.clone(), files.clone());
        let receive = move || machine.receive(description, staged);
        match offload(self.offloads, receive).await {
            Err(error) => failed(&error),
            Ok(staging) => {
                let staging = Some(staging);
                let mut new =
                    Incoming { from, position, membership, files, staging, file: 0, offset: 0 };
                let next = new.next();
                *incoming = Some(new);
                next
            }
        }
    }

    /// Stores a piece, if it is the next one, and says where to go on.
    pub(super) async fn write_snapshot(&self, from: u64, chunk: SnapshotChunk) -> SnapshotReply {
        let mut incoming = self.incoming.lock().await;
        let expected =
            |incoming: &&mut Incoming| (incoming.from, incoming.position) == (from, chunk.position);
        let Some(incoming) = incoming.as_mut().filter(expected) else {
            return SnapshotReply::Failed("no such snapshot is being received".into());
        };
        let next = (incoming.file, incoming.offset) == (chunk.file as usize, chunk.offset);
        if !next {
            return incoming.next();
        }
        let fits = incoming.files.get(incoming.file).is_some_and(|file| {
            chunk.offset.saturating_add(chunk.bytes.len() as u64) <= file.bytes
        });
        if !fits || chunk.bytes.is_empty() {
            return SnapshotReply::Failed("a piece does not fit into its file".into());
        }
        let Some(mut staging) = incoming.staging.take() else {
            return SnapshotReply::Failed("the snapshot could not be stored".into());
        };
        let (file, length) = (incoming.file, chunk.bytes.len() as u64);
        let write = move || {
            staging.write(file, &chunk.bytes)?;
            Ok(staging)
        };
        match offload(self.offloads, write).await {
            Err(error) => failed(&error),
            Ok(staging) => {
                incoming.staging = Some(staging);
                incoming.offset += length;
                incoming.next()
            }
        }
    }

    /// Installs the snapshot that has been received.
    pub(super) async fn end_snapshot(
        &self,
        from: u64,
        vote: Vote,
        position: Position,
    ) -> SnapshotReply {
        let mut incoming = self.incoming.lock().await;
        let complete = |incoming: &Incoming| {
            (incoming.from, incoming.position) == (from, position) && incoming.is_complete()
        };
        if !incoming.as_ref().is_some_and(complete) {
            return SnapshotReply::Failed("the snapshot is not complete".into());
        }
        let Some(Incoming { membership, staging: Some(staging), .. }) = incoming.take() else {
            return SnapshotReply::Failed("the snapshot could not be stored".into());
        };
        let meta = SnapshotMeta { last_log_id: position.log_id(), last_membership: membership };
        tracing::info!(index = position.index, "installing a snapshot");
        let snapshot = Snapshot { meta, snapshot: Some(staging) };
        match self.raft.install_full_snapshot(vote, snapshot).await {
            Ok(response) => SnapshotReply::Vote(response.vote),
            Err(error) => SnapshotReply::Failed(format!("installing the snapshot: {error}")),
        }
    }
}

fn failed(error: &Error) -> SnapshotReply {
    tracing::warn!(%error, "a snapshot is not received");
    SnapshotReply::Failed(error.to_string())
}

/// The machine of a group that never receives snapshots.
pub fn unsupported<T>() -> Result<T> {
    Err(Error::Internal("this machine has no snapshots".into()))
}
