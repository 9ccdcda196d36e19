//! Checks messages before they are decoded: rejects a vector that would take much more
//! memory decoded than on the wire.

use prost::encoding::decode_varint;
use stele_grpc::Precheck;
use tonic::Status;

use crate::limits::VECTOR_MAX;

/// Used by the services that `build.rs` generates.
pub type MessageCodec<T, U> = stele_grpc::CheckedCodec<T, U, ShortVectors>;

pub type MessageDecoder<U> = stele_grpc::CheckedDecoder<U, ShortVectors>;

/// Rejects messages with more elements than a vector may have.
#[derive(Clone, Debug)]
pub struct ShortVectors;

impl Precheck for ShortVectors {
    fn check(message: &[u8]) -> Result<usize, Status> {
        let fields = fields(message)?;
        if fields > FIELDS_MAX {
            let what = format!("a message may have at most {VECTOR_MAX} elements: use a stream");
            return Err(Status::invalid_argument(what));
        }
        Ok(fields * ELEMENT_BYTES)
    }
}

/// Includes fields that are not elements.
const FIELDS_MAX: usize = VECTOR_MAX + 16;
/// The memory of a decoded element besides its bytes, in a vector whose capacity
/// doubles.
const ELEMENT_BYTES: usize = 256;

/// Counts the fields of a message, up to one more than it may have. Stops at bytes
/// that cannot be parsed, because the decoder reports them. Refuses groups, which no
/// message here has: the decoder would skip them.
fn fields(mut message: &[u8]) -> Result<usize, Status> {
    let mut fields = 0;
    while let Some(tag) = varint(&mut message) {
        let skipped = match tag & 7 {
            0 => varint(&mut message).map(|_| 0),
            1 => Some(8),
            2 => varint(&mut message),
            3 | 4 => {
                let what = "the message has a field of the wire type group, which is not supported";
                return Err(Status::invalid_argument(what));
            }
            5 => Some(4),
            _ => None,
        };
        let skipped = skipped.and_then(|length| usize::try_from(length).ok());
        let Some(rest) = skipped.and_then(|length| message.get(length..)) else { break };
        message = rest;
        fields += 1;
        if fields > FIELDS_MAX {
            break;
        }
    }
    Ok(fields)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    decode_varint(message).ok()
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::proto::{DelRequest, Key};

    #[test]
    fn a_vector_of_empty_elements_is_rejected_before_it_is_decoded() {
        let request = |keys| DelRequest { keys: vec![Key::default(); keys], ..Default::default() };
        let check = |message: &[u8]| ShortVectors::check(message);
        let most = check(&request(VECTOR_MAX).encode_to_vec()).unwrap();
        assert!(most >= VECTOR_MAX * size_of::<Key>());
        assert!(check(&request(VECTOR_MAX + 100).encode_to_vec()).is_err());
        assert_eq!((check(&[0xFF; 40]).unwrap(), check(&[]).unwrap()), (0, 0));
    }

    #[test]
    fn elements_behind_a_group_are_not_overlooked() {
        // An unknown field 15: a group with nothing in it, which prost skips.
        let (start, end) = (15 << 3 | 3, 15 << 3 | 4);
        let elements = DelRequest { keys: vec![Key::default(); 7], ..Default::default() };
        let mut message = vec![start, end];
        elements.encode(&mut message).unwrap();
        assert_eq!(DelRequest::decode(&message[..]).unwrap().keys.len(), 7);
        let refused = ShortVectors::check(&message).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(refused.message().contains("group"), "{refused}");
    }
}
