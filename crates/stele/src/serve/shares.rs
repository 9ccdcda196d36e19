//! How the memory of the process is divided (docs/operations.md). The shares add up to
//! `--memory`; connections, compactions, caches of the services and ranges of the metastore
//! are the quarter by which the process may exceed it.

use super::settings::{EffectiveSettings, Port};

/// Shares are given in sixteenths.
const PARTS: u64 = 16;
/// The divisor of the metastore's second share that gives the part for recent changes.
const CHANGES_PART: u64 = 4;

/// The memory limit of each user, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Cells of tables that are not on disk yet.
    pub cells: u64,
    /// Decompressed blocks of tables.
    pub cache: u64,
    /// Requests, both as received and decoded.
    pub requests: u64,
    /// Responses that have not been sent yet.
    pub responses: u64,
    /// The same as the first two, for the metastore; 0 if it is off.
    pub metastore_cells: u64,
    pub metastore_cache: u64,
    /// Recent changes of the metastore, which its watchers share.
    pub metastore_changes: u64,
    /// Ranges of the metastore that have not been sent yet; part of the quarter.
    pub metastore_ranges: u64,
    /// Grids of traces, and results being stored.
    pub traces: u64,
}

impl Shares {
    pub fn of(settings: &EffectiveSettings) -> Shares {
        let part = settings.memory.0 / PARTS;
        let metastore = match settings.metastore_port {
            Port::Off => 0,
            Port::Number(_) => part,
        };
        let requests = settings.request_memory.map_or(3 * part, |size| size.0);
        Shares {
            cells: 4 * part,
            cache: 5 * part - 2 * metastore,
            requests,
            responses: 2 * part,
            metastore_cells: metastore,
            metastore_cache: metastore - metastore / CHANGES_PART,
            metastore_changes: metastore / CHANGES_PART,
            metastore_ranges: metastore,
            traces: 2 * part,
        }
    }
}
