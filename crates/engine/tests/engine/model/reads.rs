//! The steps of a run that read: whole scans, and scans that stay open over other steps.

use std::sync::Arc;

use stele_engine::world::Clock;
use stele_engine::*;

use super::run::{Run, SNAPSHOT_AGE_MAX};
use super::scans::{Found, ScanCheck};

/// More batches than any scan needs.
const BATCHES_MAX: usize = 20_000;

impl Run {
    fn new_scan(&self) -> (Scan, ScanCheck) {
        let table = self.chance.below(self.tables.len());
        let mut spec = self.chance.scan(&self.tables[table].schema, self.now());
        spec.view = match self.chance.below(3) {
            0 => View::Durable,
            1 => View::Latest,
            _ if self.snapshots.is_empty() => View::Latest,
            _ => View::At(self.chance.pick(&self.snapshots).snapshot),
        };
        let scan = self.store().scan(self.tables[table].id, spec.clone()).unwrap();
        (scan, ScanCheck::new(table, spec, self.now()))
    }

    /// Scans to the end, in batches, with no commits in between.
    pub(super) fn read(&mut self) {
        self.record_step("read");
        let mut open = Some(self.new_scan());
        while let Some((scan, check)) = open {
            let table = check.table;
            open = self.next_batch(scan, check);
            self.perhaps_rewrite(table);
        }
    }

    /// Sometimes rewrites the table, so that a scan that began in memory continues on
    /// disk.
    pub(super) fn perhaps_rewrite(&mut self, table: usize) {
        let table = self.tables[table].id;
        match self.chance.below(60) {
            0..10 => self.store().flush(table).unwrap(),
            10..13 => drop(self.store().step().unwrap()),
            13 => self.store().compact(table).unwrap(),
            _ => {}
        }
    }

    pub(super) fn read_all(&mut self, table: usize) {
        for reverse in [false, true] {
            let spec = ScanSpec { reverse, markers: true, ..ScanSpec::default() };
            let scan = self.store().scan(self.tables[table].id, spec.clone()).unwrap();
            let mut open = Some((scan, ScanCheck::new(table, spec, self.now())));
            while let Some((scan, check)) = open {
                open = self.next_batch(scan, check);
            }
        }
    }

    pub(super) fn open_scan(&mut self) {
        const SCANS_MAX: usize = 5;
        self.record_step("open a scan");
        if self.scans.len() < SCANS_MAX {
            let scan = self.new_scan();
            self.scans.push(scan);
        }
    }

    pub(super) fn continue_scan(&mut self) {
        if self.scans.is_empty() {
            return;
        }
        self.record_step("continue a scan");
        let (scan, check) = self.scans.swap_remove(self.chance.below(self.scans.len()));
        self.perhaps_rewrite(check.table);
        let open = self.next_batch(scan, check);
        self.scans.extend(open);
    }

    /// Reads a batch and checks it. Returns `None` when the scan has ended.
    pub(super) fn next_batch(
        &mut self,
        mut scan: Scan,
        mut check: ScanCheck,
    ) -> Option<(Scan, ScanCheck)> {
        let mut found = Vec::new();
        let limits = self.chance.limits();
        let (durable, latest) = self.store().progress();
        let result = scan.next_batch(limits, &mut |cell| found.push(Found::of(cell)));
        let end = match result {
            Ok(end) => end,
            Err(error) => {
                self.check_scan_error(&check, &error);
                return None;
            }
        };
        match (&check.spec.view, check.txn()) {
            (View::At(snapshot), _) => {
                assert_eq!(end.txn, snapshot.txn());
                assert!(!self.is_expired(snapshot), "a given-up snapshot was read");
            }
            (View::Durable, None) => assert_eq!(end.txn, durable),
            (View::Latest, None) => assert_eq!(end.txn, latest),
            (View::Durable, Some(last)) => assert!(end.txn == durable || end.txn == last),
            (View::Latest, Some(last)) => assert!(end.txn == latest || end.txn == last),
        }
        self.saw(end.txn);
        self.tally.cells += found.len() as u64;
        self.tally.rows_cut += u64::from(check.continues_row(&found));
        check.batches += 1;
        assert!(
            check.batches < BATCHES_MAX,
            "a scan makes no progress: reverse {}, rows {:?}, missed {:?}, after {:?}, in row {}",
            check.spec.reverse,
            check.spec.row_mode,
            scan.miss(),
            scan.completed_row().map(|row| row.escape_ascii().to_string()),
            scan.mid_row(),
        );
        let checked = check.batch(&self.tables[check.table], end, found, self.clock.elapsed());
        if let Err(difference) = checked {
            panic!("table t{}: {difference}", check.table);
        }
        (!end.done).then_some((scan, check))
    }

    pub(super) fn is_expired(&self, snapshot: &Arc<Snapshot>) -> bool {
        let held = self.snapshots.iter().find(|held| Arc::ptr_eq(&held.snapshot, snapshot));
        held.is_some_and(|held| self.clock.elapsed() > held.since + SNAPSHOT_AGE_MAX)
    }

    fn check_scan_error(&mut self, check: &ScanCheck, error: &Error) {
        if let Error::TabletNotLoaded(_) = error {
            self.tally.not_loaded += 1;
            assert!(self.tables[check.table].loads.any_unloaded(), "{error}");
            return;
        }
        match error {
            Error::ScanConflict { .. } => self.tally.scan_conflicts += 1,
            _ => self.tally.expired += 1,
        }
        match (error, &check.spec.view) {
            (Error::SnapshotExpired { .. }, View::At(snapshot)) => {
                let held = self.snapshots.iter().any(|h| Arc::ptr_eq(&h.snapshot, snapshot));
                assert!(!held || self.is_expired(snapshot), "a snapshot was released too soon");
            }
            (Error::SnapshotExpired { .. }, _) => {
                assert!(self.clock.elapsed() > check.since + SNAPSHOT_AGE_MAX, "{error}");
            }
            (Error::ScanConflict { .. }, _) => {
                assert_eq!(check.spec.row_mode, RowMode::Unchanged);
                let began = check.txn().expect("a row was begun in a batch before");
                let loads = self.tables[check.table].loads.newest();
                assert!(self.newest().max(loads) > began, "nothing has changed since {began}");
            }
            _ => panic!("{error}"),
        }
    }
}
