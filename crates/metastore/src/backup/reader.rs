//! Reads a backup file in two passes, one for the checksum and one record by
//! record, so that it may be larger than memory.

use std::io::{Read, Seek};

use bytes::Bytes;

use super::format::{Change, DIGEST_BYTES, End, Header, Key, Lease, MAGIC, record};
use crate::error::Result;
use crate::snapshot::Records;

/// A record of a backup file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Lease(Lease),
    Key(Key),
    Change(Change),
}

/// A backup file being read.
pub struct Reader<R> {
    records: Records<R>,
    header: Header,
    digest: Bytes,
    seen: End,
    done: bool,
}

impl<R: Read + Seek> Reader<R> {
    /// Verifies the whole file and reads its header.
    pub fn open(file: R) -> Result<Reader<R>> {
        let mut reader = Reader::peek(file)?;
        reader.rewind()?;
        if reader.records.compute_digest()? != *reader.digest {
            return Err(reader.records.invalid("wrong checksum"));
        }
        reader.rewind()?;
        reader.read_header()?;
        Ok(reader)
    }

    /// Reads the header and the checksum without verifying the file.
    pub fn peek(file: R) -> Result<Reader<R>> {
        let records = Records::new(file, "backup");
        let (header, digest, seen) = (Header::default(), Bytes::new(), End::default());
        let mut reader = Reader { records, header, digest, seen, done: false };
        reader.rewind()?;
        reader.digest = Bytes::copy_from_slice(&reader.records.stored_digest()?);
        reader.rewind()?;
        reader.read_header()?;
        Ok(reader)
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the checksum of the file, which identifies it.
    pub fn digest(&self) -> &Bytes {
        &self.digest
    }

    /// Returns the next record; `None` after the last.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        if self.done {
            return Ok(None);
        }
        let (tag, message) = self.record()?;
        Ok(Some(match tag {
            record::LEASE => {
                self.seen.leases += 1;
                Record::Lease(self.records.parse(message)?)
            }
            record::KEY => {
                self.seen.keys += 1;
                Record::Key(self.records.parse(message)?)
            }
            record::CHANGE => {
                self.seen.changes += 1;
                Record::Change(self.records.parse(message)?)
            }
            record::END => {
                let end: End = self.records.parse(message)?;
                if end != self.seen || self.records.left() > 0 {
                    return Err(self.records.invalid("the number of records is wrong"));
                }
                self.done = true;
                return Ok(None);
            }
            _ => return Err(self.records.invalid("a record has an unknown type")),
        }))
    }

    /// Moves to the start of the file.
    fn rewind(&mut self) -> Result<()> {
        match self.records.rewind()? {
            Some(content) if content > MAGIC.len() as u64 => Ok(()),
            _ => Err(self.records.invalid("it is truncated")),
        }
    }

    fn read_header(&mut self) -> Result<()> {
        let magic: [u8; MAGIC.len()] = self.records.array()?;
        if magic != *MAGIC {
            return Err(self.records.invalid("unrecognised format"));
        }
        let (tag, message) = self.record()?;
        if tag != record::HEADER {
            return Err(self.records.invalid("no header"));
        }
        let header: Header = self.records.parse(message)?;
        let Header { base, from, to, .. } = header;
        if from < 1 || to < from || base < 0 || (base > 0 && base != from) {
            return Err(self.records.invalid("wrong revisions"));
        }
        if (base == 0) != (header.previous.len() == DIGEST_BYTES) {
            return Err(self.records.invalid("wrong checksum of the file before"));
        }
        self.header = header;
        Ok(())
    }

    fn record(&mut self) -> Result<(u8, Bytes)> {
        let tag = self.records.byte()?;
        Ok((tag, self.records.message()?))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::super::writer::Writer;
    use super::*;

    fn file() -> Vec<u8> {
        let header = Header { base: 7, from: 7, to: 8, cluster_id: 3, ..Header::default() };
        let mut out = Vec::new();
        let mut writer = Writer::start(&mut out, &header).unwrap();
        writer.lease(&Lease { id: 5, granted_seconds: 60 }).unwrap();
        writer.key(&Key { key: "k".into(), tail: "tail".into() }).unwrap();
        let change = Change { revision: 8, kind: 2, key: "k".into(), ..Change::default() };
        writer.change(&change).unwrap();
        let (end, bytes, digest) = writer.finish().unwrap();
        assert_eq!((end.keys, bytes), (1, out.len() as u64));
        assert_eq!(digest, &out[out.len() - DIGEST_BYTES..]);
        out
    }

    fn all(file: &[u8]) -> Result<Vec<Record>> {
        let mut reader = Reader::open(Cursor::new(file))?;
        let mut records = Vec::new();
        while let Some(record) = reader.next_record()? {
            records.push(record);
        }
        Ok(records)
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let file = file();
        let records = all(&file).unwrap();
        assert_eq!(records.len(), 3);
        assert_eq!(records[1], Record::Key(Key { key: "k".into(), tail: "tail".into() }));
        let reader = Reader::peek(Cursor::new(&file)).unwrap();
        assert_eq!(reader.header().name(), "full-00000000000000000008.backup");
    }

    #[test]
    fn a_damaged_or_truncated_file_is_refused() {
        let valid = file();
        for at in 0..valid.len() {
            let mut damaged = valid.clone();
            damaged[at] ^= 1;
            let refused = all(&damaged).unwrap_err().to_string();
            assert!(refused.contains("not a valid backup"), "byte {at}: {refused}");
        }
        for end in 0..valid.len() {
            let refused = all(&valid[..end]).unwrap_err().to_string();
            assert!(refused.contains("not a valid backup"), "cut at {end}: {refused}");
        }
    }
}
