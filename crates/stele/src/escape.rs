//! Bytes as typed and displayed: visible characters of UTF-8 unchanged, the rest as `\xNN`.
//! Output can be typed in again.

use std::str::FromStr;

use bytes::Bytes;

/// Bytes from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed(pub Bytes);

impl FromStr for Typed {
    type Err = String;

    fn from_str(text: &str) -> Result<Typed, String> {
        unescape(text).map(Typed)
    }
}

/// Replaces `\xNN`, `\n`, `\r`, `\t`, `\0`, `\\`, `\'` and `\"` by bytes.
pub fn unescape(text: &str) -> Result<Bytes, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first != b'\\' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let (byte, length) = match after {
            [b'x', high, low, ..] => (hex(*high, *low), 3),
            [b'n', ..] => (Some(b'\n'), 1),
            [b'r', ..] => (Some(b'\r'), 1),
            [b't', ..] => (Some(b'\t'), 1),
            [b'0', ..] => (Some(0), 1),
            [same @ (b'\\' | b'\'' | b'"'), ..] => (Some(*same), 1),
            _ => (None, 0),
        };
        let invalid = || {
            let allowed = "xNN (two hex digits), n, r, t, 0, \\, ' or \"";
            format!("invalid escape in {text:?}: a \\ must be followed by {allowed}")
        };
        bytes.push(byte.ok_or_else(invalid)?);
        rest = &after[length..];
    }
    Ok(bytes.into())
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// How bytes are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    Text,
    Ascii,
    Hex,
}

impl Notation {
    pub fn bytes(self, bytes: &[u8]) -> String {
        match self {
            Notation::Text => crate::output::text(bytes),
            Notation::Ascii => crate::output::ascii(bytes),
            Notation::Hex => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_typed_in() {
        let all: Vec<u8> = (0..=255).collect();
        let mut text = all.clone();
        text.extend("gr\u{fc}n\u{202e}\u{1f600}".bytes());
        for notation in [Notation::Text, Notation::Ascii] {
            assert_eq!(unescape(&notation.bytes(&all)).unwrap(), all);
            assert_eq!(unescape(&notation.bytes(&text)).unwrap(), text);
        }
        assert_eq!(unescape("gr\u{fc}n").unwrap(), "gr\u{fc}n".as_bytes());
        assert_eq!(unescape("\\xFf\\0").unwrap(), &b"\xff\0"[..]);
        assert_eq!(Notation::Hex.bytes(b"a\xff"), "61ff");
    }

    #[test]
    fn a_lone_backslash_is_refused_with_what_may_follow() {
        for text in ["\\", "a\\", "\\x", "\\x1", "\\xg0", "\\q"] {
            assert!(unescape(text).unwrap_err().contains("two hex digits"), "{text}");
        }
    }
}
