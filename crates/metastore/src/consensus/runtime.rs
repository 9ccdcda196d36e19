//! The runtime of the Raft library: Tokio, with random numbers from a seed that the
//! group is started with and channels that wake in order, so that a simulation can
//! be repeated.

use std::future::Future;
use std::io;
use std::time::Duration;

use openraft::rt::deterministic_rng::DeterministicRng;
use openraft::{AsyncRuntime, OptionalSend};
use openraft_rt_tokio::TokioRuntime;

use super::watch::InOrder;

type Seeded = DeterministicRng<TokioRuntime>;

#[derive(Debug)]
pub struct Runtime(Seeded);

impl Runtime {
    /// Runs a future, and what it spawns, with random numbers from a seed.
    pub async fn scope<F: Future>(seed: u64, future: F) -> F::Output {
        Seeded::scope(seed, future).await
    }
}

impl AsyncRuntime for Runtime {
    type JoinError = <Seeded as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <Seeded as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <Seeded as AsyncRuntime>::Sleep;
    type Instant = <Seeded as AsyncRuntime>::Instant;
    type TimeoutError = <Seeded as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <Seeded as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = <Seeded as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = <Seeded as AsyncRuntime>::Mpsc;
    type Watch = InOrder;
    type Oneshot = <Seeded as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <Seeded as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        Seeded::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        Seeded::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        Seeded::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        Seeded::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        Seeded::timeout_at(deadline, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        Seeded::is_panic(error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        Seeded::thread_rng()
    }

    fn new(threads: usize) -> Self {
        Runtime(Seeded::new(threads))
    }

    fn block_on<F: Future<Output = T>, T>(&mut self, future: F) -> T {
        self.0.block_on(future)
    }

    fn spawn_blocking<F, T>(work: F) -> impl Future<Output = Result<T, io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Seeded::spawn_blocking(work)
    }
}
