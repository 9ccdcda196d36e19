//! A file layer whose power fails after a chosen number of changes, so that a test can
//! stop a store inside any of its steps.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use stele_engine::world::sim::SimFiles;
use stele_engine::world::{DirLock, File, Files, ManualClock, SeededRandom, World};

/// The files of a machine until its power fails. Clones share the switch.
#[derive(Clone)]
pub struct Powered {
    pub sim: SimFiles,
    /// The number of changes that still succeed.
    left: Arc<AtomicI64>,
}

impl Powered {
    pub fn new(sim: SimFiles) -> Powered {
        Powered { sim, left: Arc::new(AtomicI64::new(i64::MAX)) }
    }

    /// Makes the power fail after this many more changes.
    pub fn cut_after(&self, changes: u64) {
        self.left.store(changes as i64, Ordering::SeqCst);
    }

    pub fn is_out(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    /// Returns an environment with these files and without threads.
    pub fn world(&self, seed: u64) -> World {
        World {
            clock: Arc::new(ManualClock::at(1_000_000)),
            files: Arc::new(self.clone()),
            random: Arc::new(SeededRandom::new(seed)),
            spawner: None,
        }
    }

    /// Counts a change; returns how many were left.
    fn spend(&self) -> i64 {
        self.left.fetch_sub(1, Ordering::SeqCst)
    }

    fn change(&self) -> io::Result<()> {
        if self.spend() > 0 { Ok(()) } else { Err(power_failure()) }
    }

    fn check_power(&self) -> io::Result<()> {
        if self.is_out() { Err(power_failure()) } else { Ok(()) }
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(PoweredFile { file, power: self.clone() })
    }
}

fn power_failure() -> io::Error {
    io::Error::other("the power has failed")
}

impl Files for Powered {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.change()?;
        Ok(self.wrap(self.sim.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.check_power()?;
        Ok(self.wrap(self.sim.open(path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.check_power()?;
        Ok(self.wrap(self.sim.open_read(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change()?;
        self.sim.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change()?;
        self.sim.remove(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.change()?;
        self.sim.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.check_power()?;
        self.sim.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.check_power()?;
        self.sim.exists(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.change()?;
        self.sim.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        self.change()?;
        self.sim.lock(path)
    }
}

struct PoweredFile {
    file: Arc<dyn File>,
    power: Powered,
}

impl File for PoweredFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.power.check_power()?;
        self.file.read_exact_at(buf, offset)
    }

    /// The write during which the power fails is truncated.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        match self.power.spend() {
            1.. => self.file.write_all_at(buf, offset),
            0 => self.file.write_all_at(&buf[..buf.len() / 2], offset).and(Err(power_failure())),
            _ => Err(power_failure()),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.power.change()?;
        self.file.sync_data()
    }

    /// The power may fail during the write or before the sync.
    fn write_durable_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let buf: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        match self.power.spend() {
            2.. => {}
            1 => {
                self.power.spend();
                return self.file.write_all_at(&buf, offset).and(Err(power_failure()));
            }
            0 => {
                let half = &buf[..buf.len() / 2];
                return self.file.write_all_at(half, offset).and(Err(power_failure()));
            }
            _ => return Err(power_failure()),
        }
        self.power.change()?;
        self.file.write_durable_at(parts, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.power.check_power()?;
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.power.change()?;
        self.file.set_len(len)
    }
}
