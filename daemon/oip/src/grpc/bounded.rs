//! How messages are read and written: of as many fields as any may need, for an empty one can take hundreds of times the memory that its
//! bytes do.

use std::marker::PhantomData;

use prost::bytes::Buf;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use prost::{DecodeError, Message};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

/// Fields of a message, its tensors and their contents one by one; a hundred times what any model here has.
const MAX_FIELDS: usize = 4096;

/// The codec of prost, which reads messages of up to 4096 fields.
#[derive(Debug)]
pub struct Bounded<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Bounded<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Codec for Bounded<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(PhantomData)
    }
}

/// Reads the messages of a [`Bounded`] codec.
#[derive(Debug)]
pub struct BoundedDecoder<U>(PhantomData<U>);

impl<U: Message + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // What tonic has put together of a message lies in one piece, so nothing is copied.
        let message = source.copy_to_bytes(source.remaining());
        check_fields(&message).map_err(Status::invalid_argument)?;
        U::decode(message).map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }
}

/// Whether a message has no more fields than it may; the reason if not.
pub(crate) fn check_fields(message: &[u8]) -> Result<(), String> {
    match fields(message) {
        Ok(count) if count > MAX_FIELDS => Err(format!("it has {count} fields, {MAX_FIELDS} are allowed")),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn fields(mut message: &[u8]) -> Result<usize, DecodeError> {
    let mut count = 0;
    while message.has_remaining() {
        let (tag, wire_type) = decode_key(&mut message)?;
        skip_field(wire_type, tag, &mut message, DecodeContext::default())?;
        count += 1;
    }
    Ok(count)
}
