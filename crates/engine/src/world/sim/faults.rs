//! What goes wrong on a simulated disk, and when.

use std::io;
use std::path::Path;

use crate::world::random::Random;

/// A file operation that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Open,
    Read,
    Write,
    SetLen,
    Sync,
    Rename,
    Remove,
    CreateDir,
    List,
    SyncDir,
    Lock,
}

/// How often operations fail with EIO by chance, from 0.0 (never) to 1.0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    pub read: f64,
    pub write: f64,
    /// Of files and of directories.
    pub sync: f64,
}

/// The disk failed (EIO).
pub fn disk_error() -> io::Error {
    const EIO: i32 = 5;
    io::Error::from_raw_os_error(EIO)
}

/// The disk is full (ENOSPC).
pub fn disk_full() -> io::Error {
    const ENOSPC: i32 = 28;
    io::Error::from_raw_os_error(ENOSPC)
}

#[derive(Default)]
pub struct Faults {
    pub rates: FaultRates,
    due: Vec<Due>,
}

/// A failure that waits for its operation.
struct Due {
    operation: Operation,
    path_part: String,
    error: io::Error,
}

impl Faults {
    pub fn add(&mut self, operation: Operation, path_part: &str, error: io::Error) {
        self.due.push(Due { operation, path_part: path_part.to_string(), error });
    }

    /// The failure of this operation, if it is to fail.
    pub fn strike(
        &mut self,
        operation: Operation,
        path: &Path,
        random: &dyn Random,
    ) -> io::Result<()> {
        let shown = path.to_string_lossy();
        let due = self
            .due
            .iter()
            .position(|due| due.operation == operation && shown.contains(&due.path_part));
        if let Some(at) = due {
            return Err(self.due.remove(at).error);
        }
        let rate = match operation {
            Operation::Read => self.rates.read,
            Operation::Write | Operation::SetLen => self.rates.write,
            Operation::Sync | Operation::SyncDir => self.rates.sync,
            _ => 0.0,
        };
        // No random number is used up where nothing can fail.
        if rate > 0.0 && chance(random) < rate {
            return Err(disk_error());
        }
        Ok(())
    }
}

/// A number from 0.0 up to 1.0.
fn chance(random: &dyn Random) -> f64 {
    const BITS: u32 = f64::MANTISSA_DIGITS;
    (random.next_u64() >> (u64::BITS - BITS)) as f64 / (1u64 << BITS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::random::SeededRandom;

    #[test]
    fn an_injected_failure_strikes_once_and_only_where_it_was_meant() {
        let (random, mut faults) = (SeededRandom::new(1), Faults::default());
        faults.add(Operation::Write, "log", disk_full());
        let mut strike = |operation, path| faults.strike(operation, Path::new(path), &random);
        assert!(strike(Operation::Sync, "/d/log.1").is_ok());
        assert!(strike(Operation::Write, "/d/other").is_ok());
        let error = strike(Operation::Write, "/d/log.1").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(strike(Operation::Write, "/d/log.1").is_ok());
    }

    #[test]
    fn random_failures_come_at_their_rate() {
        let (random, mut faults) = (SeededRandom::new(1), Faults::default());
        faults.rates.read = 0.25;
        let mut failed = |operation| {
            let strike = |_: &i32| faults.strike(operation, Path::new("f"), &random).is_err();
            (0..4000).filter(strike).count()
        };
        assert!((800..1200).contains(&failed(Operation::Read)));
        assert_eq!(failed(Operation::Write), 0);
    }
}
