//! A client's handle to one catalogue.

use std::sync::Arc;

use bytes::Bytes;
use http::uri::PathAndQuery;
use parking_lot::Mutex;
use prost::Message;
use stele_grpc::Pending;
use tonic::codec::Streaming;
use tonic::{Request, Status};

use super::encode::{Element, NewRecord, RecordKey, VectorCodec, VectorRequest, WalkStart};
use super::{Client, Records, Result, Segments};
use crate::fid::Fid;
use crate::limits::VECTOR_MAX;
use crate::proto::{
    Code, CountReply, CountRequest, DelRangeRequest, DelRequest, GetReply, GetRequest, NextRequest,
    PutRequest, Range, Target, WriteReply,
};

const PUT: &str = "/stele.catalogue.v1.Catalogues/Put";
const PUT_STREAM: &str = "/stele.catalogue.v1.Catalogues/PutStream";
const DEL: &str = "/stele.catalogue.v1.Catalogues/Del";
const DEL_STREAM: &str = "/stele.catalogue.v1.Catalogues/DelStream";
const GET: &str = "/stele.catalogue.v1.Catalogues/Get";
const NEXT: &str = "/stele.catalogue.v1.Catalogues/Next";
const PREV: &str = "/stele.catalogue.v1.Catalogues/Prev";

/// The maximum size of a vector that is sent in one message; a larger one is sent as a
/// stream of messages of this size.
const INLINE_BYTES: usize = 1 << 20;
const INLINE_RECORDS: usize = VECTOR_MAX / 4;

/// The result of a Get for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub code: Code,
    pub value: Segments,
    pub cookie: Bytes,
}

/// A Next or Prev.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    pub starts: Vec<WalkStart>,
    pub flags: u32,
    /// Return only keys within this range.
    pub within: Option<Range>,
    /// A pinned txn to read at; zero means the current state.
    pub at: u64,
}

/// A catalogue, with its cookie from the server.
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

    fn set_cookie(&self, cookie: &Bytes) {
        if !cookie.is_empty() {
            *self.cookie.lock() = cookie.clone();
        }
    }

    /// Stores records in one commit, whatever the size of the vector.
    pub fn put(&self, records: Vec<NewRecord>, flags: u32) -> Pending<'_, Result<WriteReply>> {
        Box::pin(async move {
            let head = PutRequest { catalogue: self.target(), flags, ..Default::default() };
            let reply = self.write(head, records, [PUT, PUT_STREAM]).await?;
            self.set_cookie(&reply.catalogue_cookie);
            Ok(reply)
        })
    }

    /// Deletes records in one commit, whatever the size of the vector.
    pub fn del(&self, keys: Vec<RecordKey>, flags: u32) -> Pending<'_, Result<WriteReply>> {
        Box::pin(async move {
            let head = DelRequest { catalogue: self.target(), flags, ..Default::default() };
            self.write(head, keys, [DEL, DEL_STREAM]).await
        })
    }

    /// Sends a vector of writes in one message, or in several that form one request.
    async fn write<H, E>(
        &self,
        head: H,
        elements: Vec<E>,
        [inline, streamed]: [&'static str; 2],
    ) -> Result<WriteReply>
    where
        H: Message + Default + 'static,
        E: Element,
    {
        let mut parts = split(elements, E::encoded_len).into_iter();
        let Some(first) = parts.next() else { return Err(empty_vector()) };
        let first = VectorRequest { head, elements: first };
        let mut grpc = self.client.grpc().await?;
        let codec = VectorCodec::<H, E, WriteReply>::default();
        let reply = if parts.len() == 0 {
            grpc.unary(Request::new(first), PathAndQuery::from_static(inline), codec).await?
        } else {
            let more = parts.map(|elements| VectorRequest { head: H::default(), elements });
            let messages = tokio_stream::iter(std::iter::once(first).chain(more));
            let path = PathAndQuery::from_static(streamed);
            grpc.client_streaming(Request::new(messages), path, codec).await?
        };
        Ok(reply.into_inner())
    }

    /// Deletes all records of a range in one commit.
    pub fn del_range(&self, range: Option<Range>, flags: u32) -> Pending<'_, Result<WriteReply>> {
        Box::pin(async move {
            let request = DelRangeRequest { catalogue: self.target(), range, flags };
            Ok(self.client.calls().del_range(request).await?.into_inner())
        })
    }

    /// Reads records; returns one result per key, in the same order. All are read from
    /// one snapshot: the current one, or the one pinned as `at`.
    pub fn get(
        &self,
        keys: Vec<RecordKey>,
        flags: u32,
        at: u64,
    ) -> Pending<'_, Result<Vec<Found>>> {
        Box::pin(async move {
            let mut parts = split(keys, RecordKey::encoded_len);
            match parts.len() {
                0 => Err(empty_vector()),
                1 => self.get_part(parts.remove(0), flags, at).await,
                _ if at == 0 => {
                    let pinned = self.client.pin().await?;
                    let answers = self.get_parts(parts, flags, pinned).await;
                    // An error does not matter, because an unused pin expires.
                    let _ = self.client.unpin(pinned).await;
                    answers
                }
                _ => self.get_parts(parts, flags, at).await,
            }
        })
    }

    async fn get_parts(
        &self,
        parts: Vec<Vec<RecordKey>>,
        flags: u32,
        at: u64,
    ) -> Result<Vec<Found>> {
        let mut answers = Vec::new();
        for part in parts {
            answers.extend(self.get_part(part, flags, at).await?);
        }
        Ok(answers)
    }

    async fn get_part(&self, keys: Vec<RecordKey>, flags: u32, at: u64) -> Result<Vec<Found>> {
        let requested = keys.len();
        let head = GetRequest { catalogue: self.target(), flags, at, ..Default::default() };
        let mut messages = self.read::<_, _, GetReply>(head, keys, GET).await?;
        let mut answers = Vec::with_capacity(requested);
        while let Some(message) = messages.message().await? {
            self.set_cookie(&message.catalogue_cookie);
            answers.extend(message.found.into_iter().map(|found| Found {
                code: found.code(),
                value: found.value.into(),
                cookie: found.cookie,
            }));
        }
        if answers.len() != requested {
            return Err(Status::internal("the server did not return a result for every key"));
        }
        Ok(answers)
    }

    /// Returns the value of one key.
    pub async fn get_one(&self, key: impl Into<Segments>) -> Result<Option<Segments>> {
        let found = self.get(vec![RecordKey::from(key)], 0, 0).await?.remove(0);
        Ok((found.code == Code::Ok).then_some(found.value))
    }

    /// Reads records in ascending order.
    pub fn next(&self, walk: Walk) -> Pending<'_, Result<Records>> {
        Box::pin(async move { self.walk(walk, NEXT).await })
    }

    /// Reads records in descending order.
    pub fn prev(&self, walk: Walk) -> Pending<'_, Result<Records>> {
        Box::pin(async move { self.walk(walk, PREV).await })
    }

    async fn walk(&self, walk: Walk, path: &'static str) -> Result<Records> {
        let Walk { starts, flags, within, at } = walk;
        let catalogue = self.target();
        let head = NextRequest { catalogue, flags, within, at, ..Default::default() };
        Ok(Records::new(self.read(head, starts, path).await?))
    }

    /// Sends a vector of reads; the results are a stream.
    async fn read<H, E, R>(
        &self,
        head: H,
        elements: Vec<E>,
        path: &'static str,
    ) -> Result<Streaming<R>>
    where
        H: Message + 'static,
        E: Element,
        R: Message + Default + 'static,
    {
        let mut grpc = self.client.grpc().await?;
        let codec = VectorCodec::<H, E, R>::default();
        let request = Request::new(VectorRequest { head, elements });
        let reply = grpc.server_streaming(request, PathAndQuery::from_static(path), codec).await?;
        Ok(reply.into_inner())
    }

    pub fn count(&self, range: Option<Range>, at: u64) -> Pending<'_, Result<CountReply>> {
        Box::pin(async move {
            let request = CountRequest { catalogue: self.target(), range, at };
            Ok(self.client.calls().count(request).await?.into_inner())
        })
    }
}

fn empty_vector() -> Status {
    Status::invalid_argument("the vector is empty")
}

/// Splits a vector into parts that fit in one message each.
fn split<T>(elements: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
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
        parts.last_mut().expect("a part was just added").push(element);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_split_by_size_and_count_in_order() {
        assert!(split(Vec::<usize>::new(), |size| *size).is_empty());
        let parts = split(vec![INLINE_BYTES / 2; 5], |size| *size);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        let parts = split(vec![2 * INLINE_BYTES, 1, 1], |size| *size);
        assert_eq!(parts, [vec![2 * INLINE_BYTES], vec![1, 1]]);
        let parts = split((0..INLINE_RECORDS + 1).collect(), |_| 0);
        assert_eq!(parts.concat(), (0..INLINE_RECORDS + 1).collect::<Vec<_>>());
        assert_eq!(parts.len(), 2);
    }
}
