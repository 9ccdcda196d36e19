//! The local file system. Files created here are readable only by the user that runs
//! the process, whatever the umask.

use std::fs;
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use super::files::{DirLock, File, Files};

/// The permissions of new files and directories.
pub const FILE_MODE: u32 = 0o600;
pub const DIR_MODE: u32 = 0o700;
/// The maximum number of parts of one write (IOV_MAX).
const PARTS_MAX: usize = 1024;

/// Files on local disk.
pub struct Disk;

impl Files for Disk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(FILE_MODE);
        Ok(Arc::new(options.open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(fs::OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(fs::File::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(PathBuf::from(entry?.file_name()));
        }
        names.sort();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // The parent directory of a bare name is the current one.
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        fs::File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

impl File for fs::File {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        fs::File::sync_data(self)
    }

    fn write_durable_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut parts = parts.to_vec();
        let (mut rest, mut at) = (&mut parts[..], offset);
        // Skips empty parts.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let batch = &rest[..rest.len().min(PARTS_MAX)];
            match pwritev2(self, batch, at, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut rest, written);
                    at += written as u64;
                }
                Err(Errno::INTR) => {}
                // A file system that does not know the flag.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    for part in rest.iter() {
                        FileExt::write_all_at(self, part, at)?;
                        at += part.len() as u64;
                    }
                    return fs::File::sync_data(self);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        fs::File::set_len(self, len)
    }
}

impl DirLock for fs::File {}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_durable_write_writes_all_parts_however_many() {
        let dir = tempfile::tempdir().unwrap();
        let file = Disk.create(&dir.path().join("file")).unwrap();
        file.write_all_at(&[9; 10], 0).unwrap();
        let bytes: Vec<Vec<u8>> =
            (0..3 * PARTS_MAX).map(|number| vec![number as u8; number % 5]).collect();
        let parts: Vec<IoSlice<'_>> = bytes.iter().map(|part| IoSlice::new(part)).collect();
        file.write_durable_at(&parts, 7).unwrap();
        let expected = [vec![9; 7], bytes.concat()].concat();
        let mut found = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected);
        file.write_durable_at(&[], 7).unwrap();
    }

    #[test]
    fn only_the_owner_may_read_what_is_created() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("a/b");
        Disk.create_dir_all(&below).unwrap();
        Disk.create(&below.join("file")).unwrap();
        let _lock = Disk.lock(&below.join("lock")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir.path().join("a")), mode(&below)), (DIR_MODE, DIR_MODE));
        assert_eq!((mode(&below.join("file")), mode(&below.join("lock"))), (FILE_MODE, FILE_MODE));
    }
}
