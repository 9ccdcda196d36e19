//! The record of a snapshot that is being installed. It is stored beside the log
//! before the machine's state is replaced: if the machine is found at its position
//! after a crash, the log begins there.

use std::io;
use std::path::Path;

use bytes::{Buf, BufMut, Bytes};
use stele_engine::world::Files;

use super::Position;
use super::entries::Entries;
use super::membership::{get_membership, is_plain, put_membership};
use super::record::{Decoded, HardState};
use super::types::Membership;
use crate::error::Result;

const FILE_NAME: &str = "install";
const NEW_FILE_NAME: &str = "install.new";
const MAGIC: &[u8; 8] = b"STELEINS";

/// The position of a snapshot, and the membership there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    pub position: Position,
    pub membership_at: Position,
    pub membership: Membership,
}

impl Install {
    /// Reads the record of the last snapshot, if there was one.
    pub fn read(files: &dyn Files, dir: &Path) -> Result<Option<Install>> {
        let path = dir.join(FILE_NAME);
        let io = stele_engine::Error::io;
        let file = match files.open_read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| io("opening", &path, error))?,
        };
        let length = file.len().map_err(|error| io("measuring", &path, error))?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0).map_err(|error| io("reading", &path, error))?;
        let read = Install::decode(bytes.into());
        Ok(Some(read.map_err(|what| stele_engine::Error::data_loss(&path, 0, what))?))
    }

    /// Stores the record durably.
    pub fn write(&self, files: &dyn Files, dir: &Path) -> Result<()> {
        let (path, new) = (dir.join(FILE_NAME), dir.join(NEW_FILE_NAME));
        let io = stele_engine::Error::io;
        match files.remove(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io("removing", &new, error).into());
            }
            _ => {}
        }
        let file = files.create(&new).map_err(|error| io("creating", &new, error))?;
        file.write_all_at(&self.encode(), 0).map_err(|error| io("writing", &new, error))?;
        file.sync_data().map_err(|error| io("syncing", &new, error))?;
        files.rename(&new, &path).map_err(|error| io("renaming", &new, error))?;
        files.sync_dir(dir).map_err(|error| io("syncing", dir, error))?;
        Ok(())
    }

    /// Returns the state of a log that begins after the snapshot.
    pub fn state(&self, before: &HardState) -> HardState {
        HardState {
            purged: self.position,
            membership_at: self.membership_at,
            membership: self.membership.clone(),
            ..before.clone()
        }
    }

    /// Returns whether there are entries after the snapshot that do not follow it.
    pub fn conflicts_with(&self, entries: &Entries) -> bool {
        entries.last.index > self.position.index && !self.is_in(entries)
    }

    fn is_in(&self, entries: &Entries) -> bool {
        let known = entries.purged.index..=entries.last.index;
        known.contains(&self.position.index)
            && entries.position(self.position.index) == self.position
    }

    /// Drops the entries that the snapshot covers, and those that conflict with it.
    pub fn apply_to(&self, entries: &mut Entries) {
        if self.is_in(entries) {
            entries.purge(self.position);
        } else {
            *entries = Entries {
                purged: self.position,
                last: self.position,
                terms: vec![self.position],
                ..Entries::default()
            };
        }
        entries.memberships.retain(|(at, _)| at.index > self.position.index);
        entries.memberships.insert(0, (self.membership_at, self.membership.clone()));
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for position in [self.position, self.membership_at] {
            out.put_u64_le(position.index);
            out.put_u64_le(position.term);
        }
        out.put_u8(u8::from(is_plain(&self.membership)));
        put_membership(&mut out, &self.membership);
        let checksum = crc32c::crc32c(&out);
        out.put_u32_le(checksum);
        out
    }

    fn decode(bytes: Bytes) -> Decoded<Install> {
        let damaged = "the record of a snapshot is damaged";
        let (mut body, checksum) = match bytes.len().checked_sub(4) {
            Some(length) => (bytes.slice(..length), bytes.slice(length..)),
            None => return Err(damaged),
        };
        if checksum[..] != crc32c::crc32c(&body).to_le_bytes() || !body.starts_with(MAGIC) {
            return Err(damaged);
        }
        body.advance(MAGIC.len());
        let mut number = || body.try_get_u64_le().map_err(|_| damaged);
        let position = Position { index: number()?, term: number()? };
        let membership_at = Position { index: number()?, term: number()? };
        let plain = body.try_get_u8().map_err(|_| damaged)? != 0;
        let membership = get_membership(&mut body, plain)?;
        Ok(Install { position, membership_at, membership })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stele_engine::world::sim::SimFiles;

    use super::super::membership::MemberRecord;
    use super::*;

    #[test]
    fn the_record_survives_and_damage_to_it_is_reported() {
        let (sim, dir) = (SimFiles::new(1), Path::new("/"));
        assert_eq!(Install::read(&sim, dir).unwrap(), None);
        let members = BTreeMap::from([(3, MemberRecord::at("http://h:1"))]);
        let install = Install {
            position: Position { index: 9, term: 2 },
            membership_at: Position { index: 4, term: 1 },
            membership: Membership::from(members),
        };
        install.write(&sim, dir).unwrap();
        install.write(&sim, dir).unwrap();
        let sim = sim.crash();
        assert_eq!(Install::read(&sim, dir).unwrap(), Some(install.clone()));
        for bit in 0..8 * install.encode().len() as u64 {
            sim.flip_bit(Path::new("/install"), bit).unwrap();
            assert!(Install::read(&sim, dir).is_err(), "bit {bit}");
            sim.flip_bit(Path::new("/install"), bit).unwrap();
        }
    }
}
