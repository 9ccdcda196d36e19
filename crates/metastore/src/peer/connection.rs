//! A connection to another member: requests in flight, each with an id.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use stele_engine::fatal::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter};
use tokio::sync::{mpsc, oneshot};

use super::frame::{self, Frame};

/// The bytes that are gathered before a write.
const BUFFER_BYTES: usize = 64 << 10;

/// An open connection.
pub struct Connection {
    next: AtomicU64,
    requests: mpsc::UnboundedSender<Frame>,
    waiting: Arc<Waiting>,
}

/// The callers that wait for responses; `None` once the connection has failed.
struct Waiting(Mutex<Option<BTreeMap<u64, oneshot::Sender<Bytes>>>>);

impl Connection {
    /// Starts the tasks of a connection.
    pub fn start<S>(stream: S) -> Connection
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (mut from, to) = tokio::io::split(stream);
        let (requests, mut queue) = mpsc::unbounded_channel();
        let waiting = Arc::new(Waiting(Mutex::new(Some(BTreeMap::new()))));
        let (responses, failed) = (waiting.clone(), waiting.clone());
        tokio::spawn(async move {
            let reading = async {
                while let Ok(Some(Frame { id, payload })) = frame::read(&mut from).await {
                    responses.answer(id, payload);
                }
            };
            let writing = send_all(to, &mut queue);
            tokio::select! {
                () = reading => {}
                _ = writing => {}
            }
            // Drops the callers' senders.
            failed.0.lock().take();
        });
        Connection { next: AtomicU64::new(1), requests, waiting }
    }

    pub fn is_open(&self) -> bool {
        self.waiting.0.lock().is_some()
    }

    /// Sends a request. The receiver fails if the connection does.
    pub fn call(&self, payload: Bytes) -> Option<oneshot::Receiver<Bytes>> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, response) = oneshot::channel();
        self.waiting.0.lock().as_mut()?.insert(id, sender);
        self.requests.send(Frame { id, payload }).ok()?;
        Some(response)
    }
}

impl Waiting {
    fn answer(&self, id: u64, payload: Bytes) {
        let sender = self.0.lock().as_mut().and_then(|waiting| waiting.remove(&id));
        if let Some(sender) = sender {
            // The caller may have given up.
            let _ = sender.send(payload);
        }
    }
}

/// Writes the frames of a queue, those that are ready together.
pub async fn send_all(
    to: impl AsyncWrite + Unpin,
    queue: &mut mpsc::UnboundedReceiver<Frame>,
) -> io::Result<()> {
    let mut to = BufWriter::with_capacity(BUFFER_BYTES, to);
    while let Some(frame) = queue.recv().await {
        frame::write(&mut to, &frame).await?;
        while let Ok(frame) = queue.try_recv() {
            frame::write(&mut to, &frame).await?;
        }
        to.flush().await?;
    }
    Ok(())
}
