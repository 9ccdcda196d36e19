//! A connection to a server, and the calls that need no state of their own.

use std::time::Duration;

use bytes::Bytes;
use stele_grpc::Pending;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

use super::token::{Token, TokenChannel};
use super::{
    ClusterStatusResponse, CreateBackupResponse, Error, GetClientResponse, HistoryResponse,
    KeyValue, Lock, Quota, Range, Result, Session, StatusResponse, TopRequest, TopResponse, Watch,
};
use crate::proto::native::metastore_client::MetastoreClient;
use crate::proto::native::{self as proto, snapshot_request};

/// The timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a response, which contains whole keys and values.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// The revision or time to read at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Newest,
    Revision(i64),
    /// Microseconds since 1970.
    Time(i64),
}

/// Keys of a range, in one response.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    pub kvs: Vec<KeyValue>,
    /// Whether there are more keys than the limit or the response allowed.
    pub more: bool,
    pub count: i64,
    pub revision: i64,
}

/// A connection. Clones share it.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) channel: Channel,
    pub(super) token: Token,
    api: MetastoreClient<TokenChannel>,
}

impl Client {
    /// Connects to an address such as `http://127.0.0.1:2379`.
    pub async fn connect(address: &str) -> Result<Client> {
        Client::connect_with(address, None).await
    }

    /// Connects over TLS, to an address that begins with `https://`.
    pub fn connect_with(
        address: &str,
        tls: Option<ClientTlsConfig>,
    ) -> Pending<'_, Result<Client>> {
        Box::pin(async move {
            let unreachable = |error: tonic::transport::Error| Error::Unreachable {
                address: address.to_string(),
                reason: stele_grpc::chain(&error),
            };
            let mut endpoint = Endpoint::from_shared(address.to_string()).map_err(unreachable)?;
            if let Some(tls) = tls {
                endpoint = endpoint.tls_config(tls).map_err(unreachable)?;
            }
            let endpoint = endpoint.tcp_nodelay(true).connect_timeout(CONNECT_TIMEOUT);
            Ok(Client::new(endpoint.connect().await.map_err(unreachable)?))
        })
    }

    pub fn new(channel: Channel) -> Client {
        Client::identified(channel, Token::default())
    }

    fn identified(channel: Channel, token: Token) -> Client {
        let api = MetastoreClient::with_interceptor(channel.clone(), token.clone());
        Client { channel, token, api: api.max_decoding_message_size(RESPONSE_BYTES_MAX) }
    }

    /// Returns a client of the same connection whose calls carry a token.
    pub fn with_token(&self, token: &str) -> Client {
        Client::identified(self.channel.clone(), Token::new(token))
    }

    pub(super) fn api(&self) -> MetastoreClient<TokenChannel> {
        self.api.clone()
    }

    /// Returns a key's value at a revision, or `None`.
    pub fn get(
        &self,
        key: impl Into<Bytes>,
        revision: i64,
    ) -> Pending<'_, Result<Option<KeyValue>>> {
        self.send_get(proto::GetRequest { key: key.into(), revision })
    }

    fn send_get(&self, request: proto::GetRequest) -> Pending<'_, Result<Option<KeyValue>>> {
        Box::pin(async move { Ok(self.api().get(request).await?.into_inner().kv) })
    }

    /// Returns up to `limit` keys of a range (0: as many as fit in a response).
    pub async fn get_range(&self, range: &Range, revision: i64, limit: i64) -> Result<Page> {
        let range = Some(range.clone().into());
        let (keys_only, descending) = (false, false);
        let request = proto::GetRangeRequest { range, revision, limit, keys_only, descending };
        let proto::GetRangeResponse { kvs, more, count, revision } =
            self.api().get_range(request).await?.into_inner();
        Ok(Page { kvs, more, count, revision })
    }

    /// Passes every key of a range at one revision (0: the newest) to `each`.
    /// Returns the revision.
    pub fn read<'a>(
        &'a self,
        range: &'a Range,
        revision: i64,
        each: &'a mut (dyn FnMut(KeyValue) + Send),
    ) -> Pending<'a, Result<i64>> {
        Box::pin(async move {
            let range = Some(range.clone().into());
            let request = proto::ReadRequest { range, revision, keys_only: false };
            let mut rows = self.api().read(request).await?.into_inner();
            let mut at = revision;
            while let Some(part) = rows.message().await? {
                at = part.revision;
                part.kvs.into_iter().for_each(&mut *each);
            }
            Ok(at)
        })
    }

    /// Puts a key. Returns the revision.
    pub fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Pending<'_, Result<i64>> {
        self.put_with(key, value, 0)
    }

    /// Puts a key that is attached to a session.
    pub fn put_with(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        client_id: i64,
    ) -> Pending<'_, Result<i64>> {
        self.send_put(proto::PutRequest { key: key.into(), value: value.into(), client_id })
    }

    fn send_put(&self, request: proto::PutRequest) -> Pending<'_, Result<i64>> {
        Box::pin(async move { Ok(self.api().put(request).await?.into_inner().revision) })
    }

    /// Deletes a range. Returns the number of keys deleted.
    pub fn delete<'a>(&'a self, range: &'a Range) -> Pending<'a, Result<i64>> {
        Box::pin(async move {
            let request = proto::DeleteRequest { range: Some(range.clone().into()) };
            Ok(self.api().delete(request).await?.into_inner().deleted)
        })
    }

    /// Resolves a revision or time to the revision to read at.
    pub fn snapshot(&self, at: At) -> Pending<'_, Result<i64>> {
        Box::pin(async move {
            let at = match at {
                At::Newest => None,
                At::Revision(revision) => Some(snapshot_request::At::Revision(revision)),
                At::Time(micros) => Some(snapshot_request::At::TimeMicros(micros)),
            };
            let request = proto::SnapshotRequest { at };
            Ok(self.api().snapshot(request).await?.into_inner().revision)
        })
    }

    /// Watches a range and its locks from a revision on (0: from now on).
    pub fn watch<'a>(&'a self, range: &'a Range, revision: i64) -> Pending<'a, Result<Watch>> {
        Box::pin(async move { Watch::open(self.clone(), range.clone(), revision).await })
    }

    /// Opens a session that is kept alive until it is closed or dropped.
    pub fn session(&self, ttl_seconds: i64) -> Pending<'_, Result<Session>> {
        Box::pin(async move { Session::open(self.clone(), ttl_seconds).await })
    }

    /// Grants a session that is not kept alive. Returns its id and TTL.
    pub fn grant(&self, ttl_seconds: i64) -> Pending<'_, Result<(i64, i64)>> {
        Box::pin(async move {
            let request = proto::NewClientRequest { ttl_seconds };
            let granted = self.api().new_client(request).await?.into_inner();
            Ok((granted.client_id, granted.ttl_seconds))
        })
    }

    /// Renews a session. Returns its TTL.
    pub fn keep_alive(&self, client_id: i64) -> Pending<'_, Result<i64>> {
        Box::pin(async move {
            let request = proto::KeepAliveRequest { client_id };
            Ok(self.api().keep_alive(request).await?.into_inner().ttl_seconds)
        })
    }

    /// Revokes a session with its keys and locks.
    pub fn revoke(&self, client_id: i64) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            self.api().close_client(proto::CloseClientRequest { client_id }).await?;
            Ok(())
        })
    }

    pub fn client(&self, client_id: i64) -> Pending<'_, Result<GetClientResponse>> {
        Box::pin(async move {
            Ok(self.api().get_client(proto::GetClientRequest { client_id }).await?.into_inner())
        })
    }

    /// Returns the ids of all sessions, ordered by deadline.
    pub fn clients(&self) -> Pending<'_, Result<Vec<i64>>> {
        Box::pin(async move {
            Ok(self.api().list_clients(proto::ListClientsRequest {}).await?.into_inner().client_ids)
        })
    }

    /// Returns the holders and waiters of a lock.
    pub fn lock(&self, key: impl Into<Bytes>) -> Pending<'_, Result<Lock>> {
        self.send_get_lock(proto::GetLockRequest { key: key.into() })
    }

    fn send_get_lock(&self, request: proto::GetLockRequest) -> Pending<'_, Result<Lock>> {
        Box::pin(async move {
            Ok(self.api().get_lock(request).await?.into_inner().lock.unwrap_or_default())
        })
    }

    /// Releases a session's lock, or ends all its calls that wait for it.
    pub fn release(&self, key: impl Into<Bytes>, client_id: i64) -> Pending<'_, Result<()>> {
        self.send_release(proto::ReleaseRequest { key: key.into(), client_id })
    }

    fn send_release(&self, request: proto::ReleaseRequest) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            self.api().release(request).await?;
            Ok(())
        })
    }

    /// Makes history below a revision unreadable through etcd's API. `physical`
    /// also drops it for all clients, and returns once its space has been
    /// reclaimed.
    pub fn compact(&self, revision: i64, physical: bool) -> Pending<'_, Result<i64>> {
        Box::pin(async move {
            let request = proto::CompactRequest { revision, physical };
            Ok(self.api().compact(request).await?.into_inner().revision)
        })
    }

    /// Raises the feature level (0: to the highest that the member speaks).
    /// Returns the level.
    pub fn raise_level(&self, level: u32) -> Pending<'_, Result<u32>> {
        Box::pin(async move {
            let request = proto::RaiseLevelRequest { level };
            Ok(self.api().raise_level(request).await?.into_inner().level)
        })
    }

    /// Sets the quota of a prefix; a limit of 0 means none.
    pub fn set_quota(
        &self,
        prefix: impl Into<Bytes>,
        keys_max: i64,
        bytes_max: i64,
    ) -> Pending<'_, Result<()>> {
        let prefix = prefix.into();
        self.send_quota(proto::SetQuotaRequest { prefix, remove: false, keys_max, bytes_max })
    }

    pub fn remove_quota(&self, prefix: impl Into<Bytes>) -> Pending<'_, Result<()>> {
        let (prefix, remove) = (prefix.into(), true);
        self.send_quota(proto::SetQuotaRequest { prefix, remove, keys_max: 0, bytes_max: 0 })
    }

    fn send_quota(&self, request: proto::SetQuotaRequest) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            self.api().set_quota(request).await?;
            Ok(())
        })
    }

    /// Returns the quotas of prefixes and what they use.
    pub fn quotas(&self) -> Pending<'_, Result<Vec<Quota>>> {
        Box::pin(async move {
            Ok(self.api().list_quotas(proto::ListQuotasRequest {}).await?.into_inner().quotas)
        })
    }

    /// Lets the server take a backup to its configured location.
    pub fn create_backup(&self, full: bool) -> Pending<'_, Result<CreateBackupResponse>> {
        Box::pin(async move {
            let request = proto::CreateBackupRequest { full };
            Ok(self.api().create_backup(request).await?.into_inner())
        })
    }

    /// Returns the status of all members.
    pub fn cluster_status(&self) -> Pending<'_, Result<ClusterStatusResponse>> {
        Box::pin(async move {
            let request = proto::ClusterStatusRequest {};
            Ok(self.api().cluster_status(request).await?.into_inner())
        })
    }

    /// Hands leadership over to a member (0: to any). Returns the new leader.
    pub fn move_leader(&self, member_id: u64) -> Pending<'_, Result<u64>> {
        Box::pin(async move {
            let request = proto::MoveLeaderRequest { member_id };
            Ok(self.api().move_leader(request).await?.into_inner().leader_id)
        })
    }

    pub fn status(&self) -> Pending<'_, Result<StatusResponse>> {
        Box::pin(async move { Ok(self.api().status(proto::StatusRequest {}).await?.into_inner()) })
    }

    /// Returns the retained changes of a key, the newest first: up to `limit`, or
    /// 100 if that is 0.
    pub fn history(
        &self,
        key: impl Into<Bytes>,
        limit: i64,
    ) -> Pending<'_, Result<HistoryResponse>> {
        let request = proto::HistoryRequest { key: key.into(), limit, before: 0 };
        Box::pin(async move { Ok(self.api().history(request).await?.into_inner()) })
    }

    /// Returns the prefixes with the most keys or bytes.
    pub fn top(&self, request: TopRequest) -> Pending<'_, Result<TopResponse>> {
        Box::pin(async move { Ok(self.api().top(request).await?.into_inner()) })
    }
}
