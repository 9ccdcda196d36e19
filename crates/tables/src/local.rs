//! Rows that this process serves: commits are admitted, applied and made durable;
//! single rows, snapshots and sizes are read here, ranges by a [`Scan`].

mod scan;

use std::sync::Arc;

use stele_engine::schema::Schema;
use stele_engine::{
    CellView, Commit, Durability, Error, FirstCell, Flow, Place, Result, ScanSpec, Snapshot, Store,
    TableId, TableSizes, Txn, View,
};

pub use scan::Scan;

use crate::answer::Answer;

/// A table at a row that this process serves. Cheap to copy.
#[derive(Clone, Copy)]
pub struct Local<'t> {
    store: &'t Store,
    table: TableId,
}

/// The right to apply one commit without waiting. Holds its reservations of memory
/// and log space, which are released on drop.
#[must_use = "an unused permit releases its reservations"]
pub struct Permit<'a> {
    commit: &'a Commit,
    reserved: stele_engine::Permit<'a>,
}

/// Writes.
impl<'t> Local<'t> {
    #[inline]
    pub(crate) fn new(store: &'t Store, table: TableId) -> Local<'t> {
        Local { store, table }
    }

    /// Waits for the admission of a commit, on any executor: for memory for its rows
    /// (first come, first served), for space for its bytes in the log, and for the
    /// chains that it touches. All rows of the commit must be served by this process.
    ///
    /// Also waits for tablets that are being loaded.
    ///
    /// Fails with `Overloaded` if too many commits wait already, or after
    /// `AdmissionOptions::wait_max`, and with `TabletNotLoaded` if a row is not served, or
    /// not after `LoadOptions::wait_max`. A call that reaches its deadline earlier drops
    /// the future, which releases all reservations.
    pub async fn admit<'a>(self, commit: &'a Commit) -> Result<Permit<'a>>
    where
        't: 'a,
    {
        loop {
            match self.store.admit(commit).await {
                Err(Error::TabletNotLoaded(tablet)) if tablet.state.is_loading() => {
                    self.store.loaded(tablet.id, &tablet.row.0).await?;
                }
                admitted => return Ok(Permit { commit, reserved: admitted? }),
            }
        }
    }

    /// Admits a commit if that is possible without waiting, otherwise returns `None`.
    #[inline]
    pub fn try_admit<'a>(self, commit: &'a Commit) -> Result<Option<Permit<'a>>>
    where
        't: 'a,
    {
        match self.store.try_admit(commit) {
            Err(Error::TabletNotLoaded(tablet)) if tablet.state.is_loading() => Ok(None),
            reserved => Ok(reserved?.map(|reserved| Permit { commit, reserved })),
        }
    }

    /// Applies the admitted commit atomically, unless a row that it touches was
    /// written after `commit_max_txn`. Never waits for memory, the log or compaction.
    #[inline]
    pub fn apply(self, permit: Permit<'_>, commit_max_txn: Txn) -> Answer<Txn> {
        let Permit { commit, reserved } = permit;
        Answer::new(self.store.apply_admitted(reserved, commit, commit_max_txn))
    }

    /// Like `apply`, but fails with `SchemaChanged` if this table was altered since
    /// [`Tables::schema`](crate::Tables::schema) returned `schema`.
    #[inline]
    pub fn apply_under_schema(
        self,
        permit: Permit<'_>,
        commit_max_txn: Txn,
        schema: &Arc<Schema>,
    ) -> Answer<Txn> {
        let Permit { commit, reserved } = permit;
        let applied =
            self.store.apply_under_schema(reserved, commit, commit_max_txn, self.table, schema);
        Answer::new(applied)
    }

    /// Admits and applies a commit and waits until it is durable, blocking this
    /// thread.
    pub fn apply_blocking(self, commit: &Commit) -> Answer<Txn> {
        Answer::new(self.store.apply(commit, Txn::MAX, Durability::Durable))
    }

    /// Waits until all commits up to `txn` are durable, sharing syncs with other
    /// tasks. For small commits: the task may have to write and sync itself.
    ///
    /// `yield_now` lets the other tasks of the caller's executor run; a task that
    /// syncs calls it as long as others add commits.
    pub async fn durable<F: Future<Output = ()>>(
        self,
        txn: Txn,
        yield_now: impl Fn() -> F,
    ) -> Answer<()> {
        Answer::new(self.store.durable(txn, yield_now).await)
    }

    /// Like `durable`, for a large commit: the log's own thread writes and syncs it.
    pub async fn durable_by_log(self, txn: Txn) -> Answer<()> {
        Answer::new(self.store.durable_by_log(txn).await)
    }

    /// Like `durable`, blocking this thread.
    pub fn sync(self, txn: Txn) -> Answer<()> {
        Answer::new(self.store.sync(txn).map(drop))
    }

    /// Has the log make all commits up to `txn` durable soon, without waiting.
    pub fn request_sync(self, txn: Txn) {
        self.store.on_durable(txn, drop);
    }

    /// Returns the newest durable and the newest accepted txn.
    #[inline]
    pub fn progress(self) -> Answer<(Txn, Txn)> {
        Answer::new(Ok(self.store.progress()))
    }
}

/// Which rows are served.
impl Local<'_> {
    /// Waits while the tablet with a row is being loaded, on any executor. To be called
    /// before the row is read; writes wait when they are admitted. Costs almost nothing
    /// while no tablet is being loaded.
    ///
    /// Fails with `TabletNotLoaded` if too many requests wait for the tablet already, or
    /// after `LoadOptions::wait_max`. A call that reaches its deadline earlier drops the
    /// future.
    #[inline]
    pub async fn loaded(self, row: &[u8]) -> Result<()> {
        if self.store.any_loading() { self.store.loaded(self.table, row).await } else { Ok(()) }
    }

    /// Whether some rows of the table cannot be written now.
    pub fn is_restricted(self) -> bool {
        self.store.is_restricted(self.table)
    }

    /// Fails with `TabletNotLoaded` if the row cannot be written now.
    pub fn check_write(self, row: &[u8]) -> Result<()> {
        self.store.check_write(self.table, row)
    }
}

/// Reads.
impl Local<'_> {
    /// Takes a snapshot of everything durable so far. It is valid for a limited time.
    #[inline]
    pub fn snapshot(self) -> Answer<Arc<Snapshot>> {
        Answer::new(Ok(self.store.snapshot()))
    }

    /// Opens a scan, which is read in batches.
    #[inline]
    pub fn scan(self, spec: ScanSpec) -> Answer<Scan> {
        Answer::new(self.store.scan(self.table, spec).map(Scan::new))
    }

    /// Reads one row in one call, ignoring the rows in `spec`. The sink may return a
    /// [`Flow`] or a `ControlFlow` to skip cells or to stop. Returns the txn at which
    /// the row was read. Fails with `NotLocal` if bytes of the row are not on this machine:
    /// see [`Misses`](crate::Misses).
    #[inline]
    pub fn read_row<F: Into<Flow>>(
        self,
        row: &[u8],
        spec: &ScanSpec,
        sink: impl FnMut(&CellView<'_>) -> F,
    ) -> Answer<Txn> {
        Answer::new(self.store.read_row(self.table, row, spec, sink))
    }

    /// Like `read_row`, but stops after `work_max` units of work, or if bytes of the row are
    /// not on this machine, and then returns `None`: such a row must be read by a scan in
    /// batches.
    #[inline]
    pub fn try_read_row<F: Into<Flow>>(
        self,
        row: &[u8],
        spec: &ScanSpec,
        work_max: usize,
        sink: impl FnMut(&CellView<'_>) -> F,
    ) -> Answer<Option<Txn>> {
        Answer::new(match self.store.try_read_row(self.table, row, spec, work_max, sink) {
            Err(Error::NotLocal(_)) => Ok(None),
            read => read,
        })
    }

    /// Reads the first cell of a row and returns its place. Passing the place from an
    /// earlier read skips the lookup while the cell is still there. Fails like `read_row`.
    #[inline]
    pub fn read_first(
        self,
        row: &[u8],
        view: &View,
        place: Option<&Place>,
        sink: impl FnMut(&CellView<'_>),
    ) -> Answer<FirstCell> {
        Answer::new(self.store.read_first(self.table, row, view, place, sink))
    }

    /// Returns the sizes of the table's parts, at one point in time.
    pub fn sizes(self) -> Answer<TableSizes> {
        Answer::new(self.store.sizes(self.table))
    }
}
