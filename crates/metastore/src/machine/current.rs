//! Which directory holds the state. There are two: the state of a snapshot is
//! received into the other one, and a small file, which is replaced atomically,
//! says which of them counts.

use std::io;
use std::path::{Path, PathBuf};

use stele_engine::world::Files;

use crate::error::Result;

const FILE_NAME: &str = "current";
const NEW_FILE_NAME: &str = "current.new";
const MAGIC: &[u8; 8] = b"STELECUR";
const BYTES: usize = 16;
const DIRS: [&str; 2] = ["state", "state-2"];

/// Returns the directory of the state of the member in `dir`.
pub fn state_dir(files: &dyn Files, dir: &Path) -> Result<PathBuf> {
    Ok(dir.join(DIRS[read(files, dir)?]))
}

/// Returns the directory that does not hold the state.
pub fn other_dir(files: &dyn Files, dir: &Path) -> Result<PathBuf> {
    Ok(dir.join(DIRS[1 - read(files, dir)?]))
}

/// Removes what was left of the directory that does not hold the state, at start.
pub fn clear_other(files: &dyn Files, dir: &Path) -> Result<()> {
    clear(files, &other_dir(files, dir)?)
}

/// Makes the other directory the one that holds the state. The change is atomic,
/// and durable when this returns.
pub fn switch(files: &dyn Files, dir: &Path) -> Result<()> {
    let next = 1 - read(files, dir)?;
    let (path, new) = (dir.join(FILE_NAME), dir.join(NEW_FILE_NAME));
    let io = stele_engine::Error::io;
    match files.remove(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io("removing", &new, error).into());
        }
        _ => {}
    }
    let file = files.create(&new).map_err(|error| io("creating", &new, error))?;
    file.write_all_at(&encode(next), 0).map_err(|error| io("writing", &new, error))?;
    file.sync_data().map_err(|error| io("syncing", &new, error))?;
    files.rename(&new, &path).map_err(|error| io("renaming", &new, error))?;
    files.sync_dir(dir).map_err(|error| io("syncing", dir, error))?;
    Ok(())
}

/// Removes the files of a directory that does not hold the state.
pub fn clear(files: &dyn Files, dir: &Path) -> Result<()> {
    for part in [dir.join("fragments"), dir.to_path_buf()] {
        let listed = match files.list(&part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            listed => listed.map_err(|error| stele_engine::Error::io("listing", &part, error))?,
        };
        // Listed paths may be relative to the directory.
        let names = listed.iter().filter_map(|path| path.file_name());
        for name in names.filter(|name| *name != "fragments" && *name != "lock") {
            let path = part.join(name);
            let removed = files.remove(&path);
            removed.map_err(|error| stele_engine::Error::io("removing", &path, error))?;
        }
    }
    Ok(())
}

fn read(files: &dyn Files, dir: &Path) -> Result<usize> {
    let path = dir.join(FILE_NAME);
    let file = match files.open_read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        opened => opened.map_err(|error| stele_engine::Error::io("opening", &path, error))?,
    };
    let mut bytes = [0; BYTES];
    let read = file.read_exact_at(&mut bytes, 0);
    read.map_err(|error| stele_engine::Error::io("reading", &path, error))?;
    let found = (0..DIRS.len()).find(|at| encode(*at) == bytes);
    let damaged = || stele_engine::Error::data_loss(&path, 0, "the file is damaged");
    Ok(found.ok_or_else(damaged)?)
}

fn encode(at: usize) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&(at as u32).to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..12]);
    bytes[12..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use stele_engine::world::sim::SimFiles;

    use super::*;

    #[test]
    fn a_switch_survives_and_damage_is_reported() {
        let sim = SimFiles::new(1);
        let dir = Path::new("/");
        assert_eq!(state_dir(&sim, dir).unwrap(), Path::new("/state"));
        assert_eq!(other_dir(&sim, dir).unwrap(), Path::new("/state-2"));
        switch(&sim, dir).unwrap();
        let sim = sim.crash();
        assert_eq!(state_dir(&sim, dir).unwrap(), Path::new("/state-2"));
        switch(&sim, dir).unwrap();
        assert_eq!(state_dir(&sim, dir).unwrap(), Path::new("/state"));
        for bit in 0..8 * BYTES as u64 {
            sim.flip_bit(Path::new("/current"), bit).unwrap();
            assert!(state_dir(&sim, dir).is_err(), "bit {bit}");
            sim.flip_bit(Path::new("/current"), bit).unwrap();
        }
    }
}
