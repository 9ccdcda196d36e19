//! A simulated disk on which a test can block a thread that reads a fragment of
//! the store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stele_engine::world::sim::SimFiles;
use stele_engine::world::{DirLock, File, Files};

/// A thread that waits longer than this is considered hung.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct HeldFiles {
    files: SimFiles,
    gate: Arc<Mutex<Option<Gate>>>,
}

/// Blocks the first thread that arrives.
struct Gate {
    entered: Sender<()>,
    released: Receiver<()>,
}

/// The test's end of a gate.
pub struct Gatekeeper {
    entered: Receiver<()>,
    release: Sender<()>,
}

impl HeldFiles {
    pub fn new() -> HeldFiles {
        HeldFiles { files: SimFiles::new(1), gate: Arc::default() }
    }

    /// Blocks the next thread that reads a fragment.
    pub fn hold_next_read(&self) -> Gatekeeper {
        let ((entered, was_entered), (release, released)) = (channel(), channel());
        *self.gate.lock().unwrap() = Some(Gate { entered, released });
        Gatekeeper { entered: was_entered, release }
    }

    fn pass(&self, path: &Path) {
        if !path.components().any(|part| part.as_os_str() == "fragments") {
            return;
        }
        let gate = self.gate.lock().unwrap().take();
        if let Some(gate) = gate {
            gate.entered.send(()).unwrap();
            gate.released.recv_timeout(TIMEOUT).expect("the gate is released in time");
        }
    }

    fn opened(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(HeldFile { files: self.clone(), path: path.to_path_buf(), file })
    }
}

impl Gatekeeper {
    /// Waits until a thread is blocked.
    pub fn wait_entered(&self) {
        self.entered.recv_timeout(TIMEOUT).expect("a thread arrives at the gate in time");
    }

    pub fn release(&self) {
        self.release.send(()).unwrap();
    }
}

impl Files for HeldFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.opened(path, self.files.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.opened(path, self.files.open(path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.opened(path, self.files.open_read(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.files.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.files.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.files.exists(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.files.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        self.files.lock(path)
    }
}

struct HeldFile {
    files: HeldFiles,
    path: PathBuf,
    file: Arc<dyn File>,
}

impl File for HeldFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.files.pass(&self.path);
        self.file.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}
