//! Stores results: checks everything, then writes the rows that cells depend on, then
//! the cells.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use stele_bigtable_client::{self as client, RowEntry};
use stele_grpc::Pending;

use super::Store;
use super::digest_map::write_id;
use super::tile_rows::{RowNumber, TileRows};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::row_name::{self, Kind};
use crate::tile::{self, Offset, Tile};

/// The approximate number of cells in one bulk write; several run concurrently.
const PART_CELLS: usize = 20_000;
/// The maximum number of row names in an error.
const FAILED_NAMED_MAX: usize = 100;
/// The latest time of a result in microseconds: the year 9999.
const TIME_MAX: i64 = 253_402_300_799_000_000;

/// A result. `None` deletes the stored one.
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

/// A result with its params.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub params: Params,
    pub value: Value,
    /// If empty, stored options are unchanged.
    pub options: Params,
}

/// Results of one commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Put {
    /// The commit's hash, or `@index`.
    pub commit: String,
    /// The time of the results, truncated to milliseconds; the latest result wins.
    pub time_micros: i64,
    pub entries: Vec<Entry>,
}

/// The number of stored entries and rows.
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

/// Checked puts of one tile, with the row of each entry if it is known.
struct TilePut<'p> {
    tile: Tile,
    placed: Vec<Placed<'p>>,
    rows: Arc<Mutex<TileRows>>,
    numbers: Vec<RowNumber>,
    unknown: HashMap<(Kind, &'p Params), usize>,
}

/// Marks a row that is not known yet.
const UNKNOWN: RowNumber = RowNumber::MAX;

/// A cell to be written.
struct NewCell {
    row: RowNumber,
    /// Index of the put that contains it.
    placed: u32,
    /// A digest id or the bits of a number, or the value that represents a missing
    /// result.
    value: u64,
}

const MISSING_ID: u64 = 0;
const MISSING_NUMBER: f64 = f64::NAN;

impl Store {
    /// Stores results of any number of commits. Nothing is stored if any of them is
    /// invalid.
    pub fn put<'a>(&'a self, puts: &'a [Put]) -> Pending<'a, Result<Stored>> {
        Box::pin(async move {
            puts.iter().try_for_each(check)?;
            let hashes: Vec<&str> = puts.iter().map(|put| put.commit.as_str()).collect();
            let commits = self.find_commits(&hashes).await?;
            let mut tiles: BTreeMap<Tile, Vec<Placed>> = BTreeMap::new();
            let mut seen = HashSet::new();
            for (put, (index, commit)) in puts.iter().zip(commits) {
                if !seen.insert(index) {
                    let what = format!("commit {} occurs twice", put.commit);
                    return Err(Error::invalid(what));
                }
                let (tile, offset) = self.tile_of(index);
                let commit_micros = commit.time.clamp(0, TIME_MAX / 1_000_000) * 1_000_000;
                tiles.entry(tile).or_default().push(Placed { put, offset, commit_micros });
            }
            let mut stored = Stored::default();
            let tiles = tiles.into_iter().map(|(tile, placed)| self.place(tile, placed));
            for put in tiles.collect::<Result<Vec<_>>>()? {
                stored.entries += put.numbers.len();
                stored.rows += self.put_tile(put).await?;
            }
            Ok(stored)
        })
    }

    /// Finds the rows that are known, and rejects duplicate entries.
    fn place<'p>(&self, tile: Tile, placed: Vec<Placed<'p>>) -> Result<TilePut<'p>> {
        let remembered = self.tile_rows(tile);
        let rows = remembered.lock();
        let total = placed.iter().map(|placed| placed.put.entries.len()).sum();
        let mut numbers = Vec::with_capacity(total);
        let mut unknown = HashMap::new();
        // The last put that contained a row, counted from 1.
        let mut last = vec![0; rows.len()];
        for (at, placed) in (1..).zip(&placed) {
            let mut guess = 0;
            for entry in &placed.put.entries {
                let kind = entry.value.kind();
                let number = rows.find(kind, &entry.params, guess).unwrap_or(UNKNOWN);
                let before = match number {
                    UNKNOWN => unknown.insert((kind, &entry.params), at),
                    row => Some(std::mem::replace(&mut last[row as usize], at)),
                };
                if before == Some(at) {
                    let what = format!("{} occurs twice for one commit", entry.params);
                    return Err(Error::invalid(what));
                }
                numbers.push(number);
                guess = number.wrapping_add(1);
            }
        }
        drop(rows);
        Ok(TilePut { tile, placed, rows: remembered, numbers, unknown })
    }

    async fn put_tile(&self, mut put: TilePut<'_>) -> Result<usize> {
        if put.numbers.is_empty() {
            return Ok(0);
        }
        // Rows that cells depend on are written before them.
        self.register_rows(&mut put).await?;
        let with_data = put.placed.iter().filter(|placed| !placed.put.entries.is_empty());
        self.mark(put.tile, with_data.map(|placed| placed.offset)).await?;
        let mut cells = self.cells(&put).await?;
        let order = |cell: &NewCell| cell.placed;
        put.rows.lock().sort(&mut cells, |cell| cell.row, order);
        let options = put.options();
        let rows = cells.chunk_by(|one, other| one.row == other.row).count() + options.len();
        let parts = Parts { put: &put, cells: &cells };
        let options: Vec<RowEntry> = options
            .into_iter()
            .map(|(id, (time, options))| self.options_row(put.tile, &id, time, options))
            .collect();
        let options = options.chunks(PART_CELLS).map(<[_]>::to_vec).collect::<Vec<_>>();
        self.write_parts(parts.chain(options)).await?;
        Ok(rows)
    }

    /// Makes all rows of a put known: adds their params to the tile's set and lists
    /// their ids.
    async fn register_rows(&self, put: &mut TilePut<'_>) -> Result<()> {
        if put.unknown.is_empty() {
            return Ok(());
        }
        let params: Vec<&Params> = put.unknown.keys().map(|(_, params)| *params).collect();
        let set = self.ensure_params(put.tile, &params).await?;
        let new = put.unknown.keys().map(|(kind, params)| Ok((*kind, set.encode(params)?)));
        let new: Vec<(Kind, String)> = new.collect::<Result<_>>()?;
        self.list_ids(put.tile, &new).await?;
        let mut rows = put.rows.lock();
        let mut entries = put.placed.iter().flat_map(|placed| &placed.put.entries);
        for number in &mut put.numbers {
            let entry = entries.next().expect("each entry has a number");
            if *number == UNKNOWN {
                let kind = entry.value.kind();
                *number = match rows.find(kind, &entry.params, UNKNOWN) {
                    Some(known) => known,
                    None => {
                        let id = set.encode(&entry.params)?;
                        let name = row_name::trace(kind, put.tile, &id, self.shards());
                        rows.add(kind, entry.params.clone(), name.into())
                    }
                };
            }
        }
        Ok(())
    }

    /// Returns the cells of a put whose rows are all known. Assigns ids to new digests.
    async fn cells(&self, put: &TilePut<'_>) -> Result<Vec<NewCell>> {
        let mut cells = Vec::with_capacity(put.numbers.len());
        let mut changed: Vec<(usize, Digest)> = Vec::new();
        {
            let rows = put.rows.lock();
            let mut numbers = put.numbers.iter();
            for (placed, at) in put.placed.iter().zip(0..) {
                for (entry, row) in placed.put.entries.iter().zip(&mut numbers) {
                    let value = match entry.value {
                        Value::Number(number) => number.unwrap_or(MISSING_NUMBER).to_bits(),
                        Value::Digest(None) => MISSING_ID,
                        Value::Digest(Some(digest)) => {
                            let id = rows.newest_id(*row, digest);
                            id.unwrap_or_else(|| {
                                changed.push((cells.len(), digest));
                                MISSING_ID
                            })
                        }
                    };
                    cells.push(NewCell { row: *row, placed: at, value });
                }
            }
        }
        self.number_digests(changed.iter().map(|(_, digest)| *digest).collect()).await?;
        let mut rows = put.rows.lock();
        let mut at = changed.iter();
        self.inner.digests.for_ids(changed.iter().map(|(_, digest)| *digest), |id| {
            let (cell, digest) = at.next().expect("there is an id for each digest");
            cells[*cell].value = id;
            rows.set_newest(cells[*cell].row, *digest, id);
        });
        Ok(cells)
    }

    /// Writes rows, several parts concurrently. A failed part does not prevent the
    /// others, and the error names all rows that failed.
    pub(super) async fn write_parts(
        &self,
        parts: impl IntoIterator<Item = Vec<RowEntry>>,
    ) -> Result<()> {
        let parts = self.parallel(parts, |store, part| async move {
            let keys: Vec<_> = part.iter().map(|row| row.key().clone()).collect();
            Ok((keys, store.table().write_rows(part).await))
        });
        let (keys, outcomes): (Vec<_>, Vec<_>) = parts.await?.into_iter().unzip();
        written(&keys.concat(), outcomes.into_iter().flatten().collect())
    }
}

impl TilePut<'_> {
    /// Returns the options of each encoded id: those of the newest commit.
    fn options(&self) -> BTreeMap<String, (i64, &Params)> {
        let mut all: BTreeMap<String, (i64, &Params)> = BTreeMap::new();
        let rows = self.rows.lock();
        let mut numbers = self.numbers.iter();
        for placed in &self.placed {
            for (entry, row) in placed.put.entries.iter().zip(&mut numbers) {
                if entry.options.is_empty() {
                    continue;
                }
                let id = row_name::subkey(rows.name(*row));
                let id = String::from_utf8_lossy(id).into_owned();
                let newest = all.entry(id).or_insert((-1, &entry.options));
                if placed.commit_micros > newest.0 {
                    *newest = (placed.commit_micros, &entry.options);
                }
            }
        }
        all
    }
}

/// An iterator over the rows of sorted cells, in parts that are built on demand.
struct Parts<'p> {
    put: &'p TilePut<'p>,
    cells: &'p [NewCell],
}

impl Iterator for Parts<'_> {
    type Item = Vec<RowEntry>;

    fn next(&mut self) -> Option<Vec<RowEntry>> {
        let rows = self.put.rows.lock();
        let mut part: Vec<RowEntry> = Vec::new();
        let (mut taken, mut last, mut value) = (0, UNKNOWN, Vec::with_capacity(10));
        for cell in self.cells {
            if cell.row != last {
                if taken >= PART_CELLS {
                    break;
                }
                part.push(RowEntry::new(rows.name(cell.row).clone()));
                last = cell.row;
            }
            let placed = &self.put.placed[cell.placed as usize];
            let kind = rows.kind(cell.row);
            value.clear();
            match kind {
                Kind::Digests if cell.value == MISSING_ID => {}
                Kind::Digests => write_id(&mut value, cell.value),
                Kind::Numbers if f64::from_bits(cell.value).is_nan() => {}
                Kind::Numbers => value.extend_from_slice(&cell.value.to_le_bytes()),
            }
            let column = tile::column(placed.offset).as_bytes();
            let time = placed.put.time_micros / 1000 * 1000;
            let row = part.last_mut().expect("the row of this cell was added");
            row.set_at(kind.family(), column, time, &value);
            taken += 1;
        }
        self.cells = &self.cells[taken..];
        (taken > 0).then_some(part)
    }
}

/// Returns an error that counts the rows that were not written and names the first
/// ones.
pub(super) fn written(keys: &[Bytes], outcomes: Vec<client::Result<()>>) -> Result<()> {
    let of = outcomes.len();
    let mut first = None;
    let mut failed = Vec::new();
    let mut count = 0;
    for (key, outcome) in keys.iter().zip(outcomes) {
        if let Err(error) = outcome {
            count += 1;
            if failed.len() < FAILED_NAMED_MAX {
                failed.push(key.escape_ascii().to_string());
            }
            first.get_or_insert(error);
        }
    }
    match first {
        None => Ok(()),
        Some(why) => Err(Error::Partial { failed, count, of, why }),
    }
}

/// Checks everything that needs no lookup.
fn check(put: &Put) -> Result<()> {
    if !(0..=TIME_MAX).contains(&put.time_micros) {
        return Err(Error::invalid(format!(
            "invalid time {}: use microseconds since 1970",
            put.time_micros
        )));
    }
    for entry in &put.entries {
        if entry.params.is_empty() {
            return Err(Error::invalid("a result has no params"));
        }
        if let Value::Number(Some(number)) = entry.value
            && !number.is_finite()
        {
            return Err(Error::invalid(format!(
                "the value of {} is {number}, not a finite number",
                entry.params
            )));
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
    fn an_error_counts_all_rows_that_failed_and_names_some() {
        let keys: Vec<Bytes> = (0..250).map(|at| Bytes::from(format!("row {at}"))).collect();
        let failed = |at: usize| match at % 2 {
            0 => Ok(()),
            _ => Err(client::Error::Options("refused".into())),
        };
        let error = written(&keys, (0..250).map(failed).collect()).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("125 of 250 rows were not written; first failed row row 1:")
        );
        let Error::Partial { failed, .. } = error else { panic!("{error}") };
        assert_eq!(failed.len(), FAILED_NAMED_MAX);
    }

    #[test]
    fn invalid_results_are_rejected_before_anything_is_stored() {
        let number = |number| entry(",a=1,", Value::Number(Some(number)));
        assert!(check(&put(vec![number(0.0), entry(",a=1,", Value::Digest(None))])).is_ok());
        for (wrong, expected) in [
            (put(vec![number(f64::NAN)]), "not a finite number"),
            (put(vec![number(f64::INFINITY)]), "not a finite number"),
            (Put { time_micros: -1, ..put(vec![]) }, "invalid time"),
            (Put { time_micros: i64::MAX, ..put(vec![]) }, "invalid time"),
        ] {
            let error = check(&wrong).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
