//! How long a call waits for somebody to serve its rows.

use std::time::Duration;

use stele_grpc::backoff;
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::call::Call;

/// A call waits at most this long: tablets move in less, and after a crash clients had
/// better know that it takes longer.
const WAIT_MAX: Duration = Duration::from_secs(10);
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_LONGEST: Duration = Duration::from_millis(500);
/// The delay that clients get in RetryInfo.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub struct Patience {
    deadline: Option<Instant>,
    until: Instant,
    waits: u32,
}

impl Patience {
    pub fn of(call: &Call) -> Patience {
        let mut patience = Patience { deadline: call.deadline, until: Instant::now(), waits: 0 };
        patience.renew();
        patience
    }

    /// Begins anew, after progress.
    pub fn renew(&mut self) {
        let until = Instant::now() + WAIT_MAX;
        self.until = self.deadline.map_or(until, |deadline| deadline.min(until));
        self.waits = 0;
    }

    /// Waits before a call is sent again. Fails when its time is over, with what was in
    /// its way.
    pub async fn wait(&mut self, obstacle: Status) -> Result<(), Status> {
        let pause = backoff::delay(PAUSE_FIRST, PAUSE_LONGEST, self.waits);
        self.waits += 1;
        if Instant::now() + pause >= self.until {
            return Err(retry_later(&obstacle));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

/// The status of a call that was not applied.
fn retry_later(obstacle: &Status) -> Status {
    let details = ErrorDetails::with_retry_info(Some(RETRY_AFTER));
    Status::with_error_details(Code::Unavailable, obstacle.message(), details)
}

/// The obstacle of a row that nobody serves.
pub fn nobody_serves() -> Status {
    Status::unavailable("no server serves these rows now: they are being moved or recovered")
}
