//! The fields of a message in its wire form, without decoding it.

use std::ops::Range;

use prost::encoding::{WireType, decode_key, decode_varint};

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'m> {
    pub tag: u32,
    pub value: Value<'m>,
    /// The position of the field with its tag.
    pub start: usize,
    pub end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'m> {
    Varint(u64),
    Bytes(&'m [u8]),
    Fixed,
}

impl<'m> Field<'m> {
    /// Returns the contents of a string, of bytes or of a message.
    pub fn bytes(&self) -> Option<&'m [u8]> {
        match self.value {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub fn varint(&self) -> Option<u64> {
        match self.value {
            Value::Varint(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the position of the field with its tag.
    pub fn span(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// A message that is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Iterates over the fields of a message, and ends with an error if it is malformed.
pub struct Fields<'m> {
    message: &'m [u8],
    rest: &'m [u8],
}

impl<'m> Fields<'m> {
    pub fn of(message: &'m [u8]) -> Fields<'m> {
        Fields { message, rest: message }
    }

    fn at(&self) -> usize {
        self.message.len() - self.rest.len()
    }

    fn field(&mut self) -> Result<Field<'m>, Malformed> {
        let start = self.at();
        let (tag, kind) = decode_key(&mut self.rest).map_err(|_| Malformed)?;
        let value = match kind {
            WireType::Varint => Value::Varint(self.varint()?),
            WireType::LengthDelimited => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(length)?)
            }
            WireType::SixtyFourBit => self.take(8).map(|_| Value::Fixed)?,
            WireType::ThirtyTwoBit => self.take(4).map(|_| Value::Fixed)?,
            // Nobody sends groups.
            WireType::StartGroup | WireType::EndGroup => return Err(Malformed),
        };
        Ok(Field { tag, value, start, end: self.at() })
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        decode_varint(&mut self.rest).map_err(|_| Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'m [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'m> Iterator for Fields<'m> {
    type Item = Result<Field<'m>, Malformed>;

    fn next(&mut self) -> Option<Result<Field<'m>, Malformed>> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Returns the last values of some fields, as a decoder would keep them. Empty where a
/// field is missing.
pub fn bytes_of<const N: usize>(message: &[u8], tags: [u32; N]) -> Result<[&[u8]; N], Malformed> {
    let mut found = [&[][..]; N];
    for field in Fields::of(message) {
        let field = field?;
        if let Some(at) = tags.iter().position(|tag| *tag == field.tag)
            && let Some(bytes) = field.bytes()
        {
            found[at] = bytes;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use stele_bigtable_proto::v2;

    use super::*;

    #[test]
    fn fields_are_found_without_decoding() {
        let request = v2::MutateRowRequest {
            table_name: "t".into(),
            row_key: "r".into(),
            mutations: vec![v2::Mutation::default()],
            ..Default::default()
        };
        let message = request.encode_to_vec();
        assert_eq!(bytes_of(&message, [2, 1, 9]), Ok([&b"r"[..], b"t", b""]));
        let tags: Vec<u32> = Fields::of(&message).map(|field| field.unwrap().tag).collect();
        assert_eq!(tags, [1, 2, 3]);
        let spans = Fields::of(&message).map(|field| message[field.unwrap().span()].to_vec());
        assert_eq!(spans.collect::<Vec<_>>().concat(), message);
    }

    #[test]
    fn the_last_value_of_a_repeated_field_counts() {
        let first = v2::MutateRowRequest { row_key: "a".into(), ..Default::default() };
        let second = v2::MutateRowRequest { row_key: "b".into(), ..Default::default() };
        let message = [first.encode_to_vec(), second.encode_to_vec()].concat();
        assert_eq!(bytes_of(&message, [2]), Ok([&b"b"[..]]));
    }

    #[test]
    fn damaged_messages_are_noticed() {
        for damaged in [&b"\x0a"[..], b"\x0a\x05abc", b"\x08\xff", b"\x0b", b"\x09abc", b"\x00\x00"]
        {
            assert!(bytes_of(damaged, [1]).is_err(), "{damaged:?}");
        }
        let huge = b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert!(bytes_of(huge, [1]).is_err());
    }
}
