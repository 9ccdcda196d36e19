//! Counts what the runs did.

use crate::support::tally::EventCounts;

tally! {
    commits: "commits",
    conflicts: "conflicts",
    cells: "cells",
    rows_cut: "rows over two batches",
    scan_conflicts: "scan conflicts",
    expired: "expired scans",
    flushes: "flushes",
    compactions: "compactions",
    compaction_parts: "outputs of compactions",
    interrupted_compactions: "interrupted compactions",
    throttled: "throttled commits",
    splits: "splits",
    joins: "joins",
    loads: "loads",
    unloads: "unloads",
    not_loaded: "requests to unloaded rows",
    hidden_groups: "hidden groups",
    regroups: "changes of groups",
    restricted: "restricted references",
}

impl Tally {
    /// Asserts that every event the runs exist for has happened.
    pub fn check(&self) {
        assert!(2 * self.compaction_parts > 3 * self.compactions, "hardly ever in parts: {self:?}");
        for (event, count) in self.counts() {
            assert!(count > 10, "hardly any {event}: {self:?}");
        }
    }
}
