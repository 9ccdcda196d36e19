//! Messages on their way in and out. Bytes that are no message of the expected
//! kind are their sender's mistake, and the same bytes will never do better:
//! INVALID_ARGUMENT, where prost's own codec says INTERNAL and some clients
//! would try again.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

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
        let unreadable =
            |error| Status::invalid_argument(format!("The message cannot be read: {error}"));
        U::decode(bytes).map(Some).map_err(unreadable)
    }
}
