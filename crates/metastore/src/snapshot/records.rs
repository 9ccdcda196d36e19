//! Reads the records of a snapshot or of a backup file. Both end with a SHA-256 digest of
//! everything before it.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use bytes::Bytes;
use prost::Message;
use prost::encoding::decode_varint;
use ring::digest::{Context, SHA256};

use super::DIGEST_BYTES;
use crate::error::{Error, Result};

/// The size of the read buffer.
const READ_BYTES: usize = 256 << 10;
/// Larger than any request that could have written a key.
const RECORD_BYTES_MAX: u64 = 64 << 20;
/// The longest encoding of a number.
const VARINT_BYTES_MAX: usize = 10;

/// A file of records being read.
pub struct Records<R> {
    file: BufReader<R>,
    /// What the file is, for error messages.
    what: &'static str,
    /// Unread bytes before the digest.
    left: u64,
}

impl<R: Read + Seek> Records<R> {
    pub fn new(file: R, what: &'static str) -> Records<R> {
        Records { file: BufReader::with_capacity(READ_BYTES, file), what, left: 0 }
    }

    /// Moves to the start of the file. Returns the number of bytes before the digest, or
    /// `None` if the file is shorter than a digest.
    pub fn rewind(&mut self) -> Result<Option<u64>> {
        let bytes = self.file.seek(SeekFrom::End(0)).map_err(|error| self.unreadable(error))?;
        self.file.rewind().map_err(|error| self.unreadable(error))?;
        let content = bytes.checked_sub(DIGEST_BYTES as u64);
        self.left = content.unwrap_or(0);
        Ok(content)
    }

    /// Returns the digest at the end of the file, where the position is then.
    pub fn stored_digest(&mut self) -> Result<[u8; DIGEST_BYTES]> {
        let from_end = SeekFrom::End(-(DIGEST_BYTES as i64));
        self.file.seek(from_end).map_err(|error| self.unreadable(error))?;
        self.left = DIGEST_BYTES as u64;
        self.array()
    }

    /// Returns the digest of the bytes from here to the stored one.
    pub fn compute_digest(&mut self) -> Result<[u8; DIGEST_BYTES]> {
        let mut digest = Context::new(&SHA256);
        while self.left > 0 {
            let Records { file, what, left } = self;
            let read = file.fill_buf().map_err(|error| unreadable(what, error))?;
            if read.is_empty() {
                return Err(self.truncated());
            }
            let taken = read.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            digest.update(&read[..taken]);
            file.consume(taken);
            *left -= taken as u64;
        }
        let digest = digest.finish();
        Ok(digest.as_ref().try_into().expect("a SHA-256 digest has 32 bytes"))
    }

    /// Returns the number of unread bytes before the digest.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Skips all bytes before the digest.
    pub fn end(&mut self) {
        self.left = 0;
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N as u64)?;
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes).map_err(|error| self.unreadable(error))?;
        Ok(bytes)
    }

    pub fn byte(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    /// Returns a message after its length.
    pub fn message(&mut self) -> Result<Bytes> {
        let size = self.varint()?;
        if size > self.left || size > RECORD_BYTES_MAX {
            return Err(self.malformed());
        }
        self.take(size)?;
        let mut message = vec![0; usize::try_from(size).unwrap_or(0)];
        self.file.read_exact(&mut message).map_err(|error| self.unreadable(error))?;
        Ok(message.into())
    }

    pub fn parse<M: Message + Default>(&self, message: Bytes) -> Result<M> {
        M::decode(message).map_err(|_| self.malformed())
    }

    pub fn malformed(&self) -> Error {
        self.invalid("a record is malformed")
    }

    /// Returns the error for a file that is not what it should be.
    pub fn invalid(&self, why: &str) -> Error {
        invalid(self.what, why)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut encoded = [0; VARINT_BYTES_MAX];
        for at in 0..encoded.len() {
            encoded[at] = self.byte()?;
            if encoded[at] & 0x80 == 0 {
                return decode_varint(&mut &encoded[..=at]).map_err(|_| self.malformed());
            }
        }
        Err(self.malformed())
    }

    /// Counts bytes that are read next.
    fn take(&mut self, bytes: u64) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| self.truncated())?;
        Ok(())
    }

    fn truncated(&self) -> Error {
        self.invalid("it is truncated")
    }

    fn unreadable(&self, error: io::Error) -> Error {
        unreadable(self.what, error)
    }
}

fn invalid(what: &str, why: &str) -> Error {
    Error::Config(format!("not a valid {what}: {why}"))
}

fn unreadable(what: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => invalid(what, "it is truncated"),
        _ => Error::Config(format!("cannot read the {what}: {error}")),
    }
}
