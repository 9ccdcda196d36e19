//! Ends long work when its caller has disconnected. Work on a thread of its own goes
//! on when the call is dropped, so it has to ask.

use std::sync::{Arc, Weak};

use crate::error::{Error, Result};

/// Held by a call while it waits for its work.
#[derive(Debug, Default)]
pub struct Waiting(Arc<()>);

impl Waiting {
    /// What the work of the call asks.
    pub fn cancellation(&self) -> Cancellation {
        Cancellation(Some(Arc::downgrade(&self.0)))
    }
}

/// Tells work whether its caller still waits.
#[derive(Clone, Debug)]
pub struct Cancellation(Option<Weak<()>>);

impl Cancellation {
    /// Of work whose caller cannot go away.
    pub fn never() -> Cancellation {
        Cancellation(None)
    }

    /// Fails once nobody waits any more.
    pub fn check(&self) -> Result<()> {
        match &self.0 {
            Some(waiting) if waiting.strong_count() == 0 => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_when_its_caller_goes_away() {
        let waiting = Waiting::default();
        let cancellation = waiting.cancellation();
        cancellation.check().unwrap();
        drop(waiting);
        assert!(matches!(cancellation.check(), Err(Error::Cancelled)));
        Cancellation::never().check().unwrap();
    }
}
