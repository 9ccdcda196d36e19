//! A value whose changes tasks wait for. Tokio's channel wakes its receivers in a
//! random order; this one wakes them in the order in which they began to wait, so
//! that a simulation can be repeated.

use std::sync::Arc;

use openraft::OptionalSend;
use openraft::async_runtime::watch::{self as library, Watch, WatchReceiver, WatchSender};
use tokio::sync::Notify;
use tokio::sync::watch::error::RecvError;
use tokio::sync::watch::{self, Ref};

/// Changes the value.
pub struct Sender<T> {
    // Dropped before the receivers are woken.
    value: watch::Sender<T>,
    wake: WakeOnDrop,
}

/// Waits for changes of the value.
pub struct Receiver<T> {
    value: watch::Receiver<T>,
    wake: Arc<Notify>,
}

/// Lets receivers notice that the last sender is gone.
#[derive(Clone)]
struct WakeOnDrop(Arc<Notify>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl<T> Sender<T> {
    pub fn new(value: T) -> Sender<T> {
        Sender { value: watch::Sender::new(value), wake: WakeOnDrop(Arc::default()) }
    }

    pub fn borrow(&self) -> Ref<'_, T> {
        self.value.borrow()
    }

    pub fn subscribe(&self) -> Receiver<T> {
        Receiver { value: self.value.subscribe(), wake: self.wake.0.clone() }
    }

    /// Sets the value, whether or not there are receivers.
    pub fn send_replace(&self, value: T) {
        self.value.send_replace(value);
        self.wake.0.notify_waiters();
    }

    /// Changes the value. Receivers are woken if `modify` returns true.
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let modified = self.value.send_if_modified(modify);
        if modified {
            self.wake.0.notify_waiters();
        }
        modified
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Sender::new(T::default())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender { value: self.value.clone(), wake: self.wake.clone() }
    }
}

impl<T> Receiver<T> {
    pub fn borrow(&self) -> Ref<'_, T> {
        self.value.borrow()
    }

    /// Waits for a value that this receiver has not seen. Fails once there is no
    /// sender.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        loop {
            let woken = self.wake.notified();
            if !matches!(self.value.has_changed(), Ok(false)) {
                break;
            }
            woken.await;
        }
        self.value.changed().await
    }

    /// Waits until the value satisfies a condition.
    pub async fn wait_for(&mut self, mut reached: impl FnMut(&T) -> bool) -> Result<(), RecvError> {
        while !reached(&self.value.borrow_and_update()) {
            self.changed().await?;
        }
        Ok(())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Receiver { value: self.value.clone(), wake: self.wake.clone() }
    }
}

/// The channels of the Raft library.
pub struct InOrder;

impl Watch for InOrder {
    type Sender<T: OptionalSend + openraft::OptionalSync> = Sender<T>;
    type Receiver<T: OptionalSend + openraft::OptionalSync> = Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = Ref<'a, T>;

    fn channel<T: OptionalSend + openraft::OptionalSync>(init: T) -> (Sender<T>, Receiver<T>) {
        let sender = Sender::new(init);
        let receiver = sender.subscribe();
        (sender, receiver)
    }
}

impl<T: OptionalSend + openraft::OptionalSync> WatchSender<InOrder, T> for Sender<T> {
    fn send(&self, value: T) -> Result<(), library::SendError<T>> {
        self.value.send(value).map_err(|error| library::SendError(error.0))?;
        self.wake.0.notify_waiters();
        Ok(())
    }

    fn send_if_modified<F: FnOnce(&mut T) -> bool>(&self, modify: F) -> bool {
        Sender::send_if_modified(self, modify)
    }

    fn borrow_watched(&self) -> Ref<'_, T> {
        self.value.borrow()
    }

    fn subscribe(&self) -> Receiver<T> {
        Sender::subscribe(self)
    }
}

impl<T: OptionalSend + openraft::OptionalSync> WatchReceiver<InOrder, T> for Receiver<T> {
    async fn changed(&mut self) -> Result<(), library::RecvError> {
        Receiver::changed(self).await.map_err(|_| library::RecvError(()))
    }

    fn borrow_watched(&self) -> Ref<'_, T> {
        self.value.borrow()
    }

    fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.value.borrow_and_update()
    }
}

#[cfg(test)]
mod tests {
    use stele_engine::fatal::Mutex;

    use super::*;

    #[tokio::test]
    async fn receivers_are_woken_in_the_order_in_which_they_wait() {
        let (sender, woken) = (Sender::new(0), Arc::new(Mutex::new(Vec::new())));
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..50 {
            let (mut receiver, woken) = (sender.subscribe(), woken.clone());
            waiting.spawn(async move {
                receiver.wait_for(|value| *value == 1).await.unwrap();
                woken.lock().push(number);
            });
        }
        tokio::task::yield_now().await;
        sender.send_replace(1);
        waiting.join_all().await;
        assert_eq!(*woken.lock(), (0..50).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_value_is_seen_before_the_end_of_its_sender() {
        let sender = Sender::new(0);
        let mut receiver = sender.subscribe();
        let waits = tokio::spawn({
            let mut receiver = receiver.clone();
            async move { receiver.wait_for(|value| *value == 2).await.is_err() }
        });
        tokio::task::yield_now().await;
        sender.send_replace(1);
        drop(sender);
        assert!(waits.await.unwrap());
        assert!(receiver.changed().await.is_ok());
        assert!(receiver.changed().await.is_err());
    }
}
