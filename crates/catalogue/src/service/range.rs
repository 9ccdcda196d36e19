//! Counts and deletes ranges of keys.

use stele_engine::{BatchLimits, CommitBuilder, RowRange, ScanSpec, View};

use super::checks::check_key;
use super::{Cancellation, Catalogues, Written, change};
use crate::catalogue::{Catalogue, Totals};
use crate::error::{Error, Result};
use crate::flags::{self, Flag, Flags};
use crate::layout::Space;
use crate::proto::{CountReply, CountRequest, DelRangeRequest, Range, WriteReply};

/// Returns the rows of a space whose keys are in a range; all rows without a range.
pub fn key_range(space: &Space, range: Option<&Range>) -> Result<RowRange> {
    let Some(range) = range else { return Ok(space.rows()) };
    for key in [Some(&range.start), range.end.as_ref(), Some(&range.prefix)].into_iter().flatten() {
        check_key(key)?;
    }
    let rows = RowRange::prefix(&space.row(&range.prefix));
    let end = range.end.as_ref().map(|end| space.row(end));
    let bounds = RowRange { start: space.row(&range.start), end };
    let rows = if range.prefix.is_empty() { space.rows() } else { rows };
    Ok(rows.intersection(&bounds))
}

impl Catalogues {
    pub fn count(&self, request: &CountRequest, cancellation: &Cancellation) -> Result<CountReply> {
        let catalogue = self.readable(request.catalogue.as_ref())?;
        let rows = key_range(&catalogue.space, request.range.as_ref())?;
        let snapshot = self.read_snapshot(request.at)?;
        let check = || cancellation.check().and_then(|()| snapshot.renew());
        let totals = self.count_rows(&catalogue, &rows, snapshot.view(), check)?;
        if catalogue.is_dropped() {
            return Err(Error::NoCatalogue(catalogue.fid));
        }
        Ok(CountReply { records: totals.records as u64, bytes: totals.bytes as u64 })
    }

    /// Counts the records of a range, checking between batches whether to continue.
    pub(super) fn count_rows(
        &self,
        catalogue: &Catalogue,
        rows: &RowRange,
        view: View,
        check: impl Fn() -> Result<()>,
    ) -> Result<Totals> {
        check()?;
        let mut totals = Totals::default();
        if rows.is_empty() {
            return Ok(totals);
        }
        let spec = ScanSpec { view, ..ScanSpec::range(rows.clone()) };
        let space = &catalogue.space;
        let tenure = self.tenure();
        let mut scan = tenure.open(self.local(space.table).scan(spec))?;
        let mut sink = |cell: &stele_engine::CellView<'_>| {
            totals.add(space.key(cell.row), cell.value.len());
        };
        while !tenure.open(scan.next_batch(BatchLimits::default(), &mut sink))?.done {
            check()?;
            scan.wait_fetched()?;
        }
        Ok(totals)
    }

    /// Deletes any number of records of a range in one commit. They are counted first,
    /// so that the totals stay correct; other writes to the catalogue wait until that
    /// is done.
    pub fn del_range(
        &self,
        request: &DelRangeRequest,
        cancellation: &Cancellation,
    ) -> Result<Written<WriteReply>> {
        let flags = Flags::check(request.flags, flags::DEL_RANGE)?;
        let (fid, catalogue) = self.find(request.catalogue.as_ref())?;
        if fid.is_reserved() {
            return Err(Error::Reserved(fid));
        }
        let catalogue = catalogue.ok_or(Error::NoCatalogue(fid))?;
        let rows = key_range(&catalogue.space, request.range.as_ref())?;
        let _locked = catalogue.lock_all();
        if catalogue.is_dropped() {
            return Err(Error::NoCatalogue(fid));
        }
        let mut txn = self.latest()?;
        let check = || cancellation.check();
        let found = self.count_rows(&catalogue, &rows, View::Latest, check)?;
        if found.records > 0 {
            let mut commit = CommitBuilder::new();
            commit.table(catalogue.space.table).delete_range(&rows);
            let change = Totals { records: -found.records, bytes: -found.bytes };
            change::append_totals(&mut commit, catalogue.object, change);
            txn = self.apply(&commit.finish())?;
            catalogue.count(change);
        }
        let count = found.records as u64;
        let reply = WriteReply { count, applied: true, txn: txn.raw(), ..Default::default() };
        Ok(Written { reply, txn, no_wait: flags.has(Flag::NoWait) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use stele_engine::Options;
    use stele_engine::world::World;
    use stele_tables::Tables;

    use super::super::Waiting;
    use super::*;
    use crate::fid::{Fid, META};
    use crate::proto::{ListRequest, PutRequest, Record, StatRequest, Target};

    #[test]
    fn counting_for_nobody_ends_and_deletes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(dir.path(), Options::default(), World::real()).unwrap();
        let service = Arc::new(Catalogues::open(tables).unwrap());
        let fid = Bytes::copy_from_slice(Fid::of_id(1000).unwrap().bytes());
        let catalogue = Some(Target { fid, ..Default::default() });
        let records = vec![Record { key: "k".into(), ..Default::default() }];
        let flags = Flag::CreateCatalogue as u32;
        let put = PutRequest { catalogue: catalogue.clone(), records, flags };
        service.wait_until_durable(service.put(&put).unwrap()).unwrap();
        let gone = Waiting::default().cancellation();
        let count = CountRequest { catalogue: catalogue.clone(), ..Default::default() };
        let delete = DelRangeRequest { catalogue, ..Default::default() };
        assert!(matches!(service.count(&count, &gone), Err(Error::Cancelled)));
        assert!(matches!(service.del_range(&delete, &gone), Err(Error::Cancelled)));
        let stat = StatRequest { fids: vec![Bytes::copy_from_slice(META.bytes())] };
        assert!(matches!(service.stat(&stat, &gone), Err(Error::Cancelled)));
        let list = ListRequest { count: 9, ..Default::default() };
        assert!(matches!(service.list(&list, &gone), Err(Error::Cancelled)));
        let never = Cancellation::never();
        assert_eq!(service.count(&count, &never).unwrap().records, 1);
        assert_eq!(service.del_range(&delete, &never).unwrap().reply.count, 1);
    }
}
