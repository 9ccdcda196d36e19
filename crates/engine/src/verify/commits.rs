//! Checks the log: that its records are intact, and that they contain commits that can
//! be replayed.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use super::check::damage_or_fail;
use super::report::{Problem, Report, TornWrite};
use crate::cell::commit::{Commit, CommitVisitor, Mutation, TableId};
use crate::cell::rows::RowRange;
use crate::config::Configs;
use crate::error::{Error, Result};
use crate::log::{ItemKind, LogItem, LogSurvey, SurveyItem};
use crate::store::{TABLES_STREAM, head_missing};
use crate::txn::Txn;

pub fn check(
    survey: LogSurvey,
    configs: &Configs,
    log_dir: &Path,
    report: &mut Report,
) -> Result<()> {
    let empty = survey.is_empty();
    let mut check =
        LogCheck { configs, report, segment: log_dir.to_path_buf(), last: Txn::ZERO, failed: None };
    let walked = survey.walk::<Infallible>(&mut |item| {
        check.survey_item(item);
        Ok(())
    });
    let Ok(()) = walked;
    if let Some(error) = check.failed {
        return Err(error);
    }
    if empty && configs.log_head > 0 {
        let error = head_missing(log_dir, configs.log_head);
        report.problems.push(Problem::of(error, log_dir));
    }
    Ok(())
}

struct LogCheck<'a> {
    configs: &'a Configs,
    report: &'a mut Report,
    /// The segment being read.
    segment: PathBuf,
    last: Txn,
    /// Why the check is not possible.
    failed: Option<Error>,
}

impl LogCheck<'_> {
    fn survey_item(&mut self, item: SurveyItem<'_>) {
        match item {
            SurveyItem::Segment { path, .. } => {
                self.report.log.segments += 1;
                self.segment = path.to_path_buf();
            }
            SurveyItem::Record(_) => self.report.log.records += 1,
            SurveyItem::Item(item) => self.item(&item),
            SurveyItem::Torn(torn) => {
                self.report.log.torn = Some(TornWrite { path: torn.path, offset: torn.offset });
            }
            SurveyItem::Damage(error) => match damage_or_fail(error) {
                Ok(error) => self.report.problems.push(Problem::of(error, &self.segment)),
                Err(error) => self.failed = Some(error),
            },
        }
    }

    fn item(&mut self, item: &LogItem) {
        if item.stream != TABLES_STREAM || item.kind != ItemKind::Data {
            return;
        }
        match self.commit(item) {
            Ok(txn) => {
                self.last = txn;
                let log = &mut self.report.log;
                log.txn_last = Some(txn);
                log.commits += 1;
                log.commit_bytes += item.payload.len() as u64;
            }
            Err(what) => {
                // A commit of several parts may have begun in an earlier segment.
                let what = format!("segment {}: {what}", item.segment);
                self.report.problems.push(Problem::new(&self.segment, item.offset, what));
            }
        }
    }

    fn commit(&self, item: &LogItem) -> std::result::Result<Txn, String> {
        let txn =
            Txn::from_raw(item.index).ok_or_else(|| format!("{} is not a txn", item.index))?;
        if txn <= self.last {
            return Err(format!("txn {txn} follows txn {}", self.last));
        }
        if txn.generation() > self.configs.generation {
            return Err(format!(
                "the generation of txn {txn} is above the generation of the store"
            ));
        }
        let commit = Commit::from_bytes(item.payload.clone());
        let mut tables = AssignedTables { last: self.configs.last_table };
        commit.walk(&mut tables).map_err(|error| format!("commit {txn}: {error}"))?;
        Ok(txn)
    }
}

/// Accepts every mutation of an existing or dropped table.
struct AssignedTables {
    last: u32,
}

impl<'a> CommitVisitor<'a> for AssignedTables {
    fn table(&mut self, table: TableId) -> Result<()> {
        if (1..=self.last).contains(&table.0) {
            return Ok(());
        }
        Err(Error::UnknownTable(format!("number {}", table.0)))
    }

    fn delete_range(&mut self, _range: RowRange) -> Result<()> {
        Ok(())
    }

    fn row(&mut self, _row: &'a [u8]) -> Result<()> {
        Ok(())
    }

    fn mutation(&mut self, _mutation: Mutation<'a>) -> Result<()> {
        Ok(())
    }

    fn row_end(&mut self) -> Result<()> {
        Ok(())
    }
}
