//! Makes durable what a reader found in a log but its writer may not have
//! synced: it will be served, so it must survive a power failure.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::world::{File, Files};

/// Bytes rewritten per step.
const STEP_BYTES: u64 = 1 << 20;

/// A segment, and the number of its bytes in use.
pub type Extent = (PathBuf, u64);

/// Makes the segments of a log durable, in order.
///
/// All but the last were synced before their successor was created. The last
/// one is written again: after a failed sync the page cache may hold data that
/// the kernel considers clean, and only a new write marks it dirty.
pub fn make_durable(files: &dyn Files, dir: &Path, segments: &[Extent]) -> Result<()> {
    for (position, (path, bytes)) in segments.iter().enumerate() {
        let last = position + 1 == segments.len();
        let durable = files.open(path).and_then(|file| {
            if last {
                write_again(&*file, *bytes)?;
            }
            file.sync_data()
        });
        durable.map_err(|error| Error::io("syncing log segment", path, error))?;
    }
    files.sync_dir(dir).map_err(|error| Error::io("syncing log directory", dir, error))
}

fn write_again(file: &dyn File, bytes: u64) -> std::io::Result<()> {
    let mut step = vec![0; bytes.min(STEP_BYTES) as usize];
    let mut at = 0;
    while at < bytes {
        let step = &mut step[..(bytes - at).min(STEP_BYTES) as usize];
        file.read_exact_at(step, at)?;
        file.write_all_at(step, at)?;
        at += step.len() as u64;
    }
    Ok(())
}
