//! What the reads of a request have missed: bytes of files that were not on this machine.

use stele_engine::world::Miss;
use stele_engine::{Error, Result};

/// The misses of one request. Held until it ends, so that what was fetched is still here
/// when the request reads again.
#[derive(Default)]
pub struct Misses(Vec<Miss>);

impl Misses {
    /// Waits, on any executor, for what a read missed that failed with this error. The
    /// read can then be tried again. Fails with the error if it is another one, and if
    /// the bytes cannot be fetched.
    pub async fn fetched(&mut self, error: Error) -> Result<()> {
        let Error::NotLocal(miss) = error else { return Err(error) };
        self.0.push(miss.clone());
        miss.fetched().await
    }
}
