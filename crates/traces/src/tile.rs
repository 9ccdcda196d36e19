//! Commit indexes and tiles. The names of tiles in rows count down, so that the newest
//! tile comes first in a scan.

use serde::{Deserialize, Serialize};

/// The name of a tile is this number minus the tile's number.
const BASE: u32 = i32::MAX as u32;
/// The default number of commits in a tile.
pub const TILE_COMMITS: u16 = 256;
/// The maximum number of commits in a tile, because offsets have three digits.
pub const TILE_COMMITS_MAX: u16 = 1000;

/// The position of a commit on the main branch, from 0.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct CommitIndex(pub u32);

/// The number of a tile; 0 is the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tile(u32);

/// The position of a commit within its tile.
pub type Offset = u16;

impl Tile {
    /// Returns `None` if the number is beyond the largest tile that has a name.
    pub fn new(number: u32) -> Option<Tile> {
        (number <= BASE).then_some(Tile(number))
    }

    pub fn number(self) -> u32 {
        self.0
    }

    /// Returns ten digits, smaller for newer tiles.
    pub fn name(self) -> String {
        format!("{:010}", BASE - self.0)
    }

    pub fn from_name(name: &[u8]) -> Option<Tile> {
        let digits = name.len() == 10 && name.iter().all(u8::is_ascii_digit);
        let name: u32 = std::str::from_utf8(name).ok().filter(|_| digits)?.parse().ok()?;
        BASE.checked_sub(name).map(Tile)
    }

    /// Returns the tile of a commit and the commit's offset in it.
    pub fn of(index: CommitIndex, tile_commits: u16) -> (Tile, Offset) {
        let size = u32::from(tile_commits);
        // Less than the number of commits in a tile, which is a u16.
        (Tile(index.0 / size), (index.0 % size) as Offset)
    }

    /// Returns the commit at an offset of this tile.
    pub fn commit(self, offset: Offset, tile_commits: u16) -> CommitIndex {
        CommitIndex(self.0.saturating_mul(u32::from(tile_commits)).saturating_add(offset.into()))
    }
}

/// The column names of all offsets, concatenated.
static COLUMNS: [u8; 3 * TILE_COMMITS_MAX as usize] = {
    let mut columns = [0; 3 * TILE_COMMITS_MAX as usize];
    let mut offset = 0;
    while offset < TILE_COMMITS_MAX as usize {
        columns[3 * offset] = b'0' + (offset / 100) as u8;
        columns[3 * offset + 1] = b'0' + (offset / 10 % 10) as u8;
        columns[3 * offset + 2] = b'0' + (offset % 10) as u8;
        offset += 1;
    }
    columns
};

/// Returns the column of an offset: three digits, so that columns sort like commits.
pub fn column(offset: Offset) -> &'static str {
    let at = 3 * usize::from(offset);
    std::str::from_utf8(&COLUMNS[at..at + 3]).expect("columns are ASCII digits")
}

/// Returns the offset of a column, in a table with tiles of this size.
pub fn offset(column: &[u8], tile_commits: u16) -> Option<Offset> {
    if column.len() != 3 || !column.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let offset = column.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    (offset < tile_commits).then_some(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(index: u32) -> (String, Offset) {
        let (tile, offset) = Tile::of(CommitIndex(index), TILE_COMMITS);
        assert_eq!(tile.commit(offset, TILE_COMMITS), CommitIndex(index));
        (tile.name(), offset)
    }

    #[test]
    fn tile_names_count_down() {
        assert_eq!(named(0), ("2147483647".into(), 0));
        assert_eq!(named(10), ("2147483647".into(), 10));
        assert_eq!(named(300), ("2147483646".into(), 44));
        assert_eq!(named(1000), ("2147483644".into(), 232));
        assert_eq!(named(123_456), ("2147483165".into(), 64));
        assert_eq!(Tile::new(196).unwrap().name(), "2147483451");
        assert_eq!(Tile::new(1_238_947_312).unwrap().name(), "0908536335");
        assert_eq!(Tile::new(BASE).unwrap().name(), "0000000000");
        assert_eq!(Tile::new(BASE + 1), None);
    }

    #[test]
    fn only_valid_names_and_columns_are_parsed() {
        assert_eq!(Tile::from_name(b"2147483646"), Tile::new(1));
        for wrong in ["", "2147483648", "9999999999", "214748364", "-147483646", "+147483646"] {
            assert_eq!(Tile::from_name(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(offset(column(44).as_bytes(), 256), Some(44));
        for wrong in ["44", "0044", "-44", "256", "abc", ""] {
            assert_eq!(offset(wrong.as_bytes(), 256), None, "{wrong}");
        }
    }
}
