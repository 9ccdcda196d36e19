//! Digests: 16 bytes that stand for a result, written as 32 hex digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// The digest of some content: the first half of its SHA-256.
    pub fn of(content: &[u8]) -> Digest {
        let hash = ring::digest::digest(&ring::digest::SHA256, content);
        let half = hash.as_ref().first_chunk().expect("a SHA-256 has 32 bytes");
        Digest(*half)
    }

    /// From 32 hex digits in bytes, as columns and row names hold them.
    pub fn from_hex(hex: &[u8]) -> Option<Digest> {
        let mut bytes = [0; 16];
        if hex.len() != 32 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Digest(bytes))
    }
}

fn nibble(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Digest, Error> {
        Digest::from_hex(text.as_bytes()).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            Error::invalid(format!("{shown:?} is no digest: it must be 32 hex digits"))
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

impl TryFrom<String> for Digest {
    type Error = Error;

    fn try_from(text: String) -> Result<Digest, Error> {
        text.parse()
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
    fn digests_are_32_hex_digits_and_nothing_else() {
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
