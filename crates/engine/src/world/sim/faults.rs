//! The faults of a simulated disk and when they occur.

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

/// The probability that operations fail with EIO, from 0.0 (never) to 1.0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    pub read: f64,
    pub write: f64,
    /// For files and directories.
    pub sync: f64,
}

/// The error of a failed disk (EIO).
pub fn disk_error() -> io::Error {
    const EIO: i32 = 5;
    io::Error::from_raw_os_error(EIO)
}

/// The error of a full disk (ENOSPC).
pub fn disk_full() -> io::Error {
    const ENOSPC: i32 = 28;
    io::Error::from_raw_os_error(ENOSPC)
}

#[derive(Default)]
pub struct Faults {
    pub rates: FaultRates,
    due: Vec<Due>,
    lasting: Vec<Lasting>,
    planned: Option<Planned>,
    struck: bool,
}

/// A fault pending for the next matching operation.
struct Due {
    operation: Operation,
    path_part: String,
    error: io::Error,
}

/// A fault of every matching operation.
struct Lasting {
    operation: Operation,
    path_part: String,
    fault: Fault,
}

/// The kinds of faults of a file operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EIO: the disk failed.
    Disk,
    /// EMFILE: the process has too many open files.
    OpenFiles,
    /// ENOSPC: the disk is full.
    Full,
}

impl Fault {
    pub fn error(self) -> io::Error {
        const EMFILE: i32 = 24;
        match self {
            Fault::Disk => disk_error(),
            Fault::OpenFiles => io::Error::from_raw_os_error(EMFILE),
            Fault::Full => disk_full(),
        }
    }

    /// Returns whether such an operation can fail in this way.
    fn applies(self, operation: Operation) -> bool {
        use Operation::{
            Create, CreateDir, List, Lock, Open, Rename, SetLen, Sync, SyncDir, Write,
        };
        match self {
            Fault::Disk => true,
            Fault::OpenFiles => matches!(operation, Create | Open | List | SyncDir | Lock),
            Fault::Full => {
                matches!(operation, Create | Write | SetLen | Sync | Rename | CreateDir | Lock)
            }
        }
    }
}

/// A single fault, counted among all operations that can fail in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    pub fault: Fault,
    /// How many such operations succeed first.
    pub after: u64,
    /// All later ones fail as well.
    pub lasts: bool,
}

impl Faults {
    pub fn add(&mut self, operation: Operation, path_part: &str, error: io::Error) {
        self.due.push(Due { operation, path_part: path_part.to_string(), error });
    }

    /// Makes every matching operation fail.
    pub fn add_lasting(&mut self, operation: Operation, path_part: &str, fault: Fault) {
        self.lasting.push(Lasting { operation, path_part: path_part.to_string(), fault });
    }

    pub fn plan(&mut self, planned: Planned) {
        self.planned = Some(planned);
    }

    /// Returns whether the planned fault has occurred.
    pub fn has_struck(&self) -> bool {
        self.struck
    }

    /// Removes all faults.
    pub fn clear(&mut self) {
        *self = Faults::default();
    }

    fn strike_planned(&mut self, operation: Operation) -> io::Result<()> {
        let Some(planned) = self.planned.as_mut().filter(|it| it.fault.applies(operation)) else {
            return Ok(());
        };
        if planned.after > 0 {
            planned.after -= 1;
            return Ok(());
        }
        self.struck = true;
        let error = planned.fault.error();
        if !planned.lasts {
            self.planned = None;
        }
        Err(error)
    }

    /// Returns the error of this operation, if it is due to fail.
    pub fn strike(
        &mut self,
        operation: Operation,
        path: &Path,
        random: &dyn Random,
    ) -> io::Result<()> {
        self.strike_planned(operation)?;
        let path = path.to_string_lossy();
        let hit = |lasting: &&Lasting| {
            lasting.operation == operation && path.contains(&lasting.path_part)
        };
        if let Some(lasting) = self.lasting.iter().find(hit) {
            return Err(lasting.fault.error());
        }
        let due = self
            .due
            .iter()
            .position(|due| due.operation == operation && path.contains(&due.path_part));
        if let Some(at) = due {
            return Err(self.due.remove(at).error);
        }
        let rate = match operation {
            Operation::Read => self.rates.read,
            Operation::Write | Operation::SetLen => self.rates.write,
            Operation::Sync | Operation::SyncDir => self.rates.sync,
            _ => 0.0,
        };
        // No random number is consumed where nothing can fail.
        if rate > 0.0 && chance(random) < rate {
            return Err(disk_error());
        }
        Ok(())
    }
}

/// Returns a number from 0.0 (inclusive) to 1.0 (exclusive).
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
