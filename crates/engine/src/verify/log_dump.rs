//! Dumps a log record by record, with the mutations in its commits.

use std::path::Path;
use std::sync::Arc;

use crate::cell::commit::{Commit, CommitVisitor, Mutation, TableId, TimeRange};
use crate::cell::rows::RowRange;
use crate::config::Manifest;
use crate::error::{Error, Result};
use crate::log::{ItemKind, LogItem, LogSurvey, RecordInfo, SurveyItem, Torn};
use crate::store::LOG_DIR;
use crate::store::TABLES_STREAM;
use crate::world::Files;

/// A line of a dump, in log order.
#[derive(Debug)]
pub enum LogLine<'a> {
    Record(RecordInfo),
    /// A change in the commit that the last record completed.
    Mutation {
        txn: u64,
        mutation: MutationInfo<'a>,
    },
    Damage(Error),
    Torn(Torn),
}

/// A description of one change.
#[derive(Debug, Default)]
pub struct MutationInfo<'a> {
    pub table: u32,
    pub kind: &'static str,
    /// The row, or the start of a deleted range.
    pub row: &'a [u8],
    /// The end of a deleted range, if bounded.
    pub row_end: Option<&'a [u8]>,
    pub family: Option<&'a [u8]>,
    pub qualifier: Option<&'a [u8]>,
    pub timestamp: Option<i64>,
    pub times: Option<TimeRange>,
    pub fold: Option<u8>,
    pub value: Option<&'a [u8]>,
}

/// A log to dump.
pub struct LogDump {
    survey: LogSurvey,
}

impl LogDump {
    /// Opens the log in a store's directory from its head on, the segments in a
    /// directory without a manifest, or a single segment.
    pub fn open(files: &Arc<dyn Files>, path: &Path) -> Result<LogDump> {
        let is_dir = files.list(path).is_ok();
        let survey = if !is_dir {
            LogSurvey::open_segment(&**files, path)?
        } else if let Some(configs) = Manifest::load(&**files, path)? {
            LogSurvey::open(&**files, &path.join(LOG_DIR), Some(configs.log_head))?
        } else {
            LogSurvey::open(&**files, path, None)?
        };
        Ok(LogDump { survey })
    }

    /// Calls `each` with every record and, if `cells` is set, with every mutation.
    /// Stops at the first error that `each` returns.
    pub fn show<E>(
        self,
        cells: bool,
        each: &mut dyn FnMut(LogLine<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut segment = std::path::PathBuf::new();
        self.survey.walk(&mut |item| match item {
            SurveyItem::Segment { path, .. } => {
                segment = path.to_path_buf();
                Ok(())
            }
            SurveyItem::Record(record) => each(LogLine::Record(record)),
            SurveyItem::Item(item) if cells && is_commit(&item) => {
                show_commit(&item, &segment, each)
            }
            SurveyItem::Item(_) => Ok(()),
            SurveyItem::Damage(error) => each(LogLine::Damage(error)),
            SurveyItem::Torn(torn) => each(LogLine::Torn(torn)),
        })
    }
}

fn is_commit(item: &LogItem) -> bool {
    item.stream == TABLES_STREAM && item.kind == ItemKind::Data
}

fn show_commit<E>(
    item: &LogItem,
    segment: &Path,
    each: &mut dyn FnMut(LogLine<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let commit = Commit::from_bytes(item.payload.clone());
    let mut dump = MutationDump { txn: item.index, table: 0, row: &[], each, failed: None };
    let walked = commit.walk(&mut dump);
    if let Some(error) = dump.failed {
        return Err(error);
    }
    match walked {
        Ok(()) => Ok(()),
        Err(error) => {
            let what = format!("the commit cannot be parsed: {error}");
            each(LogLine::Damage(Error::data_loss(segment, item.offset, what)))
        }
    }
}

struct MutationDump<'a, 'e, E> {
    txn: u64,
    table: u32,
    row: &'a [u8],
    each: &'e mut dyn FnMut(LogLine<'_>) -> Result<(), E>,
    /// The sink's own error, which ends the walk.
    failed: Option<E>,
}

impl<E> MutationDump<'_, '_, E> {
    fn emit(&mut self, mutation: MutationInfo<'_>) -> Result<()> {
        (self.each)(LogLine::Mutation { txn: self.txn, mutation }).map_err(|error| {
            self.failed = Some(error);
            Error::Closed
        })
    }
}

impl<'a, E> CommitVisitor<'a> for MutationDump<'a, '_, E> {
    fn table(&mut self, table: TableId) -> Result<()> {
        self.table = table.0;
        Ok(())
    }

    fn delete_range(&mut self, range: RowRange) -> Result<()> {
        self.emit(MutationInfo {
            table: self.table,
            kind: "delete_range",
            row: &range.start,
            row_end: range.end.as_deref(),
            ..MutationInfo::default()
        })
    }

    fn row(&mut self, row: &'a [u8]) -> Result<()> {
        self.row = row;
        Ok(())
    }

    fn mutation(&mut self, mutation: Mutation<'a>) -> Result<()> {
        let info = describe(mutation);
        self.emit(MutationInfo { table: self.table, row: self.row, ..info })
    }

    fn row_end(&mut self) -> Result<()> {
        Ok(())
    }
}

fn describe(mutation: Mutation<'_>) -> MutationInfo<'_> {
    let cell = |kind, family, qualifier, timestamp, value| MutationInfo {
        kind,
        family: Some(family),
        qualifier: Some(qualifier),
        timestamp: Some(timestamp),
        value: Some(value),
        ..MutationInfo::default()
    };
    match mutation {
        Mutation::Set { family, qualifier, timestamp, value } => {
            cell("set", family, qualifier, timestamp, value)
        }
        Mutation::Mark { family, qualifier, timestamp, value } => {
            cell("mark", family, qualifier, timestamp, value)
        }
        Mutation::Merge { fold, family, qualifier, timestamp, operand } => MutationInfo {
            fold: Some(fold.0),
            ..cell("merge", family, qualifier, timestamp, operand)
        },
        Mutation::DeleteCells { family, qualifier, times } => MutationInfo {
            kind: "delete_cells",
            family: Some(family),
            qualifier: Some(qualifier),
            times: Some(times),
            ..MutationInfo::default()
        },
        Mutation::DeleteFamily { family } => {
            MutationInfo { kind: "delete_family", family: Some(family), ..MutationInfo::default() }
        }
        Mutation::DeleteRow => MutationInfo { kind: "delete_row", ..MutationInfo::default() },
    }
}
