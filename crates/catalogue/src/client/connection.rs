//! The calls on catalogues.

use stele_grpc::{Pending, Services, Tls, Transport};
use tonic::Status;
use tonic::client::Grpc;

use super::handle::Handle;
use crate::fid::Fid;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::proto::catalogues_client::CataloguesClient;
use crate::proto::*;

pub type Result<T, E = Status> = std::result::Result<T, E>;

/// A client of the catalogues of one server. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
}

impl Client {
    /// Connects to `host:port` in plain text, or `https://host` with TLS.
    pub fn connect<'a>(endpoint: &'a str, tls: &'a Tls) -> Pending<'a, Result<Client>> {
        Box::pin(async move { Ok(Client { transport: Transport::connect(endpoint, tls).await? }) })
    }

    /// Calls services of this process.
    pub fn in_process(services: impl Into<Services>) -> Client {
        Client { transport: Transport::InProcess(services.into()) }
    }

    /// Returns a client for calls whose messages are encoded here.
    pub(super) async fn grpc(&self) -> Result<Grpc<Transport>> {
        let mut grpc = Grpc::new(self.transport.clone())
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
            .max_decoding_message_size(2 * MESSAGE_BYTES_MAX);
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(grpc)
    }

    pub(super) fn calls(&self) -> CataloguesClient<Transport> {
        CataloguesClient::new(self.transport.clone())
            .max_decoding_message_size(2 * MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Returns a handle to a catalogue without calling the server.
    pub fn catalogue(&self, fid: Fid) -> Handle {
        Handle::new(self.clone(), fid)
    }

    pub fn create<'a>(
        &'a self,
        fids: &'a [Fid],
        flags: u32,
    ) -> Pending<'a, Result<CataloguesReply>> {
        Box::pin(async move {
            let request = CreateRequest { fids: wire(fids), flags };
            Ok(self.calls().create(request).await?.into_inner())
        })
    }

    pub fn delete<'a>(
        &'a self,
        fids: &'a [Fid],
        flags: u32,
    ) -> Pending<'a, Result<CataloguesReply>> {
        Box::pin(async move {
            let request = DeleteRequest { fids: wire(fids), flags };
            Ok(self.calls().delete(request).await?.into_inner())
        })
    }

    pub async fn lookup(&self, fids: &[Fid]) -> Result<CataloguesReply> {
        Ok(self.calls().lookup(LookupRequest { fids: wire(fids) }).await?.into_inner())
    }

    /// Lists catalogues in the order of their ids, from `start` or the first on.
    pub fn list(
        &self,
        start: Option<Fid>,
        count: u32,
        flags: u32,
    ) -> Pending<'_, Result<ListReply>> {
        Box::pin(async move {
            let start = start.map(|fid| fid.bytes().to_vec().into()).unwrap_or_default();
            Ok(self.calls().list(ListRequest { start, count, flags }).await?.into_inner())
        })
    }

    pub fn stat<'a>(&'a self, fids: &'a [Fid]) -> Pending<'a, Result<Vec<CatalogueStat>>> {
        Box::pin(async move {
            Ok(self.calls().stat(StatRequest { fids: wire(fids) }).await?.into_inner().stats)
        })
    }

    /// Pins the current snapshot for a while and returns its txn.
    pub fn pin(&self) -> Pending<'_, Result<u64>> {
        Box::pin(async move { Ok(self.calls().pin(PinRequest {}).await?.into_inner().txn) })
    }

    pub async fn unpin(&self, txn: u64) -> Result<bool> {
        Ok(self.calls().unpin(UnpinRequest { txn }).await?.into_inner().held)
    }

    /// Waits until a write that was made with NO_WAIT is durable.
    pub async fn fsync(&self, txn: u64) -> Result<u64> {
        Ok(self.calls().fsync(FsyncRequest { txn }).await?.into_inner().durable)
    }

    /// Waits until the records of all deleted catalogues have been removed.
    pub fn await_deathrow(&self) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            self.calls().await_deathrow(AwaitDeathrowRequest {}).await?;
            Ok(())
        })
    }
}

fn wire(fids: &[Fid]) -> Vec<bytes::Bytes> {
    fids.iter().map(|fid| bytes::Bytes::copy_from_slice(fid.bytes())).collect()
}
