//! Fetches snapshots by the method that etcd's tools use.

use std::io::Write;

use http::uri::PathAndQuery;
use tonic::Request;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use super::{Client, Error, Result};
use crate::proto::etcd::{SnapshotRequest, SnapshotResponse};

impl Client {
    /// Writes a snapshot of all keys and leases (see `crate::snapshot`), with
    /// its checksum. Returns its length.
    pub async fn save_snapshot(&self, out: &mut impl Write) -> Result<u64> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| Error::Unknown(stele_grpc::chain(&error)))?;
        let path = PathAndQuery::from_static("/etcdserverpb.Maintenance/Snapshot");
        let codec = ProstCodec::<SnapshotRequest, SnapshotResponse>::default();
        let response = grpc.server_streaming(Request::new(SnapshotRequest {}), path, codec).await;
        let mut messages = response?.into_inner();
        let mut bytes = 0;
        while let Some(message) = messages.message().await? {
            out.write_all(&message.blob).map_err(|error| Error::Write(error.to_string()))?;
            bytes += message.blob.len() as u64;
        }
        Ok(bytes)
    }
}
