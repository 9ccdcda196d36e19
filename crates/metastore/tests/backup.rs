//! Backups of a running member, and members restored from them.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use stele_engine::world::World;
use stele_metastore::backup::{
    self, Created, Directory, Kind, Location, Restored, Target, create, list, restore, verify,
};
use stele_metastore::command::{
    Acquire, Command, Delete, KeyRange, LockMode, Op, Put, RangeQuery, Txn,
};
use stele_metastore::node::{NodeSettings, Verified};
use stele_metastore::{Error, Floor, Node, Result};
use tempfile::TempDir;

use crate::clock::TestClock;

struct Setting {
    dir: TempDir,
    clock: Arc<TestClock>,
    node: Node,
}

impl Setting {
    async fn new() -> Setting {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::<TestClock>::default());
        clock.set_wall(1_000_000);
        let node = open_with(&dir.path().join("old"), &clock).await;
        Setting { dir, clock, node }
    }

    async fn put(&self, key: &str, value: &str) -> i64 {
        let put = Put::new(key.to_string(), value.to_string());
        self.node.propose(Command::Put(put)).await.unwrap().revision
    }

    fn location(&self) -> Directory {
        Directory::new(self.dir.path().join("backups"))
    }

    async fn back_up(&self, full: bool) -> Created {
        create(&self.node, Arc::new(self.location()), full, 100).await.unwrap()
    }

    async fn restore(&self, target: Target, name: &str) -> Result<Restored> {
        restore(&self.location(), target, &self.dir.path().join(name), false).await
    }

    async fn open(&self, name: &str) -> Node {
        open_with(&self.dir.path().join(name), &self.clock).await
    }
}

async fn open_with(dir: &Path, clock: &Arc<TestClock>) -> Node {
    let world = World { clock: clock.clone(), ..World::real() };
    let mut settings = NodeSettings::new(dir.to_path_buf(), world);
    settings.machine.engine.memory.cache_bytes = 1 << 20;
    settings.sync = false;
    Node::open(settings).await.unwrap()
}

/// Returns all keys with their stored tails at a revision.
fn at(node: &Node, revision: i64) -> Vec<(Bytes, Bytes)> {
    let mut found = Vec::new();
    let query = RangeQuery::new(KeyRange::all()).at(revision);
    let read = node.reader(Floor::Retained).range(&query, &mut |view| {
        found.push((Bytes::copy_from_slice(view.key), Bytes::copy_from_slice(view.tail)));
    });
    read.unwrap();
    found
}

/// Makes changes of every kind, with a minute between them.
async fn change(setting: &Setting, round: usize) {
    let node = &setting.node;
    let random = &mut fastrand::Rng::with_seed(round as u64);
    for step in 0..20 {
        setting.clock.run(Duration::from_secs(60));
        let key = format!("k{}", random.u8(..10));
        match random.u8(..6) {
            0 => {
                let delete = Command::Delete(Delete::new(KeyRange::single(key)));
                node.propose(delete).await.unwrap();
            }
            1 => {
                let range = KeyRange::from_wire("k3".into(), "k6".into());
                node.propose(Command::Delete(Delete::new(range))).await.unwrap();
            }
            2 => {
                let put = |key: &str| Op::Put(Put::new(key.to_string(), format!("{round}/{step}")));
                let success = vec![put(&key), put("both")];
                node.propose(Command::Txn(Txn { success, ..Txn::default() })).await.unwrap();
            }
            3 => {
                let put = Put { lease: Some(77), ..Put::new(key, "leased") };
                node.propose(Command::Put(put)).await.unwrap();
            }
            4 => {
                let (key, mode) = (Bytes::from_static(b"lock"), LockMode::Exclusive);
                let call_id = (100 * round + step) as u64;
                let acquire = Acquire { key, session: 77, mode, no_wait: false, call_id };
                node.propose(Command::Acquire(acquire)).await.unwrap();
            }
            _ => {
                setting.put(&key, &format!("{round}/{step}")).await;
            }
        }
    }
}

#[tokio::test]
async fn a_restored_backup_equals_the_original_at_every_revision_since_the_full_one() {
    let setting = Setting::new().await;
    setting.node.lease_grant(77, 600_000).await.unwrap();
    change(&setting, 0).await;
    let full = setting.back_up(false).await;
    assert_eq!((full.kind, full.revision), (Kind::Full, setting.node.revision()));
    change(&setting, 1).await;
    assert_eq!(setting.back_up(false).await.kind, Kind::Delta);
    change(&setting, 2).await;
    let last = setting.back_up(false).await;
    assert_eq!((last.kind, last.revision), (Kind::Delta, setting.node.revision()));
    assert_eq!(setting.back_up(false).await.kind, Kind::Unchanged);
    let (chains, end) = verify(&setting.location()).unwrap();
    assert_eq!((chains.chains.len(), chains.chains[0].deltas.len()), (1, 2));
    assert!(end.changes >= 40 && end.keys > 0);

    let restored = setting.restore(Target::Newest, "new").await.unwrap();
    let (node, new) = (&setting.node, setting.open("new").await);
    assert_eq!(restored.revision, node.revision());
    assert_eq!(new.status().cluster_id, node.status().cluster_id);
    assert_eq!(restored.oldest_revision, full.revision);
    for revision in full.revision..=node.revision() {
        assert_eq!(at(&new, revision), at(node, revision), "revision {revision}");
        let time = node.history_reach().unwrap().oldest_micros.unwrap();
        assert!(time > 0);
    }
    assert_eq!(new.count(&KeyRange::all(), 0).unwrap(), node.count(&KeyRange::all(), 0).unwrap());
    assert_eq!(new.usage().live_bytes, node.usage().live_bytes);
    assert_eq!(new.leases().keys(77).unwrap(), node.leases().keys(77).unwrap());
    assert_eq!(new.leases().time_to_live(77).unwrap().granted_seconds, 600_000);
    assert_eq!(new.verify().await.unwrap(), Verified::Equal { revision: node.revision() });
    // The same times, so the same revisions by time.
    let now = 1_000_000 + 60 * 60_000_000;
    for micros in (now - 40 * 60_000_000..=now).step_by(30_000_000) {
        assert_eq!(new.revision_at(micros).unwrap(), node.revision_at(micros).unwrap());
    }
    // HashKV covers all versions from the compacted revision on.
    node.compact(full.revision, false).await.unwrap();
    for revision in [full.revision, full.revision + 7, node.revision()] {
        assert_eq!(new.hash(revision).await.unwrap(), node.hash(revision).await.unwrap());
    }
    // Locks are free, and the member works.
    assert!(new.lock(b"lock").unwrap().is_none_or(|lock| lock.is_free()));
    new.propose(Command::Put(Put::new("after", "v"))).await.unwrap();
    assert_eq!(new.revision(), node.revision() + 1);
}

#[tokio::test]
async fn any_revision_and_any_time_in_the_backups_can_be_restored() {
    let setting = Setting::new().await;
    let mut times = Vec::new();
    for step in 0..12 {
        setting.clock.run(Duration::from_secs(60));
        let revision = setting.put("k", &step.to_string()).await;
        times.push((revision, 1_000_000 + (step + 1) * 60_000_000));
        if step % 4 == 3 {
            setting.back_up(false).await;
        }
    }
    let (first, last) = (times[3].0, times[11].0);
    for (revision, micros) in &times[3..] {
        for (name, target) in [
            ("by revision", Target::Revision(*revision)),
            ("by time", Target::Time(*micros)),
            ("later", Target::Time((micros + 59_000_000).min(times[11].1))),
        ] {
            let name = format!("{name} {revision}");
            let restored = setting.restore(target, &name).await.unwrap();
            assert_eq!(restored.revision, *revision, "{name}");
            let node = setting.open(&name).await;
            assert_eq!(at(&node, 0), at(&setting.node, *revision), "{name}");
            node.close().await.unwrap();
        }
    }
    let too_early = Target::Revision(first - 2);
    for missing in [too_early, Target::Revision(last + 1), Target::Time(1), Target::Time(i64::MAX)]
    {
        let refused = setting.restore(missing, "none").await.unwrap_err().to_string();
        assert!(refused.contains("is not in the backups"), "{refused}");
    }
    assert!(!setting.dir.path().join("none").exists());
}

#[tokio::test]
async fn a_backup_of_an_empty_metastore_is_restored_too() {
    let setting = Setting::new().await;
    assert_eq!(setting.back_up(false).await.kind, Kind::Full);
    setting.node.lease_grant(5, 600).await.unwrap();
    let revision = setting.put("k", "v").await;
    assert_eq!(setting.back_up(false).await.kind, Kind::Delta);
    assert_eq!(setting.restore(Target::Revision(1), "empty").await.unwrap().keys, 0);
    let restored = setting.restore(Target::Newest, "new").await.unwrap();
    assert_eq!((restored.revision, restored.keys), (revision, 1));
    let new = setting.open("new").await;
    assert_eq!(new.hash(0).await.unwrap(), setting.node.hash(0).await.unwrap());
    assert!(new.leases().exists(5));
}

#[tokio::test]
async fn a_new_cluster_gets_a_new_id_and_no_directory_is_overwritten() {
    let setting = Setting::new().await;
    setting.put("k", "v").await;
    setting.back_up(false).await;
    let dir = setting.dir.path().join("new");
    let restored = restore(&setting.location(), Target::Newest, &dir, true).await.unwrap();
    assert_ne!(restored.cluster_id, setting.node.status().cluster_id);
    let refused = setting.restore(Target::Newest, "new").await.unwrap_err().to_string();
    assert!(refused.contains("already exists"), "{refused}");
}

#[tokio::test]
async fn a_damaged_file_or_a_missing_link_leaves_no_member_behind() {
    let setting = Setting::new().await;
    let mut names = Vec::new();
    for step in 0..4 {
        setting.put("k", &step.to_string()).await;
        names.push(setting.back_up(false).await.name);
    }
    let backups = setting.dir.path().join("backups");
    for name in &names {
        let path = backups.join(name);
        let sound = std::fs::read(&path).unwrap();
        let mut damaged = sound.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        let refused = setting.restore(Target::Newest, "new").await.unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains("not a valid backup"), "{refused}");
        let refused = verify(&setting.location()).unwrap_err().to_string();
        assert!(refused.contains(name), "{refused}");
        std::fs::write(&path, sound).unwrap();
    }
    let link = backups.join(&names[2]);
    let kept = std::fs::read(&link).unwrap();
    std::fs::remove_file(&link).unwrap();
    let refused = setting.restore(Target::Newest, "new").await.unwrap_err().to_string();
    assert!(refused.contains(&format!("the file before {} is missing", names[3])), "{refused}");
    assert!(verify(&setting.location()).unwrap_err().to_string().contains("is missing"));
    assert!(!setting.dir.path().join("new").exists());
    assert!(!setting.dir.path().join("new.restoring").exists());
    // Another file in its place does not fit either.
    std::fs::write(&link, std::fs::read(backups.join(&names[1])).unwrap()).unwrap();
    let refused = list(&setting.location()).unwrap_err().to_string();
    assert!(refused.contains("renamed"), "{refused}");
    std::fs::write(&link, kept).unwrap();
    assert_eq!(setting.restore(Target::Newest, "new").await.unwrap().revision, 5);
}

/// Fails after a number of bytes, as a disk or a process that stops does.
struct Failing {
    inner: Directory,
    bytes_left: AtomicUsize,
}

struct Bounded<'w>(&'w mut dyn std::io::Write, &'w AtomicUsize);

impl std::io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left = self.1.load(Ordering::SeqCst);
        if left < bytes.len() {
            return Err(std::io::Error::other("the disk stopped"));
        }
        self.1.store(left - bytes.len(), Ordering::SeqCst);
        self.0.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Location for Failing {
    fn names(&self) -> Result<Vec<String>> {
        self.inner.names()
    }

    fn open(&self, name: &str) -> Result<Box<dyn backup::ReadSeek>> {
        self.inner.open(name)
    }

    fn create(
        &self,
        name: &str,
        write: &mut dyn FnMut(&mut dyn std::io::Write) -> Result<()>,
    ) -> Result<()> {
        self.inner.create(name, &mut |out| write(&mut Bounded(out, &self.bytes_left)))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[tokio::test]
async fn a_backup_that_stops_anywhere_leaves_the_chain_as_it_was() {
    let setting = Setting::new().await;
    setting.put("k", "1").await;
    let mut failures = 0;
    for round in 0..2 {
        for bytes in (0..).step_by(7) {
            let bytes_left = AtomicUsize::new(bytes);
            let location = Failing { inner: setting.location(), bytes_left };
            // The file of a process that was killed in the middle.
            std::fs::create_dir_all(setting.dir.path().join("backups")).unwrap();
            let killed = setting.dir.path().join("backups/full-x.backup.part");
            std::fs::File::create(killed).unwrap().write_all(b"half").unwrap();
            let created = create(&setting.node, Arc::new(location), false, 100).await;
            let (chains, _) = verify(&setting.location()).unwrap();
            let files: usize = chains.chains.iter().map(|chain| chain.files().count()).sum();
            match created {
                Ok(created) => {
                    assert_ne!(created.kind, Kind::Unchanged);
                    assert_eq!(files, round + 1);
                    break;
                }
                Err(error) => {
                    assert!(error.to_string().contains("the disk stopped"), "{error}");
                    assert_eq!(files, round);
                    failures += 1;
                }
            }
        }
        setting.put("k", "2").await;
    }
    assert!(failures > 10);
    assert_eq!(setting.node.backups().failed.load(Ordering::Relaxed), failures);
    assert_eq!(setting.restore(Target::Newest, "new").await.unwrap().revision, 3);
}

#[tokio::test]
async fn a_backup_is_full_when_history_was_dropped_since_the_last_and_old_chains_go() {
    let setting = Setting::new().await;
    setting.put("k", "1").await;
    assert_eq!(setting.back_up(false).await.kind, Kind::Full);
    setting.put("k", "2").await;
    setting.put("k", "3").await;
    let newest = setting.put("k", "4").await;
    setting.node.compact(newest, true).await.unwrap();
    let full = setting.back_up(false).await;
    assert_eq!((full.kind, full.keys, full.changes), (Kind::Full, 1, 0));
    let restored = setting.restore(Target::Newest, "new").await.unwrap();
    assert_eq!((restored.revision, restored.oldest_revision), (newest, newest));
    setting.put("k", "5").await;
    assert_eq!(setting.back_up(false).await.kind, Kind::Delta);
    assert_eq!(setting.back_up(true).await.kind, Kind::Full);
    assert_eq!(list(&setting.location()).unwrap().chains.len(), 3);
    setting.put("k", "6").await;
    let location: Arc<dyn Location> = Arc::new(setting.location());
    create(&setting.node, location, true, 2).await.unwrap();
    let chains = list(&setting.location()).unwrap();
    assert_eq!((chains.chains.len(), chains.orphans.len()), (2, 0));
    // A long chain ends with a new full backup.
    for step in 0..25 {
        setting.put("k", &format!("more {step}")).await;
        setting.back_up(false).await;
    }
    let chains = list(&setting.location()).unwrap().chains;
    assert_eq!((chains.len(), chains[1].deltas.len(), chains[2].deltas.len()), (3, 24, 0));
}

#[tokio::test]
async fn backups_of_another_metastore_or_history_are_not_continued() {
    let setting = Setting::new().await;
    setting.put("k", "1").await;
    setting.back_up(false).await;
    setting.clock.run(Duration::from_secs(60));
    setting.put("k", "2").await;
    setting.back_up(false).await;
    let refusal = async |node: &Node| {
        let location: Arc<dyn Location> = Arc::new(setting.location());
        create(node, location, false, 7).await.unwrap_err().to_string()
    };
    let other = setting.open("other").await;
    assert!(refusal(&other).await.contains("has backups of cluster"));
    setting.restore(Target::Revision(2), "restored").await.unwrap();
    let restored = setting.open("restored").await;
    assert!(refusal(&restored).await.contains("with another history"), "it is behind");
    setting.clock.run(Duration::from_secs(60));
    for _ in 0..3 {
        restored.propose(Command::Put(Put::new("k", "another"))).await.unwrap();
    }
    assert!(refusal(&restored).await.contains("with another history"), "it went another way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_during_writes_is_the_state_of_one_revision() {
    let setting = Setting::new().await;
    let (node, stop) = (&setting.node, AtomicBool::new(false));
    let write = async {
        let mut count = 0;
        while !stop.load(Ordering::SeqCst) {
            let put = |key: &'static str| Op::Put(Put::new(key, count.to_string()));
            let success = vec![put("one"), put("two")];
            node.propose(Command::Txn(Txn { success, ..Txn::default() })).await.unwrap();
            count += 1;
        }
    };
    let back_up = async {
        for _ in 0..10 {
            let before = node.revision();
            while node.revision() == before {
                tokio::task::yield_now().await;
            }
            let created = setting.back_up(false).await;
            assert!(created.revision > before);
        }
        stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(write, back_up);
    let restored = setting.restore(Target::Newest, "new").await.unwrap();
    let new = setting.open("new").await;
    for revision in restored.oldest_revision..=restored.revision {
        let found = at(&new, revision);
        assert_eq!(found, at(node, revision));
        assert_eq!(found.len(), if revision > 1 { 2 } else { 0 });
    }
}

#[tokio::test]
async fn a_member_that_is_damaged_is_not_backed_up() {
    use stele_metastore::command::{Alarm, AlarmAction};
    let setting = Setting::new().await;
    let alarm = AlarmAction::Activate { member: 1, alarm: Alarm::Corrupt };
    setting.node.propose(Command::Alarm(alarm)).await.unwrap();
    let location: Arc<dyn Location> = Arc::new(setting.location());
    let refused = create(&setting.node, location, false, 7).await.unwrap_err();
    assert!(matches!(refused, Error::Corrupt), "{refused}");
}
