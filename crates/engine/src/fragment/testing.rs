//! Test fixtures of this module: random entries, in-memory files, and fragments built
//! from them.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;

use crate::cache::BlockCache;

use crate::cell::key::{
    Kind, push_cell_tail, push_column, push_family, push_row, push_tombstone_tail,
};
use crate::cell::range_tombstone::RangeTombstones;
use crate::error::Result;
use crate::fragment::{Compression, Fragment, FragmentMeta, FragmentOptions, FragmentWriter};
use crate::schema::Group;
use crate::txn::Txn;
use crate::world::{DirLock, File, Files};

pub type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn name(len: Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, b'a', b'b', 0xFF]), len)
}

fn row() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => name(0..4),
        1 => name(0..4).prop_map(|tail| [&[b'r'; 150][..], &tail].concat()),
    ]
}

pub const FAMILIES: [&[u8]; 3] = [b"f", b"fam", b"g"];

/// Generates a key of any level.
pub fn key() -> impl Strategy<Value = Vec<u8>> {
    let timestamp = prop_oneof![
        -3i64..3,
        prop::sample::select(vec![i64::MIN, i64::MAX]),
        1_700_000_000_000_000i64..1_700_000_000_100_000,
    ];
    let txn = prop_oneof![0u64..4, (1u64 << 32)..(1 << 32) + 70_000, Just(Txn::MAX.raw())];
    let kind = prop::sample::select(vec![Kind::Put, Kind::Put, Kind::Marker, Kind::Merge(3)]);
    let family = prop::sample::select(FAMILIES.to_vec());
    (row(), family, name(0..3), timestamp, txn, kind, 0..12).prop_map(
        |(row, family, qualifier, timestamp, txn, kind, level)| {
            let txn = Txn::from_raw(txn).unwrap();
            let mut key = Vec::new();
            match level {
                0 => push_row(&mut key, &row),
                1 => push_family(&mut key, &row, family),
                _ => push_column(&mut key, &row, family, &qualifier),
            }
            match level {
                0..3 => push_tombstone_tail(&mut key, txn),
                _ => push_cell_tail(&mut key, timestamp, txn, kind),
            }
            key
        },
    )
}

/// Generates sorted entries with keys of all levels and with values of equal or
/// different lengths.
pub fn entries(count: Range<usize>) -> impl Strategy<Value = Entries> {
    let value = prop::collection::vec(any::<u8>(), 0..40);
    let mixed = prop::collection::btree_map(key(), value, count.clone());
    let alike = prop::collection::btree_map(key(), Just(vec![7; 5]), count);
    prop_oneof![mixed, alike]
}

impl FragmentOptions {
    /// Returns what a group with this compression and no block size of its own uses.
    pub fn new(compression: Compression) -> FragmentOptions {
        let group = Group { compression, ..Group::new("group", []) };
        FragmentOptions { compression, block_bytes: group.block_bytes() }
    }
}

impl Default for FragmentOptions {
    fn default() -> Self {
        FragmentOptions::new(Compression::default())
    }
}

/// Generates options for writing a test fragment.
pub fn options() -> impl Strategy<Value = FragmentOptions> {
    let compression =
        prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]);
    (compression, prop::sample::select(vec![64, 200, 1000, 16 << 10]))
        .prop_map(|(compression, block_bytes)| FragmentOptions { compression, block_bytes })
}

/// A single in-memory file, under any name.
#[derive(Clone, Default)]
pub struct OneFile {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl OneFile {
    pub fn new(bytes: Vec<u8>) -> OneFile {
        OneFile { bytes: Arc::new(Mutex::new(bytes)) }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().clone()
    }

    pub fn change(&self, with: impl FnOnce(&mut Vec<u8>)) {
        with(&mut self.bytes.lock());
    }

    pub fn files(&self) -> Arc<dyn Files> {
        Arc::new(self.clone())
    }

    pub fn path() -> &'static Path {
        Path::new("fragment")
    }

    /// Writes a fragment of these entries.
    pub fn write(&self, options: FragmentOptions, entries: &Entries) -> Result<FragmentMeta> {
        self.write_with(options, entries, RangeTombstones::default())
    }

    pub fn write_with(
        &self,
        options: FragmentOptions,
        entries: &Entries,
        range_tombstones: RangeTombstones,
    ) -> Result<FragmentMeta> {
        let mut writer = FragmentWriter::create(&self.files(), OneFile::path(), options)?;
        for (key, value) in entries {
            writer.add(key, value)?;
        }
        writer.set_range_tombstones(range_tombstones);
        writer.finish()
    }

    pub fn open(&self) -> Result<Arc<Fragment>> {
        self.open_with(BlockCache::new(1 << 20))
    }

    pub fn open_with(&self, cache: Arc<BlockCache>) -> Result<Arc<Fragment>> {
        let id = cache.next_file_id();
        Fragment::open(&self.files(), OneFile::path(), id, cache)
    }
}

/// Returns entries of `count` rows.
pub fn many(count: u64) -> Entries {
    let entry = |number: u64| {
        let mut key = Vec::new();
        push_column(&mut key, format!("{number:08}").as_bytes(), b"f", b"q");
        push_cell_tail(&mut key, 0, Txn::base(1), Kind::Put);
        (key, vec![7; 60])
    };
    (0..count).map(entry).collect()
}

/// Returns a fragment of `blocks` blocks with one entry each.
pub fn fragment_of(blocks: u64, cache: &Arc<BlockCache>) -> Arc<Fragment> {
    let file = OneFile::default();
    let options = FragmentOptions { compression: Compression::None, block_bytes: 64 };
    assert_eq!(file.write(options, &many(blocks)).unwrap().blocks, blocks);
    file.open_with(cache.clone()).unwrap()
}

impl Files for OneFile {
    fn create(&self, _path: &Path) -> io::Result<Arc<dyn File>> {
        self.bytes.lock().clear();
        Ok(Arc::new(self.clone()))
    }

    fn open(&self, _path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(self.clone()))
    }

    fn open_read(&self, _path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(self.clone()))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        self.bytes.lock().clear();
        Ok(())
    }

    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, _dir: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(vec![OneFile::path().to_path_buf()])
    }

    fn exists(&self, _path: &Path) -> io::Result<bool> {
        Ok(true)
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn DirLock>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl File for OneFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.bytes.lock();
        let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..));
        let found = rest.and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let (mut bytes, at) = (self.bytes.lock(), offset as usize);
        if bytes.len() < at + buf.len() {
            bytes.resize(at + buf.len(), 0);
        }
        bytes[at..at + buf.len()].copy_from_slice(buf);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes.lock().resize(len as usize, 0);
        Ok(())
    }
}
