//! Calls of etcd's API that the metastore's own lacks: users, roles and
//! elections.

use http::uri::PathAndQuery;
use prost::Message;
use stele_grpc::Pending;
use tonic::client::Grpc;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::token::TokenChannel;
use super::{Client, Result};
use crate::proto::etcd::{AuthenticateRequest, AuthenticateResponse};

impl Client {
    /// Exchanges a password for a token. Returns a client whose calls carry it.
    pub fn login<'a>(&'a self, name: &'a str, password: &'a str) -> Pending<'a, Result<Client>> {
        Box::pin(async move {
            let request = AuthenticateRequest { name: name.into(), password: password.into() };
            let path = "/etcdserverpb.Auth/Authenticate";
            let answer: AuthenticateResponse = self.call_etcd(path, request).await?;
            Ok(self.with_token(&answer.token))
        })
    }

    /// Calls a method of etcd's API.
    pub fn call_etcd<Q, A>(&self, path: &'static str, request: Q) -> Pending<'_, Result<A>>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        Box::pin(async move {
            let path = PathAndQuery::from_static(path);
            let mut grpc = self.etcd().await?;
            let answer = grpc.unary(Request::new(request), path, ProstCodec::default()).await?;
            Ok(answer.into_inner())
        })
    }

    /// Calls a method of etcd's API that answers with a stream.
    pub fn stream_etcd<Q, A>(
        &self,
        path: &'static str,
        request: Q,
    ) -> Pending<'_, Result<Streaming<A>>>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        Box::pin(async move {
            let path = PathAndQuery::from_static(path);
            let mut grpc = self.etcd().await?;
            let request = Request::new(request);
            Ok(grpc.server_streaming(request, path, ProstCodec::default()).await?.into_inner())
        })
    }

    async fn etcd(&self) -> Result<Grpc<TokenChannel>> {
        let channel = InterceptedService::new(self.channel.clone(), self.token.clone());
        let mut grpc = Grpc::new(channel);
        let unreachable = |error| Status::unavailable(stele_grpc::chain(&error));
        grpc.ready().await.map_err(unreachable)?;
        Ok(grpc)
    }
}
