//! The storage layout: the engine's tables, their rows and the bytes in them.
//! `docs/catalogue.md` describes the same for readers.

use stele_engine::schema::{Family, Purge, Schema};
use stele_engine::{RowRange, TableId};
use stele_tables::Tables;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::Result;
use crate::fid::{FID_BYTES, Fid};

/// Number of tables that records are spread over by a hash of the fid, so that each has
/// its own memory, flushes and compactions.
pub const RECORD_TABLES: usize = 8;
const META_TABLE: &str = "catalogue/meta";
pub const FAMILY: &[u8] = b"v";
/// The columns of a row of totals.
pub const RECORDS: &[u8] = b"r";
pub const BYTES: &[u8] = b"b";

/// Prefixes of rows in the table of catalogues.
pub const LIVE: &[u8] = b"c";
pub const RETIRED: &[u8] = b"r";
pub const DEATHROW: &[u8] = b"d";
/// The row that contains the next object.
pub const NEXT_OBJECT: &[u8] = b"o";
/// Less than the length of any object.
const TOTALS: u8 = 0;

/// Distinguishes catalogues with the same id; never reused.
pub type Object = u64;

/// The tables of the catalogues.
#[derive(Clone, Copy, Debug)]
pub struct TableIds {
    pub meta: TableId,
    records: [TableId; RECORD_TABLES],
}

impl TableIds {
    /// Finds the tables, or creates them.
    pub fn open(tables: &Tables) -> Result<TableIds> {
        let meta = open_table(tables, META_TABLE)?;
        let mut records = [meta; RECORD_TABLES];
        for (number, table) in records.iter_mut().enumerate() {
            *table = open_table(tables, &format!("catalogue/records/{number}"))?;
        }
        Ok(TableIds { meta, records })
    }

    /// Returns the table with the records of a catalogue.
    pub fn records_of(&self, fid: Fid) -> TableId {
        self.records[(xxh3_64(fid.bytes()) % RECORD_TABLES as u64) as usize]
    }
}

/// Finds a table, or creates it. The catalogues' tables are never split, so that one
/// process serves a catalogue.
fn open_table(tables: &Tables, name: &str) -> Result<TableId> {
    if let Some(table) = tables.table(name) {
        let schema = tables.schema(table)?;
        if schema.is_splittable() {
            tables.alter(table, Schema::clone(&schema).splittable(false), &[])?;
        }
        return Ok(table);
    }
    // A record is one cell; a new value replaces the old one.
    let family = Family::with_purge(FAMILY, Purge::MaxVersions(1));
    Ok(tables.create(name, Schema::with_families([family])?.splittable(false))?)
}

/// The rows of one table with a common prefix: the records of one catalogue.
#[derive(Clone, Debug)]
pub struct Space {
    pub table: TableId,
    pub prefix: Vec<u8>,
}

impl Space {
    pub fn of_object(table: TableId, object: Object) -> Space {
        let mut prefix = Vec::new();
        push_object(&mut prefix, object);
        Space { table, prefix }
    }

    pub fn row(&self, key: &[u8]) -> Vec<u8> {
        let mut row = Vec::with_capacity(self.prefix.len() + key.len() + 1);
        row.extend_from_slice(&self.prefix);
        row.extend_from_slice(key);
        row
    }

    /// Returns the key of a row in the space.
    pub fn key<'r>(&self, row: &'r [u8]) -> &'r [u8] {
        &row[self.prefix.len()..]
    }

    pub fn rows(&self) -> RowRange {
        RowRange::prefix(&self.prefix)
    }
}

/// Appends the length of the number, then its bytes without leading zeros: no object is
/// a prefix of another, and their order is numeric.
fn push_object(out: &mut Vec<u8>, object: Object) {
    let bytes = object.to_be_bytes();
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len() - 1);
    out.push((bytes.len() - start) as u8);
    out.extend_from_slice(&bytes[start..]);
}

/// Returns the row with the totals of a catalogue, in its table of records.
pub fn totals_row(object: Object) -> Vec<u8> {
    let mut row = vec![TOTALS];
    push_object(&mut row, object);
    row
}

pub fn meta_row(prefix: &[u8], key: &[u8]) -> Vec<u8> {
    [prefix, key].concat()
}

/// A record of the meta-catalogue, and of the list of retired ids: the object of the id
/// and its time of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub object: Object,
    pub since_micros: i64,
}

const VERSION: u8 = 1;

impl Entry {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.object.to_be_bytes());
        bytes.extend_from_slice(&self.since_micros.to_be_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Entry> {
        let mut fields = Fields::open(bytes, 8 + 8)?;
        Some(Entry { object: fields.u64(), since_micros: fields.u64() as i64 })
    }
}

/// A record of the deathrow; its key is the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condemned {
    pub fid: Fid,
    pub since_micros: i64,
    /// The number of records when the catalogue was deleted.
    pub records: u64,
    pub bytes: u64,
    /// The number of records removed so far.
    pub removed: u64,
}

impl Condemned {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(self.fid.bytes());
        bytes.extend_from_slice(&self.since_micros.to_be_bytes());
        for number in [self.records, self.bytes, self.removed] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Condemned> {
        let mut fields = Fields::open(bytes, FID_BYTES + 4 * 8)?;
        Some(Condemned {
            fid: Fid::from_wire(fields.take(FID_BYTES)).ok()?,
            since_micros: fields.u64() as i64,
            records: fields.u64(),
            bytes: fields.u64(),
            removed: fields.u64(),
        })
    }
}

/// Fields of fixed size after a version.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn open(bytes: &'a [u8], size: usize) -> Option<Fields<'a>> {
        let (version, fields) = bytes.split_first()?;
        (*version == VERSION && fields.len() == size).then_some(Fields(fields))
    }

    fn take(&mut self, size: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(size);
        self.0 = rest;
        taken
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take(8).try_into().expect("the slice has eight bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_ascend_and_none_is_a_prefix_of_another() {
        let encoded = |object| {
            let mut bytes = Vec::new();
            push_object(&mut bytes, object);
            bytes
        };
        let objects = [0, 1, 2, 255, 256, 257, 65_535, 65_536, u64::from(u32::MAX), u64::MAX];
        for pair in objects.windows(2) {
            let (low, high) = (encoded(pair[0]), encoded(pair[1]));
            assert!(totals_row(pair[1]) < low, "totals precede all records");
            assert!(low < high && !high.starts_with(&low), "{pair:?}");
            assert!(!RowRange::prefix(&low).contains(&high));
        }
    }

    #[test]
    fn stored_records_are_decoded_and_damage_is_detected() {
        let entry = Entry { object: 7, since_micros: -5 };
        assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        let fid = Fid::of_id(9).unwrap();
        let condemned = Condemned { fid, since_micros: 1, records: 2, bytes: 3, removed: 4 };
        let bytes = condemned.encode();
        assert_eq!(Condemned::decode(&bytes), Some(condemned));
        assert_eq!(Condemned::decode(&bytes[1..]), None);
        assert_eq!(Entry::decode(&[]), None);
        assert_eq!(Entry::decode(&[2; 17]), None);
    }
}
