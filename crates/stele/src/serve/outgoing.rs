//! Response frames being sent. Each large frame is charged to the response memory until
//! the transport has sent it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::Frame;
use parking_lot::Mutex;
use stele_grpc::memory::{MemoryPool, Share};
use tonic::Status;

/// Smaller frames are not charged individually: the number of streams of a connection
/// bounds their memory.
const CHARGED_BYTES_MIN: usize = 4 << 10;

/// The charged frames of one response that have not been sent yet.
#[derive(Clone, Default)]
pub struct Outgoing(Arc<Unsent>);

#[derive(Default)]
struct Unsent {
    frames: AtomicUsize,
    bytes: AtomicU64,
    waker: Mutex<Option<Waker>>,
    /// Held until the frames are sent, if the end of the response did not wait for them.
    finished: OnceLock<Share>,
}

/// A frame that holds memory until the transport drops it.
struct Charged {
    data: Bytes,
    outgoing: Outgoing,
    _share: Share,
}

impl Outgoing {
    /// Wraps the bytes so that they release their share once they are sent.
    pub fn charge(&self, data: Bytes, share: Share) -> Bytes {
        self.0.frames.fetch_add(1, Ordering::SeqCst);
        self.0.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        Bytes::from_owner(Charged { data, outgoing: self.clone(), _share: share })
    }

    /// Completes when all frames are sent.
    pub fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_sent() {
            return Poll::Ready(());
        }
        *self.0.waker.lock() = Some(cx.waker().clone());
        // Checks again: a frame sent in the meantime found no waker.
        if self.is_sent() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns whether the end of the response may be handed over before the frames are
    /// sent. If so, the frames are charged to `finished` until then.
    pub fn try_finish(&self, finished: &Arc<MemoryPool>) -> bool {
        let unsent = self.0.bytes.load(Ordering::Relaxed);
        let share = finished.try_take(unsent);
        share.is_some_and(|share| self.0.finished.set(share).is_ok())
    }

    pub fn is_sent(&self) -> bool {
        self.0.frames.load(Ordering::SeqCst) == 0
    }
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        let unsent = &self.outgoing.0;
        unsent.bytes.fetch_sub(self.data.len() as u64, Ordering::Relaxed);
        if unsent.frames.fetch_sub(1, Ordering::SeqCst) == 1
            && let Some(waker) = unsent.waker.lock().take()
        {
            waker.wake();
        }
    }
}

/// Memory reserved for the next frame of a response with large frames. It is reserved
/// before the frame is produced, so that many responses together cannot exceed their
/// limit; the first frame is charged once it exists.
#[derive(Default)]
pub struct Reservation {
    /// The size of the last frame, if it was charged.
    next_bytes: u64,
    share: Option<Share>,
    waiting: Option<PendingShare>,
}

/// A pending reservation.
type PendingShare = Pin<Box<dyn Future<Output = Result<Share, Status>> + Send>>;

impl Reservation {
    /// Reserves memory for the next frame.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        responses: &Arc<MemoryPool>,
        outgoing: Option<&Outgoing>,
    ) -> Poll<Result<(), Status>> {
        if self.share.is_some() {
            return Poll::Ready(Ok(()));
        }
        if self.waiting.is_none() {
            if self.next_bytes == 0 && !is_far_over_limit(responses) {
                return Poll::Ready(Ok(()));
            }
            self.share = responses.try_take(self.next_bytes);
            if self.share.is_some() {
                return Poll::Ready(Ok(()));
            }
            // Never waits for memory while holding memory that others wait for.
            if let Some(outgoing) = outgoing {
                ready!(outgoing.poll_sent(cx));
            }
            let (responses, bytes) = (responses.clone(), self.next_bytes);
            self.waiting = Some(Box::pin(async move { responses.take(bytes).await }));
        }
        let Some(waiting) = &mut self.waiting else { return Poll::Ready(Ok(())) };
        let granted = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(granted.map(|share| self.share = Some(share)))
    }

    /// Releases the reservation for a frame that may never come.
    pub fn release(&mut self) {
        self.share = None;
    }

    /// Charges a frame if it is large. `awaited` says that the response ends by itself.
    pub fn charge(
        &mut self,
        frame: Frame<Bytes>,
        responses: &Arc<MemoryPool>,
        awaited: bool,
        outgoing: &mut Option<Outgoing>,
    ) -> Frame<Bytes> {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        if bytes < CHARGED_BYTES_MIN {
            (self.next_bytes, self.share) = (0, None);
            return frame;
        }
        let bytes = bytes as u64;
        // An endless stream may be idle next and must not wait for memory then.
        self.next_bytes = if awaited { bytes } else { 0 };
        let mut share = self.share.take().unwrap_or_else(|| responses.take_now(0));
        let reserved = share.bytes();
        match reserved < bytes {
            true => share.grow_now(bytes - reserved),
            false => share.shrink(reserved - bytes),
        }
        let outgoing = outgoing.get_or_insert_with(Outgoing::default);
        frame.map_data(|data| outgoing.charge(data, share))
    }
}

/// Returns whether usage exceeds the limit by so much that even possibly small responses
/// have to wait.
fn is_far_over_limit(responses: &MemoryPool) -> bool {
    responses.used() > responses.limit() + responses.limit() / 4
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn memory_is_held_until_every_part_of_a_frame_is_sent() {
        let pool = MemoryPool::new("tests", 100, Duration::ZERO);
        let outgoing = Outgoing::default();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(outgoing.poll_sent(&mut cx).is_ready());
        let mut frame = outgoing.charge(Bytes::from_static(b"abcdef"), pool.take_now(6));
        let first = frame.split_to(3);
        drop(frame);
        assert!(outgoing.poll_sent(&mut cx).is_pending());
        assert_eq!((&first[..], pool.used()), (&b"abc"[..], 6));
        drop(first);
        assert!(outgoing.poll_sent(&mut cx).is_ready());
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn finished_responses_hold_a_limited_amount_until_it_is_sent() {
        let pool = MemoryPool::new("tests", 100, Duration::ZERO);
        let finished = MemoryPool::new("tests", 10, Duration::ZERO);
        let response = |bytes: usize| {
            let outgoing = Outgoing::default();
            let frame = outgoing.charge(Bytes::from(vec![0; bytes]), pool.take_now(bytes as u64));
            (outgoing.try_finish(&finished), frame)
        };
        let (ends, first) = response(6);
        assert!(ends);
        assert!(!response(6).0, "together they exceed the limit");
        assert_eq!(finished.used(), 6);
        drop(first);
        assert_eq!((finished.used(), pool.used()), (0, 0));
        assert!(response(6).0);
    }
}
