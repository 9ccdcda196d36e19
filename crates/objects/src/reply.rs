//! Callbacks that are called in any case, also if their task is cancelled because the
//! store is closed.

use std::io;

use stele_engine::world::Done;

pub struct Reply<T>(Option<Done<T>>);

impl<T> Reply<T> {
    pub fn new(done: Done<T>) -> Reply<T> {
        Reply(Some(done))
    }

    pub fn send(mut self, outcome: io::Result<T>) {
        if let Some(done) = self.0.take() {
            done(outcome);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(closed()));
        }
    }
}

/// The error of requests that end because the store is closed.
pub fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the object store has been closed")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_dropped_reply_reports_an_error() {
        let (sent, outcomes) = mpsc::channel();
        let reply = |sent: mpsc::Sender<io::Result<u8>>| {
            Reply::new(Box::new(move |outcome| sent.send(outcome).unwrap()))
        };
        reply(sent.clone()).send(Ok(7));
        assert_eq!(outcomes.recv().unwrap().unwrap(), 7);
        drop(reply(sent));
        assert_eq!(outcomes.recv().unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(outcomes.recv().is_err(), "called once");
    }
}
