//! The Snapshot stream: all keys and leases at one revision, in a format of our
//! own (docs/etcd.md). Read in batches, so that a member does not need memory
//! for the whole.

use bytes::{BufMut, BytesMut};
use prost::Message;
use ring::digest::{Context, SHA256};
use tonic::Status;

use super::generate::{Out, generate};
use super::header::Header;
use super::proto::{LeaseTimeToLiveResponse, SnapshotResponse};
use super::rpc::Answer;
use super::wire::{self, Fields};
use super::{CLUSTER_VERSION, Etcd};
use crate::Result;
use crate::command::{KeyRange, RangeQuery};
use crate::snapshot::{BLOCK_BYTES, MAGIC, record};
use crate::state::{Floor, KeyView};

/// The size of one message.
const BLOB_BYTES: usize = 32 << 10;
/// The approximate size of one read of keys.
const READ_BYTES: usize = 256 << 10;

pub async fn stream(etcd: &Etcd) -> Result<Answer> {
    etcd.node().barrier().await?;
    let etcd = etcd.clone();
    Ok(Answer::Many(generate(move |out| async move {
        let header = etcd.header(etcd.node().revision());
        let front = front(&etcd, header);
        let query = RangeQuery::new(KeyRange::all()).at(header.revision);
        let node = etcd.node();
        // Read the keys once to measure them, and again to send them.
        let mut left = front.len();
        let mut scan = node.reader(Floor::Begun).open(&query)?;
        let measure = &mut |view: KeyView<'_>| left += wire::field_len(view.wire_len());
        while scan.next(READ_BYTES, measure)?.is_none() {
            tokio::task::yield_now().await;
        }
        let whole = left.next_multiple_of(BLOCK_BYTES);
        let (left, filling) = (whole as u64, whole - left);
        let digest = Context::new(&SHA256);
        let mut blobs = Blobs { out, header, left, digest, open: front };
        let mut scan = node.reader(Floor::Begun).open(&query)?;
        loop {
            let open = &mut blobs.open;
            let sink = &mut |view: KeyView<'_>| {
                open.key_value(record::KEY_VALUE, view.key, view.tail);
            };
            let end = scan.next(READ_BYTES, sink)?;
            blobs.send_full().await;
            if end.is_some() {
                blobs.open.put_bytes(0, filling);
                return blobs.end().await;
            }
        }
    })))
}

/// Returns the part before the keys.
fn front(etcd: &Etcd, header: Header) -> BytesMut {
    let mut front = BytesMut::new();
    front.put_slice(MAGIC);
    front.message(record::HEADER, &header.message().encode_to_vec());
    for id in etcd.node().leases().list() {
        let Some(status) = etcd.node().leases().time_to_live(id) else { continue };
        let lease = LeaseTimeToLiveResponse {
            id,
            granted_ttl: status.granted_seconds,
            ..Default::default()
        };
        front.message(record::LEASE, &lease.encode_to_vec());
    }
    front
}

/// Splits the written bytes into messages.
struct Blobs {
    out: Out,
    header: Header,
    left: u64,
    digest: Context,
    open: BytesMut,
}

impl Blobs {
    async fn send_full(&mut self) {
        while self.open.len() >= BLOB_BYTES {
            let blob = self.open.split_to(BLOB_BYTES);
            self.send(blob).await;
        }
    }

    async fn send(&mut self, blob: BytesMut) {
        self.digest.update(&blob);
        self.left = self.left.saturating_sub(blob.len() as u64);
        let message = SnapshotResponse {
            header: Some(self.header.message()),
            remaining_bytes: self.left,
            blob: blob.freeze(),
            version: CLUSTER_VERSION.into(),
        };
        self.out.send(wire::framed(&message)).await;
    }

    /// Sends the rest, and the checksum.
    async fn end(mut self) -> Result<(), Status> {
        self.send_full().await;
        let rest = std::mem::take(&mut self.open);
        if !rest.is_empty() {
            self.send(rest).await;
        }
        let digest = self.digest.clone().finish();
        let blob = BytesMut::from(digest.as_ref());
        self.send(blob).await;
        Ok(())
    }
}
