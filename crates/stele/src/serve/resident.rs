//! Keeps the resident memory of the process close to what is in use. The allocator keeps
//! freed memory for a second, because reusing it is much cheaper than returning it; in
//! that second all requests together may free, and allocate anew, more than the process
//! may exceed its limit by. So freed memory is returned at once while the process is above
//! its limit, and only then.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use crate::allocator;

/// Intervals between two samples of the resident memory: above and below three quarters of
/// the limit. What can be allocated in that time must be small beside the quarter by which
/// the process may exceed its limit.
const INTERVAL_NEAR: Duration = Duration::from_millis(10);
const INTERVAL_FAR: Duration = Duration::from_millis(50);

/// Starts the thread that watches the resident memory.
pub fn watch(limit_bytes: u64) -> io::Result<()> {
    let sampler = Sampler::new()?;
    let watch = move || loop {
        let resident = sampler.resident_bytes().unwrap_or(u64::MAX);
        if resident > limit_bytes {
            allocator::return_freed_memory();
        }
        thread::sleep(if resident > limit_bytes / 4 * 3 { INTERVAL_NEAR } else { INTERVAL_FAR });
    };
    thread::Builder::new().name("stele-memory".into()).spawn(watch).map(drop)
}

/// Reads the resident memory of this process.
struct Sampler {
    statm: File,
    page_bytes: u64,
}

impl Sampler {
    fn new() -> io::Result<Sampler> {
        let page_bytes = rustix::param::page_size() as u64;
        Ok(Sampler { statm: File::open("/proc/self/statm")?, page_bytes })
    }

    /// Returns the resident memory without the pages of files, which are those of the
    /// program itself.
    fn resident_bytes(&self) -> Option<u64> {
        let mut line = [0; 128];
        let len = self.statm.read_at(&mut line, 0).ok()?;
        let line = std::str::from_utf8(&line[..len]).ok()?;
        let mut pages = line.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
        let (resident, of_files) = (pages.next()?.ok()?, pages.next()?.ok()?);
        Some(resident.saturating_sub(of_files) * self.page_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_counts_while_in_use_and_not_after_it_is_returned() {
        const BYTES: u64 = 256 << 20;
        let sampler = Sampler::new().unwrap();
        let before = sampler.resident_bytes().unwrap();
        let used: Vec<Vec<u8>> = (0..BYTES >> 16).map(|_| vec![1; 1 << 16]).collect();
        let during = sampler.resident_bytes().unwrap();
        assert!(during > before + BYTES / 4 * 3, "{before} {during}");
        drop(used);
        allocator::return_freed_memory();
        let after = sampler.resident_bytes().unwrap();
        assert!(after < during - BYTES / 4 * 3, "{before} {during} {after}");
    }
}
