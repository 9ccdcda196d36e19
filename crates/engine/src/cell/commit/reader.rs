//! Reads the items and mutations of a packed commit, whose bytes are untrusted.

use super::{
    Mutation, OP_DELETE_CELLS, OP_DELETE_FAMILY, OP_DELETE_ROW, OP_MARK, OP_MERGE, OP_SET,
    TimeRange,
};
use crate::cell::fold::FoldId;
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::varint::varint_at;

/// The maximum encoded size of a length, which has 32 bits.
const LENGTH_BYTES_MAX: usize = 5;

/// Reads a section of the packed bytes with bounds checks.
pub(super) struct CommitReader<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> CommitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> CommitReader<'a> {
        CommitReader { bytes, at: 0, end: bytes.len() }
    }

    pub(super) fn done(&self) -> bool {
        self.at == self.end
    }

    pub(super) fn malformed(&self, what: impl Into<String>) -> Error {
        Error::InvalidPackedFormat { at: self.at, what: what.into() }
    }

    fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8]> {
        if count > self.end - self.at {
            return Err(self.malformed(format!("{what} is truncated")));
        }
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        Ok(self.take(N, what)?.try_into().expect("take returns N bytes"))
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn i64(&mut self, what: &str) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array(what)?))
    }

    pub(super) fn bytes(&mut self, what: &str) -> Result<&'a [u8]> {
        let length = self.length(what)?;
        self.take(length, what)
    }

    /// Reads a length of at most 32 bits.
    fn length(&mut self, what: &str) -> Result<usize> {
        let Some((length, end)) = varint_at(&self.bytes[..self.end], self.at) else {
            return Err(self.malformed(format!("the length of {what} is truncated or too large")));
        };
        if end - self.at > LENGTH_BYTES_MAX || length > u64::from(u32::MAX) {
            return Err(self.malformed(format!("the length of {what} is too large")));
        }
        self.at = end;
        Ok(length as usize)
    }

    pub(super) fn section(&mut self, what: &str) -> Result<CommitReader<'a>> {
        let length = self.u32(what)? as usize;
        let start = self.at;
        self.take(length, what)?;
        Ok(CommitReader { bytes: self.bytes, at: start, end: self.at })
    }

    pub(super) fn range(&mut self) -> Result<RowRange> {
        let start = self.bytes("a range start")?.to_vec();
        let end = match self.u8("a range end")? {
            0 => None,
            1 => Some(self.bytes("a range end")?.to_vec()),
            other => {
                return Err(
                    self.malformed(format!("the mark of a range end is {other}, not 0 or 1"))
                );
            }
        };
        Ok(RowRange { start, end })
    }

    pub(super) fn mutation(&mut self) -> Result<Mutation<'a>> {
        Ok(match self.u8("a mutation")? {
            OP_SET => Mutation::Set {
                family: self.bytes("a family")?,
                qualifier: self.bytes("a qualifier")?,
                timestamp: self.i64("a timestamp")?,
                value: self.bytes("a value")?,
            },
            OP_DELETE_CELLS => Mutation::DeleteCells {
                family: self.bytes("a family")?,
                qualifier: self.bytes("a qualifier")?,
                times: TimeRange { min: self.i64("a time")?, max: self.i64("a time")? },
            },
            OP_DELETE_FAMILY => Mutation::DeleteFamily { family: self.bytes("a family")? },
            OP_DELETE_ROW => Mutation::DeleteRow,
            OP_MERGE => Mutation::Merge {
                fold: FoldId(self.u8("a fold")?),
                family: self.bytes("a family")?,
                qualifier: self.bytes("a qualifier")?,
                timestamp: self.i64("a timestamp")?,
                operand: self.bytes("an operand")?,
            },
            OP_MARK => Mutation::Mark {
                family: self.bytes("a family")?,
                qualifier: self.bytes("a qualifier")?,
                timestamp: self.i64("a timestamp")?,
                value: self.bytes("a value")?,
            },
            other => return Err(self.malformed(format!("unknown mutation {other}"))),
        })
    }
}
