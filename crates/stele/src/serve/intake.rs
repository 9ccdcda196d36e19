//! A budget of bytes for request messages, from their first byte on until
//! their call has ended. Small messages are only counted; a large one waits
//! for its whole size before it is read, so that those let in can finish.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

use super::settings::Size;

/// Messages up to this size never wait while there are few of them.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// The share of the budget that small messages may take without waiting.
const SMALL_SHARE: u64 = 4;
/// Large messages are counted in blocks, because semaphores are in `u32`.
const BLOCK_BYTES: u64 = 4 << 10;
/// When a refused client should try again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The budget of a server.
pub struct Intake {
    bytes: u64,
    small_max: usize,
    small: AtomicUsize,
    blocks: u32,
    large: Arc<Semaphore>,
    wait: Duration,
}

/// What the newest message of one call holds of the budget. Shared by the
/// body, which takes, and the call, whose end gives back.
pub struct Hold {
    intake: &'static Intake,
    small: AtomicUsize,
    large: parking_lot::Mutex<Option<OwnedSemaphorePermit>>,
    /// Bytes that the call has received.
    pub received: AtomicU64,
}

impl Intake {
    pub fn new(bytes: Size, wait: Duration) -> Intake {
        let small_max = bytes.0 / SMALL_SHARE;
        let most = u64::try_from(Semaphore::MAX_PERMITS).unwrap_or(u64::MAX).min(u32::MAX.into());
        let blocks = ((bytes.0 - small_max) / BLOCK_BYTES).clamp(1, most);
        Intake {
            bytes: bytes.0,
            small_max: usize::try_from(small_max).unwrap_or(usize::MAX),
            small: AtomicUsize::new(0),
            blocks: u32::try_from(blocks).expect("clamped to u32"),
            large: Arc::new(Semaphore::new(blocks as usize)),
            wait,
        }
    }

    /// Bytes held now, about.
    pub fn used(&self) -> u64 {
        let taken = u64::from(self.blocks).saturating_sub(self.large.available_permits() as u64);
        taken * BLOCK_BYTES + self.small.load(Ordering::Relaxed) as u64
    }

    pub fn limit(&self) -> u64 {
        self.bytes
    }

    /// Counts a small message, if not too many are held already.
    fn take_small(&self, bytes: usize) -> bool {
        let before = self.small.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.small_max;
        if !fits {
            self.small.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// What a message of this size takes; one larger than the whole budget
    /// takes all of it and so is let in alone.
    fn blocks(&self, bytes: usize) -> u32 {
        let blocks = (bytes as u64).div_ceil(BLOCK_BYTES).min(self.blocks.into());
        u32::try_from(blocks).expect("at most a u32")
    }

    fn exhausted(&self, bytes: usize) -> Status {
        let message = format!(
            "a request of {} found no room in {} for {} s: try again later",
            Size(bytes as u64),
            Size(self.bytes),
            self.wait.as_secs_f32(),
        );
        let retry = ErrorDetails::with_retry_info(Some(RETRY_DELAY));
        Status::with_error_details(tonic::Code::ResourceExhausted, message, retry)
    }
}

impl Hold {
    pub fn new(intake: &'static Intake) -> Hold {
        Hold {
            intake,
            small: AtomicUsize::new(0),
            large: parking_lot::Mutex::new(None),
            received: AtomicU64::new(0),
        }
    }

    /// Takes what a message needs if that can be had at once. The call's
    /// message before this one is given back: it has been handled.
    pub fn try_take(&self, bytes: usize) -> bool {
        self.give_back();
        if bytes <= SMALL_BYTES_MAX && self.intake.take_small(bytes) {
            self.small.store(bytes, Ordering::Relaxed);
            return true;
        }
        let large = self.intake.large.clone();
        match large.try_acquire_many_owned(self.intake.blocks(bytes)) {
            Ok(permit) => {
                *self.large.lock() = Some(permit);
                true
            }
            Err(_) => false,
        }
    }

    /// Waits, in the order of asking, for what a message needs.
    pub async fn take(self: Arc<Self>, bytes: usize) -> Result<(), Status> {
        let large = self.intake.large.clone();
        let granted = large.acquire_many_owned(self.intake.blocks(bytes));
        match tokio::time::timeout(self.intake.wait, granted).await {
            Ok(Ok(permit)) => {
                *self.large.lock() = Some(permit);
                Ok(())
            }
            Ok(Err(_)) | Err(_) => Err(self.intake.exhausted(bytes)),
        }
    }

    fn give_back(&self) {
        let small = self.small.swap(0, Ordering::Relaxed);
        if small > 0 {
            self.intake.small.fetch_sub(small, Ordering::Relaxed);
        } else {
            // An empty permit is common; a small message never has one.
            drop(self.large.lock().take());
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intake(bytes: u64, wait: Duration) -> &'static Intake {
        Box::leak(Box::new(Intake::new(Size(bytes), wait)))
    }

    fn hold(intake: &'static Intake) -> Arc<Hold> {
        Arc::new(Hold::new(intake))
    }

    #[test]
    fn small_messages_are_counted_and_given_back() {
        let intake = intake(1 << 20, Duration::ZERO);
        let holds: Vec<_> = (0..4).map(|_| hold(intake)).collect();
        assert!(holds.iter().all(|hold| hold.try_take(64 << 10)));
        assert_eq!(intake.used(), 256 << 10);
        let fifth = hold(intake);
        assert!(fifth.try_take(64 << 10), "more small ones take from the large ones' part");
        assert_eq!(intake.small.load(Ordering::Relaxed), 256 << 10);
        assert_eq!(intake.used(), 320 << 10);
        drop((holds, fifth));
        assert_eq!(intake.used(), 0);
    }

    #[test]
    fn a_call_holds_only_its_newest_message() {
        let intake = intake(1 << 20, Duration::ZERO);
        let hold = hold(intake);
        for bytes in [100 << 10, 5, 200 << 10, 300 << 10, 0] {
            assert!(hold.try_take(bytes));
            assert!(intake.used() < (300 << 10) + BLOCK_BYTES);
        }
        assert_eq!(intake.used(), 0);
    }

    #[tokio::test]
    async fn a_message_larger_than_the_budget_is_let_in_alone() {
        let intake = intake(1 << 20, Duration::from_secs(60));
        let first = hold(intake);
        assert!(first.try_take(100 << 20));
        let second = hold(intake);
        assert!(!second.try_take(100 << 10));
        let waiting = tokio::spawn(second.take(100 << 10));
        drop(first);
        waiting.await.unwrap().unwrap();
        assert_eq!(intake.used(), 0);
    }

    #[tokio::test]
    async fn a_message_that_finds_no_room_in_time_is_refused() {
        let intake = intake(1 << 20, Duration::ZERO);
        let first = hold(intake);
        assert!(first.try_take(1 << 20));
        let refused = hold(intake).take(1 << 20).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert_eq!(refused.get_details_retry_info().unwrap().retry_delay, Some(RETRY_DELAY));
        drop(first);
        assert!(hold(intake).try_take(1 << 20));
    }
}
