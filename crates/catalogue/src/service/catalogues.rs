//! The catalogues of a server: opening them, finding the one that a request names, and
//! the snapshots that reads use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use stele_engine::world::{Clock, SystemClock, WaitScope};
use stele_engine::{CommitBuilder, TableId, Txn, View};
use stele_tables::{Local, Misses, Placement, Tables, Tenure};

use super::deathrow::Deathrow;
use crate::catalogue::{Catalogue, Totals};
use crate::cookie::{CatalogueCookie, Sealer};
use crate::error::{Error, Result};
use crate::fid::{self, Fid};
use crate::layout::{self, Entry, Object, Space, TableIds};
use crate::pins::{Pins, ReadSnapshot};
use crate::proto::Target;
use crate::registry::Registry;

/// All catalogues of a server.
pub struct Catalogues {
    tables: Tables,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ids: TableIds,
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
    pub fn open(tables: Tables) -> Result<Catalogues> {
        Catalogues::with_clock(tables, Arc::new(SystemClock::new()))
    }

    /// Opens the catalogues, whose tables are created if necessary.
    pub fn with_clock(tables: Tables, clock: Arc<dyn Clock>) -> Result<Catalogues> {
        let _wait = WaitScope::enter();
        let ids = TableIds::open(&tables)?;
        let (meta, tenure) = (local(&tables, ids.meta), tables.tenure());
        let (_, opened_at) = tenure.open(meta.progress())?;
        let next_object = initialize(meta, tenure, ids.meta, clock.now_micros())?;
        let open = |fid: Fid, prefix: &[u8]| {
            let space = Space { table: ids.meta, prefix: prefix.to_vec() };
            Arc::new(Catalogue::new(fid, 0, space, 0, Txn::ZERO, Totals::default(), 0))
        };
        let reserved = [
            open(fid::META, layout::LIVE),
            open(fid::RETIRED, layout::RETIRED),
            open(fid::DEATHROW, layout::DEATHROW),
        ];
        let deathrow = Deathrow::open(meta, tenure)?;
        Ok(Catalogues {
            tables,
            clock,
            ids,
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

    /// Returns access to one of the tables, all of which this process serves.
    #[inline]
    pub(super) fn local(&self, table: TableId) -> Local<'_> {
        local(&self.tables, table)
    }

    /// Returns access to the meta-catalogue, for commits to any of the tables.
    #[inline]
    pub(super) fn meta(&self) -> Local<'_> {
        self.local(self.ids.meta)
    }

    /// Waits while a table with records of the catalogue, or the meta-catalogue, is being
    /// loaded, for a bounded time. Costs almost nothing while none is. If reads may miss, it
    /// also opens the catalogue, so that the request finds it.
    pub async fn target_loaded(&self, target: Option<&Target>) -> Result<()> {
        let fid = target.and_then(|target| Fid::from_wire(&target.fid).ok());
        self.meta().loaded(b"").await?;
        // A request without one is refused.
        let Some(fid) = fid else { return Ok(()) };
        self.local(self.ids.records_of(fid)).loaded(b"").await?;
        if self.tables.has_object_store() {
            let mut misses = Misses::default();
            while let Err(error) = self.find(target) {
                self.available(error, &mut misses).await?;
            }
        }
        Ok(())
    }

    /// Waits until the tablet that a request failed for is loaded, for a bounded time, or
    /// until the bytes that it missed are fetched. Fails with the request's error if it
    /// failed for another reason.
    pub async fn available(&self, error: Error, misses: &mut Misses) -> Result<()> {
        match error {
            Error::Engine(error @ stele_engine::Error::NotLocal(_)) => {
                Ok(misses.fetched(error).await?)
            }
            Error::Engine(stele_engine::Error::TabletNotLoaded(tablet))
                if tablet.state.is_loading() =>
            {
                Ok(self.local(tablet.id).loaded(&tablet.row.0).await?)
            }
            error => Err(error),
        }
    }

    /// Returns what opens the answers of [`Catalogues::local`].
    #[inline]
    pub(super) fn tenure(&self) -> &Tenure {
        self.tables.tenure()
    }

    /// Returns the newest accepted txn.
    pub(super) fn latest(&self) -> Result<Txn> {
        Ok(self.tenure().open(self.meta().progress())?.1)
    }

    /// Returns the newest durable txn.
    pub fn durable_txn(&self) -> Result<Txn> {
        Ok(self.tenure().open(self.meta().progress())?.0)
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
        self.pins.pin(self.current_snapshot()?)
    }

    /// Returns the snapshot of a request: the pinned txn, or the current durable state.
    pub(super) fn read_snapshot(&self, at: u64) -> Result<ReadSnapshot> {
        match at {
            0 => self.current_snapshot(),
            txn => self.pins.get(txn),
        }
    }

    fn current_snapshot(&self) -> Result<ReadSnapshot> {
        let snapshot = self.tenure().open(self.meta().snapshot())?;
        Ok(ReadSnapshot::new(snapshot, &self.clock))
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
        self.tenure().open(self.meta().read_first(&row, &View::Latest, None, |cell| {
            found = Entry::decode(cell.value).map(|entry| (entry, cell.txn));
        }))?;
        let Some((entry, born)) = found else { return Ok(None) };
        let table = self.ids.records_of(fid);
        let totals = self.read_totals(table, entry.object)?;
        let space = Space::of_object(table, entry.object);
        let since = entry.since_micros;
        Ok(Some(Catalogue::new(fid, entry.object, space, since, born, totals, slot)))
    }

    pub(super) fn read_totals(&self, table: TableId, object: Object) -> Result<Totals> {
        let mut totals = Totals::default();
        let spec = stele_engine::ScanSpec { view: View::Latest, ..Default::default() };
        let read = self.local(table).read_row(&layout::totals_row(object), &spec, |cell| {
            let number = cell.value.try_into().map_or(0, i64::from_be_bytes);
            match cell.qualifier {
                layout::RECORDS => totals.records = number,
                layout::BYTES => totals.bytes = number,
                _ => {}
            }
        });
        self.tenure().open(read)?;
        Ok(totals)
    }

    /// Returns the catalogue to read from.
    pub(super) fn readable(&self, target: Option<&Target>) -> Result<Arc<Catalogue>> {
        let (fid, catalogue) = self.find(target)?;
        let durable = self.durable_txn()?;
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

/// Returns access to a table of the catalogues. They are never split and all served
/// by one process, so no row is needed to find it.
#[inline]
fn local(tables: &Tables, table: TableId) -> Local<'_> {
    let Placement::Here(local) = tables.place(table, b"");
    local
}

/// Creates the initial rows if they do not exist, and returns the next object.
fn initialize(local: Local<'_>, tenure: &Tenure, meta: TableId, now_micros: i64) -> Result<Object> {
    let mut next = None;
    tenure.open(local.read_first(layout::NEXT_OBJECT, &View::Latest, None, |cell| {
        next = cell.value.try_into().ok().map(u64::from_be_bytes);
    }))?;
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
    tenure.open(local.apply_blocking(&commit.finish()))?;
    Ok(first)
}
