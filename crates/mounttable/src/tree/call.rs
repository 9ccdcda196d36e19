//! The caller of an operation.

use std::time::Duration;

use tokio::time::Instant;

use crate::blessing::Caller;
use crate::error::{Error, Result};

/// How long an operation is retried if its caller sets no deadline.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);

/// The caller of an operation and its deadline.
#[derive(Clone, Debug)]
pub struct Call {
    pub caller: Caller,
    pub deadline: Instant,
}

impl Call {
    pub fn by(caller: Caller) -> Call {
        Call { caller, deadline: Instant::now() + RETRY_TIME_MAX }
    }

    pub fn within(mut self, time: Duration) -> Call {
        self.deadline = Instant::now() + time;
        self
    }

    pub(super) fn check(&self, name: impl std::fmt::Display) -> Result<()> {
        if Instant::now() >= self.deadline {
            return Err(Error::Aborted { name: name.to_string() });
        }
        Ok(())
    }
}
