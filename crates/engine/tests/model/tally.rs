//! Counts what the runs did. Without it, a change of the probabilities could silently
//! leave a guarantee untested.

/// Event counts, so that a run that tests nothing is detected.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub commits: u64,
    pub conflicts: u64,
    pub cells: u64,
    pub rows_cut: u64,
    pub scan_conflicts: u64,
    pub expired: u64,
    pub flushes: u64,
    pub compactions: u64,
    pub compaction_parts: u64,
    pub broken_off: u64,
    pub throttled: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.commits += other.commits;
        self.conflicts += other.conflicts;
        self.cells += other.cells;
        self.rows_cut += other.rows_cut;
        self.scan_conflicts += other.scan_conflicts;
        self.expired += other.expired;
        self.flushes += other.flushes;
        self.compactions += other.compactions;
        self.compaction_parts += other.compaction_parts;
        self.broken_off += other.broken_off;
        self.throttled += other.throttled;
    }

    /// Asserts that every event the runs exist for has happened.
    pub fn check(&self) {
        let counts = [
            self.commits,
            self.conflicts,
            self.cells,
            self.rows_cut,
            self.scan_conflicts,
            self.expired,
            self.flushes,
            self.compactions,
            self.broken_off,
            self.throttled,
        ];
        assert!(self.compaction_parts > 2 * self.compactions, "hardly ever in parts: {self:?}");
        assert!(counts.iter().all(|&count| count > 10), "some of it hardly ever: {self:?}");
    }
}
