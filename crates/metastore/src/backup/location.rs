//! Where backups are stored: a directory here, a bucket in the server. A [`Location`]
//! is all that the rest of this folder knows.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::is_backup_name;
use crate::error::{Error, Result};

/// A file that is read in two passes.
pub trait ReadSeek: Read + Seek + Send {}
impl<T: Read + Seek + Send> ReadSeek for T {}

/// A place for backup files.
pub trait Location: Send + Sync {
    /// Returns the names of all complete backup files, sorted.
    fn names(&self) -> Result<Vec<String>>;

    fn open(&self, name: &str) -> Result<Box<dyn ReadSeek>>;

    /// Creates a file with what `write` writes. It has its name only once it is
    /// complete and durable; nothing is left of one that fails.
    fn create(&self, name: &str, write: &mut dyn FnMut(&mut dyn Write) -> Result<()>)
    -> Result<()>;

    fn remove(&self, name: &str) -> Result<()>;

    /// Returns the location as it was given.
    fn describe(&self) -> String;
}

/// Opens a location by its text.
pub type OpenLocation = fn(&str) -> Result<Arc<dyn Location>>;

/// Opens a location: a directory, or its `file://` URL.
pub fn open_location(text: &str) -> Result<Arc<dyn Location>> {
    let path = match text.split_once("://") {
        None => text,
        Some(("file", path)) if path.starts_with('/') => path,
        Some(("file", _)) => {
            return Err(Error::Config(format!(
                "invalid location {text:?}: use file:// with an absolute path, such as \
                 file:///backups"
            )));
        }
        Some((scheme, _)) => {
            return Err(Error::Config(format!(
                "backups cannot be stored at {scheme}://: use a directory or file:///path"
            )));
        }
    };
    if path.is_empty() {
        return Err(Error::Config("the location of backups is empty: name a directory".into()));
    }
    Ok(Arc::new(Directory { path: path.into() }))
}

/// A local directory, which is created with the first backup.
pub struct Directory {
    path: PathBuf,
}

/// The end of the name of a file that is being written.
const PART: &str = ".part";

impl Directory {
    pub fn new(path: impl Into<PathBuf>) -> Directory {
        Directory { path: path.into() }
    }

    fn write_part(
        &self,
        part: &Path,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let file = File::create(part).map_err(|error| failed("creating", part, &error))?;
        let mut out = BufWriter::with_capacity(256 << 10, file);
        write(&mut out)?;
        let file = out.into_inner().map_err(|error| failed("writing", part, error.error()))?;
        file.sync_all().map_err(|error| failed("syncing", part, &error))
    }

    fn sync(&self) -> Result<()> {
        let synced = File::open(&self.path).and_then(|dir| dir.sync_all());
        synced.map_err(|error| failed("syncing", &self.path, &error))
    }
}

impl Location for Directory {
    fn names(&self) -> Result<Vec<String>> {
        let reading = |error: io::Error| failed("reading", &self.path, &error);
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(reading)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(reading)?.file_name().to_string_lossy().into_owned();
            if is_backup_name(&name) {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadSeek>> {
        let path = self.path.join(name);
        let file = File::open(&path).map_err(|error| failed("opening", &path, &error))?;
        Ok(Box::new(file))
    }

    fn create(
        &self,
        name: &str,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let creating = |error: io::Error| failed("creating", &self.path, &error);
        fs::create_dir_all(&self.path).map_err(creating)?;
        let part = self.path.join(format!("{name}{PART}"));
        if let Err(error) = self.write_part(&part, write) {
            // What cannot be removed is overwritten by the next attempt.
            let _ = fs::remove_file(&part);
            return Err(error);
        }
        let path = self.path.join(name);
        fs::rename(&part, &path).map_err(|error| failed("renaming", &part, &error))?;
        self.sync()
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        fs::remove_file(&path).map_err(|error| failed("removing", &path, &error))
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> Error {
    Error::Config(format!("{doing} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_directory_or_a_file_url() {
        assert_eq!(open_location("/a/b").unwrap().describe(), "/a/b");
        assert_eq!(open_location("file:///a/b").unwrap().describe(), "/a/b");
        let refused = |text| open_location(text).err().unwrap().to_string();
        assert!(refused("file://host/a").contains("absolute path"));
        assert!(refused("s3://bucket").contains("at s3://"));
        assert!(refused("").contains("empty"));
    }

    #[test]
    fn a_file_that_fails_in_the_middle_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let location = Directory::new(dir.path().join("new"));
        assert_eq!(location.names().unwrap(), [""; 0]);
        let name = "full-1.backup";
        let mut fails = |out: &mut dyn Write| {
            out.write_all(b"half").unwrap();
            Err(Error::Stopped)
        };
        location.create(name, &mut fails).unwrap_err();
        assert_eq!(fs::read_dir(dir.path().join("new")).unwrap().count(), 0);
        // A process that was killed leaves its part, which is no backup.
        fs::write(dir.path().join("new").join("full-1.backup.part"), b"half").unwrap();
        assert_eq!(location.names().unwrap(), [""; 0]);
        let mut whole = |out: &mut dyn Write| {
            out.write_all(b"whole").unwrap();
            Ok(())
        };
        location.create(name, &mut whole).unwrap();
        assert_eq!(location.names().unwrap(), [name]);
        let mut read = String::new();
        location.open(name).unwrap().read_to_string(&mut read).unwrap();
        assert_eq!(read, "whole");
        location.remove(name).unwrap();
        assert!(location.open(name).is_err());
    }
}
