//! Maps digests to ids. A mapping is written once, before any cell uses it, and never
//! changes, so that it can be cached forever.

use std::collections::{BTreeMap, HashMap};

use parking_lot::RwLock;
use stele_bigtable_client::{Filter, Mutation, Query, Row};

use super::Store;
use super::parallel::{ATTEMPTS_MAX, pause};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::{row_name, varint};

const FAMILY: &str = "D";
/// The maximum number of columns in one conditional write, which keeps its filter
/// small.
const COLUMNS_MAX: usize = 128;
/// The minimum size of an id in bytes. Values of one width need no list of offsets in a
/// block of the table, and four bytes are enough for 268 million digests.
const ID_BYTES_MIN: usize = 4;
/// The largest id that has a timestamp; no counter will reach it.
const ID_MAX: u64 = i64::MAX as u64 / 1000;

/// The mappings that this process has read or written.
#[derive(Default)]
pub struct Known {
    both: RwLock<Both>,
}

#[derive(Default)]
struct Both {
    ids: HashMap<Digest, u64>,
    digests: HashMap<u64, Digest>,
}

impl Known {
    /// Visits the ids of digests that are all in the map.
    pub fn for_ids(&self, digests: impl Iterator<Item = Digest>, mut visit: impl FnMut(u64)) {
        let both = self.both.read();
        digests.for_each(|digest| {
            let id = both.ids.get(&digest);
            visit(*id.expect("all digests of the put have an id"));
        });
    }

    pub fn digest(&self, id: u64) -> Option<Digest> {
        self.both.read().digests.get(&id).copied()
    }

    /// Adds mappings. Two ids of one digest, or two digests of one id, are an error,
    /// because cells would be ambiguous.
    fn add(&self, mappings: impl IntoIterator<Item = (Digest, u64)>) -> Result<()> {
        let mut both = self.both.write();
        for (digest, id) in mappings {
            let other_id = both.ids.insert(digest, id).is_some_and(|other| other != id);
            let other_digest = both.digests.insert(id, digest).is_some_and(|other| other != digest);
            if other_id || other_digest {
                return Err(Error::Damaged {
                    row: "the digest map".into(),
                    what: format!("duplicate id {id} or digest {digest}"),
                });
            }
        }
        Ok(())
    }

    fn unknown_digests(&self, digests: impl IntoIterator<Item = Digest>) -> Vec<Digest> {
        let both = self.both.read();
        digests.into_iter().filter(|digest| !both.ids.contains_key(digest)).collect()
    }

    fn unknown_ids(&self, ids: &[u64]) -> Vec<u64> {
        let both = self.both.read();
        ids.iter().copied().filter(|id| !both.digests.contains_key(id)).collect()
    }
}

impl Store {
    /// Assigns an id to every digest that has none, so that all are in the map.
    pub(super) async fn number_digests(&self, digests: Vec<Digest>) -> Result<()> {
        let mut unknown = self.inner.digests.unknown_digests(digests);
        unknown.sort_unstable();
        unknown.dedup();
        let mut rows: BTreeMap<String, Vec<Digest>> = BTreeMap::new();
        for digest in unknown {
            rows.entry(row_name::digest(digest, self.shards()).0).or_default().push(digest);
        }
        let parts = rows.into_iter().flat_map(|(row, digests)| {
            let parts: Vec<_> = digests.chunks(COLUMNS_MAX).map(<[_]>::to_vec).collect();
            parts.into_iter().map(move |part| (row.clone(), part))
        });
        self.parallel(parts, |store, (row, digests)| async move {
            store.number_in_row(row, digests).await
        })
        .await?;
        Ok(())
    }

    /// Assigns ids to digests of one row of the map.
    async fn number_in_row(&self, row: String, digests: Vec<Digest>) -> Result<()> {
        for attempt in 0..ATTEMPTS_MAX {
            let stored = self.table().read_row(row.clone(), Some(columns(&digests, true))).await?;
            if let Some(stored) = stored {
                self.inner.digests.add(mappings(&stored)?)?;
            }
            let new = self.inner.digests.unknown_digests(digests.iter().copied());
            if new.is_empty() {
                return Ok(());
            }
            let ids = self.reserve_ids(new.len()).await?;
            let pairs: Vec<_> = new.iter().copied().zip(ids.iter().copied()).collect();
            let writes = pairs.iter().map(|(digest, id)| write(*digest, *id));
            let writes: Vec<_> = writes.collect::<Result<_>>()?;
            let existing = Some(columns(&new, false));
            match self.table().check_and_mutate(row.clone(), existing, [], writes).await {
                Ok(false) => {
                    return self.inner.digests.add(pairs);
                }
                // Another process assigned an id to one of them first.
                Ok(true) => self.return_ids(ids).await,
                // The outcome is unknown: the ids are not reused, and the row is read
                // again.
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error.into()),
            }
            pause(attempt).await;
        }
        Err(Error::Conflict(format!("too many concurrent changes of the digests in {row}")))
    }

    /// Loads these ids. An id that is in no row of the map is an error, because
    /// mappings are written before cells use them.
    pub(super) async fn find_digests(&self, ids: &[u64]) -> Result<()> {
        let unknown = self.inner.digests.unknown_ids(ids);
        let (Some(first), Some(last)) = (unknown.iter().min(), unknown.iter().max()) else {
            return Ok(());
        };
        self.load_mappings(*first, *last).await?;
        match self.inner.digests.unknown_ids(&unknown).first() {
            None => Ok(()),
            Some(id) => Err(Error::Damaged {
                row: "the digest map".into(),
                what: format!("id {id} is used by a trace but has no digest"),
            }),
        }
    }

    /// Reads the mappings of a range of ids from all shards concurrently. The timestamp
    /// of a mapping's cell is its id in milliseconds, so that other mappings are not
    /// read.
    async fn load_mappings(&self, first: u64, last: u64) -> Result<()> {
        let times = Filter::timestamps(time(first)?, Some(time(last)?.saturating_add(1000)));
        self.parallel(0..self.shards(), |store, shard| {
            let filter = Filter::chain([Filter::family(FAMILY), times.clone(), Filter::latest()]);
            async move {
                let query = Query::prefix(row_name::digest_map(shard)).filter(filter);
                let mut rows = store.table().read_rows(query);
                while let Some(row) = rows.next().await? {
                    store.inner.digests.add(mappings(&row)?)?;
                }
                Ok(())
            }
        })
        .await?;
        Ok(())
    }

    /// Reads the whole map, for processes that will need it, and returns the number of
    /// digests.
    pub async fn load_digest_map(&self) -> Result<usize> {
        self.load_mappings(0, ID_MAX - 1).await?;
        Ok(self.inner.digests.both.read().ids.len())
    }
}

fn time(id: u64) -> Result<i64> {
    let id = i64::try_from(id).ok().filter(|id| *id <= ID_MAX as i64);
    let id = id.ok_or_else(|| Error::Damaged {
        row: "the digest map".into(),
        what: "an id exceeds the maximum".into(),
    })?;
    Ok(id * 1000)
}

fn write(digest: Digest, id: u64) -> Result<Mutation> {
    let mut value = Vec::with_capacity(ID_BYTES_MIN);
    write_id(&mut value, id);
    Ok(Mutation::set_at(FAMILY, column(digest), time(id)?, value))
}

/// Appends the encoding of an id in cells.
pub fn write_id(out: &mut Vec<u8>, id: u64) {
    varint::write_padded(out, id, ID_BYTES_MIN);
}

fn column(digest: Digest) -> String {
    digest.to_string().split_off(row_name::PREFIX_DIGITS)
}

/// Returns a filter for the cells of these digests in their row. Hex digits need no
/// escaping.
fn columns(digests: &[Digest], with_values: bool) -> Filter {
    let names: Vec<String> = digests.iter().map(|digest| column(*digest)).collect();
    let last = if with_values { Filter::latest() } else { Filter::cells_per_row(1) };
    Filter::chain([Filter::family(FAMILY), Filter::qualifier_regex(names.join("|")), last])
}

fn mappings(row: &Row) -> Result<Vec<(Digest, u64)>> {
    let prefix = row_name::subkey(&row.key);
    let mapping = |column: &[u8], value: &[u8]| {
        let digest = Digest::from_hex(&[prefix, column].concat())?;
        Some((digest, varint::whole(value).filter(|id| *id != 0)?))
    };
    let cells = row.family(FAMILY).map(|cell| {
        mapping(&cell.qualifier, &cell.value)
            .ok_or_else(|| Error::damaged(&row.key, "a column or its id cannot be decoded"))
    });
    cells.collect()
}
