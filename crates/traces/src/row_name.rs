//! Row names: `[shard]:[namespace]:[type]:[tile]:[subkey]`. The shard comes first so
//! that the rows of one tile are spread over the table; it depends only on the subkey.

use bytes::Bytes;
use stele_grpc::percent;

use crate::digest::Digest;
use crate::tile::Tile;

/// The default and maximum number of shards: a shard has two digits.
pub const SHARDS: u8 = 32;
pub const SHARDS_MAX: u8 = 100;
/// The maximum number of tablets into which the shards are divided at first.
const TABLETS_MAX: u8 = 8;
/// The first byte of rows without a shard, which is above all digits.
const UNSHARDED: &str = ":";
/// The tile of rows that belong to no tile.
const NO_TILE: &str = "0000000000";
/// Number of leading hex digits of a digest that determine its row in the digest map.
pub const PREFIX_DIGITS: usize = 3;

pub const SETTINGS: &str = ":ts:s:0000000000:";
pub const COUNTER: &str = ":ts:i:0000000000:";
/// Prefix of the rows of all tiles' param sets, the newest first.
pub const PARAM_SETS: &str = ":ts:o:";
pub const MARKS: &str = ":ts:m:";
pub const COMMITS: &str = ":vc:c:";
/// The row that counts the commits with hash rows.
pub const COMMITS_MARK: &str = ":vc:n:0000000000:";

/// The kind of a trace's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Digests,
    Numbers,
}

impl Kind {
    /// Returns the type in row names.
    pub fn letter(self) -> char {
        match self {
            Kind::Digests => 't',
            Kind::Numbers => 'v',
        }
    }

    pub fn family(self) -> &'static str {
        match self {
            Kind::Digests => "T",
            Kind::Numbers => "V",
        }
    }
}

/// Returns the rows at which a table is split from the start: into at most
/// [`TABLETS_MAX`] parts of equally many shards, and the rows without a shard.
pub fn splits(shards: u8) -> impl Iterator<Item = String> {
    let parts = u32::from(shards.min(TABLETS_MAX));
    let first_shard = move |part: u32| format!("{:02}", part * u32::from(shards) / parts);
    (1..parts).map(first_shard).chain([UNSHARDED.to_string()])
}

/// Returns the shard of a subkey.
pub fn shard(subkey: &[u8], shards: u8) -> u8 {
    // The remainder is less than 256.
    (crc32fast::hash(subkey) % u32::from(shards)) as u8
}

pub fn param_set(tile: Tile) -> String {
    format!("{PARAM_SETS}{}:", tile.name())
}

pub fn marks(tile: Tile) -> String {
    format!("{MARKS}{}:", tile.name())
}

pub fn commits(tile: Tile) -> String {
    format!("{COMMITS}{}:", tile.name())
}

pub fn commit_by_hash(hash: &str, shards: u8) -> String {
    format!("{:02}:vc:h:{NO_TILE}:{hash}", shard(hash.as_bytes(), shards))
}

/// Returns the prefix of all traces of a tile in one shard.
pub fn traces(kind: Kind, tile: Tile, shard: u8) -> String {
    format!("{shard:02}:ts:{}:{}:", kind.letter(), tile.name())
}

pub fn trace(kind: Kind, tile: Tile, encoded: &str, shards: u8) -> String {
    traces(kind, tile, shard(encoded.as_bytes(), shards)) + encoded
}

/// Returns the prefix of all options of a tile in one shard.
pub fn all_options(tile: Tile, shard: u8) -> String {
    format!("{shard:02}:ts:p:{}:", tile.name())
}

pub fn options(tile: Tile, encoded: &str, shards: u8) -> String {
    all_options(tile, shard(encoded.as_bytes(), shards)) + encoded
}

/// Returns the row that lists the ids of one shard of a tile.
pub fn listing(tile: Tile, shard: u8) -> String {
    format!("{shard:02}:ts:x:{}:", tile.name())
}

/// Returns the prefix of all rows of the digest map in one shard.
pub fn digest_map(shard: u8) -> String {
    format!("{shard:02}:ts:d:{NO_TILE}:")
}

/// Returns the row and the column of a digest in the map.
pub fn digest(digest: Digest, shards: u8) -> (String, String) {
    let mut hex = digest.to_string();
    let column = hex.split_off(PREFIX_DIGITS);
    (digest_map(shard(hex.as_bytes(), shards)) + &hex, column)
}

/// Returns the row of a test's labels. The name of a test is arbitrary.
pub fn labels(test: &str, shards: u8) -> String {
    let mut subkey = String::with_capacity(test.len());
    crate::params::escape(test, &mut subkey, &[':']);
    labels_of_shard(shard(subkey.as_bytes(), shards)) + &subkey
}

/// Returns the prefix of all labels in one shard.
pub fn labels_of_shard(shard: u8) -> String {
    format!("{shard:02}:ex:l:{NO_TILE}:")
}

/// Returns the test in the name of a row of labels.
pub fn test(row: &[u8]) -> Option<String> {
    percent::decode(str::from_utf8(subkey(row)).ok()?)
}

/// Returns the part after the last colon.
pub fn subkey(row: &[u8]) -> &[u8] {
    let after = row.iter().rposition(|byte| *byte == b':').map_or(0, |at| at + 1);
    &row[after..]
}

/// Returns the tile in a row's name.
pub fn tile(row: &[u8]) -> Option<Tile> {
    row.split(|byte| *byte == b':').nth(3).and_then(Tile::from_name)
}

/// Returns the subkey as a copy, because a slice would keep a whole message in memory.
pub fn subkey_text(row: &Bytes) -> Option<String> {
    String::from_utf8(subkey(row).to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_8_8_the_shards_are_divided_evenly_among_the_initial_tablets() {
        for shards in [1, 2, 7, 8, SHARDS, 33, SHARDS_MAX] {
            let splits: Vec<String> = splits(shards).collect();
            assert!(splits.is_sorted_by(|a, b| a < b), "{splits:?}");
            let mut parts = vec![0; splits.len() + 1];
            for shard in 0..shards {
                parts[splits.partition_point(|split| *split <= digest_map(shard))] += 1;
            }
            assert_eq!(parts.pop(), Some(0));
            let (least, most) = (parts.iter().min(), parts.iter().max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{shards}: {parts:?}");
            assert!(splits.last().unwrap().as_str() <= SETTINGS);
        }
    }

    #[test]
    fn shards_are_crc32_of_the_subkey() {
        // Of any length: long input takes another path in the library.
        let long = b",config=8888,name=blur,os=Android,".repeat(8);
        assert_eq!(crc32fast::hash(b""), 0);
        assert_eq!(crc32fast::hash(b"abc"), 0x3524_41c2);
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32fast::hash(&long), 0x2851_3614);
        assert_eq!(shard(&long, SHARDS), 20);
        for (subkey, expected) in [
            (",0=1,1=3,3=0,", 9),
            (",0=1,1=3,9=0,", 13),
            ("abc", 2),
            ("bcd", 25),
            ("9e1", 21),
            ("e30", 5),
            ("60b", 23),
            ("92e", 11),
        ] {
            assert_eq!(shard(subkey.as_bytes(), SHARDS), expected, "{subkey}");
        }
    }

    #[test]
    fn rows_are_named_as_documented() {
        let tile = Tile::new(0).unwrap();
        assert_eq!(param_set(tile), ":ts:o:2147483647:");
        let encoded = ",0=1,1=3,3=0,";
        let row = trace(Kind::Digests, tile, encoded, SHARDS);
        assert_eq!(row, "09:ts:t:2147483647:,0=1,1=3,3=0,");
        assert_eq!(options(tile, encoded, SHARDS), "09:ts:p:2147483647:,0=1,1=3,3=0,");
        let (row_of_digest, column) =
            digest("92eb5ffee6ae2fec3ad71c777531578f".parse().unwrap(), SHARDS);
        assert_eq!(row_of_digest, "11:ts:d:0000000000:92e");
        assert_eq!(column, "b5ffee6ae2fec3ad71c777531578f");
        assert_eq!(subkey(row.as_bytes()), encoded.as_bytes());
        assert_eq!(subkey(b"09:ts:t:2147483647:"), b"");
        assert_eq!(super::tile(row.as_bytes()), Some(tile));
        assert_eq!(super::tile(b"x"), None);
        let row = labels("a:b%c", SHARDS);
        assert!(row.ends_with(":ex:l:0000000000:a%3Ab%25c"));
        assert_eq!(test(row.as_bytes()), Some("a:b%c".into()));
    }
}
