//! Read-ahead of a scan over files outside the directory: while blocks are entered one
//! after the other, the bytes behind them are fetched before they are read.

use std::collections::BTreeMap;
use std::fmt;

use crate::fragment::index::BlockHandle;
use crate::fragment::reader::Fragment;
use crate::sync::Mutex;

/// The first fetch ahead has this size; each further one twice as much, up to the maximum.
const WINDOW_BYTES: u64 = 256 << 10;
const WINDOW_BYTES_MAX: u64 = 4 << 20;
/// A scan that goes back by no more than this, to begin its next batch, is still
/// sequential.
const BACK_BYTES_MAX: u64 = 1 << 20;
/// The maximum number of fetches ahead of one scan.
const FETCHES_MAX: usize = 2;

/// What one scan has fetched ahead. Shared by its cursors, and by those of its later
/// batches.
#[derive(Default)]
pub struct ReadAhead {
    files: Mutex<BTreeMap<u64, Stream>>,
}

impl fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.files.lock().iter()).finish()
    }
}

/// The position of a scan in one file.
#[derive(Debug)]
struct Stream {
    /// The end of the last block that was entered.
    at: u64,
    /// The end of each fetch that the scan has not reached yet.
    ahead: Vec<u64>,
    window: u64,
}

impl ReadAhead {
    /// Records that a cursor enters a block, and fetches what follows if the block follows
    /// the last one.
    pub(super) fn enter(&self, fragment: &Fragment, block: &BlockHandle) {
        let Some(file) = fragment.remote() else { return };
        let (start, end) = (block.offset, block.offset + u64::from(block.stored_len));
        let data_end = fragment.meta().data_bytes;
        let mut files = self.files.lock();
        let others = files.iter().filter(|(id, _)| **id != fragment.id());
        let mut fetches: usize = others.map(|(_, stream)| stream.ahead.len()).sum();
        let fresh = Stream { at: u64::MAX, ahead: Vec::new(), window: WINDOW_BYTES };
        let stream = files.entry(fragment.id()).or_insert(fresh);
        // A batch may begin with a block that the last one has read.
        let sequential = start <= stream.at && stream.at - start <= BACK_BYTES_MAX;
        if !sequential {
            *stream = Stream { at: end, ahead: Vec::new(), window: WINDOW_BYTES };
            return;
        }
        let end = end.max(stream.at);
        stream.at = end;
        stream.ahead.retain(|&until| until > end);
        fetches += stream.ahead.len();
        let mut wanted = Vec::new();
        while fetches < FETCHES_MAX {
            let from = stream.ahead.last().copied().unwrap_or(end);
            let until = from.saturating_add(stream.window).min(data_end);
            if from >= until {
                break;
            }
            wanted.push(from..until);
            stream.ahead.push(until);
            stream.window = (2 * stream.window).min(WINDOW_BYTES_MAX);
            fetches += 1;
        }
        drop(files);
        wanted.into_iter().for_each(|range| file.prefetch(range));
    }

    /// Forgets a file that the scan has left, so that its fetches no longer count.
    pub(super) fn leave(&self, fragment: &Fragment) {
        self.files.lock().remove(&fragment.id());
    }
}
