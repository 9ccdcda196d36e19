//! The head of the log: the first segment that is needed. It is stored in a
//! small file beside the log, which is replaced atomically before any segment
//! below the head is released.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stele_engine::world::Files;

use crate::error::Result;

const FILE_NAME: &str = "head";
const NEW_FILE_NAME: &str = "head.new";
const MAGIC: &[u8; 8] = b"STELERLH";
const BYTES: usize = 20;

pub struct Head {
    files: Arc<dyn Files>,
    dir: PathBuf,
    segment: u64,
}

impl Head {
    /// Reads the head; defaults to the first segment if there is no file.
    pub fn open(files: Arc<dyn Files>, dir: &Path) -> Result<Head> {
        let path = dir.join(FILE_NAME);
        let segment = match files.open_read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 1,
            Err(error) => return Err(stele_engine::Error::io("opening", &path, error).into()),
            Ok(file) => {
                let mut bytes = [0; BYTES];
                let read = file.read_exact_at(&mut bytes, 0);
                read.map_err(|error| stele_engine::Error::io("reading", &path, error))?;
                decode(&bytes).ok_or_else(|| {
                    stele_engine::Error::data_loss(&path, 0, "the head of the log is damaged")
                })?
            }
        };
        Ok(Head { files, dir: dir.to_path_buf(), segment })
    }

    pub fn segment(&self) -> u64 {
        self.segment
    }

    /// Moves the head. It is durable when this returns.
    pub fn advance(&mut self, segment: u64) -> Result<()> {
        let (path, new) = (self.dir.join(FILE_NAME), self.dir.join(NEW_FILE_NAME));
        let io = stele_engine::Error::io;
        match self.files.remove(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io("removing", &new, error).into());
            }
            _ => {}
        }
        let file = self.files.create(&new).map_err(|error| io("creating", &new, error))?;
        file.write_all_at(&encode(segment), 0).map_err(|error| io("writing", &new, error))?;
        file.sync_data().map_err(|error| io("syncing", &new, error))?;
        self.files.rename(&new, &path).map_err(|error| io("renaming", &new, error))?;
        self.files.sync_dir(&self.dir).map_err(|error| io("syncing", &self.dir, error))?;
        self.segment = segment;
        Ok(())
    }
}

fn encode(segment: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&segment.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..16]);
    bytes[16..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; BYTES]) -> Option<u64> {
    let segment = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
    (encode(segment) == *bytes).then_some(segment)
}

#[cfg(test)]
mod tests {
    use stele_engine::world::sim::SimFiles;

    use super::*;

    #[test]
    fn the_head_survives_and_damage_to_it_is_reported() {
        let sim = SimFiles::new(1);
        let dir = Path::new("/");
        let mut head = Head::open(Arc::new(sim.clone()), dir).unwrap();
        assert_eq!(head.segment(), 1);
        head.advance(7).unwrap();
        head.advance(9).unwrap();
        let sim = sim.crash();
        assert_eq!(Head::open(Arc::new(sim.clone()), dir).unwrap().segment(), 9);
        for bit in 0..8 * BYTES as u64 {
            sim.flip_bit(Path::new("/head"), bit).unwrap();
            assert!(Head::open(Arc::new(sim.clone()), dir).is_err(), "bit {bit}");
            sim.flip_bit(Path::new("/head"), bit).unwrap();
        }
    }
}
