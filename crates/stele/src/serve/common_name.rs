//! The common name in the subject of a certificate, by which etcd's users are
//! identified. Reads only as much of the certificate's DER as that needs.

use std::sync::Arc;

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0C;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
/// The version of a certificate, which may be absent.
const VERSION: u8 = 0xA0;
/// The object id of the common name, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// Returns the last common name of a certificate's subject, as Go's library does; `None`
/// if there is none that is text.
pub fn common_name(certificate: &[u8]) -> Option<Arc<str>> {
    let (certificate, _) = take_of(SEQUENCE, certificate)?;
    let (mut fields, _) = take_of(SEQUENCE, certificate)?;
    if fields.first() == Some(&VERSION) {
        fields = take(fields)?.2;
    }
    // Serial number, signature algorithm, issuer and validity precede the subject.
    for _ in 0..4 {
        fields = take(fields)?.2;
    }
    let (mut names, _) = take_of(SEQUENCE, fields)?;
    let mut found = None;
    while !names.is_empty() {
        let (mut set, rest) = take_of(SET, names)?;
        names = rest;
        while !set.is_empty() {
            let (attribute, rest) = take_of(SEQUENCE, set)?;
            set = rest;
            let (id, value) = take_of(OBJECT_ID, attribute)?;
            if id != COMMON_NAME {
                continue;
            }
            let (tag, text, _) = take(value)?;
            found = match tag {
                UTF8_STRING | PRINTABLE_STRING | IA5_STRING => std::str::from_utf8(text).ok(),
                _ => None,
            };
        }
    }
    found.map(Arc::from)
}

/// Returns the tag, the content and what follows the first value.
fn take(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..0x80 => (usize::from(short), rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7F))?;
            if bytes.is_empty() || bytes.len() > 4 {
                return None;
            }
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// Like [`take`], for a value that must have this tag.
fn take_of(expected: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = take(der)?;
    (tag == expected).then_some((content, rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(name: Option<&str>) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["other.example.com".to_string()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Organization");
        if let Some(name) = name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_common_name_is_found_and_nothing_else() {
        for name in ["ada", "Grüße", &"long ".repeat(60)] {
            assert_eq!(common_name(&certificate(Some(name))).as_deref(), Some(name));
        }
        assert_eq!(common_name(&certificate(None)), None);
    }

    #[test]
    fn damaged_certificates_have_no_name_or_another_and_never_panic() {
        let whole = certificate(Some("ada"));
        for length in 0..whole.len() {
            let _ = common_name(&whole[..length]);
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let _ = common_name(&damaged);
            }
        }
    }
}
