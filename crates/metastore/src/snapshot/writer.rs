//! Writes a snapshot in blobs, reading the node in batches, so that a member
//! does not need memory for the whole.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use ring::digest::{Context, SHA256};

use super::{BLOCK_BYTES, MAGIC, record};
use crate::Node;
use crate::auth::AuthState;
use crate::command::{KeyRange, RangeQuery};
use crate::error::Result;
use crate::proto::etcd::{KeyValue, LeaseTimeToLiveResponse, ResponseHeader};
use crate::state::{Floor, KeyView, RangeScan};
use crate::wire::{self, Fields};

/// The size of one blob.
const BLOB_BYTES: usize = 32 << 10;
/// The approximate size of one read of keys.
const READ_BYTES: usize = 256 << 10;

/// A snapshot being written.
pub struct Writer {
    /// The keys that have not been read; `None` when all have been.
    keys: Option<RangeScan>,
    /// Written and not returned yet.
    open: BytesMut,
    /// The number of zeros after the last record.
    padding: usize,
    /// Bytes before the checksum that have not been returned.
    left: u64,
    /// The checksum of what has been returned; `None` once it was returned itself.
    digest: Option<Context>,
}

impl Writer {
    /// Starts a snapshot at the revision of `header`. Reads all keys once to
    /// measure them; they are read again as the snapshot is written.
    pub async fn open(node: &Node, header: &ResponseHeader) -> Result<Writer> {
        let open = front(node, header);
        let query = RangeQuery::new(KeyRange::all()).at(header.revision);
        let mut bytes = open.len();
        let mut scan = node.reader(Floor::InProgress).open(&query)?;
        let measure = &mut |view: KeyView<'_>| bytes += wire::field_len(view.wire_len());
        while scan.next(READ_BYTES, measure)?.is_none() {
            tokio::task::yield_now().await;
        }
        let whole = bytes.next_multiple_of(BLOCK_BYTES);
        Ok(Writer {
            keys: Some(node.reader(Floor::InProgress).open(&query)?),
            open,
            padding: whole - bytes,
            left: whole as u64,
            digest: Some(Context::new(&SHA256)),
        })
    }

    /// Returns the number of bytes, without the checksum, that have not been
    /// returned.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns the next blob. The checksum is the last.
    pub fn next_blob(&mut self) -> Result<Option<Bytes>> {
        self.fill()?;
        if self.open.is_empty() {
            let digest = self.digest.take().map(Context::finish);
            return Ok(digest.map(|digest| Bytes::copy_from_slice(digest.as_ref())));
        }
        let blob = self.open.split_to(self.open.len().min(BLOB_BYTES));
        if let Some(digest) = &mut self.digest {
            digest.update(&blob);
        }
        self.left = self.left.saturating_sub(blob.len() as u64);
        Ok(Some(blob.freeze()))
    }

    /// Reads keys until there is a whole blob, or no more keys.
    fn fill(&mut self) -> Result<()> {
        while let Some(keys) = &mut self.keys
            && self.open.len() < BLOB_BYTES
        {
            let open = &mut self.open;
            let sink = &mut |view: KeyView<'_>| {
                open.key_value(record::KEY_VALUE, view.key, view.tail);
            };
            if keys.next(READ_BYTES, sink)?.is_some() {
                self.keys = None;
                self.open.put_bytes(0, self.padding);
            }
        }
        Ok(())
    }
}

/// Returns the part before the keys.
fn front(node: &Node, header: &ResponseHeader) -> BytesMut {
    let mut front = BytesMut::new();
    front.put_slice(MAGIC);
    front.message(record::HEADER, &header.encode_to_vec());
    for id in node.leases().list() {
        let Some(status) = node.leases().time_to_live(id) else { continue };
        let lease = LeaseTimeToLiveResponse {
            id,
            granted_ttl: status.granted_seconds,
            ..Default::default()
        };
        front.message(record::LEASE, &lease.encode_to_vec());
    }
    for (row, value) in node.auth().get().changed_rows(&AuthState::default()) {
        let (key, value) = (row.into(), value.unwrap_or_default().into());
        let record = KeyValue { key, value, ..Default::default() };
        front.message(record::AUTH, &record.encode_to_vec());
    }
    front
}
