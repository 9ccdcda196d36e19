//! Arbitrary input: the decoders of commits, logs, fragments and manifests return a
//! result or an error, in bounded memory, and never panic. The corpus contains sound
//! and damaged samples of each format; its sound samples must stay readable forever.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use proptest::prelude::*;
use stele_engine::cache::BlockCache;
use stele_engine::cell::commit::CommitVisitor;
use stele_engine::config::Manifest;
use stele_engine::fragment::{CursorOptions, Fragment, row_hash};
use stele_engine::log::LogReader;
use stele_engine::merge::Cursor;
use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::SimFiles;
use stele_engine::world::{Disk, Files, ManualClock, SeededRandom, World};
use stele_engine::*;

const CASES: u32 = 1500;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn sample(name: &str) -> Vec<u8> {
    std::fs::read(corpus().join(name)).unwrap()
}

/// Returns the samples whose names start with `prefix`, in name order.
fn samples(prefix: &str) -> Vec<(String, PathBuf)> {
    let mut found: Vec<_> = std::fs::read_dir(corpus())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| name.starts_with(prefix))
        .collect();
    found.sort();
    assert!(found.len() > 2, "the corpus has no {prefix}");
    found
}

/// Compares an outcome with the one that the sample's name states.
fn judge<T: std::fmt::Debug>(name: &str, outcome: Result<T>) {
    match outcome {
        Ok(found) => assert!(name.contains("-sound"), "{name} was read as {found:?}"),
        Err(error) => assert!(name.contains("-damaged"), "{name}: {error}"),
    }
}

/// Returns the peak address space of this process, where available.
fn address_space_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Asserts that memory stays bounded: a length field can claim 4 GiB and must not be
/// trusted.
fn assert_bounded() {
    const KIB_MAX: u64 = 2 << 20;
    if let Some(kib) = address_space_kib() {
        assert!(kib < KIB_MAX, "{kib} KiB were taken");
    }
}

#[derive(Debug, Default)]
struct Count(usize);

impl<'a> CommitVisitor<'a> for Count {
    fn table(&mut self, _: TableId) -> Result<()> {
        Ok(())
    }
    fn delete_range(&mut self, range: RowRange) -> Result<()> {
        self.0 += range.start.len();
        Ok(())
    }
    fn row(&mut self, row: &'a [u8]) -> Result<()> {
        self.0 += row.len();
        Ok(())
    }
    fn mutation(&mut self, _: Mutation<'a>) -> Result<()> {
        self.0 += 1;
        Ok(())
    }
    fn row_end(&mut self) -> Result<()> {
        Ok(())
    }
}

fn read_commit(bytes: &[u8]) -> Result<usize> {
    let mut count = Count::default();
    let commit = Commit::from_bytes(Bytes::copy_from_slice(bytes));
    commit.walk(&mut count)?;
    assert!(count.0 <= bytes.len(), "more mutations than bytes");
    Ok(count.0)
}

/// Returns a store that accepts any commit to the tables 1 to 3.
fn store() -> &'static Store {
    static STORE: OnceLock<Store> = OnceLock::new();
    STORE.get_or_init(|| {
        let world = World {
            clock: Arc::new(ManualClock::at(0)),
            files: Arc::new(SimFiles::new(1)),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        };
        let store = Store::open(Path::new("/s"), Options::default(), world).unwrap();
        for name in ["a", "b", "c"] {
            let families = [Family::new("f"), Family::new("g"), Family::new("h")];
            store.create_table(name, Schema::with_families(families).unwrap()).unwrap();
        }
        store
    })
}

/// Applies a commit, valid or not, and reads everything back if it was accepted.
fn apply_commit(bytes: &[u8]) {
    let commit = Commit::from_bytes(Bytes::copy_from_slice(bytes));
    if store().apply(&commit, Txn::MAX, Durability::Accepted).is_ok() {
        for (table, _) in store().tables() {
            let spec = ScanSpec { view: View::Latest, ..ScanSpec::default() };
            store().read(table, spec, |_| {}).unwrap();
        }
    }
}

/// Returns a simulated disk with these files.
fn disk_of(files: &[(PathBuf, Vec<u8>)]) -> SimFiles {
    let sim = SimFiles::new(1);
    for (path, bytes) in files {
        sim.create_dir_all(path.parent().unwrap()).unwrap();
        sim.create(path).unwrap().write_all_at(bytes, 0).unwrap();
    }
    sim
}

fn read_fragment(bytes: &[u8]) -> Result<u64> {
    let path = PathBuf::from("/d/fragment");
    let files: Arc<dyn Files> = Arc::new(disk_of(&[(path.clone(), bytes.to_vec())]));
    let cache = BlockCache::new(1 << 20);
    let fragment = Fragment::open(&files, &path, cache.next_file_id(), cache.clone())?;
    let mut cursor = fragment.cursor(&CursorOptions::default());
    let mut entries = 0;
    let mut walk = || {
        cursor.seek(&[])?;
        while cursor.valid() && entries < 100_000 {
            let _ = (cursor.key().len(), cursor.value().len());
            entries += 1;
            cursor.next()?;
        }
        cursor.seek_last()?;
        cursor.seek_before(b"row05")
    };
    let walked = walk();
    fragment.may_hold_row(b"row05", row_hash(b"row05"));
    fragment.estimate_bytes(&RowRange::new("row03", "row09"));
    fragment.blocks().take(1000).for_each(drop);
    let report = fragment.verify()?;
    walked.map(|()| report.cells)
}

fn read_log(files: &dyn Files, dir: &Path) -> Result<usize> {
    let mut bytes = 0;
    LogReader::open(files, dir, 1)?.replay(|item| {
        bytes += item.payload.len();
        Ok(())
    })?;
    Ok(bytes)
}

fn read_manifest(bytes: &[u8]) -> Result<usize> {
    let files = disk_of(&[("/d/manifest".into(), bytes.to_vec())]);
    let configs = Manifest::load(&files, Path::new("/d"))?;
    Ok(configs.expect("there is a manifest").tables.len())
}

/// Returns the segments of the sound log in the corpus.
fn sound_log() -> Vec<(PathBuf, Vec<u8>)> {
    let dir = corpus().join("log-sound");
    let mut names: Vec<_> =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
        .iter()
        .map(|name| (Path::new("/d").join(name), std::fs::read(dir.join(name)).unwrap()))
        .collect()
}

#[test]
fn sound_samples_of_every_format_are_read_and_damaged_ones_are_refused() {
    for (name, path) in samples("commit") {
        judge(&name, read_commit(&std::fs::read(path).unwrap()));
    }
    for (name, path) in samples("fragment") {
        judge(&name, read_fragment(&std::fs::read(path).unwrap()));
    }
    for (name, path) in samples("manifest") {
        judge(&name, read_manifest(&std::fs::read(path).unwrap()));
    }
    for (name, path) in samples("log") {
        judge(&name, read_log(&Disk, &path));
    }
    assert!(
        store()
            .apply(
                &Commit::from_bytes(sample("commit-sound.bin").into()),
                Txn::MAX,
                Durability::Durable
            )
            .is_ok()
    );
    assert_bounded();
}

/// A way to corrupt bytes.
#[derive(Clone, Debug)]
enum Spoil {
    Flip(usize, u8),
    Word(usize, u32),
    Cut(usize),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Copy(usize, usize, usize),
}

fn spoil() -> impl Strategy<Value = Spoil> {
    let words = prop::sample::select(vec![0, 1, 0x7F, 0x80, 0xFFFF, 0x7FFF_FFFF, u32::MAX]);
    prop_oneof![
        4 => (any::<usize>(), 0..8u8).prop_map(|(at, bit)| Spoil::Flip(at, bit)),
        3 => (any::<usize>(), words).prop_map(|(at, word)| Spoil::Word(at, word)),
        1 => any::<usize>().prop_map(Spoil::Cut),
        1 => (any::<usize>(), prop::collection::vec(any::<u8>(), 1..20))
            .prop_map(|(at, bytes)| Spoil::Insert(at, bytes)),
        1 => (any::<usize>(), 1..40usize).prop_map(|(at, len)| Spoil::Remove(at, len)),
        1 => (any::<usize>(), any::<usize>(), 1..60usize)
            .prop_map(|(from, to, len)| Spoil::Copy(from, to, len)),
    ]
}

impl Spoil {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let Some(last) = bytes.len().checked_sub(1) else { return };
        let clip = |at: usize| at % (last + 1);
        match self {
            Spoil::Flip(at, bit) => bytes[clip(*at)] ^= 1 << bit,
            Spoil::Word(at, word) => {
                let at = clip(*at);
                let end = bytes.len().min(at + 4);
                bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            }
            Spoil::Cut(at) => bytes.truncate(clip(*at)),
            Spoil::Insert(at, new) => {
                let at = clip(*at);
                bytes.splice(at..at, new.iter().copied());
            }
            Spoil::Remove(at, len) => {
                let at = clip(*at);
                bytes.drain(at..bytes.len().min(at + len));
            }
            Spoil::Copy(from, to, len) => {
                let from = clip(*from);
                let part = bytes[from..bytes.len().min(from + len)].to_vec();
                let to = clip(*to);
                let end = bytes.len().min(to + part.len());
                bytes[to..end].copy_from_slice(&part[..end - to]);
            }
        }
    }
}

fn spoiled(mut bytes: Vec<u8>, spoils: &[Spoil]) -> Vec<u8> {
    spoils.iter().for_each(|spoil| spoil.apply(&mut bytes));
    bytes
}

/// Recomputes the checksums of a corrupted manifest, so that the decoder gets past
/// them.
fn with_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut at = 16;
    while let Some(header) = bytes.get(at..at + 9) {
        let length = u32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
        let Some(end) = at.checked_add(9 + length).filter(|end| *end <= bytes.len()) else { break };
        let checksum = crc32c::crc32c(&bytes[at + 8..end]);
        bytes[at + 4..at + 8].copy_from_slice(&checksum.to_le_bytes());
        at = end;
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn any_commit_is_taken_or_refused(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        spoils in prop::collection::vec(spoil(), 1..4),
    ) {
        let mut versioned = noise.clone();
        versioned.insert(0, 1);
        let spoiled = spoiled(sample("commit-sound.bin"), &spoils);
        for bytes in [noise, versioned, spoiled] {
            let _ = read_commit(&bytes);
            apply_commit(&bytes);
        }
        assert_bounded();
    }

    #[test]
    fn any_fragment_is_read_or_refused(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        spoils in prop::collection::vec(spoil(), 1..4),
        kind in prop::sample::select(vec!["none", "lz4", "zstd"]),
    ) {
        let sound = sample(&format!("fragment-{kind}-sound.bin"));
        let mut tailed = noise.clone();
        tailed.extend_from_slice(&sound[sound.len() - 40..]);
        let changed = spoiled(sound.clone(), &spoils);
        if changed != sound {
            prop_assert!(read_fragment(&changed).is_err(), "damage was not noticed");
        }
        let _ = read_fragment(&noise);
        let _ = read_fragment(&tailed);
        assert_bounded();
    }

    #[test]
    fn any_log_is_read_or_refused(
        segment in any::<usize>(),
        spoils in prop::collection::vec(spoil(), 1..4),
        noise in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut files = sound_log();
        let segment = segment % files.len();
        files[segment].1 = spoiled(std::mem::take(&mut files[segment].1), &spoils);
        let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        if let Ok(read) = read_log(&disk_of(&files), Path::new("/d")) {
            prop_assert!(read <= bytes);
        }
        files[segment].1 = noise;
        let _ = read_log(&disk_of(&files), Path::new("/d"));
        assert_bounded();
    }

    #[test]
    fn any_manifest_is_read_or_refused(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        spoils in prop::collection::vec(spoil(), 1..4),
    ) {
        let sound = sample("manifest-sound.bin");
        let _ = read_manifest(&noise);
        let mut headed = sound[..16].to_vec();
        headed.extend_from_slice(&noise);
        let _ = read_manifest(&with_checksums(headed));
        let changed = spoiled(sound, &spoils);
        let _ = read_manifest(&changed);
        let _ = read_manifest(&with_checksums(changed));
        assert_bounded();
    }
}
