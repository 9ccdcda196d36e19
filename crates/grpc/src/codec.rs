//! Message codecs. Bytes that do not decode as the expected message are the
//! sender's mistake, and retrying cannot help, so they are rejected with
//! INVALID_ARGUMENT. Prost's own codec reports INTERNAL, which some clients
//! retry.

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
    /// Rejects the message, or estimates how many bytes it takes decoded, not
    /// counting its wire form, which the decoded fields share.
    fn check(message: &[u8]) -> Result<usize, Status>;
}

/// Accepts every message. Its fields are unknown, so a long message is assumed to
/// consist of small parts.
#[derive(Clone, Debug)]
pub struct AnyMessage;

/// Messages of unknown types up to this length cannot become large.
const SHORT_BYTES: usize = 1 << 10;
/// The decoded bytes per byte of a message of an unknown type: an empty nested
/// message has two bytes, and its struct is seldom larger than 64.
const DECODED_PER_BYTE: usize = 32;

impl Precheck for AnyMessage {
    fn check(message: &[u8]) -> Result<usize, Status> {
        Ok(match message.len() {
            0..=SHORT_BYTES => 0,
            bytes => bytes.saturating_mul(DECODED_PER_BYTE),
        })
    }
}

/// The codec of a service without a precheck. Referenced by the code that build
/// scripts generate.
pub type MessageCodec<T, U> = CheckedCodec<T, U, AnyMessage>;

/// Encodes `T`; decodes `U` after prechecking its bytes.
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
        // The transport provides a message as one contiguous buffer.
        if bytes.chunk().len() == bytes.remaining() {
            let decoded = P::check(bytes.chunk())?;
            CallMemory::current().try_charge_decoded(decoded)?;
        }
        unary::decode(bytes).map(Some)
    }
}
