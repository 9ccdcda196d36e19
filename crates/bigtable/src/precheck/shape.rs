//! Counts the parts of a message in its wire form.

use tonic::Status;

/// Prost refuses to decode messages that nest deeper.
const DEPTH_MAX: usize = 100;
/// The approximate overhead of an allocation.
const ALLOCATION_BYTES: usize = 16;
/// The maximum number of fields that a shape lists.
const FIELDS_MAX: usize = 8;
/// The maximum number of bytes in fields that no shape describes, and the decoded
/// size of each of these bytes.
const OPAQUE_BYTES_MAX: usize = 64 << 10;
const OPAQUE_DECODED_PER_BYTE: usize = 150;

/// The fields of a message that take additional memory when it is decoded. Other
/// fields are part of the message struct or share the bytes of the wire form.
pub struct Shape {
    pub fields: &'static [Field],
}

pub struct Field {
    tag: u32,
    kind: FieldKind,
    counter: Counter,
    repeated: bool,
    /// The size of an element of a repeated field, or of the allocation for a
    /// singular one.
    bytes: usize,
    /// The bytes that the server needs per element in addition to the message.
    handling_bytes: usize,
}

impl Field {
    /// A singular field. Decoding allocates `bytes` for it outside its message.
    pub const fn single(tag: u32, kind: FieldKind, bytes: usize) -> Field {
        let counter = Counter::None;
        Field { tag, kind, counter, repeated: false, bytes, handling_bytes: 0 }
    }

    /// A string field.
    pub const fn text(tag: u32) -> Field {
        Field::single(tag, FieldKind::Text, 0)
    }

    /// A repeated field with elements of this size.
    pub const fn list(tag: u32, kind: FieldKind, bytes: usize, counter: Counter) -> Field {
        Field { tag, kind, counter, repeated: true, bytes, handling_bytes: 0 }
    }

    /// Sets the counter of the field.
    pub const fn counted(self, counter: Counter) -> Field {
        Field { counter, ..self }
    }

    /// Sets the memory that the server needs to handle an element.
    pub const fn with_handling(self, handling_bytes: usize) -> Field {
        Field { handling_bytes, ..self }
    }
}

#[derive(Clone, Copy)]
pub enum FieldKind {
    Message(&'static Shape),
    /// A message of which only the string in its first field is copied. Most
    /// parts of a large request are of this kind and need a single pass.
    FirstText,
    /// A string, which is copied.
    Text,
    /// Bytes, which are shared with the wire form.
    Bytes,
    /// A message that no request needs to carry: only its length is limited.
    Opaque,
}

/// The counter that elements of a field are added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    None,
    /// The elements that a request consists of: mutations, row keys, families.
    Main,
    /// A second list, which has its own limit.
    Second,
    /// Parts of values and types.
    Nested,
}

/// The maximum number of parts of values and types in one request.
const NESTED_MAX: usize = 10_000;

/// The result of scanning a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Elements by counter.
    pub main: usize,
    pub second: usize,
    nested: usize,
    /// The decoded size of the message, not counting its wire form.
    pub decoded_bytes: usize,
    opaque_bytes: usize,
}

impl Survey {
    /// Scans all parts of a message. Fails if the bytes are not a valid message.
    pub fn scan(shape: &Shape, message: &[u8]) -> Result<Survey, Status> {
        let mut survey = Survey::default();
        survey.message(shape, message, 0)?;
        check_count("nested values and types", survey.nested, NESTED_MAX)?;
        if survey.opaque_bytes > OPAQUE_BYTES_MAX {
            return Err(Status::invalid_argument(format!(
                "The request has {} bytes of fields that are not supported; limit {OPAQUE_BYTES_MAX}",
                survey.opaque_bytes
            )));
        }
        Ok(survey)
    }

    fn message(&mut self, shape: &Shape, mut bytes: &[u8], depth: usize) -> Result<(), Status> {
        if depth > DEPTH_MAX {
            return Err(unreadable("it nests too deeply"));
        }
        let mut elements = [0u32; FIELDS_MAX];
        while !bytes.is_empty() {
            let (tag, payload) = next_field(&mut bytes)?;
            let Some(payload) = payload else { continue };
            let Some(at) = shape.fields.iter().position(|field| field.tag == tag) else { continue };
            elements[at] += 1;
            self.field(&shape.fields[at], payload, depth)?;
        }
        for (field, elements) in shape.fields.iter().zip(elements) {
            self.decoded_bytes += match (field.repeated, elements as usize) {
                (_, 0) => 0,
                (true, elements) => vector_bytes(elements, field.bytes),
                (false, elements) => elements * field.bytes,
            };
        }
        Ok(())
    }

    fn field(&mut self, field: &Field, payload: &[u8], depth: usize) -> Result<(), Status> {
        match field.counter {
            Counter::None => {}
            Counter::Main => self.main += 1,
            Counter::Second => self.second += 1,
            Counter::Nested => self.nested += 1,
        }
        self.decoded_bytes += field.handling_bytes;
        match &field.kind {
            FieldKind::Message(inside) => self.message(inside, payload, depth + 1)?,
            FieldKind::FirstText => self.decoded_bytes += first_texts(payload)?,
            FieldKind::Text => self.decoded_bytes += payload.len() + ALLOCATION_BYTES,
            FieldKind::Bytes => {}
            FieldKind::Opaque => {
                self.opaque_bytes += payload.len();
                self.decoded_bytes += payload.len() * OPAQUE_DECODED_PER_BYTE;
            }
        }
        Ok(())
    }
}

/// Rejects a request with more than `limit` elements of a kind.
pub fn check_count(what: &str, count: usize, limit: usize) -> Result<(), Status> {
    if count > limit {
        let what = format!("Too many {what}: {count} provided; limit {limit}");
        return Err(Status::invalid_argument(what));
    }
    Ok(())
}

/// Returns the memory of the strings in the first field of a message.
fn first_texts(mut bytes: &[u8]) -> Result<usize, Status> {
    let mut text_bytes = 0;
    while !bytes.is_empty() {
        if let (1, Some(text)) = next_field(&mut bytes)? {
            text_bytes += text.len() + ALLOCATION_BYTES;
        }
    }
    Ok(text_bytes)
}

/// Returns the memory of a vector filled by pushing: its capacity doubles, and
/// while it grows the old elements exist twice.
fn vector_bytes(elements: usize, bytes: usize) -> usize {
    const FIRST_CAPACITY: usize = 4;
    let capacity = elements.next_power_of_two().max(FIRST_CAPACITY);
    let copied = if elements > FIRST_CAPACITY { capacity / 2 } else { 0 };
    (capacity + copied) * bytes + ALLOCATION_BYTES
}

/// Consumes the next field of a message. Returns its tag, and its payload if it
/// is length-delimited.
#[inline]
fn next_field<'a>(bytes: &mut &'a [u8]) -> Result<(u32, Option<&'a [u8]>), Status> {
    let key = varint(bytes)?;
    let tag = u32::try_from(key >> 3).map_err(|_| unreadable("a tag is too large"))?;
    let skipped = match key & 7 {
        0 => {
            varint(bytes)?;
            return Ok((tag, None));
        }
        1 => 8,
        2 => {
            let length = usize::try_from(varint(bytes)?).unwrap_or(usize::MAX);
            let Some((payload, rest)) = bytes.split_at_checked(length) else {
                return Err(unreadable("it is truncated"));
            };
            *bytes = rest;
            return Ok((tag, Some(payload)));
        }
        5 => 4,
        // This includes groups: no field of this API is one, and their contents
        // could not be counted.
        _ => return Err(unreadable("a field has an invalid wire type")),
    };
    match bytes.split_at_checked(skipped) {
        Some((_, rest)) => *bytes = rest,
        None => return Err(unreadable("it is truncated")),
    }
    Ok((tag, None))
}

#[inline]
fn varint(bytes: &mut &[u8]) -> Result<u64, Status> {
    if let Some((&byte, rest)) = bytes.split_first()
        && byte < 0x80
    {
        *bytes = rest;
        return Ok(u64::from(byte));
    }
    prost::encoding::decode_varint(bytes).map_err(|error| unreadable(&error.to_string()))
}

#[cold]
fn unreadable(why: &str) -> Status {
    Status::invalid_argument(format!("The message cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    static LEAF: Shape = Shape { fields: &[Field::text(1)] };

    #[test]
    fn a_message_of_one_string_is_measured_alike_by_its_own_function() {
        static FAST: Shape = Shape { fields: &[Field::single(2, FieldKind::FirstText, 0)] };
        static SLOW: Shape = Shape { fields: &[Field::single(2, FieldKind::Message(&LEAF), 0)] };
        let parts: [&[u8]; 6] =
            [&[0x0A, 2, b'f', b'g'], &[0x12, 1, b'q'], &[0x18, 0x85, 0x01], &[0x0A], &[0x0B], b""];
        for first in parts {
            for second in parts {
                let inside = [first, second].concat();
                let message = [&[0x12, inside.len() as u8], &inside[..]].concat();
                let [fast, slow] = [&FAST, &SLOW].map(|shape| {
                    Survey::scan(shape, &message).map_err(|status| status.message().to_string())
                });
                assert_eq!(fast, slow, "{message:?}");
            }
        }
    }

    static ROOT: Shape = Shape {
        fields: &[
            Field::list(2, FieldKind::Message(&LEAF), 100, Counter::Main),
            Field::single(3, FieldKind::Opaque, 0),
        ],
    };

    fn survey(bytes: &[u8]) -> Result<Survey, Status> {
        Survey::scan(&ROOT, bytes)
    }

    #[test]
    fn elements_are_counted_and_sized_by_the_capacity_of_their_vector() {
        assert_eq!(survey(&[]).unwrap(), Survey::default());
        let one = survey(&[0x12, 0]).unwrap();
        assert_eq!((one.main, one.decoded_bytes), (1, 400 + ALLOCATION_BYTES));
        let many = survey(&[0x12, 0].repeat(1000)).unwrap();
        assert_eq!((many.main, many.decoded_bytes), (1000, 1536 * 100 + ALLOCATION_BYTES));
        let text = survey(&[0x12, 4, 0x0A, 2, b'a', b'b']).unwrap();
        assert_eq!(text.decoded_bytes, one.decoded_bytes + 2 + ALLOCATION_BYTES);
    }

    #[test]
    fn other_fields_are_skipped_and_hide_nothing() {
        let others =
            [0x08, 0xFF, 0x01, 0x22, 3, 1, 2, 3, 0x29, 0, 0, 0, 0, 0, 0, 0, 0, 0x35, 0, 0, 0, 0];
        let bytes = [&[0x12, 0][..], &others, &[0x12, 0]].concat();
        assert_eq!(survey(&bytes).unwrap().main, 2);
    }

    #[test]
    fn bytes_that_are_not_a_message_are_refused() {
        for bytes in
            [&[0x12][..], &[0x12, 5, 1], &[0x80], &[0x12, 1, 0x0A], &[0x29, 0], &[0x13], &[0x1C]]
        {
            let status = survey(bytes).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{bytes:?}");
            assert!(status.message().starts_with("The message cannot be read"), "{bytes:?}");
        }
    }

    #[test]
    fn fields_without_a_shape_are_limited_by_their_length() {
        let opaque = |length: usize| {
            let mut bytes = vec![0x1A];
            prost::encoding::encode_varint(length as u64, &mut bytes);
            bytes.resize(bytes.len() + length, 0);
            survey(&bytes)
        };
        assert_eq!(opaque(10).unwrap().decoded_bytes, 10 * OPAQUE_DECODED_PER_BYTE);
        assert!(opaque(OPAQUE_BYTES_MAX).is_ok());
        assert!(opaque(OPAQUE_BYTES_MAX + 1).is_err());
    }
}
