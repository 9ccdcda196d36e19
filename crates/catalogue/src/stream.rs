//! Receives vectors that arrive in several messages. The first message contains the
//! catalogue and the flags; all messages contain elements, which become one request.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Status, Streaming};

use crate::error::{Error, Result};
use crate::limits::{RECORD_OVERHEAD_BYTES, REQUEST_BYTES_MAX, STREAMS_BYTES_MAX};
use crate::proto::{DelRequest, Key, PutRequest, Record, Target};

/// The capacity for streams is counted in units of this size.
const PIECE_BYTES: usize = 1 << 10;

/// The capacity for streamed requests that are being received or processed. Clones
/// share it.
#[derive(Clone)]
pub struct Capacity(Arc<Semaphore>);

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity(Arc::new(Semaphore::new(STREAMS_BYTES_MAX / PIECE_BYTES)))
    }
}

/// The capacity held by a streamed request until it has been processed.
pub struct StreamCapacity {
    capacity: Capacity,
    permit: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl StreamCapacity {
    fn of(capacity: &Capacity) -> StreamCapacity {
        StreamCapacity { capacity: capacity.clone(), permit: None, bytes: 0 }
    }

    /// Reserves capacity for the elements of one more message.
    fn take(&mut self, sizes: impl Iterator<Item = usize>) -> Result<()> {
        let bytes: usize = sizes.map(|size| size + RECORD_OVERHEAD_BYTES).sum();
        self.bytes += bytes;
        if self.bytes > REQUEST_BYTES_MAX {
            let (size, limit) = (self.bytes, REQUEST_BYTES_MAX);
            return Err(Error::TooLarge { what: "a streamed request", size, limit });
        }
        let pieces = bytes.div_ceil(PIECE_BYTES) as u32;
        let more = self.capacity.0.clone().try_acquire_many_owned(pieces).map_err(|_| {
            Error::Exhausted("too many large requests are being received: try again".into())
        })?;
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }
}

/// A request whose vector can be split over several messages.
pub trait Vector {
    type Element;

    fn head(&self) -> (&Option<Target>, u32);
    fn elements(&mut self) -> &mut Vec<Self::Element>;
    /// Returns the size of an element in bytes.
    fn size(element: &Self::Element) -> usize;
}

impl Vector for PutRequest {
    type Element = Record;

    fn head(&self) -> (&Option<Target>, u32) {
        (&self.catalogue, self.flags)
    }

    fn elements(&mut self) -> &mut Vec<Record> {
        &mut self.records
    }

    fn size(record: &Record) -> usize {
        let expected = record.expected.as_ref().map_or(0, |expected| expected.len());
        record.key.len() + record.value.len() + record.cookie.len() + expected
    }
}

impl Vector for DelRequest {
    type Element = Key;

    fn head(&self) -> (&Option<Target>, u32) {
        (&self.catalogue, self.flags)
    }

    fn elements(&mut self) -> &mut Vec<Key> {
        &mut self.keys
    }

    fn size(key: &Key) -> usize {
        let expected = key.expected.as_ref().map_or(0, |expected| expected.len());
        key.key.len() + key.cookie.len() + expected
    }
}

/// Receives all messages of a stream and joins their vectors.
pub async fn receive<V: Vector>(
    mut messages: Streaming<V>,
    capacity: &Capacity,
) -> Result<(V, StreamCapacity), Status> {
    let mut held = StreamCapacity::of(capacity);
    let Some(mut all) = messages.message().await? else {
        return Err(Status::invalid_argument("the stream is empty"));
    };
    held.take(all.elements().iter().map(V::size))?;
    while let Some(mut more) = messages.message().await? {
        check_same(all.head(), more.head())?;
        held.take(more.elements().iter().map(V::size))?;
        all.elements().append(more.elements());
    }
    Ok((all, held))
}

/// Later messages name the same catalogue and flags as the first one, or none.
fn check_same(first: (&Option<Target>, u32), later: (&Option<Target>, u32)) -> Result<()> {
    let same = (later.0.is_none() || later.0 == first.0) && (later.1 == 0 || later.1 == first.1);
    if !same {
        return Err(Error::invalid("the messages of a stream name different catalogues or flags"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_and_all_streams_together_are_limited() {
        let capacity = Capacity::default();
        let half = REQUEST_BYTES_MAX / 2 - RECORD_OVERHEAD_BYTES;
        let mut streams: Vec<StreamCapacity> =
            (0..2).map(|_| StreamCapacity::of(&capacity)).collect();
        for stream in &mut streams {
            stream.take([half].into_iter()).unwrap();
            stream.take([half].into_iter()).unwrap();
        }
        let over = streams[0].take([0].into_iter()).unwrap_err();
        assert!(matches!(over, Error::TooLarge { .. }), "{over}");
        let full = StreamCapacity::of(&capacity).take([half].into_iter()).unwrap_err();
        assert!(matches!(full, Error::Exhausted(_)), "{full}");
        drop(streams);
        StreamCapacity::of(&capacity).take([half].into_iter()).unwrap();
    }
}
