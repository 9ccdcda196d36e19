//! Fetches snapshots by the method that etcd's tools use.

use std::io::Write;

use tonic::Streaming;

use super::{Client, Error, Result};
use crate::proto::etcd::{SnapshotRequest, SnapshotResponse};

impl Client {
    /// Writes a snapshot of all keys and leases (see `crate::snapshot`), with
    /// its checksum. Returns its length.
    pub async fn save_snapshot(&self, out: &mut impl Write) -> Result<u64> {
        let path = "/etcdserverpb.Maintenance/Snapshot";
        let mut messages: Streaming<SnapshotResponse> =
            self.stream_etcd(path, SnapshotRequest {}).await?;
        let mut bytes = 0;
        while let Some(message) = messages.message().await? {
            out.write_all(&message.blob).map_err(|error| Error::Write(error.to_string()))?;
            bytes += message.blob.len() as u64;
        }
        Ok(bytes)
    }
}
