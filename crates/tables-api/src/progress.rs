//! Long calls, which stream their progress. A call that is silent for long looks dead to
//! its client and to proxies in between, so the last message is repeated.

use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status};

/// How often progress is reported at least.
const INTERVAL: Duration = Duration::from_secs(2);
/// The number of messages buffered for a slow client.
const AHEAD: usize = 16;

pub type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The sending end of a stream.
pub struct Output<T>(mpsc::Sender<Result<T, Status>>);

/// The client has disconnected, so the work should end.
pub struct Disconnected;

impl<T: Clone> Output<T> {
    /// Sends a message, as soon as the client has taken enough of the earlier ones.
    pub async fn send(&self, message: T) -> Result<(), Disconnected> {
        self.0.send(Ok(message)).await.map_err(|_| Disconnected)
    }

    /// Waits for a step of the work, repeating `last` meanwhile.
    pub async fn attend<R>(
        &self,
        last: &T,
        step: impl Future<Output = R>,
    ) -> Result<R, Disconnected> {
        let mut step = pin!(step);
        loop {
            match tokio::time::timeout(INTERVAL, &mut step).await {
                Ok(done) => return Ok(done),
                Err(_) => self.send(last.clone()).await?,
            }
        }
    }
}

/// Why work ended early.
pub enum Ended {
    Disconnected,
    Failed(Status),
}

impl From<Disconnected> for Ended {
    fn from(_: Disconnected) -> Ended {
        Ended::Disconnected
    }
}

impl From<Status> for Ended {
    fn from(status: Status) -> Ended {
        Ended::Failed(status)
    }
}

/// Returns a stream of what `work` sends, followed by its error, if any. The work
/// runs in a task of its own and ends when the client disconnects.
pub fn stream<T, F>(work: impl FnOnce(Output<T>) -> F) -> Response<Messages<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<(), Ended>> + Send + 'static,
{
    let (out, messages) = mpsc::channel(AHEAD);
    let working = work(Output(out.clone()));
    tokio::spawn(async move {
        if let Err(Ended::Failed(status)) = working.await {
            // Nobody waits for it if the client has disconnected.
            let _ = out.send(Err(status)).await;
        }
    });
    Response::new(Box::pin(ReceiverStream::new(messages)))
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_long_step_repeats_the_last_message_and_its_error_ends_the_stream() {
        let response = stream(|out: Output<u32>| async move {
            out.attend(&7, tokio::time::sleep(2 * INTERVAL + INTERVAL / 2)).await?;
            out.send(8).await?;
            Err(Status::data_loss("gone").into())
        });
        let messages: Vec<_> = response.into_inner().collect().await;
        let seen: Vec<_> = messages.iter().map(|message| message.as_ref().ok().copied()).collect();
        assert_eq!(seen, [Some(7), Some(7), Some(8), None]);
        assert_eq!(messages[3].as_ref().unwrap_err().code(), tonic::Code::DataLoss);
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_when_its_client_disconnects() {
        let (ended, ends) = tokio::sync::oneshot::channel();
        let response = stream(|out: Output<u32>| async move {
            let endless = out.attend(&7, std::future::pending::<()>()).await;
            ended.send(endless.is_err()).unwrap();
            Ok(())
        });
        drop(response);
        assert!(ends.await.unwrap());
    }
}
