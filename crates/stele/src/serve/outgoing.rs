//! Frames of responses on their way out. Each large one is charged to the
//! memory for responses until the transport has sent it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use stele_grpc::memory::Share;

/// Smaller frames are not counted one by one: what a connection may hold of
/// them is bounded by its number of streams.
pub const CHARGED_BYTES_MIN: usize = 4 << 10;

/// The charged frames of one response that were not sent yet.
#[derive(Clone, Default)]
pub struct Outgoing(Arc<Unsent>);

#[derive(Default)]
struct Unsent {
    frames: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

/// A frame that holds memory until it is dropped by the transport.
struct Charged {
    data: Bytes,
    outgoing: Outgoing,
    _share: Share,
}

impl Outgoing {
    /// The same bytes, which return their share when they are sent.
    pub fn charge(&self, data: Bytes, share: Share) -> Bytes {
        self.0.frames.fetch_add(1, Ordering::SeqCst);
        Bytes::from_owner(Charged { data, outgoing: self.clone(), _share: share })
    }

    /// Ready when all frames are sent.
    pub fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_sent() {
            return Poll::Ready(());
        }
        *self.0.waker.lock() = Some(cx.waker().clone());
        // Again: one that was sent meanwhile found no waker.
        if self.is_sent() { Poll::Ready(()) } else { Poll::Pending }
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
        if unsent.frames.fetch_sub(1, Ordering::SeqCst) == 1
            && let Some(waker) = unsent.waker.lock().take()
        {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stele_grpc::memory::MemoryPool;

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
}
