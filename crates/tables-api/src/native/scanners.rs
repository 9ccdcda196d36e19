//! All open scanners. Their number and memory are bounded: the least recently used idle
//! ones expire, and so does one that was idle for long.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stele_engine::TableId;

use super::scanner::Scanner;
use crate::error::{Error, Result};

/// The limits of open scanners.
#[derive(Clone, Copy, Debug)]
pub struct ScannerLimits {
    pub count_max: usize,
    /// The memory of idle scanners: their positions and last blocks.
    pub bytes_max: usize,
    pub idle_max: Duration,
}

impl Default for ScannerLimits {
    fn default() -> ScannerLimits {
        ScannerLimits { count_max: 1024, bytes_max: 16 << 20, idle_max: Duration::from_secs(600) }
    }
}

pub struct Scanners {
    limits: ScannerLimits,
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct Pool {
    slots: HashMap<u64, Slot>,
    /// The idle scanners by the number of their last use.
    idle: BTreeMap<u64, u64>,
    uses: u64,
    /// The memory of idle scanners.
    bytes: usize,
}

enum Slot {
    Idle { scanner: Box<Scanner>, bytes: usize, used: u64, since: Instant },
    Busy,
}

/// A scanner in use by one call. It becomes idle when this is dropped.
pub struct Lease<'s> {
    scanners: &'s Scanners,
    id: u64,
    /// `None` after the scanner was closed.
    scanner: Option<Box<Scanner>>,
}

impl Scanners {
    pub fn new(limits: ScannerLimits) -> Scanners {
        Scanners { limits, pool: Mutex::default() }
    }

    /// Adds a scanner, in use by the caller.
    pub fn open(&self, scanner: Scanner) -> Lease<'_> {
        let mut pool = self.pool.lock();
        // Random, so that an id of an earlier run of the server names no scanner.
        let id = loop {
            let id = fastrand::u64(1..);
            if !pool.slots.contains_key(&id) {
                break id;
            }
        };
        pool.slots.insert(id, Slot::Busy);
        Lease { scanners: self, id, scanner: Some(Box::new(scanner)) }
    }

    /// Takes an idle scanner of a table.
    pub fn take(&self, table: TableId, id: u64) -> Result<Lease<'_>> {
        let mut pool = self.pool.lock();
        match pool.slots.get(&id) {
            None => return Err(Error::ScannerExpired(id)),
            Some(Slot::Busy) => return Err(Error::ScannerBusy(id)),
            Some(Slot::Idle { scanner, .. }) if scanner.table() != table => {
                return Err(Error::ScannerExpired(id));
            }
            Some(Slot::Idle { .. }) => {}
        }
        let scanner = pool.remove(id).ok_or(Error::ScannerExpired(id))?;
        pool.slots.insert(id, Slot::Busy);
        Ok(Lease { scanners: self, id, scanner: Some(scanner) })
    }

    /// Closes a scanner of a table, unless it is in use.
    pub fn close(&self, table: TableId, id: u64) -> Result<()> {
        match self.take(table, id) {
            Ok(lease) => lease.close(),
            Err(Error::ScannerExpired(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the number of scanners and the memory of the idle ones.
    pub fn usage(&self) -> (usize, usize) {
        let pool = self.pool.lock();
        (pool.slots.len(), pool.bytes)
    }

    fn put_back(&self, id: u64, scanner: Box<Scanner>) {
        let mut expired = Vec::new();
        let mut pool = self.pool.lock();
        let (used, bytes) = (pool.uses, scanner.bytes());
        pool.uses += 1;
        pool.bytes += bytes;
        pool.idle.insert(used, id);
        pool.slots.insert(id, Slot::Idle { scanner, bytes, used, since: Instant::now() });
        while let Some(oldest) = pool.expired(&self.limits) {
            expired.extend(pool.remove(oldest));
        }
        // Scanners are dropped without the lock.
        drop(pool);
        drop(expired);
    }
}

impl Pool {
    /// Returns the scanner that expires next, if one must.
    fn expired(&self, limits: &ScannerLimits) -> Option<u64> {
        let (_, &oldest) = self.idle.first_key_value()?;
        let over = self.slots.len() > limits.count_max || self.bytes > limits.bytes_max;
        let idle = match self.slots.get(&oldest) {
            Some(Slot::Idle { since, .. }) => since.elapsed() > limits.idle_max,
            _ => false,
        };
        (over || idle).then_some(oldest)
    }

    /// Removes an idle scanner.
    fn remove(&mut self, id: u64) -> Option<Box<Scanner>> {
        match self.slots.remove(&id)? {
            Slot::Idle { scanner, bytes, used, .. } => {
                self.idle.remove(&used);
                self.bytes -= bytes;
                Some(scanner)
            }
            Slot::Busy => None,
        }
    }
}

impl Lease<'_> {
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Removes the scanner.
    pub fn close(mut self) {
        self.scanner = None;
    }
}

impl Deref for Lease<'_> {
    type Target = Scanner;

    fn deref(&self) -> &Scanner {
        self.scanner.as_ref().expect("only closing takes it, which consumes the lease")
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut Scanner {
        self.scanner.as_mut().expect("only closing takes it, which consumes the lease")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        match self.scanner.take() {
            Some(scanner) => self.scanners.put_back(self.id, scanner),
            None => drop(self.scanners.pool.lock().slots.remove(&self.id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use stele_engine::schema::{Family, Schema};
    use stele_engine::world::World;
    use stele_engine::{Options, ScanSpec};
    use stele_tables::{Placement, Tables};

    use super::*;

    #[test]
    fn a_scanner_is_used_by_one_call_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(dir.path(), Options::default(), World::real()).unwrap();
        let schema = Schema::with_families([Family::new("f")]).unwrap();
        let table = tables.create("t", schema).unwrap();
        let Placement::Here(local) = tables.place(table, b"");
        let scan = tables.tenure().open(local.scan(ScanSpec::default())).unwrap();
        let scanners = Scanners::new(ScannerLimits::default());
        let lease = scanners.open(Scanner::new(table, scan, None));
        let id = lease.id();
        assert!(matches!(scanners.take(table, id), Err(Error::ScannerBusy(_))));
        assert!(matches!(scanners.close(table, id), Err(Error::ScannerBusy(_))));
        drop(lease);
        let other = TableId(table.0 + 1);
        assert!(matches!(scanners.take(other, id), Err(Error::ScannerExpired(_))));
        drop(scanners.take(table, id).unwrap());
        scanners.close(table, id).unwrap();
        assert!(matches!(scanners.take(table, id), Err(Error::ScannerExpired(_))));
        assert_eq!(scanners.usage(), (0, 0));
    }
}
