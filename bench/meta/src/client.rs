//! A connection to an etcd endpoint. Errors are strings, for the report.

use tonic::transport::{Channel, Endpoint};

/// Users and roles, which the benchmark does not use.
#[allow(dead_code)]
pub mod authpb {
    tonic::include_proto!("authpb");
}

/// Keys, values and events.
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// Requests and responses, named as the protocol names them.
#[allow(clippy::large_enum_variant, clippy::enum_variant_names)]
pub mod pb {
    tonic::include_proto!("etcdserverpb");
}

#[derive(Clone)]
pub struct Client {
    kv: pb::kv_client::KvClient<Channel>,
    pub lease: pb::lease_client::LeaseClient<Channel>,
    pub watch: pb::watch_client::WatchClient<Channel>,
}

impl Client {
    pub async fn connect(target: &str) -> Client {
        let endpoint =
            Endpoint::from_shared(format!("http://{target}")).expect("--target host:port");
        let channel = endpoint.connect().await.expect("connect to --target");
        Client {
            kv: pb::kv_client::KvClient::new(channel.clone()).max_decoding_message_size(1 << 30),
            lease: pb::lease_client::LeaseClient::new(channel.clone()),
            watch: pb::watch_client::WatchClient::new(channel),
        }
    }

    pub async fn put(&mut self, request: pb::PutRequest) -> Result<pb::PutResponse, String> {
        let answer = self.kv.put(request).await;
        answer.map(|answer| answer.into_inner()).map_err(text)
    }

    pub async fn range(&mut self, request: pb::RangeRequest) -> Result<pb::RangeResponse, String> {
        let answer = self.kv.range(request).await;
        answer.map(|answer| answer.into_inner()).map_err(text)
    }

    pub async fn txn(&mut self, request: pb::TxnRequest) -> Result<pb::TxnResponse, String> {
        let answer = self.kv.txn(request).await;
        answer.map(|answer| answer.into_inner()).map_err(text)
    }
}

pub fn text(status: tonic::Status) -> String {
    status.to_string()
}
