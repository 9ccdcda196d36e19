//! The catalogues of a store: opening them, finding the one that a request names, and
//! the snapshots that reads use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use stele_engine::world::{Clock, SystemClock};
use stele_engine::{CommitBuilder, Durability, Store, TableId, Txn, View};

use super::deathrow::Deathrow;
use crate::catalogue::{Catalogue, Totals};
use crate::cookie::{CatalogueCookie, Sealer};
use crate::error::{Error, Result};
use crate::fid::{self, Fid};
use crate::layout::{self, Entry, Object, Space, Tables};
use crate::pins::{Pins, ReadSnapshot};
use crate::proto::Target;
use crate::registry::Registry;

/// All catalogues of a store.
pub struct Catalogues {
    pub(super) store: Arc<Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tables: Tables,
    pub(super) registry: Registry,
    pub(super) reserved: [Arc<Catalogue>; 3],
    pub(super) sealer: Sealer,
    pub(super) pins: Pins,
    pub(super) deathrow: Deathrow,
    /// The next object; locked while a commit that creates catalogues is applied.
    pub(super) next_object: Mutex<Object>,
    pub(super) counted: Counted,
    /// Earlier commits are from earlier runs.
    pub(super) opened_at: Txn,
}

/// Counters of the service, for tests and diagnostics.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) lookups: AtomicU64,
    pub(super) places: AtomicU64,
    pub(super) copied_bytes: AtomicU64,
}

/// How often cookies were used, and how many bytes were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Catalogues looked up in the meta-catalogue.
    pub lookups: u64,
    /// Records read at the location in a cookie.
    pub places: u64,
    /// Bytes of values that were copied from messages into commits and from the engine
    /// into replies.
    pub copied_bytes: u64,
}

impl Catalogues {
    pub fn open(store: Arc<Store>) -> Result<Catalogues> {
        Catalogues::with_clock(store, Arc::new(SystemClock::new()))
    }

    /// Opens the catalogues of a store, which is initialized if necessary.
    pub fn with_clock(store: Arc<Store>, clock: Arc<dyn Clock>) -> Result<Catalogues> {
        let opened_at = store.progress().1;
        let tables = Tables::open(&store)?;
        let next_object = initialize(&store, tables.meta, clock.now_micros())?;
        let open = |fid: Fid, prefix: &[u8]| {
            let space = Space { table: tables.meta, prefix: prefix.to_vec() };
            Arc::new(Catalogue::new(fid, 0, space, 0, Txn::ZERO, Totals::default(), 0))
        };
        let reserved = [
            open(fid::META, layout::LIVE),
            open(fid::RETIRED, layout::RETIRED),
            open(fid::DEATHROW, layout::DEATHROW),
        ];
        let deathrow = Deathrow::open(&store, tables.meta)?;
        Ok(Catalogues {
            store,
            clock,
            tables,
            registry: Registry::default(),
            reserved,
            sealer: Sealer::default(),
            pins: Pins::default(),
            deathrow,
            next_object: Mutex::new(next_object),
            counted: Counted::default(),
            opened_at,
        })
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub fn counts(&self) -> Counts {
        Counts {
            lookups: self.counted.lookups.load(Ordering::Relaxed),
            places: self.counted.places.load(Ordering::Relaxed),
            copied_bytes: self.counted.copied_bytes.load(Ordering::Relaxed),
        }
    }

    /// Pins the current snapshot, for reads of several requests.
    pub fn pin(&self) -> Result<Txn> {
        self.pins.pin(ReadSnapshot::new(&self.store, &self.clock))
    }

    /// Returns the snapshot of a request: the pinned txn, or the current durable state.
    pub(super) fn read_snapshot(&self, at: u64) -> Result<ReadSnapshot> {
        match at {
            0 => Ok(ReadSnapshot::new(&self.store, &self.clock)),
            txn => self.pins.get(txn),
        }
    }

    /// Releases a txn. Returns whether it was pinned.
    pub fn unpin(&self, txn: Txn) -> bool {
        self.pins.release(txn)
    }

    /// Returns the catalogue of a request, using its cookie if possible. Returns `None`
    /// if it does not exist.
    pub(super) fn find(&self, target: Option<&Target>) -> Result<(Fid, Option<Arc<Catalogue>>)> {
        let target = target.ok_or_else(|| Error::invalid("the request names no catalogue"))?;
        let fid = Fid::from_wire(&target.fid)?;
        if !target.cookie.is_empty()
            && let Some(cookie) = self.sealer.open_catalogue(fid, &target.cookie)
            && let Some(catalogue) = self.registry.at(fid, cookie)
            && !catalogue.is_dropped()
        {
            return Ok((fid, Some(catalogue)));
        }
        Ok((fid, self.lookup_fid(fid)?))
    }

    /// Looks up a catalogue by id in the meta-catalogue.
    pub(super) fn lookup_fid(&self, fid: Fid) -> Result<Option<Arc<Catalogue>>> {
        self.counted.lookups.fetch_add(1, Ordering::Relaxed);
        if let Some(reserved) = self.reserved.iter().find(|reserved| reserved.fid == fid) {
            return Ok(Some(reserved.clone()));
        }
        if let Some(open) = self.registry.get(fid) {
            return Ok(Some(open));
        }
        self.registry.get_or_open(fid, |slot| self.load(fid, slot))
    }

    pub(super) fn load(&self, fid: Fid, slot: u32) -> Result<Option<Catalogue>> {
        let mut found = None;
        let row = layout::meta_row(layout::LIVE, fid.bytes());
        self.store.read_first(self.tables.meta, &row, &View::Latest, None, |cell| {
            found = Entry::decode(cell.value).map(|entry| (entry, cell.txn));
        })?;
        let Some((entry, born)) = found else { return Ok(None) };
        let table = self.tables.records_of(fid);
        let totals = self.read_totals(table, entry.object)?;
        let space = Space::of_object(table, entry.object);
        let since = entry.since_micros;
        Ok(Some(Catalogue::new(fid, entry.object, space, since, born, totals, slot)))
    }

    pub(super) fn read_totals(&self, table: TableId, object: Object) -> Result<Totals> {
        let mut totals = Totals::default();
        let spec = stele_engine::ScanSpec { view: View::Latest, ..Default::default() };
        self.store.read_row(table, &layout::totals_row(object), &spec, |cell| {
            let number = cell.value.try_into().map_or(0, i64::from_be_bytes);
            match cell.qualifier {
                layout::RECORDS => totals.records = number,
                layout::BYTES => totals.bytes = number,
                _ => {}
            }
        })?;
        Ok(totals)
    }

    /// Returns the catalogue to read from.
    pub(super) fn readable(&self, target: Option<&Target>) -> Result<Arc<Catalogue>> {
        let (fid, catalogue) = self.find(target)?;
        let durable = self.store.progress().0;
        catalogue.filter(|catalogue| catalogue.is_readable(durable)).ok_or(Error::NoCatalogue(fid))
    }

    /// Returns a cookie for the catalogue; those of the service have none.
    pub fn catalogue_cookie(&self, catalogue: &Catalogue) -> Vec<u8> {
        let mut cookie = Vec::new();
        if !catalogue.fid.is_reserved() {
            let place = CatalogueCookie { slot: catalogue.slot, object: catalogue.object };
            self.sealer.seal_catalogue(catalogue.fid, place, &mut cookie);
        }
        cookie
    }

    pub(super) fn count_copied(&self, bytes: usize) {
        self.counted.copied_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Creates the initial rows if they do not exist, and returns the next object.
fn initialize(store: &Store, meta: TableId, now_micros: i64) -> Result<Object> {
    let mut next = None;
    store.read_first(meta, layout::NEXT_OBJECT, &View::Latest, None, |cell| {
        next = cell.value.try_into().ok().map(u64::from_be_bytes);
    })?;
    if let Some(next) = next {
        return Ok(next);
    }
    let mut commit = CommitBuilder::new();
    commit.table(meta);
    let entry = Entry { object: 0, since_micros: now_micros }.encode();
    for fid in [fid::META, fid::RETIRED, fid::DEATHROW] {
        let row = layout::meta_row(layout::LIVE, fid.bytes());
        commit.row(&row).set(layout::FAMILY, b"", 0, &entry);
    }
    let first: Object = 1;
    commit.row(layout::NEXT_OBJECT).set(layout::FAMILY, b"", 0, &first.to_be_bytes());
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable)?;
    Ok(first)
}
