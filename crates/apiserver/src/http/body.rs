//! Request and response bodies, and the size limit of requests.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};

/// The error with which a body ends.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of every response.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// The largest request body, in bytes: Kubernetes' own limit.
pub(crate) const MAX_BODY: usize = 3 * 1024 * 1024;

/// Returns any body as the one type of this server.
pub(crate) fn box_body<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    body.map_err(|error| BoxError::from(error.to_string())).boxed_unsync()
}

/// Returns a complete body.
pub(crate) fn complete_body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a body whose beginning was already read.
pub(crate) fn prepend_read_bytes(beginning: Vec<Bytes>, rest: Body) -> Body {
    let frames = beginning.into_iter().map(|bytes| Ok(http_body::Frame::data(bytes)));
    let frames = futures::stream::iter(frames).chain(BodyStream::new(rest));
    StreamBody::new(frames).boxed_unsync()
}

/// Returns a body that ends with an error.
pub(crate) fn make_failing_body(beginning: Vec<Bytes>, error: BoxError) -> Body {
    let frames = beginning.into_iter().map(|bytes| Ok(http_body::Frame::data(bytes)));
    let frames = futures::stream::iter(frames.chain([Err(error)]));
    StreamBody::new(frames).boxed_unsync()
}

/// Returns a complete body in pieces.
pub(crate) fn body_of_pieces(pieces: Vec<Bytes>) -> Body {
    let left = pieces.iter().map(Bytes::len).sum();
    let pieces = pieces.into();
    Pieces { pieces, left }.boxed_unsync()
}

/// A complete body that is sent in pieces.
struct Pieces {
    pieces: VecDeque<Bytes>,
    left: usize,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        let next = self.pieces.pop_front();
        self.left -= next.as_ref().map_or(0, Bytes::len);
        Poll::Ready(next.map(|piece| Ok(http_body::Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.left as u64)
    }
}

/// Returns the answer with a body that holds a value until it ends.
pub(crate) fn hold_until_end<T: Send + Unpin + 'static>(
    response: http::Response<Body>,
    held: T,
) -> http::Response<Body> {
    response.map(|body| Holding { body, _held: held }.boxed_unsync())
}

/// A body that keeps a value, such as a permit, until the body is dropped.
struct Holding<T> {
    body: Body,
    _held: T,
}

impl<T: Unpin> http_body::Body for Holding<T> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
