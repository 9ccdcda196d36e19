//! Putting results: everything is checked, then what cells rely on is stored,
//! then the cells.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use stele_bigtable::client::{self, Mutation, RowMutations};

use super::Store;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::row_name::{self, Kind};
use crate::tile::{self, Offset, Tile};
use crate::varint;

const OPTIONS: &str = "P";
const OPTIONS_COLUMN: &[u8] = b"B";
/// Rows in one bulk write; several are under way at once.
const ROWS_MAX: usize = 5_000;
/// Row names that an error lists.
const FAILED_NAMED_MAX: usize = 100;
/// The latest time of a result, in microseconds: the year 9999.
const TIME_MAX: i64 = 253_402_300_799_000_000;

/// What a configuration produced. `None` takes back what was there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Digest(Option<Digest>),
    Number(Option<f64>),
}

impl Value {
    pub fn kind(&self) -> Kind {
        match self {
            Value::Digest(_) => Kind::Digests,
            Value::Number(_) => Kind::Numbers,
        }
    }
}

/// One result.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub params: Params,
    pub value: Value,
    /// None leaves stored options as they are.
    pub options: Params,
}

/// Results of one commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Put {
    /// The commit's hash, or `@index`.
    pub commit: String,
    /// When the results were made; the latest wins. Cut to milliseconds.
    pub time_micros: i64,
    pub entries: Vec<Entry>,
}

/// What was stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stored {
    pub entries: usize,
    pub rows: usize,
}

/// A put whose commit has been found.
struct Placed<'p> {
    put: &'p Put,
    offset: Offset,
    commit_micros: i64,
}

/// Rows of one tile to be written, by kind and encoded id.
type TileRows = HashMap<(Kind, String), Vec<(Offset, i64, Bytes)>>;

impl Store {
    /// Stores results of any number of commits. Nothing is stored unless all
    /// of them can be.
    pub async fn put(&self, puts: &[Put]) -> Result<Stored> {
        puts.iter().try_for_each(check)?;
        let hashes: Vec<&str> = puts.iter().map(|put| put.commit.as_str()).collect();
        let commits = self.find_commits(&hashes).await?;
        let mut tiles: BTreeMap<Tile, Vec<Placed>> = BTreeMap::new();
        let mut seen = HashSet::new();
        for (put, (index, commit)) in puts.iter().zip(commits) {
            if !seen.insert(index) {
                let what = format!("results of commit {} are given twice", put.commit);
                return Err(Error::invalid(what));
            }
            let (tile, offset) = self.tile_of(index);
            let commit_micros = commit.time.clamp(0, TIME_MAX / 1_000_000) * 1_000_000;
            tiles.entry(tile).or_default().push(Placed { put, offset, commit_micros });
        }
        let mut stored = Stored::default();
        for (tile, placed) in tiles {
            stored.rows += self.put_tile(tile, &placed).await?;
            stored.entries += placed.iter().map(|placed| placed.put.entries.len()).sum::<usize>();
        }
        Ok(stored)
    }

    async fn put_tile(&self, tile: Tile, placed: &[Placed<'_>]) -> Result<usize> {
        let entries = || placed.iter().flat_map(|placed| &placed.put.entries);
        if entries().next().is_none() {
            return Ok(0);
        }
        let set = self.learn(tile, entries().map(|entry| &entry.params)).await?;
        let digests = entries().filter_map(|entry| match entry.value {
            Value::Digest(digest) => digest,
            Value::Number(_) => None,
        });
        self.number_digests(digests).await?;
        let mut cells = TileRows::new();
        let mut options: BTreeMap<String, (i64, &Params)> = BTreeMap::new();
        for placed in placed {
            let time = placed.put.time_micros / 1000 * 1000;
            for entry in &placed.put.entries {
                let encoded = set.encode(&entry.params)?;
                if !entry.options.is_empty() {
                    let newest = options.entry(encoded.clone()).or_insert((-1, &entry.options));
                    if placed.commit_micros > newest.0 {
                        *newest = (placed.commit_micros, &entry.options);
                    }
                }
                let cell = (placed.offset, time, self.cell_value(&entry.value));
                cells.entry((entry.value.kind(), encoded)).or_default().push(cell);
            }
        }
        let with_data = placed.iter().filter(|placed| !placed.put.entries.is_empty());
        self.mark(tile, with_data.map(|placed| placed.offset)).await?;
        self.list_ids(tile, cells.keys().map(|(kind, id)| (*kind, id.as_str()))).await?;
        self.write_rows(self.rows(tile, cells, options)).await
    }

    fn cell_value(&self, value: &Value) -> Bytes {
        match value {
            Value::Digest(None) | Value::Number(None) => Bytes::new(),
            Value::Digest(Some(digest)) => {
                let id = self.inner.digests.id(digest);
                let id = id.expect("all digests of the put have been numbered");
                let mut bytes = Vec::with_capacity(4);
                varint::write(&mut bytes, id);
                bytes.into()
            }
            Value::Number(Some(number)) => Bytes::copy_from_slice(&number.to_le_bytes()),
        }
    }

    fn rows(
        &self,
        tile: Tile,
        cells: TileRows,
        options: BTreeMap<String, (i64, &Params)>,
    ) -> Vec<RowMutations> {
        let mut rows: Vec<RowMutations> = Vec::with_capacity(cells.len() + options.len());
        for ((kind, encoded), cells) in cells {
            let set = |(offset, time, value)| {
                Mutation::set_at(kind.family(), tile::column(offset), time, value)
            };
            let key = row_name::trace(kind, tile, &encoded, self.shards());
            rows.push(RowMutations::new(key, cells.into_iter().map(set)));
        }
        for (encoded, (time, options)) in options {
            let set = Mutation::set_at(OPTIONS, OPTIONS_COLUMN, time, options.id());
            rows.push(RowMutations::new(row_name::options(tile, &encoded, self.shards()), [set]));
        }
        // Neighbours together: each shard's rows lie side by side.
        rows.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        rows
    }

    /// Writes rows in parallel parts, and names those that failed.
    async fn write_rows(&self, rows: Vec<RowMutations>) -> Result<usize> {
        let count = rows.len();
        let mut parts = Vec::with_capacity(count / ROWS_MAX + 1);
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            parts.push(rows.by_ref().take(ROWS_MAX).collect::<Vec<_>>());
        }
        self.parallel(parts, |store, part| async move {
            let keys: Vec<_> = part.iter().map(|row| row.key.clone()).collect();
            written(&keys, store.table().mutate_rows(part).await)
        })
        .await?;
        Ok(count)
    }

    /// The options of a trace in one tile.
    pub(super) async fn read_options(&self, tile: Tile, encoded: &str) -> Result<Option<Params>> {
        let key = row_name::options(tile, encoded, self.shards());
        let filter = client::Filter::chain([
            client::Filter::column(OPTIONS, OPTIONS_COLUMN),
            client::Filter::latest(),
        ]);
        let row = self.table().read_row(key, Some(filter)).await?;
        let Some(value) = row.as_ref().and_then(|row| row.value(OPTIONS, OPTIONS_COLUMN)) else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(value);
        Params::parse(&text).map(Some).map_err(|error| Error::Damaged {
            row: format!("the options of {encoded}"),
            what: error.to_string(),
        })
    }
}

/// An error that names every row that was not written.
pub(super) fn written(keys: &[Bytes], outcomes: Vec<client::Result<()>>) -> Result<()> {
    let of = outcomes.len();
    let mut first = None;
    let mut failed = Vec::new();
    for (key, outcome) in keys.iter().zip(outcomes) {
        if let Err(error) = outcome {
            if failed.len() < FAILED_NAMED_MAX {
                failed.push(key.escape_ascii().to_string());
            }
            first.get_or_insert(error);
        }
    }
    match first {
        None => Ok(()),
        Some(why) => Err(Error::Partial { failed, of, why }),
    }
}

/// What can be told of a put without looking anything up.
fn check(put: &Put) -> Result<()> {
    if !(0..=TIME_MAX).contains(&put.time_micros) {
        return Err(Error::invalid(format!(
            "{} is no time of a result: it must be microseconds since 1970",
            put.time_micros
        )));
    }
    let mut seen = HashSet::with_capacity(put.entries.len());
    for entry in &put.entries {
        if entry.params.is_empty() {
            return Err(Error::invalid("a result has no params"));
        }
        if let Value::Number(Some(number)) = entry.value
            && !number.is_finite()
        {
            return Err(Error::invalid(format!("{} has {number}, no number", entry.params)));
        }
        if !seen.insert((entry.value.kind(), &entry.params)) {
            return Err(Error::invalid(format!("{} is given twice for one commit", entry.params)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, value: Value) -> Entry {
        Entry { params: Params::parse(id).unwrap(), value, options: Params::default() }
    }

    fn put(entries: Vec<Entry>) -> Put {
        Put { commit: "abcdef1".into(), time_micros: 1, entries }
    }

    #[test]
    fn what_cannot_be_stored_is_refused_before_anything_is() {
        let number = |number| entry(",a=1,", Value::Number(Some(number)));
        assert!(check(&put(vec![number(0.0), entry(",a=1,", Value::Digest(None))])).is_ok());
        for (wrong, says) in [
            (put(vec![number(f64::NAN)]), "no number"),
            (put(vec![number(f64::INFINITY)]), "no number"),
            (put(vec![number(1.0), number(2.0)]), "twice"),
            (Put { time_micros: -1, ..put(vec![]) }, "no time"),
            (Put { time_micros: i64::MAX, ..put(vec![]) }, "no time"),
        ] {
            let error = check(&wrong).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
