//! The Snapshot method: a snapshot (`crate::snapshot`) as a stream of messages.

use stele_grpc::frame;

use super::generate::generate;
use super::proto::SnapshotResponse;
use super::rpc::FramedResponse;
use super::{CLUSTER_VERSION, Etcd};
use crate::Result;
use crate::auth::Access;
use crate::command::Caller;
use crate::snapshot::Writer;

pub async fn stream(etcd: &Etcd, caller: Option<&Caller>) -> Result<FramedResponse> {
    etcd.node().barrier().await?;
    etcd.by(caller).permit(Access::Root)?;
    let etcd = etcd.clone();
    Ok(FramedResponse::Many(generate(move |out| async move {
        let header = etcd.header(etcd.node().revision()).message();
        let mut writer = Writer::open(etcd.node(), &header).await?;
        while let Some(blob) = writer.next_blob()? {
            let message = SnapshotResponse {
                header: Some(header),
                remaining_bytes: writer.left(),
                blob,
                version: CLUSTER_VERSION.into(),
            };
            out.send(frame::encode(&message)).await;
        }
        Ok(())
    })))
}
