//! The rows of tablets in the manifest of a store. Every submission is one batch of
//! edits with one sync, in which the riders are included. Outcomes are decided before
//! the batch is written, so none is ever unknown: a failure either left no trace or
//! stops the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rows::{
    Answer, Done, Expected, Found, Mutation, OpId, Outcome, RowKey, Submission, TabletRow,
    TabletRows,
};
use super::{ConfigEdit, ConfigEditor, Configs, TabletConfig};
use crate::error::{Error, Result};
use crate::sync::NoIoMutex;

/// Number of ids of mutations kept before those of rows that are gone are dropped.
const OPS_MIN: usize = 1 << 10;

pub struct ManifestRows {
    config: Arc<ConfigEditor>,
    ops: NoIoMutex<Ops>,
}

/// The last mutation of each row that this incarnation has changed. Not stored: after a
/// restart nobody waits for an outcome.
#[derive(Default)]
struct Ops {
    /// The mutation, and the `rev` that it expects: it was applied if the row has a
    /// higher one.
    last: BTreeMap<RowKey, (u64, OpId)>,
    limit: usize,
}

impl ManifestRows {
    pub(crate) fn new(config: Arc<ConfigEditor>) -> ManifestRows {
        ManifestRows { config, ops: NoIoMutex::default() }
    }

    fn write(&self, submission: &Submission) -> Answer {
        // Almost always the rows are as the mutations expect. Otherwise each mutation is
        // tried by itself.
        let (mut answer, mut written) = self.write_if(submission, as_expected);
        if written.as_ref().is_err_and(|error| !is_of_storage(error)) {
            (answer, written) = self.write_if(submission, applies);
        }
        if let Err(error) = written {
            // What was refused may have been applied before and stays refused.
            for outcome in answer.outcomes.iter_mut().filter(|outcome| is_applied(outcome)) {
                *outcome = Outcome::Failed(error.clone());
            }
            answer.riders.fill(false);
        }
        answer
    }

    /// Writes the mutations that can be applied according to `applies`, which may apply
    /// them to a copy, and the riders of those. Returns the answer if the write succeeds.
    fn write_if(
        &self,
        submission: &Submission,
        applies: fn(&mut Configs, &Mutation) -> bool,
    ) -> (Answer, Result<()>) {
        let mut answer = Answer {
            outcomes: vec![Outcome::Applied; submission.mutations.len()],
            riders: vec![false; submission.riders.len()],
        };
        let written = self.config.edit_with(|configs| {
            let (mut copy, mut edits) = (configs.clone(), Vec::new());
            for (mutation, outcome) in submission.mutations.iter().zip(&mut answer.outcomes) {
                if applies(&mut copy, mutation) {
                    self.note(configs, mutation);
                    edits.extend(mutation.edits.iter().cloned().map(ConfigEdit::from));
                } else {
                    *outcome = Outcome::Refused(self.find(configs, &mutation.key));
                }
            }
            let outcomes = &answer.outcomes;
            for (rider, written) in submission.riders.iter().zip(&mut answer.riders) {
                let mut needed = rider.mutations.iter().map(|&at| outcomes.get(at));
                if needed.all(|outcome| outcome.is_some_and(is_applied)) {
                    edits.extend(rider.edits.iter().cloned());
                    *written = true;
                }
            }
            edits
        });
        (answer, written.map(drop))
    }

    /// Records a mutation that is about to be written.
    fn note(&self, configs: &Configs, mutation: &Mutation) {
        let mut ops = self.ops.lock();
        ops.last.insert(mutation.key.clone(), (mutation.expected.rev, mutation.op));
        if ops.last.len() > ops.limit.max(OPS_MIN) {
            ops.last.retain(|key, _| row(configs, key).is_some());
            ops.limit = ops.last.len() * 2;
        }
    }

    fn find(&self, configs: &Configs, key: &RowKey) -> Option<TabletRow> {
        let config = row(configs, key)?.clone();
        let ops = self.ops.lock();
        let last = ops.last.get(key).filter(|(expected, _)| config.rev > *expected);
        Some(TabletRow { op: last.map(|(_, op)| *op), config })
    }
}

impl TabletRows for ManifestRows {
    fn submit(&self, submission: Submission, done: Done<Answer>) {
        done(self.write(&submission));
    }

    fn read(&self, keys: Vec<RowKey>, done: Done<Vec<Found>>) {
        let found = match self.config.read() {
            Ok(configs) => {
                let find = |key: &RowKey| self.find(&configs, key);
                keys.iter().map(|key| find(key).map_or(Found::Missing, Found::Row)).collect()
            }
            Err(_) => vec![Found::Unknown; keys.len()],
        };
        done(found);
    }
}

pub(super) fn row<'c>(configs: &'c Configs, key: &RowKey) -> Option<&'c Arc<TabletConfig>> {
    let table = configs.tables.get(&key.table)?;
    let found = table.tablets.before(key.end.as_deref());
    (found.rows.end == key.end).then_some(found)
}

fn is_as_expected(configs: &Configs, key: &RowKey, expected: &Expected) -> bool {
    let found = row(configs, key);
    found.is_some_and(|row| Expected { id: row.id, load: row.load, rev: row.rev } == *expected)
}

/// Whether the rows of a mutation are as it expects.
fn as_expected(configs: &mut Configs, mutation: &Mutation) -> bool {
    let Mutation { key, expected, lower, .. } = mutation;
    is_as_expected(configs, key, expected)
        && lower.iter().all(|(key, expected)| is_as_expected(configs, key, expected))
}

/// Applies a mutation if it can be applied.
pub(super) fn applies(configs: &mut Configs, mutation: &Mutation) -> bool {
    if !as_expected(configs, mutation) {
        return false;
    }
    let edits: Vec<ConfigEdit> = mutation.edits.iter().cloned().map(ConfigEdit::from).collect();
    let edited = configs.edited(configs.revision, &edits);
    edited.map(|edited| *configs = edited).is_ok()
}

/// Whether an edit failed because of the storage and not because of its content.
fn is_of_storage(error: &Error) -> bool {
    !matches!(error, Error::EditRefused { .. } | Error::InvalidSplit(_) | Error::UnknownTable(_))
}

fn is_applied(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Applied)
}
