//! Reads a backup file in two passes, one for the checksum and one record by
//! record, so that it may be larger than memory.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use bytes::Bytes;
use prost::Message;
use prost::encoding::decode_varint;
use ring::digest::{Context, SHA256};

use super::format::{Change, DIGEST_BYTES, End, Header, Key, Lease, MAGIC, record};
use crate::error::{Error, Result};

const READ_BYTES: usize = 256 << 10;
/// Larger than any request that could have written a key.
const RECORD_BYTES_MAX: u64 = 64 << 20;
const VARINT_BYTES_MAX: usize = 10;

/// A record of a backup file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Lease(Lease),
    Key(Key),
    Change(Change),
}

/// A backup file being read.
pub struct Reader<R> {
    file: BufReader<R>,
    /// Unread bytes before the checksum.
    left: u64,
    header: Header,
    digest: Bytes,
    seen: End,
    done: bool,
}

impl<R: Read + Seek> Reader<R> {
    /// Verifies the whole file and reads its header.
    pub fn open(file: R) -> Result<Reader<R>> {
        let mut reader = Reader::peek(file)?;
        let content = reader.seek_to_start()?;
        let mut digest = Context::new(&SHA256);
        hash(&mut reader.file, content, &mut digest)?;
        if digest.finish().as_ref() != reader.digest {
            return Err(invalid("wrong checksum"));
        }
        reader.seek_to_start()?;
        reader.read_header()?;
        Ok(reader)
    }

    /// Reads the header and the checksum without verifying the file.
    pub fn peek(file: R) -> Result<Reader<R>> {
        let file = BufReader::with_capacity(READ_BYTES, file);
        let (header, digest, seen) = (Header::default(), Bytes::new(), End::default());
        let mut reader = Reader { file, left: 0, header, digest, seen, done: false };
        let content = reader.seek_to_start()?;
        reader.file.seek(SeekFrom::Start(content)).map_err(unreadable)?;
        let digest: [u8; DIGEST_BYTES] = read_array(&mut reader.file)?;
        reader.digest = Bytes::copy_from_slice(&digest);
        reader.seek_to_start()?;
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
                Record::Lease(parse(message)?)
            }
            record::KEY => {
                self.seen.keys += 1;
                Record::Key(parse(message)?)
            }
            record::CHANGE => {
                self.seen.changes += 1;
                Record::Change(parse(message)?)
            }
            record::END => {
                let end: End = parse(message)?;
                if end != self.seen || self.left > 0 {
                    return Err(invalid("the number of records is wrong"));
                }
                self.done = true;
                return Ok(None);
            }
            _ => return Err(invalid("a record has an unknown type")),
        }))
    }

    /// Returns the number of bytes before the checksum.
    fn seek_to_start(&mut self) -> Result<u64> {
        let bytes = self.file.seek(SeekFrom::End(0)).map_err(unreadable)?;
        let content = bytes.checked_sub(DIGEST_BYTES as u64);
        let content = content.filter(|content| *content > MAGIC.len() as u64);
        let content = content.ok_or_else(|| invalid("it is truncated"))?;
        self.file.rewind().map_err(unreadable)?;
        self.left = content;
        Ok(content)
    }

    fn read_header(&mut self) -> Result<()> {
        let magic: [u8; MAGIC.len()] = read_array(&mut self.file)?;
        if magic != *MAGIC {
            return Err(invalid("unrecognised format"));
        }
        self.left -= MAGIC.len() as u64;
        let (tag, message) = self.record()?;
        if tag != record::HEADER {
            return Err(invalid("no header"));
        }
        let header: Header = parse(message)?;
        let Header { base, from, to, .. } = header;
        if from < 1 || to < from || base < 0 || (base > 0 && base != from) {
            return Err(invalid("wrong revisions"));
        }
        if (base == 0) != (header.previous.len() == DIGEST_BYTES) {
            return Err(invalid("wrong checksum of the file before"));
        }
        self.header = header;
        Ok(())
    }

    fn record(&mut self) -> Result<(u8, Bytes)> {
        let tag = self.byte()?;
        let size = self.varint()?;
        if size > self.left || size > RECORD_BYTES_MAX {
            return Err(invalid("a record is malformed"));
        }
        let mut message = vec![0; usize::try_from(size).unwrap_or(0)];
        self.file.read_exact(&mut message).map_err(unreadable)?;
        self.left -= size;
        Ok((tag, message.into()))
    }

    fn varint(&mut self) -> Result<u64> {
        let mut encoded = [0; VARINT_BYTES_MAX];
        for at in 0..encoded.len() {
            encoded[at] = self.byte()?;
            if encoded[at] & 0x80 == 0 {
                let malformed = |_| invalid("a record is malformed");
                return decode_varint(&mut &encoded[..=at]).map_err(malformed);
            }
        }
        Err(invalid("a record is malformed"))
    }

    fn byte(&mut self) -> Result<u8> {
        self.left = self.left.checked_sub(1).ok_or_else(|| invalid("it is truncated"))?;
        let [byte] = read_array(&mut self.file)?;
        Ok(byte)
    }
}

/// Adds the next `left` bytes to the digest.
fn hash(file: &mut impl BufRead, mut left: u64, digest: &mut Context) -> Result<()> {
    while left > 0 {
        let read = file.fill_buf().map_err(unreadable)?;
        if read.is_empty() {
            return Err(invalid("it is truncated"));
        }
        let taken = read.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        digest.update(&read[..taken]);
        file.consume(taken);
        left -= taken as u64;
    }
    Ok(())
}

fn read_array<const N: usize>(file: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

fn parse<M: Message + Default>(message: Bytes) -> Result<M> {
    M::decode(message).map_err(|_| invalid("a record is malformed"))
}

fn invalid(why: &str) -> Error {
    Error::Config(format!("not a valid backup: {why}"))
}

fn unreadable(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => invalid("it is truncated"),
        _ => Error::Config(format!("cannot read the backup: {error}")),
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
