//! Digests: 16 bytes that identify a result, written as 32 hex digits.

use std::fmt;
use std::str::FromStr;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::Error;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// Returns the digest of some content: the first half of its SHA-256 hash.
    pub fn of(content: &[u8]) -> Digest {
        let hash = ring::digest::digest(&ring::digest::SHA256, content);
        let half = hash.as_ref().first_chunk().expect("a SHA-256 hash has 32 bytes");
        Digest(*half)
    }

    /// Parses 32 hex digits, as they occur in columns and row names.
    pub fn from_hex(hex: &[u8]) -> Option<Digest> {
        let hex: &[u8; 32] = hex.try_into().ok()?;
        let mut bytes = [0; 16];
        let mut wrong = 0;
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let (high, low) = (NIBBLES[pair[0] as usize], NIBBLES[pair[1] as usize]);
            wrong |= high | low;
            *byte = high << 4 | low & 0xf;
        }
        (wrong & INVALID_NIBBLE == 0).then_some(Digest(bytes))
    }
}

/// Marks a byte that is not a hex digit.
const INVALID_NIBBLE: u8 = 0x80;

/// The value of each byte as a hex digit.
const NIBBLES: [u8; 256] = {
    let mut nibbles = [INVALID_NIBBLE; 256];
    let mut value = 0;
    while value < 16 {
        nibbles[b"0123456789abcdef"[value] as usize] = value as u8;
        nibbles[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    nibbles
};

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Digest, Error> {
        Digest::from_hex(text.as_bytes()).ok_or_else(|| {
            let start: String = text.chars().take(40).collect();
            Error::invalid(format!("invalid digest {start:?}: use 32 hex digits"))
        })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Digest, D::Error> {
        struct Hex;

        impl Visitor<'_> for Hex {
            type Value = Digest;

            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("a digest of 32 hex digits")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Digest, E> {
                text.parse().map_err(E::custom)
            }
        }
        from.deserialize_str(Hex)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_32_hex_digits_are_a_digest() {
        let text = "92eb5ffee6ae2fec3ad71c777531578f";
        let digest: Digest = text.parse().unwrap();
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.to_uppercase().parse::<Digest>().unwrap(), digest);
        for wrong in ["", "92eb", &text[1..], "g2eb5ffee6ae2fec3ad71c777531578f", "ä"] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
        assert!(format!("{text}0").parse::<Digest>().is_err());
    }
}
