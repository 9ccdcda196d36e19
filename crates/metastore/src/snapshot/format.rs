//! The format of a snapshot: magic, records, zeros up to a whole block, checksum.

/// The first bytes of a snapshot.
pub const MAGIC: &[u8; 8] = b"SteleMS1";
/// A snapshot without its checksum is padded with zeros to a multiple of this,
/// by which etcdctl recognizes that there is a checksum.
pub const BLOCK_BYTES: usize = 512;
/// The size of the checksum at the end: SHA-256.
pub const DIGEST_BYTES: usize = 32;

/// Field numbers of the records, as if the snapshot were one message.
pub mod record {
    pub const HEADER: u8 = 1;
    pub const KEY_VALUE: u8 = 2;
    pub const LEASE: u8 = 3;
    pub const AUTH: u8 = 4;
}
