//! The environment of the engine: time, randomness, files and threads. All of it is a
//! parameter, so that a whole store can run in one thread from one seed.

pub mod clock;
pub mod disk;
pub mod files;
pub mod fragment_store;
pub mod log_store;
pub mod random;
mod remote_file;
pub mod sim;
pub mod spawn;

use std::sync::Arc;

pub use clock::{BootClock, Clock, ManualClock, SystemClock};
pub use disk::{DIR_MODE, Disk, FILE_MODE};
pub use files::{DirLock, File, Files};
pub use fragment_store::{
    Done, Fetch, FetchError, FragmentSink, FragmentStore, Part, StoredFile, wait_for,
    wait_for_reply,
};
pub use log_store::{Created, LogSlot, LogStore};
pub use random::{Random, SeededRandom, SystemRandom};
pub use remote_file::{Fetching, Miss, WaitScope};
pub(crate) use remote_file::{RemoteFile, remote_path};
pub use spawn::{Joiner, Priority, Spawner, Threads};

/// The environment of a store.
#[derive(Clone)]
pub struct World {
    pub clock: Arc<dyn Clock>,
    pub files: Arc<dyn Files>,
    pub random: Arc<dyn Random>,
    /// Starts the workers. With `None` no thread is started: the work runs within the
    /// caller's own steps.
    pub spawner: Option<Arc<dyn Spawner>>,
}

impl World {
    /// Returns the system's clock, disk, randomness and threads.
    pub fn real() -> World {
        World {
            clock: Arc::new(SystemClock::new()),
            files: Arc::new(Disk),
            random: Arc::new(SystemRandom::new()),
            spawner: Some(Arc::new(Threads)),
        }
    }
}
