//! Open files, indexes and filters that are evicted while others use them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shuttle::thread;
use stele_engine::cache::BlockCache;
use stele_engine::cell::key::{Kind, push_cell_tail, push_column};
use stele_engine::fragment::{
    Compression, CursorOptions, FileHandle, FileHandles, Fragment, FragmentOptions, FragmentWriter,
    row_hash,
};
use stele_engine::merge::Cursor;
use stele_engine::world::Files;
use stele_engine::*;

use super::disk::Disk;
use super::explore;

const ROW: &[u8] = b"row";

fn write(files: &Arc<dyn Files>, path: &Path) {
    let options = FragmentOptions { compression: Compression::None, block_bytes: 1 << 10 };
    let mut writer = FragmentWriter::create(files, path, options).unwrap();
    let mut key = Vec::new();
    push_column(&mut key, ROW, b"f", b"q");
    push_cell_tail(&mut key, 0, Txn::base(1), Kind::Put);
    writer.add(&key, b"value").unwrap();
    writer.finish().unwrap();
}

#[test]
fn scale_2_13_a_file_closed_by_one_reader_is_opened_again_by_another() {
    explore(2_000, || {
        let files: Arc<dyn Files> = Arc::new(Disk::new());
        let handles = FileHandles::new(1);
        let paths: Vec<PathBuf> = (0..4).map(|n| PathBuf::from(format!("/{n}"))).collect();
        paths.iter().for_each(|path| {
            files.create(path).unwrap().write_all_at(b"x", 0).unwrap();
        });
        let all = paths.iter().map(|path| FileHandle::new(&files, path, &handles));
        let all: Arc<Vec<_>> = Arc::new(all.collect());
        let readers = (0..2).map(|reader| {
            let all = all.clone();
            thread::spawn(move || {
                for step in 0..3 {
                    let file = all[(reader + step) % 3].file().unwrap();
                    file.read_exact_at(&mut [0], 0).unwrap();
                }
            })
        });
        readers.collect::<Vec<_>>().into_iter().for_each(|reader| reader.join().unwrap());
        // Files that were being read could not be closed for others. The next one that is
        // opened finds them idle.
        drop(all[3].file().unwrap());
        assert_eq!(handles.open(), 1);
        all.iter().for_each(|handle| drop(handle.file().unwrap()));
        assert_eq!(handles.open(), 1, "each was opened in the place of another");
        drop(all);
        assert_eq!(handles.open(), 0);
    });
}

#[test]
fn scale_2_13_parts_in_memory_are_charged_to_the_cache() {
    // Too small for the index and the filter of both files.
    const CACHE_BYTES: u64 = 1_000;
    explore(2_000, || {
        let files: Arc<dyn Files> = Arc::new(Disk::new());
        let cache = BlockCache::new(CACHE_BYTES);
        let open = |number: u64| {
            let path = PathBuf::from(format!("/{number}"));
            write(&files, &path);
            Fragment::open(&files, &path, cache.next_file_id(), cache.clone()).unwrap()
        };
        let fragments: Arc<Vec<Arc<Fragment>>> = Arc::new((0..2).map(open).collect());
        let readers = (0..2).map(|reader| {
            let fragments = fragments.clone();
            thread::spawn(move || {
                for step in 0..2 {
                    let fragment = &fragments[(reader + step) % 2];
                    assert!(fragment.may_hold_row(ROW, row_hash(ROW)));
                    let mut cursor = fragment.cursor(&CursorOptions::default());
                    cursor.seek_last().unwrap();
                    assert_eq!(cursor.value(), b"value");
                }
            })
        });
        readers.collect::<Vec<_>>().into_iter().for_each(|reader| reader.join().unwrap());
        let decoded: usize = fragments.iter().map(|fragment| fragment.decoded_bytes()).sum();
        let stats = cache.stats();
        assert!(decoded as u64 <= stats.resident_bytes, "{decoded} bytes, {stats:?}");
        assert!(stats.bytes <= CACHE_BYTES, "{stats:?}");
        drop(fragments);
        assert_eq!((cache.stats().bytes, cache.stats().resident_bytes), (0, 0));
    });
}
