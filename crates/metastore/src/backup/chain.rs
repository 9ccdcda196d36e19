//! The files of a location, and the chains that they form.

use std::collections::HashMap;
use std::io::SeekFrom;

use bytes::Bytes;

use super::format::{End, Header};
use super::location::Location;
use super::reader::{Reader, Record};
use super::restore::Target;
use crate::error::{Error, Result};

/// A backup file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    pub name: String,
    pub header: Header,
    pub digest: Bytes,
    pub bytes: u64,
}

/// A full backup and the deltas that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub full: BackupFile,
    pub deltas: Vec<BackupFile>,
}

/// All chains, by the revisions of their full backups, and the deltas whose
/// file before is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chains {
    pub chains: Vec<Chain>,
    pub orphans: Vec<BackupFile>,
}

impl Chain {
    pub fn last(&self) -> &BackupFile {
        self.deltas.last().unwrap_or(&self.full)
    }

    pub fn files(&self) -> impl DoubleEndedIterator<Item = &BackupFile> {
        std::iter::once(&self.full).chain(&self.deltas)
    }

    /// Returns whether the state of a target is in the chain.
    fn covers(&self, target: Target) -> bool {
        let (first, last) = (&self.full.header, &self.last().header);
        match target {
            Target::Newest => true,
            Target::Revision(revision) => (first.base..=last.to).contains(&revision),
            Target::Time(micros) => first.to_micros <= micros && micros <= last.taken_micros,
        }
    }
}

impl Chains {
    /// Returns the newest file.
    pub fn last(&self) -> Option<&BackupFile> {
        self.chains.iter().map(Chain::last).max_by_key(|file| file.header.to)
    }

    /// Returns the chain to restore a target from: the one with the newest full
    /// backup.
    pub fn covering(&self, target: Target) -> Result<&Chain> {
        let refuse = |why: String| Err(Error::Config(why));
        let Some(newest) = self.chains.iter().max_by_key(|chain| chain.last().header.to) else {
            return refuse("there is no full backup: nothing can be restored".into());
        };
        let end = newest.last().header.to;
        let orphan = self.orphans.iter().find(|orphan| orphan.header.to > end);
        let found = match (target, orphan) {
            (Target::Newest, None) => Some(newest),
            (Target::Newest, Some(_)) => None,
            _ => self.chains.iter().rev().find(|chain| chain.covers(target)),
        };
        if let Some(chain) = found {
            return Ok(chain);
        }
        match orphan {
            Some(orphan) => refuse(format!(
                "the file before {} is missing: the backups can be restored up to revision {end} \
                 (--at-revision {end})",
                orphan.name
            )),
            None => {
                let first = self.chains.first().map_or(0, |chain| chain.full.header.base);
                refuse(format!(
                    "{target} is not in the backups, which begin at revision {first} and end at \
                     revision {end}, taken at {} microseconds since 1970",
                    newest.last().header.taken_micros
                ))
            }
        }
    }
}

/// Lists the chains of a location. Reads only headers.
pub fn list(location: &dyn Location) -> Result<Chains> {
    let mut files = Vec::new();
    for name in location.names()? {
        files.push(peek(location, &name)?);
    }
    Ok(link(files))
}

fn peek(location: &dyn Location, name: &str) -> Result<BackupFile> {
    let mut file = location.open(name)?;
    let named = |error: Error| with_name(name, &error);
    let bytes = file
        .seek(SeekFrom::End(0))
        .map_err(|error| named(Error::Config(format!("cannot read the backup: {error}"))))?;
    let reader = Reader::peek(file).map_err(named)?;
    let (header, digest) = (reader.header().clone(), reader.digest().clone());
    if header.name() != name {
        return Err(named(Error::Config("not a valid backup: the file was renamed".into())));
    }
    Ok(BackupFile { name: name.to_string(), header, digest, bytes })
}

/// Arranges files into chains.
fn link(files: Vec<BackupFile>) -> Chains {
    let mut after: HashMap<Bytes, BackupFile> = HashMap::new();
    let mut chains = Chains::default();
    for file in files {
        if file.header.is_full() {
            chains.chains.push(Chain { full: file, deltas: Vec::new() });
        } else {
            after.insert(file.header.previous.clone(), file);
        }
    }
    chains.chains.sort_by_key(|chain| chain.full.header.to);
    for chain in &mut chains.chains {
        while let Some(next) = after.remove(&chain.last().digest) {
            chain.deltas.push(next);
        }
    }
    chains.orphans = after.into_values().collect();
    chains.orphans.sort_by_key(|orphan| orphan.header.from);
    chains
}

/// Reads all files and checks that every chain is complete. Returns the chains
/// and the number of records.
pub fn verify(location: &dyn Location) -> Result<(Chains, End)> {
    let chains = list(location)?;
    if let Some(orphan) = chains.orphans.first() {
        // A damaged file may look like a missing one.
        check_files(location, &chains)?;
        return Err(Error::Config(format!("the file before {} is missing", orphan.name)));
    }
    let mut total = End::default();
    for chain in &chains.chains {
        for file in chain.files() {
            let end = verify_file(location, file)?;
            total.leases += end.leases;
            total.keys += end.keys;
            total.changes += end.changes;
        }
    }
    Ok((chains, total))
}

/// Verifies all files, whatever chains they form.
pub fn check_files(location: &dyn Location, chains: &Chains) -> Result<()> {
    let mut files = chains.chains.iter().flat_map(Chain::files).chain(&chains.orphans);
    files.try_for_each(|file| open_file(location, file).map(drop))
}

/// Opens a file of a chain and verifies it.
pub fn open_file(
    location: &dyn Location,
    file: &BackupFile,
) -> Result<Reader<Box<dyn super::location::ReadSeek>>> {
    let named = |error: Error| with_name(&file.name, &error);
    let reader = Reader::open(location.open(&file.name)?).map_err(named)?;
    if *reader.digest() != file.digest {
        return Err(named(Error::Config("the file has been replaced".into())));
    }
    Ok(reader)
}

fn verify_file(location: &dyn Location, file: &BackupFile) -> Result<End> {
    let mut reader = open_file(location, file)?;
    let mut end = End::default();
    let named = |error: Error| with_name(&file.name, &error);
    while let Some(record) = reader.next_record().map_err(named)? {
        match record {
            Record::Lease(_) => end.leases += 1,
            Record::Key(_) => end.keys += 1,
            Record::Change(_) => end.changes += 1,
        }
    }
    Ok(end)
}

fn with_name(name: &str, error: &Error) -> Error {
    Error::Config(format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(base: i64, from: i64, to: i64, previous: &str, digest: &str) -> BackupFile {
        let previous = Bytes::copy_from_slice(previous.as_bytes());
        let micros = 1000 * to;
        let header = Header {
            base,
            from,
            to,
            previous,
            to_micros: micros,
            taken_micros: micros + 500,
            ..Header::default()
        };
        let digest = Bytes::copy_from_slice(digest.as_bytes());
        BackupFile { name: header.name(), header, digest, bytes: 1 }
    }

    fn chains() -> Chains {
        link(vec![
            file(0, 20, 30, "b", "c"),
            file(9, 9, 10, "", "a"),
            file(0, 10, 20, "a", "b"),
            file(39, 39, 40, "", "d"),
        ])
    }

    #[test]
    fn a_target_is_restored_from_the_newest_chain_that_has_it() {
        let chains = chains();
        assert_eq!((chains.chains.len(), chains.orphans.len()), (2, 0));
        let base = |target| chains.covering(target).map(|chain| chain.full.header.base).unwrap();
        assert_eq!(base(Target::Newest), 39);
        assert_eq!((base(Target::Revision(30)), base(Target::Revision(39))), (9, 39));
        assert_eq!((base(Target::Time(15_000)), base(Target::Time(40_001))), (9, 39));
        for missing in
            [Target::Revision(8), Target::Revision(35), Target::Revision(41), Target::Time(41_000)]
        {
            let refused = chains.covering(missing).unwrap_err().to_string();
            assert!(refused.contains("is not in the backups"), "{refused}");
        }
        assert!(Chains::default().covering(Target::Newest).is_err());
    }

    #[test]
    fn a_missing_link_is_named_and_what_precedes_it_can_be_restored() {
        let chains = link(vec![file(9, 9, 10, "", "a"), file(0, 20, 30, "b", "c")]);
        assert_eq!(chains.orphans.len(), 1);
        for target in [Target::Newest, Target::Revision(25)] {
            let refused = chains.covering(target).unwrap_err().to_string();
            assert!(refused.contains("the file before delta-"), "{refused}");
            assert!(refused.contains("--at-revision 10"), "{refused}");
        }
        assert!(chains.covering(Target::Revision(10)).is_ok());
    }
}
