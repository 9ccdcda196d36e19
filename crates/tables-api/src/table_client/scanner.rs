//! A scan as its reader sees it: whole rows, in order, each once. Blocks whose answers
//! are lost are requested again; a scanner that has expired, or was lost with its server,
//! is replaced by one that begins after the last complete row.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use tokio_stream::Stream;

use super::client::{Table, pause};
use super::error::{TableError, TableResult};
use super::row::{Cell, Row};
use crate::proto::*;

/// What a scan returns, and what it promises.
#[derive(Clone, Debug, Default)]
pub struct ScanOptions {
    pub predicate: Predicate,
    pub isolation: Isolation,
    pub view: View,
    /// The approximate limits of a block; 0 lets the server decide.
    pub block_cells: u64,
    pub block_bytes: u64,
}

impl ScanOptions {
    /// Scans all rows.
    pub fn all() -> ScanOptions {
        ScanOptions::default()
    }

    /// Scans the rows from `start`, up to and without `end`.
    pub fn range(start: impl Into<Bytes>, end: Option<Bytes>) -> ScanOptions {
        ScanOptions::ranges(vec![RowRange { start: start.into(), end }])
    }

    /// Scans one row.
    pub fn row(row: impl AsRef<[u8]>) -> ScanOptions {
        let start = Bytes::copy_from_slice(row.as_ref());
        let end = Some(successor(&start));
        ScanOptions::range(start, end)
    }

    fn ranges(rows: Vec<RowRange>) -> ScanOptions {
        let predicate = Predicate { rows, ..Predicate::default() };
        ScanOptions { predicate, ..ScanOptions::default() }
    }

    /// Returns the same scan with another isolation.
    pub fn isolation(self, isolation: Isolation) -> ScanOptions {
        ScanOptions { isolation, ..self }
    }
}

/// An open scan.
pub struct Scanner {
    table: Table,
    options: ScanOptions,
    /// The scanner of the server and the number of its next block.
    open: Option<(u64, u64)>,
    begun: bool,
    done: bool,
    /// Complete rows that have not been returned yet.
    ready: VecDeque<Row>,
    /// A row that may continue in the next block.
    partial: Option<Row>,
    /// The last complete row.
    after: Option<Bytes>,
    txn: Option<u64>,
}

impl Scanner {
    pub(super) fn new(table: Table, options: ScanOptions) -> Scanner {
        Scanner {
            table,
            options,
            open: None,
            begun: false,
            done: false,
            ready: VecDeque::new(),
            partial: None,
            after: None,
            txn: None,
        }
    }

    /// Returns the next row; `None` after the last. After an error, the next call resumes
    /// after the last row that was returned.
    pub async fn next(&mut self) -> TableResult<Option<Row>> {
        let begun = Instant::now();
        let mut expired = 0;
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Ok(Some(row));
            }
            if self.done {
                return Ok(None);
            }
            match self.block().await {
                Ok(reply) => self.accept(reply),
                Err(error) => {
                    self.open = None;
                    self.partial = None;
                    let resumes = error.reason().as_deref() == Some("SCANNER_EXPIRED")
                        && self.options.isolation != Isolation::Snapshot
                        && begun.elapsed() < self.table.client.retry_time();
                    if !resumes {
                        return Err(error);
                    }
                    // A busy server may replace scanners faster than they are used.
                    pause(expired).await;
                    expired += 1;
                }
            }
        }
    }

    /// Returns the oldest txn at which a row was read so far. Valid as a `commit_max_txn`
    /// for all rows of the scan, also for those that do not exist.
    pub fn txn(&self) -> Option<u64> {
        self.txn
    }

    /// Returns the rows as a stream.
    pub fn rows(self) -> Rows {
        Rows(RowsState::Idle(Box::new(self)))
    }

    /// Requests the next block.
    async fn block(&mut self) -> TableResult<ScanReply> {
        let Some((scanner, sequence)) = self.open else { return self.begin().await };
        let (table, options) = (&self.table, &self.options);
        let request = GetRequest {
            table: table.name().into(),
            table_id: table.id(),
            scanner,
            sequence,
            max_cells: options.block_cells,
            max_bytes: options.block_bytes,
            close: false,
        };
        table
            .client
            .retried(|client| {
                let request = client.request(request.clone());
                async move { client.calls().get(request).await }
            })
            .await
    }

    /// Opens a scanner on the server, for the rows that are left.
    async fn begin(&mut self) -> TableResult<ScanReply> {
        let options = &self.options;
        if self.begun && options.isolation == Isolation::Snapshot {
            let what = "the snapshot of the scan was lost: start the scan again";
            return Err(TableError::Refused(tonic::Status::aborted(what)));
        }
        let mut predicate = options.predicate.clone();
        if let Some(after) = &self.after {
            predicate.rows = rest(&predicate.rows, after);
            if predicate.rows.is_empty() {
                return Ok(ScanReply {
                    done: true,
                    txn: self.txn.unwrap_or_default(),
                    ..ScanReply::default()
                });
            }
        }
        let request = ScanRequest {
            table: self.table.name().into(),
            table_id: self.table.id(),
            isolation: options.isolation.into(),
            view: options.view.into(),
            max_cells: options.block_cells,
            max_bytes: options.block_bytes,
            close: false,
            predicate: Some(predicate),
        };
        let reply = self
            .table
            .client
            .retried(|client| {
                let request = client.request(request.clone());
                async move { client.calls().scan(request).await }
            })
            .await?;
        self.begun = true;
        Ok(reply)
    }

    /// Adds the cells of a block to the rows.
    fn accept(&mut self, reply: ScanReply) {
        let ScanReply { scanner, sequence, cells, row_open, txn, done } = reply;
        self.txn = Some(self.txn.map_or(txn, |oldest| oldest.min(txn)));
        let (mut family, mut qualifier) = (Bytes::new(), Bytes::new());
        let mut is_first = true;
        for cell in cells {
            if let Some(key) = cell.row {
                // The first cell of a block names its row also if the row continues.
                let continues = is_first && self.partial.as_ref().is_some_and(|row| row.key == key);
                if !continues {
                    self.complete();
                    self.partial = Some(Row { key, cells: Vec::new(), txn });
                }
            }
            is_first = false;
            family = cell.family.unwrap_or(family);
            qualifier = cell.qualifier.unwrap_or(qualifier);
            if let Some(row) = &mut self.partial {
                row.txn = row.txn.min(txn);
                row.cells.push(Cell {
                    family: family.clone(),
                    qualifier: qualifier.clone(),
                    timestamp: cell.timestamp,
                    value: cell.value,
                });
            }
        }
        if !row_open {
            self.complete();
        }
        self.done = done;
        self.open = (!done).then_some((scanner, sequence + 1));
    }

    fn complete(&mut self) {
        if let Some(row) = self.partial.take() {
            self.after = Some(row.key.clone());
            self.ready.push_back(row);
        }
    }
}

/// Returns the ranges without the rows up to and with `after`.
fn rest(ranges: &[RowRange], after: &[u8]) -> Vec<RowRange> {
    let start = successor(after);
    let all = [RowRange::default()];
    let ranges = if ranges.is_empty() { &all[..] } else { ranges };
    let left = ranges.iter().map(|range| RowRange {
        start: range.start.clone().max(start.clone()),
        end: range.end.clone(),
    });
    left.filter(|range| range.end.as_ref().is_none_or(|end| range.start < *end)).collect()
}

/// Returns the next row in byte order.
fn successor(row: &[u8]) -> Bytes {
    let mut next = row.to_vec();
    next.push(0);
    next.into()
}

/// The rows of a scan, as a stream. It ends after an error.
pub struct Rows(RowsState);

type NextRow = Pin<Box<dyn Future<Output = (Box<Scanner>, TableResult<Option<Row>>)> + Send>>;

enum RowsState {
    Idle(Box<Scanner>),
    Busy(NextRow),
    Ended,
}

impl Stream for Rows {
    type Item = TableResult<Row>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut next: NextRow = match std::mem::replace(&mut self.0, RowsState::Ended) {
            RowsState::Ended => return Poll::Ready(None),
            RowsState::Busy(next) => next,
            RowsState::Idle(mut scanner) => Box::pin(async move {
                let row = scanner.next().await;
                (scanner, row)
            }),
        };
        let polled = next.as_mut().poll(cx);
        if polled.is_pending() {
            self.0 = RowsState::Busy(next);
        }
        let (scanner, row) = ready!(polled);
        if let Ok(Some(_)) = row {
            self.0 = RowsState::Idle(scanner);
        }
        Poll::Ready(row.transpose())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &'static str, end: Option<&'static str>) -> RowRange {
        RowRange { start: start.into(), end: end.map(Into::into) }
    }

    #[test]
    fn a_scan_resumes_with_the_rows_that_are_left() {
        let ranges = [range("a", Some("c")), range("e", None), range("b\0", Some("b\0\0"))];
        assert_eq!(
            rest(&ranges, b"b"),
            [range("b\0", Some("c")), range("e", None), range("b\0", Some("b\0\0"))]
        );
        assert_eq!(rest(&ranges[..1], b"c"), []);
        assert_eq!(rest(&[], b"x"), [range("x\0", None)]);
    }
}
