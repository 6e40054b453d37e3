//! The codec of the services: prost's, except that the lists of a request are counted before the request is
//! decoded ([`lists`](crate::lists)).

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::convert::reject;
use crate::lists::{self, Shape};

/// Encodes `T` and decodes `U`.
#[derive(Debug)]
pub(crate) struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Codec for BoundedCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder { shape: lists::shape_of::<U>(), message: PhantomData }
    }
}

/// Decodes `U` after a check of its lists.
#[derive(Debug)]
pub(crate) struct BoundedDecoder<U> {
    /// The lists of the message; `None` for a message without bounded lists.
    shape: Option<&'static Shape>,
    message: PhantomData<U>,
}

impl<U: Message + Default + Send + 'static> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let Some(shape) = self.shape else { return read(buffer).map(Some) };
        let message = buffer.copy_to_bytes(buffer.remaining());
        lists::check(shape, &message).map_err(|bad| reject::bad_field(&bad))?;
        let mut request: U = read(message)?;
        lists::keep_each_once(&mut request);
        Ok(Some(request))
    }
}

fn read<U: Message + Default>(buffer: impl Buf) -> Result<U, Status> {
    U::decode(buffer).map_err(|error| Status::internal(error.to_string()))
}
