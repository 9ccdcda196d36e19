//! Messages on their way in and out. Bytes that are no message of the expected
//! kind are their sender's mistake, and the same bytes will never do better:
//! INVALID_ARGUMENT, where prost's own codec says INTERNAL and some clients
//! would try again.

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::memory::CallMemory;
use crate::unary;

/// Checks the bytes of a message before they are decoded.
pub trait Precheck: Send + 'static {
    /// Refuses the message, or estimates how many bytes it takes decoded in
    /// addition to those of its wire form, which the decoded fields share.
    fn check(message: &[u8]) -> Result<usize, Status>;
}

/// Lets every message pass. Nothing is known of its fields, so that a long one
/// is assumed to consist of small parts.
#[derive(Clone, Debug)]
pub struct Any;

/// Messages of unknown kinds up to this length cannot become large.
const SHORT_BYTES: usize = 1 << 10;
/// What a byte of a message of an unknown kind may take decoded: an empty
/// nested message has two bytes, and its struct seldom more than 64.
const DECODED_PER_BYTE: usize = 32;

impl Precheck for Any {
    fn check(message: &[u8]) -> Result<usize, Status> {
        Ok(match message.len() {
            0..=SHORT_BYTES => 0,
            bytes => bytes.saturating_mul(DECODED_PER_BYTE),
        })
    }
}

/// The codec of a service without a check. Named by the services that build
/// scripts make.
pub type MessageCodec<T, U> = CheckedCodec<T, U, Any>;

/// Encodes `T` and decodes `U`, after a look at its bytes.
#[derive(Clone, Debug)]
pub struct CheckedCodec<T, U, P>(PhantomData<(T, U, P)>);

impl<T, U, P> Default for CheckedCodec<T, U, P> {
    fn default() -> Self {
        CheckedCodec(PhantomData)
    }
}

impl<T, U, P> Codec for CheckedCodec<T, U, P>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
    P: Precheck,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = CheckedDecoder<U, P>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> CheckedDecoder<U, P> {
        CheckedDecoder(PhantomData)
    }
}

/// Decodes whole messages.
#[derive(Clone, Debug)]
pub struct CheckedDecoder<U, P>(PhantomData<(U, P)>);

impl<U: Message + Default, P: Precheck> Decoder for CheckedDecoder<U, P> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // The transport hands over a message in one piece.
        if bytes.chunk().len() == bytes.remaining() {
            let decoded = P::check(bytes.chunk())?;
            CallMemory::current().try_charge_decoded(decoded)?;
        }
        unary::decode(bytes).map(Some)
    }
}
