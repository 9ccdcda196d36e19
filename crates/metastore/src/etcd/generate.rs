//! A stream of messages written as a loop: the future that produces them runs
//! only when the consumer polls for the next one, in the consumer's task. Unlike
//! inside the `async-stream` macros, any function that has the [`Output`] can
//! send a message.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

use super::rpc::MessageStream;

/// The output of a generator.
pub struct Output(mpsc::Sender<Bytes>);

impl Output {
    /// Sends a message. Returns once the previous one has been taken.
    pub async fn send(&self, message: Bytes) {
        // Fails only after the stream was dropped, when this no longer runs.
        let _ = self.0.send(message).await;
    }
}

/// Returns a stream of the messages that the future sends, ended by its status.
pub fn generate<F>(write: impl FnOnce(Output) -> F) -> MessageStream
where
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    let (sender, messages) = mpsc::channel(1);
    Box::pin(Generator { writer: Some(Box::pin(write(Output(sender)))), messages })
}

type WriterFuture = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

struct Generator {
    writer: Option<WriterFuture>,
    messages: mpsc::Receiver<Bytes>,
}

impl Stream for Generator {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Ok(message) = self.messages.try_recv() {
            return Poll::Ready(Some(Ok(message)));
        }
        let Some(writer) = &mut self.writer else { return Poll::Ready(None) };
        let ended = match writer.as_mut().poll(context) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        };
        let message = self.messages.try_recv().ok();
        match (message, ended) {
            (Some(message), None) => Poll::Ready(Some(Ok(message))),
            (None, None) => Poll::Pending,
            (message, Some(ended)) => {
                self.writer = None;
                match (message, ended) {
                    (None, Ok(())) => Poll::Ready(None),
                    (None, Err(status)) => Poll::Ready(Some(Err(status))),
                    (Some(message), Ok(())) => Poll::Ready(Some(Ok(message))),
                    (Some(message), Err(status)) => {
                        self.writer = Some(Box::pin(std::future::ready(Err(status))));
                        Poll::Ready(Some(Ok(message)))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    async fn all(messages: MessageStream) -> Vec<String> {
        let text = |message: Result<Bytes, Status>| match message {
            Ok(message) => String::from_utf8(message.to_vec()).unwrap(),
            Err(status) => status.message().to_owned(),
        };
        messages.map(text).collect().await
    }

    #[tokio::test]
    async fn messages_come_out_in_order_and_the_status_last() {
        let messages = |ending: Result<(), Status>| {
            generate(move |out| async move {
                for number in 0..5 {
                    out.send(format!("{number}").into()).await;
                    if number == 2 {
                        tokio::task::yield_now().await;
                    }
                }
                ending
            })
        };
        assert_eq!(all(messages(Ok(()))).await, ["0", "1", "2", "3", "4"]);
        let failed = all(messages(Err(Status::aborted("no")))).await;
        assert_eq!(failed, ["0", "1", "2", "3", "4", "no"]);
    }
}
