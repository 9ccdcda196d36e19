//! A connection that batches writes. Many calls of one connection often end at the same
//! moment: when a sync makes all their writes durable, when one change notifies a hundred
//! watchers, or when they arrived in one packet. Written separately, each would cost a
//! system call or two and wake the client as often. Therefore a flush first yields the
//! connection's task to the tasks that are ready now, as long as they add more data, and
//! then writes everything gathered.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

/// The maximum number of bytes gathered.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// Writes of at least this size go directly to the connection, after the gathered bytes:
/// copying them would cost more than the system call. (Measured with the frames of 16 KiB
/// that h2 writes one by one: copying makes short scans cheaper, long ones dearer.)
const DIRECT_BYTES: usize = 8 << 10;
/// The buffer capacity kept for the next batch. Small, because many connections are idle.
const KEPT_BYTES: usize = 4 << 10;
/// How many times a flush yields to other tasks.
const YIELDS_MAX: u32 = 4;
/// The maximum number of slices per vectored write.
const PIECES_MAX: usize = 16;

/// Counts the polls of a connection's task.
#[derive(Clone, Default)]
pub struct PollCount(Arc<AtomicUsize>);

impl PollCount {
    /// Runs the task and counts its polls.
    pub async fn count<F: Future + Unpin>(self, mut task: F) -> F::Output {
        std::future::poll_fn(|cx| {
            self.0.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut task).poll(cx)
        })
        .await
    }

    fn current(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

pub struct Gather<I> {
    inner: I,
    polls: PollCount,
    gathered: Vec<u8>,
    /// How many of the gathered bytes the connection has accepted.
    written: usize,
    /// How many times the flush has yielded since the first gathered byte.
    yields: u32,
    /// The poll of the last yield, and how much was gathered by then.
    yielded_in: usize,
    yielded_bytes: usize,
}

impl<I> Gather<I> {
    /// Wraps a connection. The task that writes to it must count its polls in `polls`.
    pub fn new(inner: I, polls: PollCount) -> Gather<I> {
        Gather {
            inner,
            polls,
            gathered: Vec::new(),
            written: 0,
            yields: 0,
            yielded_in: 0,
            yielded_bytes: 0,
        }
    }
}

impl<I: Write + Unpin> Gather<I> {
    /// Writes all gathered bytes.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.gathered.len() {
            let rest = &self.gathered[self.written..];
            match ready!(Pin::new(&mut self.inner).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.reset();
        Poll::Ready(Ok(()))
    }

    /// Writes `pieces` after the gathered bytes. Returns how many bytes of `pieces` were
    /// written.
    fn poll_write_behind(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        while self.written < self.gathered.len() {
            let rest = &self.gathered[self.written..];
            let mut all = [IoSlice::new(&[]); PIECES_MAX];
            all[0] = IoSlice::new(rest);
            let taken = pieces.len().min(PIECES_MAX - 1);
            all[1..=taken].copy_from_slice(&pieces[..taken]);
            let written = Pin::new(&mut self.inner).poll_write_vectored(cx, &all[..=taken]);
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written if written <= rest.len() => self.written += written,
                written => {
                    let of_pieces = written - rest.len();
                    self.reset();
                    return Poll::Ready(Ok(of_pieces));
                }
            }
        }
        self.reset();
        Pin::new(&mut self.inner).poll_write_vectored(cx, pieces)
    }

    /// Resets the buffer after everything gathered is written.
    fn reset(&mut self) {
        self.gathered.clear();
        self.gathered.shrink_to(KEPT_BYTES);
        self.written = 0;
        (self.yields, self.yielded_bytes) = (0, 0);
    }

    /// Yields to other tasks if that is worthwhile. Returns whether to wait.
    fn should_yield(&mut self, cx: &mut Context<'_>) -> bool {
        let poll = self.polls.current();
        if self.yields > 0 && self.yielded_in == poll {
            return true;
        }
        if self.yields == YIELDS_MAX || self.gathered.len() == self.yielded_bytes {
            return false;
        }
        (self.yields, self.yielded_in) = (self.yields + 1, poll);
        self.yielded_bytes = self.gathered.len();
        cx.waker().wake_by_ref();
        true
    }
}

impl<I: Write + Unpin> Write for Gather<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        if bytes >= DIRECT_BYTES || this.gathered.len() + bytes > GATHERED_BYTES_MAX {
            return this.poll_write_behind(cx, pieces);
        }
        for piece in pieces {
            this.gathered.extend_from_slice(piece);
        }
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.should_yield(cx) {
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

impl<I: Read + Unpin> Read for Gather<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    /// Accepts a few bytes at a time and records each write.
    #[derive(Default)]
    struct Slow {
        writes: Vec<Vec<u8>>,
        most: usize,
    }

    impl Write for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.most);
            self.writes.push(bytes[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A connection whose task is polled by the test.
    struct Connection {
        gather: Gather<Slow>,
        polls: PollCount,
    }

    impl Connection {
        fn new(most: usize) -> Connection {
            let polls = PollCount::default();
            let gather = Gather::new(Slow { most, ..Slow::default() }, polls.clone());
            Connection { gather, polls }
        }

        /// Polls once and returns what the connection has received so far.
        fn turn(&mut self, pieces: &[&[u8]]) -> Vec<Vec<u8>> {
            let mut cx = Context::from_waker(Waker::noop());
            let next = pin!(self.polls.clone().count(std::future::ready(())));
            assert!(next.poll(&mut cx).is_ready());
            let gather = &mut self.gather;
            for piece in pieces {
                let written = Pin::new(&mut *gather).poll_write(&mut cx, piece);
                assert!(matches!(written, Poll::Ready(Ok(taken)) if taken == piece.len()));
                assert!(Pin::new(&mut *gather).poll_flush(&mut cx).is_ready());
            }
            assert!(Pin::new(&mut *gather).poll_flush(&mut cx).is_ready());
            std::mem::take(&mut gather.inner.writes)
        }
    }

    #[test]
    fn what_comes_turn_by_turn_is_written_at_once() {
        let mut connection = Connection::new(usize::MAX);
        for _ in 0..3 {
            assert!(connection.turn(&[b"ab", b"c"]).is_empty(), "others go first");
            assert!(connection.turn(&[b"d"]).is_empty(), "more has come");
            assert_eq!(connection.turn(&[]), [b"abcd".to_vec()]);
            assert!(connection.turn(&[]).is_empty(), "there is nothing");
        }
    }

    #[test]
    fn a_flush_does_not_wait_for_ever_while_more_comes() {
        let mut connection = Connection::new(usize::MAX);
        for _ in 0..YIELDS_MAX {
            assert!(connection.turn(&[b"ab"]).is_empty());
        }
        assert_eq!(connection.turn(&[b"ab"]), [b"ababababab".to_vec()]);
    }

    #[test]
    fn an_idle_connection_keeps_little() {
        let mut connection = Connection::new(usize::MAX);
        let answer = vec![b'x'; KEPT_BYTES];
        assert!(connection.turn(&[&answer[..]; 12]).is_empty());
        assert!(connection.turn(&[]).is_empty(), "more had come than at the first flush");
        assert_eq!(connection.turn(&[]).concat().len(), 12 * answer.len());
        assert!(connection.gather.gathered.capacity() <= KEPT_BYTES);
    }

    #[test]
    fn what_is_large_goes_out_at_once_behind_what_was_gathered() {
        let mut connection = Connection::new(usize::MAX);
        let large = vec![b'x'; DIRECT_BYTES];
        let written = connection.turn(&[b"head", &large, b"tail"]).concat();
        assert_eq!(written, [b"head".as_slice(), &large].concat());
        assert_eq!(connection.turn(&[]), [b"tail".to_vec()]);
    }

    #[test]
    fn nothing_is_lost_or_moved_when_much_is_written_to_a_slow_connection() {
        let mut cx = Context::from_waker(Waker::noop());
        let slow = Slow { most: 5000, ..Slow::default() };
        let mut gather = Gather::new(slow, PollCount::default());
        let mut sent = Vec::new();
        for round in 0..40u8 {
            let bytes = vec![round; [10, 3000, 20_000, 70_000][usize::from(round) % 4]];
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let Poll::Ready(Ok(taken)) = Pin::new(&mut gather).poll_write(&mut cx, rest) else {
                    panic!("this connection never waits")
                };
                rest = &rest[taken..];
            }
            sent.extend_from_slice(&bytes);
        }
        assert!(Pin::new(&mut gather).poll_shutdown(&mut cx).is_ready());
        assert_eq!(gather.inner.writes.concat(), sent);
    }
}
