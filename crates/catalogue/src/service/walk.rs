//! NEXT and PREV: records in key order from each of several starts, all read from one
//! snapshot, in batches that the consumer has space for.

use std::sync::Arc;

use stele_engine::{BatchLimits, CellView, Place, RowRange, ScanSpec, Txn};
use stele_tables::Scan;

use super::Catalogues;
use super::checks::{check_key, check_vector};
use super::effort::Effort;
use super::range::key_range;
use crate::catalogue::Catalogue;
use crate::error::{Error, Result};
use crate::flags::{self, Flag, Flags};
use crate::pins::ReadSnapshot;
use crate::proto::{Code, NextRequest, Start};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// Receives the records of the starts, one start after the other.
pub trait WalkSink {
    fn record(&mut self, start: u32, key: &[u8], value: &[u8], cookie: &[u8]);
    /// Finishes the current start.
    fn end(&mut self, start: u32, code: Code, count: u64);
    /// Returns the number of collected bytes.
    fn bytes(&self) -> usize;
}

pub struct Walk {
    service: Arc<Catalogues>,
    catalogue: Arc<Catalogue>,
    starts: Vec<Start>,
    flags: Flags,
    within: RowRange,
    direction: Direction,
    snapshot: ReadSnapshot,
    /// Index of the current start.
    at: usize,
    /// The open scan of the current start, and the number of records it has returned.
    scan: Option<Scan>,
    count: u64,
    /// The cookie of the current record; a reused buffer.
    cookie: Vec<u8>,
}

impl Walk {
    pub fn new(
        service: Arc<Catalogues>,
        request: NextRequest,
        direction: Direction,
    ) -> Result<Walk> {
        let flags = Flags::check(request.flags, flags::NEXT)?;
        check_vector(request.starts.len())?;
        for start in &request.starts {
            check_key(&start.key)?;
        }
        let catalogue = service.readable(request.catalogue.as_ref())?;
        let within = key_range(&catalogue.space, request.within.as_ref())?;
        let snapshot = service.read_snapshot(request.at)?;
        let (starts, cookie) = (request.starts, Vec::new());
        Ok(Walk {
            service,
            catalogue,
            starts,
            flags,
            within,
            direction,
            snapshot,
            at: 0,
            scan: None,
            count: 0,
            cookie,
        })
    }

    /// Pins the snapshot that is read, if requested.
    pub fn pinned(&self) -> Result<Option<Txn>> {
        if !self.flags.has(Flag::Pin) {
            return Ok(None);
        }
        self.service.pins.pin(self.snapshot.clone()).map(Some)
    }

    /// Returns a cookie for the catalogue, unless NO_COOKIES is set.
    pub fn catalogue_cookie(&self) -> Vec<u8> {
        if self.flags.has(Flag::NoCookies) {
            return Vec::new();
        }
        self.service.catalogue_cookie(&self.catalogue)
    }

    /// Passes on records until the sink has `bytes`, or for about a millisecond, because
    /// deleted records cost time and fill nothing. Returns whether there are more.
    pub fn step(&mut self, sink: &mut impl WalkSink, bytes: usize) -> Result<bool> {
        self.snapshot.renew()?;
        let mut effort = Effort::default();
        while self.at < self.starts.len() && sink.bytes() < bytes {
            let space_left = bytes - sink.bytes();
            let code = self.step_start(sink, space_left)?;
            if let Some(code) = code {
                sink.end(self.at as u32, code, self.count);
                (self.at, self.count, self.scan) = (self.at + 1, 0, None);
            }
            if effort.is_spent_by_batch(code.is_some()) {
                break;
            }
        }
        // A catalogue is removed by the deathrow only after this is set.
        if self.catalogue.is_dropped() {
            return Err(Error::NoCatalogue(self.catalogue.fid));
        }
        Ok(self.at < self.starts.len())
    }

    /// Continues with the current start. Returns its code when it is finished.
    fn step_start(&mut self, sink: &mut impl WalkSink, space_left: usize) -> Result<Option<Code>> {
        let start = &self.starts[self.at];
        let wanted = u64::from(start.count);
        if self.scan.is_none() {
            if !start.edge && !self.flags.has(Flag::Slant) && !self.exists(start)? {
                return Ok(Some(Code::Absent));
            }
            let rows = self.rows_from(start);
            if rows.is_empty() || wanted == 0 {
                return Ok(Some(if wanted == 0 { Code::Ok } else { Code::End }));
            }
            let spec = ScanSpec {
                reverse: self.direction == Direction::Backward,
                rows_max: Some(start.count as usize),
                view: self.snapshot.view(),
                ..ScanSpec::range(rows)
            };
            let scan = self.service.local(self.catalogue.space.table).scan(spec);
            self.scan = Some(self.service.tenure().open(scan)?);
        }
        let scan = self.scan.as_mut().expect("the scan was just opened");
        let (space, at) = (&self.catalogue.space, self.at as u32);
        let (object, txn) = (self.catalogue.object, self.snapshot.txn());
        let (sealer, cookie) = (&self.service.sealer, &mut self.cookie);
        let keys_only = self.flags.has(Flag::KeysOnly);
        let (mut count, mut copied) = (0, 0);
        let mut give = |cell: &CellView<'_>, cookie: &[u8]| {
            let value = if keys_only { &[] } else { cell.value };
            sink.record(at, space.key(cell.row), value, cookie);
            copied += value.len();
            count += 1;
        };
        let limits =
            BatchLimits { bytes: space_left, work: Effort::BATCH_WORK, ..BatchLimits::default() };
        let batch = if self.flags.has(Flag::NoCookies) {
            scan.next_batch(limits, &mut |cell| give(cell, &[]))
        } else {
            scan.next_placed_batch(limits, |cell, entry| {
                let place = entry.map(|entry| Place { txn, entry });
                cookie.clear();
                sealer.seal_record(object, place.as_ref(), cookie);
                give(cell, cookie);
            })
        };
        let batch = self.service.tenure().open(batch)?;
        self.count += count;
        self.service.count_copied(copied);
        if batch.missed
            && self.count < wanted
            && let Some(miss) = scan.miss()
        {
            return Err(stele_engine::Error::NotLocal(miss.clone()).into());
        }
        let code = if self.count == wanted { Code::Ok } else { Code::End };
        Ok((batch.done || self.count == wanted).then_some(code))
    }

    fn exists(&self, start: &Start) -> Result<bool> {
        let space = &self.catalogue.space;
        let place = self.service.sealer.open_record(self.catalogue.object, &start.cookie);
        let view = self.snapshot.view();
        let mut found = false;
        let row = space.row(&start.key);
        let local = self.service.local(space.table);
        let read = local.read_first(&row, &view, place.as_ref(), |_| found = true);
        self.service.count_place(&self.service.tenure().open(read)?);
        Ok(found)
    }

    /// Returns the rows from a start on, in the direction of the walk.
    fn rows_from(&self, start: &Start) -> RowRange {
        if start.edge {
            return self.within.clone();
        }
        let mut row = self.catalogue.space.row(&start.key);
        let beyond = self.flags.has(Flag::ExcludeStart) == (self.direction == Direction::Forward);
        if beyond {
            // The smallest key greater than this one.
            row.push(0);
        }
        let rows = match self.direction {
            Direction::Forward => RowRange::from(row),
            Direction::Backward => RowRange::new("", row),
        };
        self.within.intersection(&rows)
    }
}
