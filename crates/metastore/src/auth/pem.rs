//! Keys in PEM files.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A block of a PEM file.
pub struct Pem {
    /// The words between `BEGIN` and the dashes.
    pub label: String,
    pub der: Vec<u8>,
}

/// Returns the first block of a file.
pub fn parse(text: &str) -> Option<Pem> {
    let (_, rest) = text.split_once("-----BEGIN ")?;
    let (label, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let body: String = body.split_ascii_whitespace().collect();
    Some(Pem { label: label.to_owned(), der: STANDARD.decode(body).ok()? })
}

/// Returns the key within a SubjectPublicKeyInfo: a sequence of the algorithm
/// and a bit string.
pub fn public_key(der: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const BIT_STRING: u8 = 0x03;
    let (info, _) = element(der, SEQUENCE)?;
    let (_, rest) = element(info, SEQUENCE)?;
    let (bits, _) = element(rest, BIT_STRING)?;
    // The first byte is the number of unused bits.
    bits.strip_prefix(&[0])
}

/// Returns the content of a DER element with this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let rest = der.strip_prefix(&[tag])?;
    let (&first, mut rest) = rest.split_first()?;
    let mut bytes = usize::from(first);
    if first & 0x80 != 0 {
        let (length, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if length.len() > 4 {
            return None;
        }
        bytes = length.iter().fold(0, |bytes, byte| bytes << 8 | usize::from(*byte));
        rest = after;
    }
    rest.split_at_checked(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_block_is_found_and_malformed_files_are_refused() {
        let text = "notes\n-----BEGIN PUBLIC KEY-----\nAQID\nBA==\n-----END PUBLIC KEY-----\n";
        let found = parse(text).unwrap();
        assert_eq!((found.label.as_str(), &found.der[..]), ("PUBLIC KEY", &[1, 2, 3, 4][..]));
        for malformed in ["", "-----BEGIN X-----\nAQID\n", "-----BEGIN X-----*-----END X-----"] {
            assert!(parse(malformed).is_none(), "{malformed}");
        }
    }

    #[test]
    fn a_public_key_is_taken_out_of_its_envelope() {
        let der = [0x30, 9, 0x30, 2, 5, 0, 0x03, 3, 0, 7, 8];
        assert_eq!(public_key(&der).unwrap(), [7, 8]);
        for end in 0..der.len() {
            assert!(public_key(&der[..end]).is_none(), "{end}");
        }
        assert!(public_key(&[0x30, 0x85, 1, 1, 1, 1, 1, 0]).is_none());
    }
}
