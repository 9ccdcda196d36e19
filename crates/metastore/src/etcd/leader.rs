//! Calls that need a leader: etcd's clients ask for it with the metadata
//! `hasleader`, so that they can move on to another member.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use tokio_stream::Stream;
use tonic::Status;

use super::Etcd;
use super::rpc::{FramedResponse, MessageStream};
use crate::Error;

/// Returns whether a call asks for a leader.
pub fn is_required(headers: &HeaderMap) -> bool {
    headers.get("hasleader").is_some_and(|value| value == "true")
}

/// Refuses a call if there is no leader.
pub fn check(etcd: &Etcd) -> Result<(), Status> {
    match etcd.node().status().leader_id {
        0 => Err(Error::NoLeader.into()),
        _ => Ok(()),
    }
}

/// Ends a stream of responses when the leader is lost.
pub fn ending_without(etcd: &Etcd, response: FramedResponse) -> FramedResponse {
    match response {
        FramedResponse::Many(messages) => {
            let node = etcd.node().clone();
            let lost = Box::pin(async move { node.leader_lost().await });
            FramedResponse::Many(Box::pin(WithLeader { messages, lost: Some(lost) }))
        }
        one => one,
    }
}

/// A stream of messages that ends when the leader is lost.
struct WithLeader {
    messages: MessageStream,
    /// `None` once the stream has ended.
    lost: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Stream for WithLeader {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(lost) = &mut self.lost else { return Poll::Ready(None) };
        if lost.as_mut().poll(context).is_ready() {
            self.lost = None;
            return Poll::Ready(Some(Err(Error::NoLeader.into())));
        }
        self.messages.as_mut().poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    #[tokio::test]
    async fn a_stream_ends_with_no_leader_when_the_leader_is_lost() {
        let (lose, lost) = tokio::sync::oneshot::channel::<()>();
        let first = tokio_stream::once(Ok(Bytes::from_static(b"first")));
        let messages = Box::pin(first.chain(tokio_stream::pending()));
        let lost = Box::pin(async move {
            let _ = lost.await;
        });
        let mut stream = WithLeader { messages, lost: Some(lost) };
        assert_eq!(stream.next().await.unwrap().unwrap(), "first");
        lose.send(()).unwrap();
        let end = stream.next().await.unwrap().unwrap_err();
        assert_eq!(
            (end.code(), end.message()),
            (tonic::Code::Unavailable, "etcdserver: no leader")
        );
        assert!(stream.next().await.is_none());
    }
}
