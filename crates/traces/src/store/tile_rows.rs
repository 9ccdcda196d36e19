//! The rows of a tile that this process has written to, by the params of their traces.
//! A result of a known trace needs one lookup, because the rows that it depends on have
//! already been stored.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::Store;
use crate::digest::Digest;
use crate::params::Params;
use crate::row_name::Kind;
use crate::tile::Tile;

/// The maximum number of cached rows of all tiles.
const REMEMBERED_MAX: usize = 2_000_000;
/// Rows are sorted by name if there are this many times fewer of them than rows in the
/// tile; otherwise by rank.
const FEW: usize = 16;

pub type Remembered = HashMap<Tile, Arc<Mutex<TileRows>>>;

/// The number of a row in its tile.
pub type RowNumber = u32;

#[derive(Default)]
pub struct TileRows {
    numbers: HashMap<(Kind, Params), RowNumber>,
    rows: Vec<TileRow>,
    /// The rank of each row in the order of names; missing for new rows.
    ranks: Vec<u32>,
}

struct TileRow {
    kind: Kind,
    params: Params,
    name: Bytes,
    /// The last written digest and its id; id 0 means none.
    newest: (Digest, u64),
}

impl TileRows {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the row of a trace. Results of every commit usually come in the same
    /// order, so the guess is mostly right.
    pub fn find(&self, kind: Kind, params: &Params, guessed: RowNumber) -> Option<RowNumber> {
        let hit = |row: &TileRow| row.kind == kind && row.params == *params;
        if self.rows.get(guessed as usize).is_some_and(hit) {
            return Some(guessed);
        }
        self.numbers.get(&(kind, params.clone())).copied()
    }

    /// Adds a row whose trace has been stored in the set and listed.
    pub fn add(&mut self, kind: Kind, params: Params, name: Bytes) -> RowNumber {
        let next =
            RowNumber::try_from(self.rows.len()).expect("the number of cached rows is limited");
        let number = *self.numbers.entry((kind, params.clone())).or_insert(next);
        if number == next {
            self.rows.push(TileRow { kind, params, name, newest: (Digest([0; 16]), 0) });
        }
        number
    }

    pub fn name(&self, row: RowNumber) -> &Bytes {
        &self.rows[row as usize].name
    }

    pub fn kind(&self, row: RowNumber) -> Kind {
        self.rows[row as usize].kind
    }

    /// Returns the id of a digest if it is the last one of the row, as it usually is.
    pub fn newest_id(&self, row: RowNumber, digest: Digest) -> Option<u64> {
        let (newest, id) = self.rows[row as usize].newest;
        (id != 0 && newest == digest).then_some(id)
    }

    pub fn set_newest(&mut self, row: RowNumber, digest: Digest, id: u64) {
        self.rows[row as usize].newest = (digest, id);
    }

    /// Sorts items by the names of their rows, and those of one row by `then`.
    pub fn sort<T>(
        &mut self,
        things: &mut [T],
        row: impl Fn(&T) -> RowNumber,
        then: impl Fn(&T) -> u32,
    ) {
        if things.len() < self.rows.len() / FEW {
            let name = |thing: &T| self.name(row(thing));
            things.sort_unstable_by(|one, other| {
                name(one).cmp(name(other)).then_with(|| then(one).cmp(&then(other)))
            });
            return;
        }
        if self.ranks.len() < self.rows.len() {
            let mut order: Vec<RowNumber> = (0..self.rows.len() as RowNumber).collect();
            order.sort_unstable_by(|one, other| self.name(*one).cmp(self.name(*other)));
            self.ranks.resize(order.len(), 0);
            for (rank, row) in (0..).zip(order) {
                self.ranks[row as usize] = rank;
            }
        }
        things.sort_unstable_by_key(|thing| (self.ranks[row(thing) as usize], then(thing)));
    }
}

impl Store {
    /// Returns the cached rows of a tile, to which other tasks may add concurrently.
    pub(super) fn tile_rows(&self, tile: Tile) -> Arc<Mutex<TileRows>> {
        let mut remembered = self.inner.rows.lock();
        if !remembered.contains_key(&tile) {
            let count: usize = remembered.values().map(|rows| rows.lock().len()).sum();
            if count > REMEMBERED_MAX {
                remembered.clear();
            }
        }
        remembered.entry(tile).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(at: usize) -> Params {
        Params::new([("a", at.to_string())]).unwrap()
    }

    #[test]
    fn rows_are_found_by_guess_and_by_params() {
        let mut rows = TileRows::default();
        let one = rows.add(Kind::Digests, params(1), "n1".into());
        let two = rows.add(Kind::Numbers, params(1), "n2".into());
        assert_ne!(one, two);
        assert_eq!(rows.add(Kind::Digests, params(1), "other".into()), one);
        for guess in [0, 1, 9] {
            assert_eq!(rows.find(Kind::Digests, &params(1), guess), Some(one));
            assert_eq!(rows.find(Kind::Numbers, &params(1), guess), Some(two));
            assert_eq!(rows.find(Kind::Digests, &params(2), guess), None);
        }
        let digest = Digest([7; 16]);
        assert_eq!(rows.newest_id(one, digest), None);
        rows.set_newest(one, digest, 3);
        assert_eq!(rows.newest_id(one, digest), Some(3));
        assert_eq!(rows.newest_id(one, Digest([8; 16])), None);
    }

    #[test]
    fn few_and_many_items_are_sorted_alike() {
        let mut rows = TileRows::default();
        for at in 0..100usize {
            rows.add(Kind::Digests, params(at), (at * 37 % 100).to_string().into());
        }
        let things: Vec<(RowNumber, u32)> = (0..200).map(|at| (at * 7 % 100, at % 3)).collect();
        let mut many = things.clone();
        rows.sort(&mut many, |it| it.0, |it| it.1);
        assert!(many.is_sorted_by_key(|it| (rows.name(it.0).clone(), it.1)));
        let mut few = things[..4].to_vec();
        rows.sort(&mut few, |it| it.0, |it| it.1);
        assert!(few.is_sorted_by_key(|it| (rows.name(it.0).clone(), it.1)));
        // A row that is added later is sorted too.
        rows.add(Kind::Digests, params(1000), "0".into());
        let mut all: Vec<(RowNumber, u32)> = (0..101).map(|at| (at, 0)).collect();
        rows.sort(&mut all, |it| it.0, |it| it.1);
        assert!(all.is_sorted_by_key(|it| rows.name(it.0).clone()));
    }
}
