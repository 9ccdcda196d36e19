//! Block compression. Chosen per file; a block that does not shrink is stored
//! uncompressed.

use crate::schema::Compression;

/// The default of zstd: most of the gain, and fast enough for compaction.
const ZSTD_LEVEL: i32 = 3;
/// The maximum expansion of an lz4 stream when decompressed.
const LZ4_RATIO_MAX: usize = 255;

/// Compresses a sequence of blocks, reusing its buffers.
pub struct Compressor {
    kind: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    scratch: Vec<u8>,
}

impl Compressor {
    pub fn new(kind: Compression) -> std::io::Result<Compressor> {
        let zstd = match kind {
            Compression::Zstd => Some(zstd::bulk::Compressor::new(ZSTD_LEVEL)?),
            Compression::None | Compression::Lz4 => None,
        };
        Ok(Compressor { kind, zstd, scratch: Vec::new() })
    }

    /// Returns the bytes to store for `raw` and their compression.
    pub fn compress<'a>(&'a mut self, raw: &'a [u8]) -> (&'a [u8], Compression) {
        let len = match self.kind {
            Compression::None => None,
            Compression::Lz4 => {
                let bound = lz4_flex::block::get_maximum_output_size(raw.len());
                if self.scratch.len() < bound {
                    self.scratch.resize(bound, 0);
                }
                lz4_flex::block::compress_into(raw, &mut self.scratch).ok()
            }
            Compression::Zstd => {
                self.scratch.clear();
                self.scratch.reserve(zstd::zstd_safe::compress_bound(raw.len()));
                let zstd = self.zstd.as_mut();
                zstd.and_then(|zstd| zstd.compress_to_buffer(raw, &mut self.scratch).ok())
            }
        };
        match len {
            Some(len) if len < raw.len() => (&self.scratch[..len], self.kind),
            _ => (raw, Compression::None),
        }
    }
}

/// Decompresses to exactly `raw_len` bytes; `Err` describes the damage. The caller has
/// bounded `raw_len`.
pub fn decompress(
    kind: Compression,
    stored: Vec<u8>,
    raw_len: usize,
) -> Result<Vec<u8>, &'static str> {
    let raw = match kind {
        Compression::None => stored,
        Compression::Lz4 => {
            if raw_len / LZ4_RATIO_MAX > stored.len() {
                return Err("the block is too short for the length that its index states");
            }
            let mut raw = vec![0; raw_len];
            let len = lz4_flex::block::decompress_into(&stored, &mut raw)
                .map_err(|_| "the block does not decompress")?;
            raw.truncate(len);
            raw
        }
        Compression::Zstd => {
            zstd::bulk::decompress(&stored, raw_len).map_err(|_| "the block does not decompress")?
        }
    };
    if raw.len() != raw_len {
        return Err("the block has another length than its index states");
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KINDS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    proptest! {
        #[test]
        fn compressed_bytes_come_back(
            raw in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2]), 0..400),
            noise in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            for kind in KINDS {
                let mut compressor = Compressor::new(kind).unwrap();
                for bytes in [&raw, &noise] {
                    let (stored, used) = compressor.compress(bytes);
                    prop_assert!(stored.len() <= bytes.len());
                    let back = decompress(used, stored.to_vec(), bytes.len());
                    prop_assert_eq!(back.as_ref(), Ok(bytes));
                    prop_assert!(decompress(used, stored.to_vec(), bytes.len() + 1).is_err());
                }
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            stored in prop::collection::vec(any::<u8>(), 0..80),
            raw_len in 0usize..4096,
        ) {
            for kind in KINDS {
                if let Ok(raw) = decompress(kind, stored.clone(), raw_len) {
                    prop_assert_eq!(raw.len(), raw_len);
                }
            }
        }
    }
}
