//! One catalogue as a client works with it.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tonic::client::Grpc;
use tonic::{Request, Status};

use super::encode::{NewRecord, PutCodec, PutMessage};
use super::{Client, Records, Result, Segments};
use crate::fid::Fid;
use crate::limits::{MESSAGE_BYTES_MAX, VECTOR_MAX};
use crate::proto::*;

/// A vector up to this size is one message; a larger one is a stream of
/// messages of this size.
const INLINE_BYTES: usize = 1 << 20;
const INLINE_RECORDS: usize = VECTOR_MAX / 4;

/// What a Get found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub code: Code,
    pub value: Segments,
    pub cookie: Bytes,
}

/// A catalogue, with the cookie that the server gave for it.
#[derive(Clone)]
pub struct Handle {
    client: Client,
    fid: Fid,
    cookie: Arc<Mutex<Bytes>>,
}

impl Handle {
    pub(super) fn new(client: Client, fid: Fid) -> Handle {
        Handle { client, fid, cookie: Arc::default() }
    }

    pub fn fid(&self) -> Fid {
        self.fid
    }

    fn target(&self) -> Option<Target> {
        let fid = Bytes::copy_from_slice(self.fid.bytes());
        Some(Target { fid, cookie: self.cookie.lock().clone() })
    }

    fn learn(&self, cookie: &Bytes) {
        if !cookie.is_empty() {
            *self.cookie.lock() = cookie.clone();
        }
    }

    /// Stores records, all by one commit, however large the vector is.
    pub async fn put(&self, records: Vec<NewRecord>, flags: u32) -> Result<WriteReply> {
        let mut messages = cut(records, NewRecord::encoded_len)
            .into_iter()
            .map(|records| PutMessage { target: None, records, flags: 0 })
            .collect::<Vec<_>>();
        let Some(first) = messages.first_mut() else {
            return Err(Status::invalid_argument("the vector is empty"));
        };
        (first.target, first.flags) = (self.target(), flags);
        let mut grpc = Grpc::new(self.client.transport.clone())
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
            .max_decoding_message_size(2 * MESSAGE_BYTES_MAX);
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let reply = if messages.len() == 1 {
            let path = http::uri::PathAndQuery::from_static("/stele.catalogue.v1.Catalogues/Put");
            grpc.unary(Request::new(messages.remove(0)), path, PutCodec).await?
        } else {
            let path =
                http::uri::PathAndQuery::from_static("/stele.catalogue.v1.Catalogues/PutStream");
            let messages = tokio_stream::iter(messages);
            grpc.client_streaming(Request::new(messages), path, PutCodec).await?
        };
        let reply = reply.into_inner();
        self.learn(&reply.catalogue_cookie);
        Ok(reply)
    }

    /// Deletes records, all by one commit, however large the vector is.
    pub async fn del(&self, keys: Vec<Key>, flags: u32) -> Result<WriteReply> {
        let size = |key: &Key| key.key.len() + key.cookie.len();
        let mut messages = cut(keys, size)
            .into_iter()
            .map(|keys| DelRequest { keys, ..Default::default() })
            .collect::<Vec<_>>();
        let Some(first) = messages.first_mut() else {
            return Err(Status::invalid_argument("the vector is empty"));
        };
        (first.catalogue, first.flags) = (self.target(), flags);
        let mut calls = self.client.calls();
        let reply = if messages.len() == 1 {
            calls.del(messages.remove(0)).await?
        } else {
            calls.del_stream(tokio_stream::iter(messages)).await?
        };
        Ok(reply.into_inner())
    }

    /// Deletes all records of a range by one commit.
    pub async fn del_range(&self, range: Option<Range>, flags: u32) -> Result<WriteReply> {
        let request = DelRangeRequest { catalogue: self.target(), range, flags };
        Ok(self.client.calls().del_range(request).await?.into_inner())
    }

    /// Finds records; one answer for each key, in their order.
    pub async fn get(&self, keys: Vec<Key>, flags: u32, at: u64) -> Result<Vec<Found>> {
        let asked = keys.len();
        let request = GetRequest { catalogue: self.target(), keys, flags, at };
        let mut messages = self.client.calls().get(request).await?.into_inner();
        let mut answers = Vec::with_capacity(asked);
        while let Some(message) = messages.message().await? {
            self.learn(&message.catalogue_cookie);
            answers.extend(message.found.into_iter().map(|found| Found {
                code: found.code(),
                value: found.value.into(),
                cookie: found.cookie,
            }));
        }
        if answers.len() != asked {
            return Err(Status::internal("the server did not answer every key"));
        }
        Ok(answers)
    }

    /// The value of one key.
    pub async fn get_one(&self, key: impl Into<Bytes>) -> Result<Option<Segments>> {
        let key = Key { key: key.into(), ..Default::default() };
        let found = self.get(vec![key], 0, 0).await?.remove(0);
        Ok((found.code == Code::Ok).then_some(found.value))
    }

    /// Reads records in ascending order.
    pub async fn next(&self, request: NextRequest) -> Result<Records> {
        let request = NextRequest { catalogue: self.target(), ..request };
        Ok(Records::new(self.client.calls().next(request).await?.into_inner()))
    }

    /// Reads records in descending order.
    pub async fn prev(&self, request: NextRequest) -> Result<Records> {
        let request = NextRequest { catalogue: self.target(), ..request };
        Ok(Records::new(self.client.calls().prev(request).await?.into_inner()))
    }

    pub async fn count(&self, range: Option<Range>, at: u64) -> Result<CountReply> {
        let request = CountRequest { catalogue: self.target(), range, at };
        Ok(self.client.calls().count(request).await?.into_inner())
    }
}

/// Cuts a vector into the parts that go into one message each.
fn cut<T>(elements: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut parts: Vec<Vec<T>> = Vec::new();
    let mut bytes = usize::MAX;
    for element in elements {
        let more = size(&element);
        let full = parts.last().is_none_or(|part| part.len() >= INLINE_RECORDS);
        if full || bytes.saturating_add(more) > INLINE_BYTES {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        parts.last_mut().expect("a part was just begun").push(element);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_cut_by_size_and_by_number_and_keeps_its_order() {
        assert!(cut(Vec::<usize>::new(), |size| *size).is_empty());
        let parts = cut(vec![INLINE_BYTES / 2; 5], |size| *size);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        let parts = cut(vec![2 * INLINE_BYTES, 1, 1], |size| *size);
        assert_eq!(parts, [vec![2 * INLINE_BYTES], vec![1, 1]]);
        let parts = cut((0..INLINE_RECORDS + 1).collect(), |_| 0);
        assert_eq!(parts.concat(), (0..INLINE_RECORDS + 1).collect::<Vec<_>>());
        assert_eq!(parts.len(), 2);
    }
}
