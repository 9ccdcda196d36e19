//! Identifiers of catalogues: an 8-bit type and the user's 120-bit id. Stored and
//! compared in big-endian order, so that their order is numeric.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

pub const FID_BYTES: usize = 16;
/// The type of every catalogue.
pub const TYPE: u8 = b'i';
/// The largest id that is reserved for the service.
const RESERVED_KEYS_MAX: u64 = 0xFF;

/// The identifier of a catalogue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fid([u8; FID_BYTES]);

/// Lists all catalogues: key = fid.
pub const META: Fid = Fid::reserved(0);
/// Lists the ids of deleted catalogues, which are not reused: key = fid.
pub const RETIRED: Fid = Fid::reserved(1);
/// Lists deleted catalogues whose records are still being removed: key = object.
pub const DEATHROW: Fid = Fid::reserved(2);

impl Fid {
    const fn reserved(key: u8) -> Fid {
        let mut bytes = [0; FID_BYTES];
        bytes[0] = TYPE;
        bytes[FID_BYTES - 1] = key;
        Fid(bytes)
    }

    /// Returns the fid with this user's id; `None` if it has more than 120 bits.
    pub fn of_id(id: u128) -> Option<Fid> {
        if id >> 120 != 0 {
            return None;
        }
        let mut bytes = id.to_be_bytes();
        bytes[0] = TYPE;
        Some(Fid(bytes))
    }

    /// Parses a fid in a message.
    pub fn from_wire(bytes: &[u8]) -> Result<Fid> {
        let bytes: [u8; FID_BYTES] = bytes.try_into().map_err(|_| {
            Error::Invalid(format!("invalid fid: expected {FID_BYTES} bytes, got {}", bytes.len()))
        })?;
        Fid(bytes).checked()
    }

    fn checked(self) -> Result<Fid> {
        if self.0[0] != TYPE {
            let (kind, fixed) = (self.0[0], char::from(TYPE));
            return Err(Error::Invalid(format!(
                "invalid fid {self}: it has type 0x{kind:02x}, but catalogues have type 0x{TYPE:02x} ('{fixed}')"
            )));
        }
        Ok(self)
    }

    pub fn bytes(&self) -> &[u8; FID_BYTES] {
        &self.0
    }

    fn words(self) -> (u64, u64) {
        let number = u128::from_be_bytes(self.0);
        ((number >> 64) as u64, number as u64)
    }

    /// Returns whether the id is reserved for the service itself.
    pub fn is_reserved(self) -> bool {
        let (container, key) = self.words();
        container << 8 == 0 && key <= RESERVED_KEYS_MAX
    }
}

/// Formats as `CONT:KEY` in hex.
impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (container, key) = self.words();
        write!(f, "{container:x}:{key:x}")
    }
}

impl fmt::Debug for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses `CONT:KEY` and `<CONT:KEY>` in hex, and `T|CONT:KEY` with a type and numbers
/// as in C: 0x is hex, 0 octal, otherwise decimal.
impl FromStr for Fid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Fid> {
        let wrong = || {
            Error::Invalid(format!(
                "invalid fid {text:?}: use i|CONT:KEY (0x1f, 017 or 15) or CONT:KEY in hex"
            ))
        };
        let (container, key) = match text.split_once('|') {
            Some((kind, numbers)) => {
                let [kind] = kind.as_bytes() else { return Err(wrong()) };
                let (container, key) = pair(numbers, c_number).ok_or_else(wrong)?;
                if container >> 56 != 0 {
                    return Err(Error::Invalid(format!(
                        "invalid fid {text:?}: with a type, the container has at most 56 bits"
                    )));
                }
                (container | u64::from(*kind) << 56, key)
            }
            None => {
                let inner = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
                pair(inner.unwrap_or(text), hex).ok_or_else(wrong)?
            }
        };
        let number = u128::from(container) << 64 | u128::from(key);
        Fid(number.to_be_bytes()).checked()
    }
}

fn pair(text: &str, number: impl Fn(&str) -> Option<u64>) -> Option<(u64, u64)> {
    let (container, key) = text.split_once(':')?;
    Some((number(container)?, number(key)?))
}

fn hex(digits: &str) -> Option<u64> {
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    // A sign is not a digit, although the standard parser accepts it.
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
    u64::from_str_radix(digits, 16).ok()
}

fn c_number(digits: &str) -> Option<u64> {
    if digits.starts_with("0x") {
        return hex(digits);
    }
    digits.bytes().all(|digit| digit.is_ascii_digit()).then_some(())?;
    let radix = if digits.len() > 1 && digits.starts_with('0') { 8 } else { 10 };
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_form_is_parsed_and_formatted_fids_are_parsed_back() {
        let fid = Fid::of_id(0x1f << 64 | 10).unwrap();
        for text in
            ["i|0x1f:0xa", "i|31:10", "i|037:012", "690000000000001f:a", "<690000000000001f:a>"]
        {
            assert_eq!(text.parse::<Fid>().unwrap(), fid, "{text}");
        }
        assert_eq!(fid.to_string(), "690000000000001f:a");
        assert_eq!(META.to_string().parse::<Fid>().unwrap(), META);
        assert_eq!(Fid::from_wire(fid.bytes()).unwrap(), fid);
    }

    #[test]
    fn invalid_fids_are_rejected() {
        for wrong in
            ["", ":", "1", "i|", "i|1", "i|x:1", "i|08:1", "i|+1:1", "ii|1:1", "<1:1", "69:-1"]
        {
            assert!(
                wrong.parse::<Fid>().unwrap_err().to_string().contains("invalid fid"),
                "{wrong}"
            );
        }
        let long = "i|0x100000000000000:1".parse::<Fid>().unwrap_err().to_string();
        assert!(long.contains("56 bits"), "{long}");
        let kind = "T|1:1".parse::<Fid>().unwrap_err().to_string();
        assert!(kind.contains("type 0x54"), "{kind}");
        assert!(Fid::from_wire(b"short").unwrap_err().to_string().contains("16 bytes"));
        assert_eq!(Fid::of_id(1 << 120), None);
    }

    #[test]
    fn order_is_numeric_also_past_one_byte() {
        let fid = |key| Fid::of_id(key).unwrap();
        assert!(fid(255) < fid(256) && fid(256) < fid(1 << 64));
        assert!(META < RETIRED && RETIRED < DEATHROW && DEATHROW < fid(256));
        assert!(fid(255).is_reserved() && !fid(256).is_reserved() && !fid(1 << 64).is_reserved());
    }
}
