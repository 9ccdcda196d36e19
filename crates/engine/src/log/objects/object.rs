//! An object of the log: a header and, in a DATA object, the records of one group of
//! commits. `docs/format-log.md` specifies the format.

use std::path::PathBuf;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::log::LogEntry;
use crate::log::assembler::{PayloadAssembler, RecordPosition};
use crate::log::record::{self, RecordHeader, RecordKind, read_u32, read_u64};
use crate::world::LogSlot;

/// Size of the header; records follow it.
const HEADER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"STELESLT";
/// The format version that is written, and the newest that can be read.
const VERSION: u16 = 1;
const CRC_AT: usize = 12;
/// Maximum payload of one record; larger payloads are split.
const PART_BYTES_MAX: usize = 32 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ObjectKind {
    /// Holds entries.
    Data = 1,
    /// Ends the log.
    Seal = 2,
}

/// An object that was read and verified.
#[derive(Clone, Debug)]
pub struct LogObject {
    pub kind: ObjectKind,
    pub at: LogSlot,
    /// Random; the same in all attempts to create one object.
    pub nonce: u128,
    /// Indices of the first and the last entry; 0 if there is none.
    pub first: u64,
    pub last: u64,
    records: Bytes,
}

impl LogObject {
    /// Returns the bytes of an object with these entries.
    pub fn data(at: LogSlot, nonce: u128, entries: &[LogEntry]) -> Bytes {
        let records = |entry: &LogEntry| record::record_bytes(entry.payload.len());
        let mut bytes =
            Vec::with_capacity(HEADER_BYTES + entries.iter().map(records).sum::<usize>());
        bytes.resize(HEADER_BYTES, 0);
        let mut number = 0;
        for entry in entries {
            put_entry(entry, nonce as u64, &mut number, &mut bytes);
        }
        let index = |entry: Option<&LogEntry>| entry.map_or(0, |entry| entry.index);
        let (first, last) = (index(entries.first()), index(entries.last()));
        let records = Bytes::new();
        LogObject { kind: ObjectKind::Data, at, nonce, first, last, records }
            .put_header(&mut bytes);
        bytes.into()
    }

    /// Returns the bytes of a SEAL.
    pub fn seal(at: LogSlot, nonce: u128) -> Bytes {
        let mut bytes = vec![0; HEADER_BYTES];
        let (kind, records) = (ObjectKind::Seal, Bytes::new());
        LogObject { kind, at, nonce, first: 0, last: 0, records }.put_header(&mut bytes);
        bytes.into()
    }

    /// Decodes and verifies the object of a slot.
    pub fn decode(bytes: Bytes, at: LogSlot) -> Result<LogObject> {
        let damaged = |what: &str| Err(Error::data_loss(&path(at), 0, what));
        if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
            return damaged("not an object of a log");
        }
        if checksum(&bytes) != read_u32(&bytes, CRC_AT) {
            return damaged("the checksum of the object is wrong");
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version > VERSION {
            let (found, known) = (version.into(), VERSION.into());
            return Err(Error::NewerFormat { path: path(at), found, known });
        }
        let kind = match bytes[10] {
            1 => ObjectKind::Data,
            2 => ObjectKind::Seal,
            _ => return damaged("the kind of the object is unknown"),
        };
        if (LogSlot { epoch: read_u64(&bytes, 16), slot: read_u64(&bytes, 24) }) != at {
            return damaged("the object belongs to another slot");
        }
        let nonce = u128::from(read_u64(&bytes, 40)) << 64 | u128::from(read_u64(&bytes, 32));
        let (first, last) = (read_u64(&bytes, 48), read_u64(&bytes, 56));
        Ok(LogObject { kind, at, nonce, first, last, records: bytes.slice(HEADER_BYTES..) })
    }

    /// Returns what the object is called in messages.
    pub fn path(&self) -> PathBuf {
        path(self.at)
    }

    /// Returns the entries, in order. Their payloads share the memory of the object.
    pub fn entries(&self) -> Result<Vec<LogEntry>> {
        let (mut entries, mut offset, mut number) = (Vec::new(), 0, 0);
        let mut assembler = PayloadAssembler::default();
        assembler.begin_segment(1);
        while offset < self.records.len() {
            number += 1;
            let next = self.record(offset, number, &mut assembler);
            let (end, entry) = next.map_err(|what| {
                Error::data_loss(&path(self.at), (HEADER_BYTES + offset) as u64, what)
            })?;
            offset = end;
            entries.extend(entry);
        }
        let index = |entry: Option<&LogEntry>| entry.map_or(0, |entry| entry.index);
        let ascends = entries.windows(2).all(|pair| pair[0].index < pair[1].index);
        let ends = (index(entries.first()), index(entries.last()));
        let complete = assembler.check_complete().is_ok() && ends == (self.first, self.last);
        if !ascends || !complete {
            let what = "the entries are not those that the header describes";
            return Err(Error::data_loss(&path(self.at), HEADER_BYTES as u64, what));
        }
        Ok(entries)
    }

    /// Reads the record at an offset. Returns its end and the entry that it completes.
    fn record(
        &self,
        offset: usize,
        number: u64,
        assembler: &mut PayloadAssembler,
    ) -> Result<(usize, Option<LogEntry>), &'static str> {
        let rest = &self.records[offset..];
        let decoded = match rest.len() >= record::HEADER_BYTES {
            true => record::decode(rest).ok_or("the header of a record is invalid")?,
            false => return Err("the header of a record is truncated"),
        };
        let (header, end) = (decoded.header, record::HEADER_BYTES + decoded.payload_bytes);
        if header.tag != self.nonce as u64 || header.record != number || !header.kind.is_data() {
            return Err("a record belongs to another object");
        }
        if rest.len() < record::record_bytes(decoded.payload_bytes) {
            return Err("a record is truncated");
        }
        if !record::checksum_matches(&rest[..end]) {
            return Err("the checksum of a record is wrong");
        }
        let payload = self.records.slice(offset + record::HEADER_BYTES..offset + end);
        let position = RecordPosition { segment: self.at.slot, offset: offset as u64 };
        let done = assembler.accept(&header, payload, position, rest.len() as u64)?;
        let (stream, index) = (header.stream, header.index);
        let entry = done.map(|(payload, _)| LogEntry { stream, index, payload });
        Ok((offset + record::record_bytes(decoded.payload_bytes), entry))
    }

    /// Writes the header before the records.
    fn put_header(&self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = self.kind as u8;
        bytes[16..24].copy_from_slice(&self.at.epoch.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.at.slot.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.first.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.last.to_le_bytes());
        let crc = checksum(bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

fn put_entry(entry: &LogEntry, tag: u64, number: &mut u64, out: &mut Vec<u8>) {
    let mut put = |kind, prefix: &[u8], body: &[u8]| {
        *number += 1;
        let (record, index, stream) = (*number, entry.index, entry.stream);
        RecordHeader { tag, record, synced: 0, index, stream, kind }.encode(prefix, body, out);
    };
    if entry.payload.len() <= PART_BYTES_MAX {
        return put(RecordKind::Full, &[], &entry.payload);
    }
    let total = (entry.payload.len() as u64).to_le_bytes();
    let parts = entry.payload.chunks(PART_BYTES_MAX);
    let last = parts.len() - 1;
    for (at, part) in parts.enumerate() {
        match at {
            0 => put(RecordKind::First, &total, part),
            _ if at == last => put(RecordKind::Last, &[], part),
            _ => put(RecordKind::Middle, &[], part),
        }
    }
}

/// Returns the checksum of everything but the checksum itself.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CRC_AT]), &bytes[CRC_AT + 4..])
}

/// Returns the name of a slot's object, for errors.
pub(super) fn path(at: LogSlot) -> PathBuf {
    PathBuf::from(at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: LogSlot = LogSlot { epoch: 7, slot: 3 };
    const NONCE: u128 = 0x0123_4567_89ab_cdef_1122_3344_5566_7788;

    fn entry(index: u64, payload: &[u8]) -> LogEntry {
        LogEntry { stream: 0, index, payload: Bytes::copy_from_slice(payload) }
    }

    #[test]
    fn an_object_reads_back_as_it_was_written() {
        let large = vec![5; PART_BYTES_MAX * 2 + 17];
        let payloads: [&[u8]; 4] = [b"", b"one", &large, b"two"];
        let entries: Vec<LogEntry> =
            (10..).zip(payloads).map(|(index, payload)| entry(index, payload)).collect();
        let object = LogObject::decode(LogObject::data(AT, NONCE, &entries), AT).unwrap();
        assert_eq!((object.kind, object.at, object.nonce), (ObjectKind::Data, AT, NONCE));
        assert_eq!((object.first, object.last), (10, 13));
        let found = object.entries().unwrap();
        let same = |(a, b): (&LogEntry, &LogEntry)| a.index == b.index && a.payload == b.payload;
        assert!(found.len() == 4 && found.iter().zip(&entries).all(same));
        let seal = LogObject::decode(LogObject::seal(AT, NONCE), AT).unwrap();
        assert_eq!(
            (seal.kind, seal.nonce, seal.entries().unwrap().len()),
            (ObjectKind::Seal, NONCE, 0)
        );
    }

    #[test]
    fn a_damaged_object_is_data_loss_whichever_bit_it_is() {
        let bytes = LogObject::data(AT, NONCE, &[entry(10, b"payload"), entry(11, b"x")]);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let outcome = LogObject::decode(damaged.into(), AT);
            assert!(matches!(outcome, Err(Error::DataLoss { .. })), "bit {bit}: {outcome:?}");
        }
        for length in 0..bytes.len() {
            assert!(LogObject::decode(bytes.slice(..length), AT).is_err());
        }
        assert!(LogObject::decode(bytes, LogSlot { slot: 4, ..AT }).is_err());
    }

    /// Recomputes the checksum, as a writer with a fault in it would.
    fn signed(mut bytes: Vec<u8>) -> Bytes {
        let crc = checksum(&bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes.into()
    }

    #[test]
    fn records_that_are_not_those_of_the_header_are_data_loss() {
        let bytes = LogObject::data(AT, NONCE, &[entry(10, b"payload"), entry(11, b"x")]).to_vec();
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = bytes.clone();
            change(&mut bytes);
            LogObject::decode(signed(bytes), AT).unwrap().entries()
        };
        assert_eq!(changed(&|_| ()).unwrap().len(), 2);
        assert!(changed(&|bytes| bytes[32] ^= 1).is_err(), "another nonce");
        assert!(changed(&|bytes| bytes[56] ^= 1).is_err(), "another last index");
        assert!(changed(&|bytes| bytes.truncate(bytes.len() - 8)).is_err());
        assert!(changed(&|bytes| bytes.truncate(HEADER_BYTES + 56)).is_err(), "one record");
        assert!(changed(&|bytes| bytes.extend([0; 8])).is_err());
        assert!(changed(&|bytes| bytes[HEADER_BYTES + 50] ^= 1).is_err(), "a payload");
        let mut newer = bytes.clone();
        newer[8] = 2;
        let outcome = LogObject::decode(signed(newer), AT);
        assert!(matches!(outcome, Err(Error::NewerFormat { found: 2, known: 1, .. })));
    }
}
