//! A connection that gathers what is written to it. Many calls of one
//! connection often end at the same moment: when a sync makes all their writes
//! durable, or when one change is told to a hundred watchers. Written as they
//! come, each would cost a system call. So the first flush only asks for
//! another turn, behind the tasks that are ready now, and the second writes
//! what has come together.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

/// More is not gathered.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// What is this long is written as it is, if nothing was gathered before it.
const DIRECT_BYTES: usize = 16 << 10;

pub struct Gather<I> {
    inner: I,
    gathered: Vec<u8>,
    /// How much of it the connection has taken.
    written: usize,
    /// Whether the turn was asked for.
    asked: bool,
}

impl<I> Gather<I> {
    pub fn new(inner: I) -> Gather<I> {
        Gather { inner, gathered: Vec::new(), written: 0, asked: false }
    }
}

impl<I: Write + Unpin> Gather<I> {
    /// Writes what was gathered.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.gathered.len() {
            let rest = &self.gathered[self.written..];
            match ready!(Pin::new(&mut self.inner).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.gathered.clear();
        self.written = 0;
        self.asked = false;
        Poll::Ready(Ok(()))
    }

    /// Makes room for this much. Tells whether it is to be gathered.
    fn poll_room(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<io::Result<bool>> {
        if self.gathered.len() + bytes > GATHERED_BYTES_MAX {
            ready!(self.poll_drain(cx))?;
        }
        Poll::Ready(Ok(!self.gathered.is_empty() || bytes < DIRECT_BYTES))
    }
}

impl<I: Write + Unpin> Write for Gather<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if !ready!(this.poll_room(cx, bytes.len()))? {
            return Pin::new(&mut this.inner).poll_write(cx, bytes);
        }
        this.gathered.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        if !ready!(this.poll_room(cx, bytes))? {
            return Pin::new(&mut this.inner).poll_write_vectored(cx, pieces);
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
        if !this.gathered.is_empty() && !this.asked {
            this.asked = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
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
    use std::task::Waker;

    use super::*;

    /// Takes a few bytes at a time, and notes each write.
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

    #[test]
    fn what_comes_before_the_second_flush_is_written_at_once() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut gather = Gather::new(Slow { most: usize::MAX, ..Slow::default() });
        for _ in 0..3 {
            assert!(Pin::new(&mut gather).poll_write(&mut cx, b"ab").is_ready());
            assert!(Pin::new(&mut gather).poll_flush(&mut cx).is_pending());
            let pieces = [IoSlice::new(b"c"), IoSlice::new(b"d")];
            let written = Pin::new(&mut gather).poll_write_vectored(&mut cx, &pieces);
            assert!(matches!(written, Poll::Ready(Ok(2))));
            assert!(Pin::new(&mut gather).poll_flush(&mut cx).is_ready());
            assert_eq!(std::mem::take(&mut gather.inner.writes), [b"abcd".to_vec()]);
        }
        assert!(Pin::new(&mut gather).poll_flush(&mut cx).is_ready(), "there is nothing");
    }

    #[test]
    fn nothing_is_lost_or_moved_when_much_is_written_to_a_slow_connection() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut gather = Gather::new(Slow { most: 5000, ..Slow::default() });
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
