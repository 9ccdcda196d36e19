//! CREATE, DELETE, LOOKUP, LIST and STAT: catalogues as records of the meta-catalogue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use stele_engine::world::WaitScope;
use stele_engine::{Commit, CommitBuilder, View};

use super::checks::check_fids;
use super::{Cancellation, Catalogues, Direction, Walk, WalkSink, Written};
use crate::catalogue::Catalogue;
use crate::error::{Error, Result};
use crate::fid::{self, Fid};
use crate::flags::{self, Flag, Flags};
use crate::layout::{self, Condemned, Entry, Object};
use crate::limits::VECTOR_MAX;
use crate::proto::{
    CatalogueStat, CataloguesReply, Code, CreateRequest, DeleteRequest, ListReply, ListRequest,
    Listed, LookupRequest, NextRequest, Start, StatReply, StatRequest, Target,
};

/// New catalogues and their objects.
type Created = Vec<(Fid, Object)>;

/// The number of concurrent creations that a creation tolerates before it takes the
/// lock.
pub(super) const OVERTAKEN_MAX: u32 = 4;

/// Catalogues that are being deleted, in the order in which they are locked.
type Dying = BTreeMap<Object, Arc<Catalogue>>;

impl Catalogues {
    pub fn create(&self, request: &CreateRequest) -> Result<Written<CataloguesReply>> {
        let flags = Flags::check(request.flags, flags::CREATE)?;
        let fids = unreserved(&request.fids)?;
        let mut attempts = 0;
        let (codes, created, txn) = loop {
            // Each creation increases the next object, so earlier lookups are still
            // valid if it has not changed. Concurrent creations are possible, but after
            // a few attempts the lock excludes them.
            let held = (attempts == OVERTAKEN_MAX).then(|| self.lock_creation());
            let first = held.as_deref().copied().unwrap_or_else(|| *self.lock_creation());
            attempts += 1;
            let (codes, created) = self.to_create(&fids, flags, first)?;
            if created.is_empty() {
                break (codes, created, self.latest()?);
            }
            let after = first + created.len() as u64;
            let mut commit = CommitBuilder::new();
            commit.table(self.ids.meta);
            self.append_new(&mut commit, &created, after);
            if let Some(txn) = self.apply_creation(&commit.finish(), first, after, held)? {
                break (codes, created, txn);
            }
        };
        let count = created.len() as u64;
        let cookies = self.cookies_of(&fids, flags)?;
        let reply = CataloguesReply { codes, cookies, count, txn: txn.raw() };
        Ok(Written { reply, txn, no_wait: flags.has(Flag::NoWait) })
    }

    /// Returns the code of each id of a creation, and the catalogues to create, with
    /// the objects from `first` on.
    fn to_create(&self, fids: &[Fid], flags: Flags, first: Object) -> Result<(Vec<i32>, Created)> {
        let mut created: BTreeMap<Fid, Object> = BTreeMap::new();
        let mut codes = Vec::with_capacity(fids.len());
        for &fid in fids {
            let code = if created.contains_key(&fid) || self.lookup_fid(fid)?.is_some() {
                Code::Exists
            } else if !flags.has(Flag::Reuse) && self.is_retired(fid)? {
                Code::Retired
            } else {
                created.insert(fid, first + created.len() as u64);
                Code::Ok
            };
            codes.push(code as i32);
        }
        if flags.has(Flag::AllOrNothing) && codes.iter().any(|code| *code != 0) {
            created.clear();
        }
        Ok((codes, created.into_iter().collect()))
    }

    /// Appends rows that create catalogues; the table of catalogues is open in
    /// `commit`.
    pub(super) fn append_new(
        &self,
        commit: &mut CommitBuilder,
        created: &[(Fid, Object)],
        next_object: Object,
    ) {
        let since_micros = self.clock.now_micros();
        for &(fid, object) in created {
            let entry = Entry { object, since_micros }.encode();
            let row = layout::meta_row(layout::LIVE, fid.bytes());
            commit.row(&row).set(layout::FAMILY, b"", 0, &entry);
        }
        let next_object = next_object.to_be_bytes();
        commit.row(layout::NEXT_OBJECT).set(layout::FAMILY, b"", 0, &next_object);
    }

    pub(super) fn is_retired(&self, fid: Fid) -> Result<bool> {
        let row = layout::meta_row(layout::RETIRED, fid.bytes());
        let mut found = false;
        let read = self.meta().read_first(&row, &View::Latest, None, |_| found = true);
        self.tenure().open(read)?;
        Ok(found)
    }

    /// Returns the cookies of those that exist.
    fn cookies_of(&self, fids: &[Fid], flags: Flags) -> Result<Vec<Bytes>> {
        if flags.has(Flag::NoCookies) {
            return Ok(Vec::new());
        }
        // The request has been applied: it must not be repeated.
        let _wait = WaitScope::enter();
        let cookie = |fid: &Fid| {
            let catalogue = self.lookup_fid(*fid)?;
            Ok(catalogue.map(|open| self.catalogue_cookie(&open).into()).unwrap_or_default())
        };
        fids.iter().map(cookie).collect()
    }

    /// Deletes catalogues in constant time. The deletion is durable when it returns:
    /// until then readers continue.
    pub fn delete(&self, request: &DeleteRequest) -> Result<Written<CataloguesReply>> {
        let flags = Flags::check(request.flags, flags::DELETE)?;
        let fids = unreserved(&request.fids)?;
        loop {
            let (codes, dying) = self.to_delete(&fids, flags)?;
            // Deletions always lock in the order of objects.
            let _locked: Vec<_> = dying.values().map(|catalogue| catalogue.lock_all()).collect();
            if dying.values().any(|catalogue| catalogue.is_dropped()) {
                // Another request deleted it while this one waited.
                continue;
            }
            let mut txn = self.latest()?;
            if !dying.is_empty() {
                let commit = self.condemn(dying.values());
                txn = self.tenure().open(self.meta().apply_blocking(&commit))?;
                for catalogue in dying.values() {
                    catalogue.mark_dropped();
                    self.registry.remove(catalogue.fid);
                }
                let doomed = dying.values().map(|catalogue| (catalogue.object, catalogue.fid));
                self.deathrow.arrived(doomed.collect::<Vec<_>>().into_iter());
            }
            let count = dying.len() as u64;
            let reply = CataloguesReply { codes, count, txn: txn.raw(), ..Default::default() };
            return Ok(Written { reply, txn, no_wait: false });
        }
    }

    /// Returns the code of each id of a deletion, and the catalogues to delete.
    fn to_delete(&self, fids: &[Fid], flags: Flags) -> Result<(Vec<i32>, Dying)> {
        let mut seen = BTreeSet::new();
        let mut dying = Dying::new();
        let mut codes = Vec::with_capacity(fids.len());
        for &fid in fids {
            let found = if seen.insert(fid) { self.lookup_fid(fid)? } else { None };
            let missing = if flags.has(Flag::MissingOk) { Code::Ok } else { Code::Absent };
            codes.push(if found.is_some() { Code::Ok } else { missing } as i32);
            dying.extend(found.map(|found| (found.object, found)));
        }
        if flags.has(Flag::AllOrNothing) && codes.iter().any(|code| *code != 0) {
            dying.clear();
        }
        Ok((codes, dying))
    }

    /// Returns the commit that moves catalogues to the deathrow.
    fn condemn<'c>(&self, dying: impl Iterator<Item = &'c Arc<Catalogue>>) -> Commit {
        let since_micros = self.clock.now_micros();
        let mut rows: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for catalogue in dying {
            let (fid, object, totals) = (catalogue.fid, catalogue.object, catalogue.totals());
            let condemned = Condemned {
                fid,
                since_micros,
                records: totals.records.max(0) as u64,
                bytes: totals.bytes.max(0) as u64,
                removed: 0,
            };
            rows.insert(layout::meta_row(layout::LIVE, fid.bytes()), None);
            let on_deathrow = layout::meta_row(layout::DEATHROW, &object.to_be_bytes());
            rows.insert(on_deathrow, Some(condemned.encode()));
            let retired = layout::meta_row(layout::RETIRED, fid.bytes());
            rows.insert(retired, Some(Entry { object, since_micros }.encode()));
        }
        let mut commit = CommitBuilder::new();
        commit.table(self.ids.meta);
        for (row, value) in rows {
            commit.row(&row);
            match value {
                Some(value) => commit.set(layout::FAMILY, b"", 0, &value),
                None => commit.delete_row(),
            };
        }
        commit.finish()
    }

    pub fn lookup(&self, request: &LookupRequest) -> Result<CataloguesReply> {
        let mut reply = CataloguesReply::default();
        let durable = self.durable_txn()?;
        for fid in check_fids(&request.fids)? {
            let found = self.lookup_fid(fid)?.filter(|found| found.is_readable(durable));
            let code = match &found {
                Some(_) => Code::Ok,
                None if self.is_retired(fid)? => Code::Retired,
                None => Code::Absent,
            };
            reply.count += u64::from(found.is_some());
            reply.codes.push(code as i32);
            let cookie = found.map(|found| self.catalogue_cookie(&found));
            reply.cookies.push(cookie.unwrap_or_default().into());
        }
        reply.txn = durable.raw();
        Ok(reply)
    }

    /// Lists the meta-catalogue from a fid on, in numeric order.
    pub fn list(
        self: &Arc<Self>,
        request: &ListRequest,
        cancellation: &Cancellation,
    ) -> Result<ListReply> {
        let flags = Flags::check(request.flags, flags::LIST)?;
        if request.count as usize > VECTOR_MAX {
            return Err(Error::invalid(format!("a list may have at most {VECTOR_MAX} catalogues")));
        }
        let edge = request.start.is_empty();
        if !edge {
            Fid::from_wire(&request.start)?;
        }
        let start =
            Start { key: request.start.clone(), count: request.count, edge, ..Default::default() };
        let next = NextRequest {
            catalogue: Some(Target {
                fid: fid::META.bytes().to_vec().into(),
                ..Default::default()
            }),
            starts: vec![start],
            flags: (request.flags & !(Flag::NoCookies as u32)) | Flag::NoCookies as u32,
            ..Default::default()
        };
        let mut listing = Listing::default();
        let mut walk = Walk::new(self.clone(), next, Direction::Forward)?;
        while walk.step(&mut listing, usize::MAX)? {
            cancellation.check()?;
        }
        for listed in &mut listing.reply.catalogues {
            cancellation.check()?;
            let fid = Fid::from_wire(&listed.fid)?;
            if !flags.has(Flag::NoCookies)
                && let Some(open) = self.lookup_fid(fid)?
            {
                listed.cookie = self.catalogue_cookie(&open).into();
            }
        }
        Ok(listing.reply)
    }

    /// Returns the numbers of records and bytes, which every commit updates. The reply
    /// is based on the newest commit.
    pub fn stat(
        self: &Arc<Self>,
        request: &StatRequest,
        cancellation: &Cancellation,
    ) -> Result<Written<StatReply>> {
        let mut stats = Vec::new();
        for fid in check_fids(&request.fids)? {
            let Some(catalogue) = self.lookup_fid(fid)?.filter(|found| !found.is_dropped()) else {
                stats.push(CatalogueStat { code: Code::Absent as i32, ..Default::default() });
                continue;
            };
            let totals = if fid.is_reserved() {
                let (rows, check) = (catalogue.space.rows(), || cancellation.check());
                self.count_rows(&catalogue, &rows, View::Durable, check)?
            } else {
                catalogue.totals()
            };
            stats.push(CatalogueStat {
                code: Code::Ok as i32,
                records: totals.records.max(0) as u64,
                bytes: totals.bytes.max(0) as u64,
                created_micros: catalogue.created_micros,
            });
        }
        let txn = self.latest()?;
        Ok(Written { reply: StatReply { stats }, txn, no_wait: false })
    }
}

/// Collects the results of a list.
#[derive(Default)]
struct Listing {
    reply: ListReply,
}

impl WalkSink for Listing {
    fn record(&mut self, _: u32, key: &[u8], value: &[u8], _: &[u8]) {
        let created_micros = Entry::decode(value).map_or(0, |entry| entry.since_micros);
        let fid = Bytes::copy_from_slice(key);
        self.reply.catalogues.push(Listed { fid, created_micros, ..Default::default() });
    }

    fn end(&mut self, _: u32, code: Code, _: u64) {
        self.reply.code = code as i32;
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// Parses the ids of catalogues that users may create or delete.
fn unreserved(fids: &[Bytes]) -> Result<Vec<Fid>> {
    let fids = check_fids(fids)?;
    match fids.iter().find(|fid| fid.is_reserved()) {
        Some(reserved) => Err(Error::Reserved(*reserved)),
        None => Ok(fids),
    }
}

#[cfg(test)]
mod tests {
    use stele_engine::Options;
    use stele_engine::world::World;
    use stele_tables::Tables;

    use super::*;

    fn fid(id: u128) -> Fid {
        Fid::of_id(1000 + id).unwrap()
    }

    fn create(service: &Catalogues, id: u128) -> u64 {
        let fids = vec![Bytes::copy_from_slice(fid(id).bytes())];
        let request = CreateRequest { fids, ..Default::default() };
        service.create(&request).unwrap().reply.count
    }

    fn delete(service: &Catalogues, id: u128) -> u64 {
        let fids = vec![Bytes::copy_from_slice(fid(id).bytes())];
        let request = DeleteRequest { fids, ..Default::default() };
        service.delete(&request).unwrap().reply.count
    }

    #[test]
    fn catalogues_are_created_while_a_deletion_waits_for_writers() {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(dir.path(), Options::default(), World::real()).unwrap();
        let service = Catalogues::open(tables).unwrap();
        assert_eq!(create(&service, 1), 1);
        let catalogue = service.lookup_fid(fid(1)).unwrap().unwrap();
        // DelRange does this while it counts.
        let held = catalogue.lock_all();
        std::thread::scope(|scope| {
            let deleting = [(); 2].map(|()| scope.spawn(|| delete(&service, 1)));
            for id in 2..50 {
                assert_eq!(create(&service, id), 1);
            }
            drop(held);
            let deleted: u64 = deleting.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert_eq!(deleted, 1, "exactly one of them deleted it");
        });
        assert!(service.lookup_fid(fid(1)).unwrap().is_none());
        assert_eq!(service.deathrow_len(), 1);
    }
}
