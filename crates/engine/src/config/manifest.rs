//! The manifest: the config in a file next to the data.
//!
//! The file is a header followed by checksummed records: a snapshot of the
//! whole config, then one record per batch of edits, each synced before it
//! takes effect. A file that has grown long is replaced with a new snapshot by
//! a rename.

mod format;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::encoding::encode_batch;
use super::{ConfigEdit, ConfigStore, Configs};
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::world::{File, Files};
use format::{KIND_BATCH, KIND_END, RECORD_HEADER_BYTES, encode_file, parse, push_record};

/// Minimum size at which a manifest is rewritten.
const REWRITE_BYTES_MIN: u64 = 256 << 10;

/// File name of the manifest in a store's directory.
pub const FILE_NAME: &str = "manifest";
const NEW_FILE_NAME: &str = "manifest.new";

/// A config stored in a file.
pub struct Manifest {
    files: Arc<dyn Files>,
    dir: PathBuf,
    state: Mutex<ManifestState>,
}

/// The manifest as found on disk.
#[derive(Clone, Debug)]
pub struct LoadedManifest {
    pub configs: Configs,
    /// Length of the file.
    pub bytes: u64,
    /// Offset of an edit that was being written when the writer crashed.
    pub torn_at: Option<u64>,
}

/// The config and the file that holds it.
struct ManifestState {
    configs: Arc<Configs>,
    file: Arc<dyn File>,
    length: u64,
    snapshot_bytes: u64,
    /// Set when the contents of the file are unknown after a failure.
    stopped: Option<Error>,
}

impl Manifest {
    /// Whether a directory has a manifest, valid or not.
    pub fn exists(files: &dyn Files, dir: &Path) -> io::Result<bool> {
        files.exists(&dir.join(FILE_NAME))
    }

    /// Creates a store by writing the first manifest of a directory.
    pub fn create(files: Arc<dyn Files>, dir: &Path, configs: Configs) -> Result<Manifest> {
        Manifest::write_fresh(files, dir, Arc::new(configs))
    }

    /// Opens the manifest of a directory; `None` if there is none.
    pub fn open(files: Arc<dyn Files>, dir: &Path) -> Result<Option<Manifest>> {
        let Some(configs) = Manifest::load(&*files, dir)? else { return Ok(None) };
        // The new file excludes any interrupted edit.
        Manifest::write_fresh(files, dir, Arc::new(configs)).map(Some)
    }

    /// Reads the manifest of a directory without changing anything.
    pub fn load(files: &dyn Files, dir: &Path) -> Result<Option<Configs>> {
        let Some(loaded) = Manifest::inspect(files, dir)? else { return Ok(None) };
        if let Some(at) = loaded.torn_at {
            let path = dir.join(FILE_NAME);
            tracing::warn!(path = %path.display(), at, "dropped an interrupted edit of the configuration");
        }
        Ok(Some(loaded.configs))
    }

    /// Like `load`, but also reports the offset of an interrupted edit.
    pub fn inspect(files: &dyn Files, dir: &Path) -> Result<Option<LoadedManifest>> {
        let path = dir.join(FILE_NAME);
        let file = match files.open_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("opening", &path, error)),
        };
        let length = file.len().map_err(|error| Error::io("reading the size of", &path, error))?;
        let length = usize::try_from(length)
            .map_err(|_| Error::data_loss(&path, 0, "the manifest is too large"))?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0).map_err(|error| Error::io("reading", &path, error))?;
        parse(&path, &bytes).map(Some)
    }

    fn write_fresh(files: Arc<dyn Files>, dir: &Path, configs: Arc<Configs>) -> Result<Manifest> {
        let (file, length) = write_new(&*files, dir, &configs)?;
        replace_old(&*files, dir)?;
        let state = ManifestState { configs, file, length, snapshot_bytes: length, stopped: None };
        Ok(Manifest { files, dir: dir.to_path_buf(), state: Mutex::new(state) })
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FILE_NAME)
    }

    fn append(&self, state: &mut ManifestState, record: &[u8]) -> Result<()> {
        let path = self.path();
        if let Err(error) = state.file.write_all_at(record, state.length) {
            // Undo the failed write, durably: the record may be complete on
            // disk and must not take effect after a crash.
            let error = Error::io("writing", &path, error);
            if state.file.set_len(state.length).and_then(|()| state.file.sync_data()).is_err() {
                state.stopped = Some(error.clone());
            }
            return Err(error);
        }
        if let Err(error) = state.file.sync_data() {
            let error = Error::io("syncing", &path, error);
            state.stopped = Some(error.clone());
            return Err(error);
        }
        state.length += record.len() as u64;
        Ok(())
    }

    fn rewrite_if_long(&self, state: &mut ManifestState) {
        if state.length < REWRITE_BYTES_MIN.max(state.snapshot_bytes * 4) {
            return;
        }
        let (file, length) = match write_new(&*self.files, &self.dir, &state.configs) {
            Ok(written) => written,
            Err(error) => {
                // The edit is in the old file, which can grow further.
                tracing::warn!(%error, "could not rewrite the long manifest: the next edit tries again");
                return;
            }
        };
        match replace_old(&*self.files, &self.dir) {
            Ok(()) => (state.file, state.length, state.snapshot_bytes) = (file, length, length),
            // The edit is in the old file, or in the new one if that has
            // replaced it; the next open finds out.
            Err(error) => state.stopped = Some(error),
        }
    }
}

impl ConfigStore for Manifest {
    fn read(&self) -> Result<Arc<Configs>> {
        Ok(self.state.lock().configs.clone())
    }

    fn edit(&self, expected: u64, edits: &[ConfigEdit]) -> Result<Arc<Configs>> {
        let mut state = self.state.lock();
        if let Some(error) = &state.stopped {
            return Err(Error::Stopped(Arc::new(error.clone())));
        }
        let next = state.configs.edited(expected, edits)?;
        let payload = encode_batch(next.revision, edits);
        let mut record = Vec::with_capacity(RECORD_HEADER_BYTES + payload.len());
        push_record(&mut record, KIND_BATCH, &payload);
        self.append(&mut state, &record)?;
        state.configs = Arc::new(next);
        self.rewrite_if_long(&mut state);
        Ok(state.configs.clone())
    }

    fn close(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.stopped.is_some() {
            return Ok(());
        }
        let mut record = Vec::with_capacity(RECORD_HEADER_BYTES);
        push_record(&mut record, KIND_END, &[]);
        self.append(&mut state, &record)
    }

    fn failure(&self) -> Option<Error> {
        let state = self.state.lock();
        state.stopped.as_ref().map(|error| Error::Stopped(Arc::new(error.clone())))
    }
}

/// Writes a new manifest next to the old one.
fn write_new(files: &dyn Files, dir: &Path, configs: &Configs) -> Result<(Arc<dyn File>, u64)> {
    let bytes = encode_file(configs);
    let new = dir.join(NEW_FILE_NAME);
    match files.remove(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("removing", &new, error));
        }
        _ => {}
    }
    let file = files.create(&new).map_err(|error| Error::io("creating", &new, error))?;
    file.write_all_at(&bytes, 0).map_err(|error| Error::io("writing", &new, error))?;
    file.sync_data().map_err(|error| Error::io("syncing", &new, error))?;
    Ok((file, bytes.len() as u64))
}

/// Replaces the old manifest with the new one.
fn replace_old(files: &dyn Files, dir: &Path) -> Result<()> {
    let (path, new) = (dir.join(FILE_NAME), dir.join(NEW_FILE_NAME));
    files.rename(&new, &path).map_err(|error| Error::io("renaming", &new, error))?;
    files.sync_dir(dir).map_err(|error| Error::io("syncing", dir, error))
}

#[cfg(test)]
mod tests {
    use super::super::encoding::decode_batch;
    use super::super::{
        BackupOrigin, FileFacts, FileName, Reference, Splice, TableState, TabletId,
    };
    use super::format::{KIND_SNAPSHOT, MAGIC, VERSION};
    use super::*;
    use crate::cell::commit::TableId;
    use crate::cell::rows::RowRange;
    use crate::schema::{Compression, Family, Group, Purge, Schema};
    use crate::txn::Txn;
    use crate::world::Disk;
    use crate::world::sim::SimFiles;
    use proptest::prelude::*;

    fn schema() -> Arc<Schema> {
        let purge = Purge::Any(vec![
            Purge::All(vec![Purge::MaxVersions(3), Purge::MaxAge(5)]),
            Purge::Waterline(-7),
        ]);
        let mut cold = Group::new("cold", [Family::new("c")]);
        cold.compression = Compression::Zstd;
        cold.block_bytes = Some(1024);
        cold.purge = Purge::MaxVersions(1);
        let hot = Group::new("hot", [Family::with_purge("h", purge)]);
        let hidden = Group::new("hidden", [Family::hidden("t", Purge::MaxAge(9))]);
        Arc::new(Schema::new(vec![hot, cold, hidden]).unwrap().splittable(false))
    }

    fn file(number: u64) -> Reference {
        Reference {
            name: FileName { incarnation: 1, number },
            bytes: 10,
            cells: 2,
            txn_min: Txn::base(1).next(),
            txn_max: Txn::base(2),
            rows: None,
            families: (number == 3).then(|| vec![b"c".to_vec(), b"d".to_vec()]),
            facts: Some(FileFacts {
                meta_bytes: 4,
                dead_bytes: 1,
                held: RowRange::new("a", "b"),
                has_spans: true,
                timestamp_max: Some(-3),
            }),
            share: 7,
            unit: 1 << 32,
            joins: false,
        }
    }

    /// The only tablet of the table.
    const TABLET: TabletId = TabletId { incarnation: 1, number: 1 };

    fn splice(remove: &[u64], add: &[u64]) -> ConfigEdit {
        ConfigEdit::Splice(Splice {
            table: TableId(1),
            tablet: TABLET,
            load: 1,
            start: Vec::new(),
            group: 1,
            remove: remove.iter().map(|&number| file(number).key()).collect(),
            add: add.iter().map(|&number| file(number)).collect(),
            flushed: Some(Txn::base(2)),
        })
    }

    fn batches() -> Vec<Vec<ConfigEdit>> {
        vec![
            vec![ConfigEdit::TakeIncarnation],
            vec![ConfigEdit::CreateTable {
                name: "t".into(),
                schema: schema(),
                splits: Vec::new(),
            }],
            vec![splice(&[], &[1]), splice(&[], &[2]), splice(&[], &[3])],
            vec![splice(&[1, 2], &[4]), ConfigEdit::SetLogHead { segment: 9 }],
            vec![ConfigEdit::SetLoaded {
                table: TableId(1),
                tablets: vec![(TABLET, Vec::new())],
                loaded: false,
            }],
            vec![ConfigEdit::CopyTable {
                source: TableId(1),
                name: "t".into(),
                state: TableState::Backup(BackupOrigin {
                    table: TableId(1),
                    name: "t".into(),
                    txn: Txn::base(2),
                    created: -1,
                    expires: Some(i64::MAX),
                }),
            }],
            vec![ConfigEdit::CopyTable {
                source: TableId(2),
                name: "copy".into(),
                state: TableState::Active,
            }],
            vec![ConfigEdit::SetState {
                table: TableId(3),
                state: TableState::Deleted { since: 7 },
            }],
        ]
    }

    fn create(files: Arc<dyn Files>, dir: &Path, store_id: u64) -> Manifest {
        Manifest::create(files, dir, Configs { store_id, ..Configs::default() }).unwrap()
    }

    fn written(dir: &Path) -> (Configs, Vec<Configs>) {
        let manifest = create(Arc::new(Disk), dir, 77);
        let mut history = vec![(*manifest.read().unwrap()).clone()];
        for (revision, edits) in batches().iter().enumerate() {
            history.push((*manifest.edit(revision as u64, edits).unwrap()).clone());
        }
        (history.last().unwrap().clone(), history)
    }

    #[test]
    fn what_was_edited_is_there_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let (last, _) = written(dir.path());
        let numbers: Vec<_> = last.tables[&TableId(1)].tablets.first().chains[1]
            .files
            .iter()
            .map(|f| f.name.number)
            .collect();
        assert_eq!(numbers, [4, 3]);
        let reopened = Manifest::open(Arc::new(Disk), dir.path()).unwrap().unwrap();
        assert_eq!(*reopened.read().unwrap(), last);
        let again = Manifest::load(&Disk, dir.path()).unwrap().unwrap();
        assert_eq!(again, last, "opening wrote the same state as one snapshot");
    }

    #[test]
    fn an_edit_at_the_wrong_revision_or_of_missing_files_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (last, _) = written(dir.path());
        let manifest = Manifest::open(Arc::new(Disk), dir.path()).unwrap().unwrap();
        let stale = manifest.edit(last.revision - 1, &[ConfigEdit::TakeIncarnation]);
        assert!(matches!(stale, Err(Error::ConfigConflict { .. })));
        assert!(
            manifest
                .edit(last.revision, &[ConfigEdit::TakeIncarnation, splice(&[3, 4], &[])])
                .is_err()
        );
        assert_eq!(*manifest.read().unwrap(), last);
    }

    #[test]
    fn files_of_one_run_have_no_row_in_common() {
        let dir = tempfile::tempdir().unwrap();
        let (last, _) = written(dir.path());
        let manifest = Manifest::open(Arc::new(Disk), dir.path()).unwrap().unwrap();
        let tablets = vec![(TABLET, Vec::new())];
        let load = ConfigEdit::SetLoaded { table: TableId(1), tablets, loaded: true };
        let last = (*manifest.edit(last.revision, &[load]).unwrap()).clone();
        let joined = |rows: RowRange| {
            let ConfigEdit::Splice(mut edit) = splice(&[], &[5]) else { unreachable!() };
            edit.load = 2;
            edit.add[0].joins = true;
            edit.add[0].facts.as_mut().unwrap().held = rows;
            manifest.edit(last.revision, &[ConfigEdit::Splice(edit)])
        };
        assert!(joined(RowRange::new("a", "c")).is_err(), "the run goes up to b");
        assert!(joined(RowRange::new("c", "c")).is_err(), "no rows");
        assert_eq!(*manifest.read().unwrap(), last);
        joined(RowRange::from("b")).unwrap();
        let reopened = Manifest::open(Arc::new(Disk), dir.path()).unwrap().unwrap();
        let configs = reopened.read().unwrap();
        let runs = configs.tables[&TableId(1)].tablets.first().chains[1].runs();
        let numbers = |run: &[Reference]| run.iter().map(|f| f.name.number).collect::<Vec<_>>();
        assert_eq!(runs.map(numbers).collect::<Vec<_>>(), [vec![4], vec![3, 5]]);
    }

    #[test]
    fn a_manifest_cut_anywhere_gives_an_earlier_revision_or_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (_, history) = written(dir.path());
        let bytes = std::fs::read(dir.path().join(FILE_NAME)).unwrap();
        for end in 0..bytes.len() {
            match parse(Path::new("m"), &bytes[..end]) {
                Ok(LoadedManifest { configs, .. }) => {
                    assert_eq!(configs, history[configs.revision as usize]);
                }
                Err(Error::DataLoss { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed_unless_it_only_tears_the_last_edit() {
        let dir = tempfile::tempdir().unwrap();
        let (_, history) = written(dir.path());
        let bytes = std::fs::read(dir.path().join(FILE_NAME)).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match parse(Path::new("m"), &flipped) {
                Ok(LoadedManifest { configs, torn_at, .. }) => {
                    assert_eq!(configs, history[history.len() - 2]);
                    assert!(torn_at.is_some());
                }
                Err(Error::DataLoss { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn a_newer_manifest_is_refused_with_a_sentence() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&9u32.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        let error = parse(Path::new("m"), &bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "m has format version 9, this program reads up to 6: use a newer stele"
        );
    }

    #[test]
    fn a_long_manifest_is_rewritten_short() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = create(Arc::new(Disk), dir.path(), 1);
        let many = vec![ConfigEdit::TakeIncarnation; 40_000];
        for revision in 0..4 {
            manifest.edit(revision, &many).unwrap();
        }
        assert!(std::fs::metadata(dir.path().join(FILE_NAME)).unwrap().len() < REWRITE_BYTES_MIN);
        drop(manifest);
        assert_eq!(Manifest::load(&Disk, dir.path()).unwrap().unwrap().generation, 160_000);
    }

    #[test]
    fn a_manifest_without_space_to_be_rewritten_remains_in_use_and_is_rewritten_later() {
        let sim = SimFiles::new(1);
        let manifest = create(Arc::new(sim.clone()), Path::new("/"), 1);
        let length = || sim.files()[Path::new("/manifest")].len() as u64;
        let many = vec![ConfigEdit::TakeIncarnation; 40_000];
        let before = length();
        manifest.edit(0, &many).unwrap();
        let edit_bytes = length() - before;
        let mut revision = 1;
        while length() < REWRITE_BYTES_MIN {
            // Enough space for the edit, but not for a new manifest.
            sim.set_capacity(Some(length() + edit_bytes));
            manifest.edit(revision, &many).unwrap();
            revision += 1;
        }
        let refused = manifest.edit(revision, &many);
        assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
        sim.set_capacity(None);
        manifest.edit(revision, &many).unwrap();
        revision += 1;
        assert!(length() < REWRITE_BYTES_MIN);
        drop(manifest);
        let left = Manifest::load(&sim.crash(), Path::new("/")).unwrap().unwrap();
        assert_eq!(left.revision, revision);
    }

    proptest! {
        #[test]
        fn arbitrary_records_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let mut manifest = MAGIC.to_vec();
            manifest.extend_from_slice(&VERSION.to_le_bytes());
            manifest.extend_from_slice(&crc32c::crc32c(&manifest).to_le_bytes());
            push_record(&mut manifest, KIND_SNAPSHOT, &bytes);
            let _ = parse(Path::new("m"), &manifest);
            let _ = decode_batch(&bytes);
        }
    }
}
