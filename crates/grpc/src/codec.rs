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

use crate::unary;

/// Looks at the bytes of a message before they are decoded.
pub trait Precheck: Send + 'static {
    fn check(message: &[u8]) -> Result<(), Status>;
}

/// Lets every message pass.
#[derive(Clone, Debug)]
pub struct Any;

impl Precheck for Any {
    fn check(_: &[u8]) -> Result<(), Status> {
        Ok(())
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
            P::check(bytes.chunk())?;
        }
        unary::decode(bytes).map(Some)
    }
}
