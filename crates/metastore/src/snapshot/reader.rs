//! Reads a snapshot in two passes, one for the checksum and one record by
//! record, so that it may be larger than memory.

use std::io::{Read, Seek};

use bytes::Bytes;

use super::records::Records;
use super::{BLOCK_BYTES, MAGIC, record};
use crate::command::Kv;
use crate::error::Result;
use crate::proto::etcd::{KeyValue, LeaseTimeToLiveResponse, ResponseHeader};
use crate::state::Tail;

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
    records: Records<R>,
    header: ResponseHeader,
    last_key: Bytes,
}

impl<R: Read + Seek> Reader<R> {
    /// Verifies the whole file and reads its header.
    pub fn open(file: R) -> Result<Reader<R>> {
        let mut records = Records::new(file, "snapshot");
        let content = records.rewind()?;
        let whole = |content: u64| content > 0 && content.is_multiple_of(BLOCK_BYTES as u64);
        if !content.is_some_and(whole) {
            return Err(records.invalid("wrong length; it may be truncated"));
        }
        let magic: [u8; MAGIC.len()] = records.array()?;
        if magic != *MAGIC {
            return Err(records.invalid("unrecognised format (an etcd/bbolt snapshot?)"));
        }
        records.rewind()?;
        if records.compute_digest()? != records.stored_digest()? {
            return Err(records.invalid("wrong checksum"));
        }
        records.rewind()?;
        records.array::<{ MAGIC.len() }>()?;
        let (header, last_key) = (ResponseHeader::default(), Bytes::new());
        let mut reader = Reader { records, header, last_key };
        reader.header = match reader.field()? {
            Some((record::HEADER, message)) => reader.records.parse(message)?,
            _ => return Err(reader.records.invalid("no header")),
        };
        if reader.header.revision < 1 {
            return Err(reader.records.invalid("wrong revision"));
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
                let lease: LeaseTimeToLiveResponse = self.records.parse(message)?;
                Ok(Some(Record::Lease { id: lease.id, granted_seconds: lease.granted_ttl }))
            }
            Some((record::AUTH, message)) => {
                let row: KeyValue = self.records.parse(message)?;
                Ok(Some(Record::Auth { row: row.key, value: row.value }))
            }
            Some((record::KEY_VALUE, message)) => {
                let kv: KeyValue = self.records.parse(message)?;
                if kv.key <= self.last_key {
                    return Err(self.records.invalid("keys are not in order"));
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
            Some(_) => Err(self.records.invalid("a record has an unknown type")),
        }
    }

    /// Returns the number and the bytes of the next field; `None` at the
    /// padding or the end.
    fn field(&mut self) -> Result<Option<(u8, Bytes)>> {
        const BYTES_FIELD: u8 = 2;
        if self.records.left() == 0 {
            return Ok(None);
        }
        let tag = self.records.byte()?;
        if tag == 0 {
            self.records.end();
            return Ok(None);
        }
        if tag & 7 != BYTES_FIELD {
            return Err(self.records.malformed());
        }
        Ok(Some((tag >> 3, self.records.message()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use bytes::{BufMut, BytesMut};
    use prost::Message;
    use ring::digest::SHA256;

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
