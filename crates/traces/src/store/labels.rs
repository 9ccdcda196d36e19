//! Labels: the triage of digests of a test. A change contains the label that it
//! replaces, so that concurrent changes do not overwrite each other.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stele_bigtable_client::{Cell, Filter, Mutation, Query, Row};
use stele_grpc::Pending;

use super::commits::latest_of;
use super::{Store, now_micros};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::params::VALUE_BYTES_MAX;
use crate::row_name;

const FAMILY: &str = "E";
const NAME_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    #[default]
    Untriaged,
    Positive,
    Negative,
}

/// A label with its author and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labelled {
    pub label: Label,
    pub by: String,
    /// Seconds since 1970.
    pub at: i64,
}

/// The labels of digests, by test.
pub type Labels = BTreeMap<String, BTreeMap<Digest, Labelled>>;

/// A change of one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewLabel {
    pub test: String,
    pub digest: Digest,
    pub label: Label,
    /// The current label, as known to the author.
    pub expected: Label,
    #[serde(default)]
    pub by: String,
}

impl Store {
    /// Returns the labels of the digests of these tests. Digests without a label are
    /// untriaged.
    pub async fn labels(&self, tests: impl IntoIterator<Item = &str>) -> Result<Labels> {
        let keys: BTreeMap<String, &str> =
            tests.into_iter().map(|test| (row_name::labels(test, self.shards()), test)).collect();
        let query = Query::keys(keys.keys().cloned()).filter(latest_of(FAMILY));
        let mut rows = self.table().read_rows(query);
        let mut found = Labels::new();
        while let Some(row) = rows.next().await? {
            let name = String::from_utf8_lossy(&row.key).into_owned();
            if let Some(test) = keys.get(&name) {
                found.insert(test.to_string(), labels_in(&row)?);
            }
        }
        Ok(found)
    }

    /// Returns the labels of all tests.
    pub fn all_labels(&self) -> Pending<'_, Result<Labels>> {
        Box::pin(async move {
            let found = self.parallel(0..self.shards(), |store, shard| async move {
                let query =
                    Query::prefix(row_name::labels_of_shard(shard)).filter(latest_of(FAMILY));
                let mut rows = store.table().read_rows(query);
                let mut found = Vec::new();
                while let Some(row) = rows.next().await? {
                    let test = row_name::test(&row.key)
                        .ok_or_else(|| Error::damaged(&row.key, "its name contains no test"))?;
                    found.push((test, labels_in(&row)?));
                }
                Ok(found)
            });
            Ok(found.await?.into_iter().flatten().collect())
        })
    }

    /// Returns every label that one digest of a test has had, the newest first.
    pub async fn label_history(&self, test: &str, digest: Digest) -> Result<Vec<Labelled>> {
        let key = row_name::labels(test, self.shards());
        let column = Filter::column(FAMILY, digest.to_string().as_bytes());
        let Some(row) = self.table().read_row(key, Some(column)).await? else {
            return Ok(Vec::new());
        };
        row.cells.iter().map(|cell| labelled(&row.key, &cell.value)).collect()
    }

    /// Changes a label if it still is the expected one.
    pub fn label<'a>(&'a self, new: &'a NewLabel) -> Pending<'a, Result<Labelled>> {
        Box::pin(async move {
            if new.test.trim().is_empty() || new.test.len() > VALUE_BYTES_MAX {
                return Err(Error::invalid(format!(
                    "invalid test name: use 1 to {VALUE_BYTES_MAX} bytes"
                )));
            }
            if new.by.len() > NAME_BYTES_MAX {
                return Err(Error::invalid(format!("`by` is longer than {NAME_BYTES_MAX} bytes")));
            }
            let key = row_name::labels(&new.test, self.shards());
            let column = new.digest.to_string();
            let of_digest = || Filter::column(FAMILY, column.as_bytes());
            let newest = Filter::chain([of_digest(), Filter::latest()]);
            let row = self.table().read_row(key.clone(), Some(newest.clone())).await?;
            let cell = row.as_ref().and_then(|row| row.cells.first());
            let before = match (&row, cell) {
                (Some(row), Some(cell)) => labelled(&row.key, &cell.value)?,
                _ => Labelled::default(),
            };
            let conflict = |found: Label| {
                Error::Conflict(format!(
                    "digest {} of {} is {found:?}, not {:?}: it was changed concurrently, read it again",
                    new.digest, new.test, new.expected
                ))
            };
            if before.label != new.expected {
                return Err(conflict(before.label));
            }
            let now = now_micros();
            let after = cell.map_or(0, |cell| cell.timestamp_micros.saturating_add(1000));
            let by = new.by.clone();
            let labelled = Labelled { label: new.label, by, at: now / 1_000_000 };
            let json = serde_json::to_string(&labelled).expect("labels can be encoded as JSON");
            let set = Mutation::set_at(FAMILY, column.clone(), now.max(after), json);
            let written = match cell {
                Some(cell) => {
                    let same = Filter::chain([newest, Filter::value(&cell.value)]);
                    self.table().check_and_mutate(key, Some(same), [set], []).await?
                }
                None => !self.table().check_and_mutate(key, Some(of_digest()), [], [set]).await?,
            };
            if written { Ok(labelled) } else { Err(conflict(before.label)) }
        })
    }
}

fn labels_in(row: &Row) -> Result<BTreeMap<Digest, Labelled>> {
    let label = |cell: &Cell| {
        let digest = Digest::from_hex(&cell.qualifier)
            .ok_or_else(|| Error::damaged(&row.key, "a column is not a digest"))?;
        Ok((digest, labelled(&row.key, &cell.value)?))
    };
    row.family(FAMILY).map(label).collect()
}

fn labelled(row: &[u8], value: &[u8]) -> Result<Labelled> {
    serde_json::from_slice(value).map_err(|error| Error::damaged(row, error.to_string()))
}
