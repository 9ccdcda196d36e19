//! Messages on their way in and out. Bytes that are no message of the expected
//! kind are INVALID_ARGUMENT, and so is a vector that would need far more
//! memory decoded than it took on the way.

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::limits::VECTOR_MAX;

/// Encodes `T` and decodes `U`. Named by the services that `build.rs` makes.
#[derive(Clone, Debug)]
pub struct MessageCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for MessageCodec<T, U> {
    fn default() -> Self {
        MessageCodec(PhantomData)
    }
}

impl<T, U> Codec for MessageCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = MessageDecoder<U>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> MessageDecoder<U> {
        MessageDecoder(PhantomData)
    }
}

/// Decodes whole messages.
#[derive(Clone, Debug)]
pub struct MessageDecoder<U>(PhantomData<U>);

impl<U: Message + Default> Decoder for MessageDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if bytes.chunk().len() == bytes.remaining() && is_long(bytes.chunk()) {
            let what = format!("a message has {VECTOR_MAX} elements at most: use a stream");
            return Err(Status::invalid_argument(what));
        }
        let unreadable =
            |error| Status::invalid_argument(format!("the message cannot be read: {error}"));
        U::decode(bytes).map(Some).map_err(unreadable)
    }
}

/// Room for the fields that are no elements.
const FIELDS_MAX: usize = VECTOR_MAX + 16;

/// Whether a message has more elements than any may have. What cannot be read
/// is not long: the decoder says what is wrong with it.
fn is_long(mut message: &[u8]) -> bool {
    let mut fields = 0;
    while let Some(tag) = varint(&mut message) {
        let skipped = match tag & 7 {
            0 => varint(&mut message).map(|_| 0),
            1 => Some(8),
            2 => varint(&mut message),
            5 => Some(4),
            _ => None,
        };
        let skipped = skipped.and_then(|length| usize::try_from(length).ok());
        let Some(rest) = skipped.and_then(|length| message.get(length..)) else { return false };
        message = rest;
        fields += 1;
        if fields > FIELDS_MAX {
            return true;
        }
    }
    false
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(byte & 0x7F).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{DelRequest, Key};

    #[test]
    fn a_vector_of_empty_elements_is_refused_before_it_is_decoded() {
        let request = |keys| DelRequest { keys: vec![Key::default(); keys], ..Default::default() };
        assert!(!is_long(&request(VECTOR_MAX).encode_to_vec()));
        assert!(is_long(&request(VECTOR_MAX + 100).encode_to_vec()));
        assert!(!is_long(&[0xFF; 40]) && !is_long(&[]));
    }
}
