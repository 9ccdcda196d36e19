//! How the text of a field becomes the bytes of a cell.

use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// The bytes as they are.
    Text,
    /// A decimal number, as 8 big-endian bytes: what increments and sums work on.
    Int64,
    /// A decimal fraction, as the 8 big-endian bytes of its IEEE representation.
    Float64,
    Hex,
    Base64,
}

impl FromStr for FieldType {
    type Err = String;

    fn from_str(name: &str) -> Result<FieldType, String> {
        match name {
            "text" => Ok(FieldType::Text),
            "int64" => Ok(FieldType::Int64),
            "float64" => Ok(FieldType::Float64),
            "hex" => Ok(FieldType::Hex),
            "base64" => Ok(FieldType::Base64),
            _ => Err(format!("unknown type {name:?}: use text, int64, float64, hex or base64")),
        }
    }
}

impl FieldType {
    /// Converts a field; the error says what is wrong with it.
    pub fn convert(self, field: &[u8]) -> Result<Vec<u8>, String> {
        let text = || {
            let text = std::str::from_utf8(field).map_err(|_| "it is not UTF-8".to_string());
            text.map(str::trim)
        };
        match self {
            FieldType::Text => Ok(field.to_vec()),
            FieldType::Int64 => match text()?.parse::<i64>() {
                Ok(number) => Ok(number.to_be_bytes().to_vec()),
                Err(_) => Err(format!("{:?} is not a 64-bit integer", text()?)),
            },
            FieldType::Float64 => match text()?.parse::<f64>() {
                Ok(number) => Ok(number.to_be_bytes().to_vec()),
                Err(_) => Err(format!("{:?} is not a number", text()?)),
            },
            FieldType::Hex => hex(text()?).ok_or_else(|| "it is not hexadecimal".into()),
            FieldType::Base64 => {
                STANDARD.decode(text()?).map_err(|_| "it is not base64".to_string())
            }
        }
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits =
        text.bytes().map(|digit| char::from(digit).to_digit(16)).collect::<Option<Vec<_>>>()?;
    if digits.len() % 2 != 0 {
        return None;
    }
    Some(digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_converted_by_their_types() {
        let convert = |name: &str, field: &[u8]| name.parse::<FieldType>().unwrap().convert(field);
        assert_eq!(convert("text", b" a\xff").unwrap(), b" a\xff");
        assert_eq!(convert("int64", b" -2 ").unwrap(), (-2i64).to_be_bytes());
        assert_eq!(convert("float64", b"0.5").unwrap(), 0.5f64.to_be_bytes());
        assert_eq!(convert("hex", b"00fF").unwrap(), [0, 255]);
        assert_eq!(convert("base64", b"AAE=").unwrap(), [0, 1]);
        for (name, field) in [
            ("int64", &b"1.5"[..]),
            ("int64", b"99999999999999999999"),
            ("int64", b"\xff"),
            ("float64", b"x"),
            ("hex", b"abc"),
            ("hex", b"zz"),
            ("base64", b"*"),
        ] {
            assert!(convert(name, field).is_err(), "{name}");
        }
        assert!("bogus".parse::<FieldType>().unwrap_err().contains("int64"));
    }
}
