//! Reads a snapshot in two passes, one for the checksum and one record by
//! record, so that it may be larger than memory.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use bytes::Bytes;
use prost::Message;
use prost::encoding::decode_varint;
use ring::digest::{Context, SHA256};

use super::{BLOCK_BYTES, DIGEST_BYTES, MAGIC, record};
use crate::command::Kv;
use crate::error::{Error, Result};
use crate::proto::etcd::{KeyValue, LeaseTimeToLiveResponse, ResponseHeader};
use crate::state::Tail;

/// The size of the read buffer.
const READ_BYTES: usize = 256 << 10;
/// Larger than any request that could have written a key.
const RECORD_BYTES_MAX: u64 = 64 << 20;
/// The longest encoding of a number.
const VARINT_BYTES_MAX: usize = 10;

/// A record of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Lease {
        id: i64,
        granted_seconds: i64,
    },
    Key(Kv),
    /// A stored row of users and roles.
    Auth {
        row: Bytes,
        value: Bytes,
    },
}

/// A snapshot whose checksum has been verified.
pub struct Reader<R> {
    file: BufReader<R>,
    /// Unread bytes before the checksum.
    left: u64,
    header: ResponseHeader,
    last_key: Bytes,
}

impl<R: Read + Seek> Reader<R> {
    /// Verifies the whole file and reads its header.
    pub fn open(file: R) -> Result<Reader<R>> {
        let mut file = BufReader::with_capacity(READ_BYTES, file);
        let bytes = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
        let content = bytes.checked_sub(DIGEST_BYTES as u64);
        let content = content.filter(|content| *content > 0 && content % BLOCK_BYTES as u64 == 0);
        let content = content.ok_or_else(|| invalid("wrong length; it may be truncated"))?;
        file.rewind().map_err(unreadable)?;
        let magic: [u8; MAGIC.len()] = read_array(&mut file)?;
        if magic != *MAGIC {
            return Err(invalid("unrecognised format (an etcd/bbolt snapshot?)"));
        }
        let mut digest = Context::new(&SHA256);
        digest.update(&magic);
        let left = content - MAGIC.len() as u64;
        hash(&mut file, left, &mut digest)?;
        let stored: [u8; DIGEST_BYTES] = read_array(&mut file)?;
        if digest.finish().as_ref() != stored {
            return Err(invalid("wrong checksum"));
        }
        file.seek(SeekFrom::Start(MAGIC.len() as u64)).map_err(unreadable)?;
        let header = ResponseHeader::default();
        let mut reader = Reader { file, left, header, last_key: Bytes::new() };
        reader.header = match reader.field()? {
            Some((record::HEADER, message)) => parse(message)?,
            _ => return Err(invalid("no header")),
        };
        if reader.header.revision < 1 {
            return Err(invalid("wrong revision"));
        }
        Ok(reader)
    }

    /// Returns the revision of the snapshot.
    pub fn revision(&self) -> i64 {
        self.header.revision
    }

    /// Returns the cluster and the member that the snapshot was taken from.
    pub fn origin(&self) -> (u64, u64) {
        (self.header.cluster_id, self.header.member_id)
    }

    /// Returns the next record; keys come in order.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        match self.field()? {
            None => Ok(None),
            Some((record::LEASE, message)) => {
                let lease: LeaseTimeToLiveResponse = parse(message)?;
                Ok(Some(Record::Lease { id: lease.id, granted_seconds: lease.granted_ttl }))
            }
            Some((record::AUTH, message)) => {
                let row: KeyValue = parse(message)?;
                Ok(Some(Record::Auth { row: row.key, value: row.value }))
            }
            Some((record::KEY_VALUE, message)) => {
                let kv: KeyValue = parse(message)?;
                if kv.key <= self.last_key {
                    return Err(invalid("keys are not in order"));
                }
                self.last_key = kv.key.clone();
                let tail = Tail {
                    create_revision: kv.create_revision,
                    mod_revision: kv.mod_revision,
                    version: kv.version,
                    value: &kv.value,
                    lease: kv.lease,
                };
                Ok(Some(Record::Key(Kv { key: kv.key, tail: tail.encode().into() })))
            }
            Some(_) => Err(invalid("a record has an unknown type")),
        }
    }

    /// Returns the number and the bytes of the next field; `None` at the
    /// padding or the end.
    fn field(&mut self) -> Result<Option<(u8, Bytes)>> {
        const BYTES_FIELD: u8 = 2;
        if self.left == 0 {
            return Ok(None);
        }
        let tag = self.byte()?;
        if tag == 0 {
            self.left = 0;
            return Ok(None);
        }
        let size = self.varint()?;
        if tag & 7 != BYTES_FIELD || size > self.left || size > RECORD_BYTES_MAX {
            return Err(malformed_record());
        }
        let mut message = vec![0; usize::try_from(size).unwrap_or(0)];
        self.file.read_exact(&mut message).map_err(unreadable)?;
        self.left -= size;
        Ok(Some((tag >> 3, message.into())))
    }

    fn varint(&mut self) -> Result<u64> {
        let mut encoded = [0; VARINT_BYTES_MAX];
        for at in 0..encoded.len() {
            encoded[at] = self.byte()?;
            if encoded[at] & 0x80 == 0 {
                return decode_varint(&mut &encoded[..=at]).map_err(|_| malformed_record());
            }
        }
        Err(malformed_record())
    }

    fn byte(&mut self) -> Result<u8> {
        self.left = self.left.checked_sub(1).ok_or_else(|| invalid("a record is truncated"))?;
        let [byte] = read_array(&mut self.file)?;
        Ok(byte)
    }
}

/// Adds the next `left` bytes to the digest.
fn hash(file: &mut impl BufRead, mut left: u64, digest: &mut Context) -> Result<()> {
    while left > 0 {
        let read = file.fill_buf().map_err(unreadable)?;
        if read.is_empty() {
            return Err(invalid("truncated"));
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
    M::decode(message).map_err(|_| malformed_record())
}

fn malformed_record() -> Error {
    invalid("a record is malformed")
}

fn invalid(why: &str) -> Error {
    Error::Config(format!("not a valid snapshot: {why}"))
}

fn unreadable(error: io::Error) -> Error {
    Error::Config(format!("cannot read the snapshot: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use bytes::{BufMut, BytesMut};

    use super::*;
    use crate::wire::Fields;

    fn with_checksum(mut content: BytesMut) -> Vec<u8> {
        let padding = content.len().next_multiple_of(BLOCK_BYTES) - content.len();
        content.put_bytes(0, padding);
        let digest = ring::digest::digest(&SHA256, &content);
        [&content[..], digest.as_ref()].concat()
    }

    fn with_header() -> BytesMut {
        let mut content = BytesMut::from(&MAGIC[..]);
        let header = ResponseHeader { revision: 9, cluster_id: 7, ..Default::default() };
        content.message(record::HEADER, &header.encode_to_vec());
        content
    }

    fn key(content: &mut BytesMut, key: &'static str) {
        let kv = KeyValue { key: key.into(), mod_revision: 3, ..Default::default() };
        content.message(record::KEY_VALUE, &kv.encode_to_vec());
    }

    fn all(file: Vec<u8>) -> Result<Vec<Record>> {
        let mut reader = Reader::open(Cursor::new(file))?;
        let mut records = Vec::new();
        while let Some(record) = reader.next_record()? {
            records.push(record);
        }
        Ok(records)
    }

    fn refusal(file: Vec<u8>) -> String {
        all(file).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_snapshot_is_read_to_its_end() {
        assert_eq!(all(with_checksum(with_header())).unwrap(), []);
        let reader = Reader::open(Cursor::new(with_checksum(with_header()))).unwrap();
        assert_eq!((reader.revision(), reader.origin()), (9, (7, 0)));
    }

    #[test]
    fn a_damaged_or_truncated_snapshot_is_refused() {
        let mut content = with_header();
        key(&mut content, "a");
        key(&mut content, "b");
        let valid = with_checksum(content);
        assert_eq!(all(valid.clone()).unwrap().len(), 2);
        for at in 0..valid.len() {
            let mut damaged = valid.clone();
            damaged[at] ^= 1;
            assert!(refusal(damaged).contains("not a valid snapshot"), "byte {at}");
        }
        for end in 0..valid.len() {
            assert!(
                refusal(valid[..end].to_vec()).contains("not a valid snapshot"),
                "cut at {end}"
            );
        }
    }

    #[test]
    fn invalid_records_are_refused_despite_a_valid_checksum() {
        let mut unordered = with_header();
        key(&mut unordered, "b");
        key(&mut unordered, "a");
        assert!(refusal(with_checksum(unordered)).contains("not in order"));
        let mut endless = with_header();
        endless.put_slice(&[record::KEY_VALUE << 3 | 2, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]);
        assert!(refusal(with_checksum(endless)).contains("a record is malformed"));
        let mut unknown = with_header();
        unknown.message(7, b"what");
        assert!(refusal(with_checksum(unknown)).contains("unknown type"));
        assert!(refusal(with_checksum(BytesMut::from(&MAGIC[..]))).contains("no header"));
        assert!(refusal(with_checksum(BytesMut::from("another"))).contains("unrecognised format"));
    }
}
