//! Checks the bytes of a filter before they are decoded: decoding drops unknown
//! fields, and a filter of an unknown kind would then pass everything.

use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::check::FILTER_DEPTH_MAX;
use crate::error::{Error, Result};

/// Fails for a filter with unknown fields or excessive nesting.
pub fn check(bytes: &[u8]) -> Result<()> {
    message(Message::Filter, bytes, 0)
}

pub fn decode_error(error: DecodeError) -> Error {
    Error::Invalid(format!("Row filter cannot be decoded: {error}"))
}

/// The messages that make up a filter.
#[derive(Clone, Copy)]
enum Message {
    Filter,
    /// Chain and Interleave.
    Filters,
    Condition,
    /// A message with this many fields, none of which are messages.
    Plain(u32),
}

impl Message {
    fn name(self) -> &'static str {
        match self {
            Message::Filter => "RowFilter",
            Message::Filters => "Chain or Interleave",
            Message::Condition => "Condition",
            Message::Plain(_) => "a message in RowFilter",
        }
    }

    /// Fields are numbered without gaps.
    fn fields(self) -> u32 {
        match self {
            Message::Filter => 20,
            Message::Filters => 1,
            Message::Condition => 3,
            Message::Plain(fields) => fields,
        }
    }

    /// Returns the message type of a field; `None` for other types.
    fn inside(self, tag: u32) -> Option<Message> {
        match (self, tag) {
            (Message::Filter, 1 | 2) => Some(Message::Filters),
            (Message::Filter, 3) => Some(Message::Condition),
            (Message::Filter, 7) => Some(Message::Plain(5)),
            (Message::Filter, 8) => Some(Message::Plain(2)),
            (Message::Filter, 15) => Some(Message::Plain(4)),
            (Message::Filter, 20) => Some(Message::Plain(1)),
            (Message::Filters | Message::Condition, _) => Some(Message::Filter),
            _ => None,
        }
    }
}

fn message(kind: Message, mut bytes: &[u8], depth: usize) -> Result<()> {
    if depth > FILTER_DEPTH_MAX {
        return Err(Error::Invalid(format!(
            "Row filter nests deeper than {FILTER_DEPTH_MAX} levels"
        )));
    }
    while !bytes.is_empty() {
        let (tag, wire_type) = decode_key(&mut bytes).map_err(decode_error)?;
        if tag > kind.fields() {
            let name = kind.name();
            return Err(Error::Invalid(format!("Row filter: unknown field {tag} of {name}")));
        }
        match kind.inside(tag) {
            Some(inside) if wire_type == WireType::LengthDelimited => {
                let length = decode_varint(&mut bytes).map_err(decode_error)?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let Some((part, rest)) = bytes.split_at_checked(length) else {
                    return Err(Error::invalid("Row filter cannot be decoded: it is truncated"));
                };
                bytes = rest;
                let deeper = matches!(inside, Message::Filter);
                message(inside, part, depth + usize::from(deeper))?;
            }
            // Decoding rejects mismatched types.
            _ => skip_field(wire_type, tag, &mut bytes, DecodeContext::default())
                .map_err(decode_error)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Filter;

    fn text(bytes: &[u8]) -> String {
        Filter::decode(bytes).expect_err("not a filter").to_string()
    }

    #[test]
    fn a_filter_of_an_unknown_kind_is_refused_wherever_it_stands() {
        assert!(Filter::decode(&[]).unwrap().passes_all());
        // Field 21, a bool.
        let unknown = [0xA8, 0x01, 0x01];
        assert!(text(&unknown).contains("unknown field 21 of RowFilter"));
        // A chain of it and of an unset filter.
        let chain = [&[0x0A, 0x07, 0x0A, 0x03][..], &unknown, &[0x0A, 0x00]].concat();
        assert!(text(&chain).contains("unknown field 21 of RowFilter"));
        // A timestamp range with a third field.
        assert!(
            text(&[0x42, 0x02, 0x18, 0x01]).contains("unknown field 3 of a message in RowFilter")
        );
    }

    #[test]
    fn bytes_that_are_no_filter_are_refused() {
        for bytes in [&[0x0A, 0x05, 0x0A][..], &[0x0A], &[0x42, 0xFF, 0xFF], &[0x07], &[0x08, 1]] {
            assert!(text(bytes).starts_with("Row filter cannot be decoded"), "{bytes:?}");
        }
    }

    #[test]
    fn a_filter_that_nests_very_deep_is_refused() {
        let mut bytes = Vec::new();
        for _ in 0..300 {
            let mut outer = Vec::new();
            for _ in 0..2 {
                let mut head = vec![0x0A];
                prost::encoding::encode_varint(bytes.len() as u64, &mut head);
                outer = [&head[..], &bytes].concat();
                bytes = outer.clone();
            }
            bytes = outer;
        }
        assert!(text(&bytes).contains("nests deeper than 20 levels"));
    }
}
