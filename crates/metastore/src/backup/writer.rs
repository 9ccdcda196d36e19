//! Writes a backup file.

use std::io::{self, Write};

use bytes::Bytes;
use prost::Message;
use prost::encoding::encode_varint;
use ring::digest::{Context, SHA256};

use super::format::{Change, End, Header, Key, Lease, MAGIC, record};
use crate::error::{Error, Result};

/// A backup file being written.
pub struct Writer<'w> {
    out: &'w mut dyn Write,
    digest: Context,
    end: End,
    bytes: u64,
    /// Reused for each record.
    frame: Vec<u8>,
}

impl<'w> Writer<'w> {
    pub fn start(out: &'w mut dyn Write, header: &Header) -> Result<Writer<'w>> {
        let (digest, end) = (Context::new(&SHA256), End::default());
        let mut writer = Writer { out, digest, end, bytes: 0, frame: MAGIC.to_vec() };
        writer.push_frame()?;
        writer.record(record::HEADER, header)?;
        Ok(writer)
    }

    pub fn lease(&mut self, lease: &Lease) -> Result<()> {
        self.end.leases += 1;
        self.record(record::LEASE, lease)
    }

    pub fn key(&mut self, key: &Key) -> Result<()> {
        self.end.keys += 1;
        self.record(record::KEY, key)
    }

    pub fn change(&mut self, change: &Change) -> Result<()> {
        self.end.changes += 1;
        self.record(record::CHANGE, change)
    }

    /// Writes the end and the checksum. Returns what was written: the counts,
    /// the bytes and the checksum.
    pub fn finish(mut self) -> Result<(End, u64, Bytes)> {
        let end = self.end;
        self.record(record::END, &end)?;
        let digest = Bytes::copy_from_slice(self.digest.finish().as_ref());
        self.out.write_all(&digest).map_err(failed)?;
        Ok((end, self.bytes + digest.len() as u64, digest))
    }

    fn record(&mut self, tag: u8, message: &impl Message) -> Result<()> {
        self.frame.push(tag);
        encode_varint(message.encoded_len() as u64, &mut self.frame);
        message.encode_raw(&mut self.frame);
        self.push_frame()
    }

    fn push_frame(&mut self) -> Result<()> {
        self.digest.update(&self.frame);
        self.bytes += self.frame.len() as u64;
        self.out.write_all(&self.frame).map_err(failed)?;
        self.frame.clear();
        Ok(())
    }
}

fn failed(error: io::Error) -> Error {
    Error::Config(format!("cannot write the backup: {error}"))
}
