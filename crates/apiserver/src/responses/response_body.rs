//! The body of an answer while it is sent: charged, split into pieces, and tracked until they are written.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use super::{PIECE, PendingResponse, UnreadResponses};
use crate::byte_ledger::{Account, Charge};
use crate::http::{Body, BoxError};
use crate::streams::StreamEnd;

/// Largest answer that is sent together with its end. The end of a larger answer waits until all earlier bytes are
/// written, and until then its stream can be reset.
const SMALL: usize = 16 * 1024;

/// The way on which an answer goes to its client: it decides when a piece counts as read.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// A client in this process, which accounts for the bytes that it has read.
    Process,
    /// A connection, with a stream if it has several.
    Connection(Arc<UnreadResponses>, Option<Arc<StreamEnd>>),
}

/// Returns the answer with a body that tracks its sending. `held` is released when all of it is written or given up.
/// `charge` is for the whole body if it is complete, else for the first piece. Further pieces are charged to
/// `account` when they are made.
pub(crate) fn track_sending(
    response: Response<Body>,
    account: Arc<Account>,
    charge: Option<Arc<Charge>>,
    route: &Route,
    held: impl Any + Send + Sync,
) -> Response<Body> {
    if response.body().is_end_stream() {
        return response;
    }
    let (stream, followed) = match route {
        Route::Process => (None, false),
        Route::Connection(_, stream) => (stream.clone(), true),
    };
    let answer = PendingResponse::new(Box::new(held), stream);
    if let Route::Connection(unread, _) = route {
        unread.add(&answer);
    }
    response.map(|inner| {
        let (whole, first) = match inner.size_hint().exact() {
            Some(_) => (charge, None),
            None => (None, charge),
        };
        let sending = Sending {
            inner,
            answer,
            account,
            whole,
            first,
            rest: None,
            waiting: None,
            followed,
            sent: 0,
            finished: false,
        };
        sending.boxed_unsync()
    })
}

/// The body of an answer: charged, split into pieces, and tracked until the pieces are written.
struct Sending {
    inner: Body,
    answer: Arc<PendingResponse>,
    account: Arc<Account>,
    /// The charge for the whole body, if it was complete from the beginning.
    whole: Option<Arc<Charge>>,
    /// The charge for the first piece.
    first: Option<Arc<Charge>>,
    /// Bytes of the answer that the connection has not received yet, with their charge.
    rest: Option<(Bytes, Arc<Charge>)>,
    /// The wait for free bytes.
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Whether pieces are charged until they are written; else until the next piece is requested.
    followed: bool,
    sent: usize,
    finished: bool,
}

/// Bytes that are charged until the connection has written them.
struct Piece {
    bytes: Bytes,
    answer: Arc<PendingResponse>,
    _charge: Arc<Charge>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.answer.take_back();
    }
}

impl Sending {
    /// Returns the next piece of the available bytes.
    fn hand_over(&mut self) -> Option<Bytes> {
        let (bytes, charge) = self.rest.as_mut()?;
        // Bytes for up to two pieces are sent as one piece.
        let most = if bytes.len() > 2 * PIECE { PIECE } else { bytes.len() };
        let piece = bytes.split_to(most);
        let charge = charge.clone();
        if bytes.is_empty() && self.followed {
            self.rest = None;
        }
        self.sent += piece.len();
        if !self.followed {
            // The charge stays in `rest` until the next piece is requested.
            return Some(piece);
        }
        self.answer.hand_over();
        Some(Bytes::from_owner(Piece {
            bytes: piece,
            answer: self.answer.clone(),
            _charge: charge,
        }))
    }

    /// Reserves bytes for a piece. The charge is corrected when the piece is made.
    fn reserve_piece(&mut self, context: &mut Context<'_>) -> Poll<Charge> {
        loop {
            if let Some(charge) = self.account.try_charge(PIECE) {
                self.waiting = None;
                return Poll::Ready(charge);
            }
            let account = &self.account;
            let waiting = self.waiting.get_or_insert_with(|| {
                let account = account.clone();
                Box::pin(async move { account.wait().await })
            });
            std::task::ready!(waiting.as_mut().poll(context));
            self.waiting = None;
        }
    }

    fn waits_for_its_client(&self) -> bool {
        self.followed && self.sent > SMALL
    }
}

/// The error with which an unread answer ends, so that a partial answer never looks complete.
#[derive(Debug, thiserror::Error)]
#[error("the answer was not read in time")]
struct NotRead;

impl http_body::Body for Sending {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let taken = this.answer.is_taken(context);
        if this.answer.is_given_up() {
            return Poll::Ready(Some(Err(Box::new(NotRead))));
        }
        loop {
            if this.rest.as_ref().is_some_and(|(rest, _)| rest.is_empty()) {
                this.rest = None;
            }
            if let Some(piece) = this.hand_over() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if this.finished {
                if this.waits_for_its_client() && !taken {
                    return Poll::Pending;
                }
                this.whole = None;
                return Poll::Ready(None);
            }
            let mut reserved = match this.whole.is_some() || this.first.is_some() {
                true => None,
                false => Some(std::task::ready!(this.reserve_piece(context))),
            };
            let frame = match Pin::new(&mut this.inner).poll_frame(context) {
                Poll::Pending => {
                    if let Some(reserved) = reserved {
                        reserved.cancel();
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => {
                    this.finished = true;
                    continue;
                }
            };
            this.finished = this.inner.is_end_stream();
            let Ok(bytes) = frame.into_data() else { continue };
            if let Some(reserved) = &mut reserved {
                reserved.set(bytes.len());
            }
            let charge = reserved.map(Arc::new).or_else(|| this.first.take());
            let charge = charge.or_else(|| this.whole.clone());
            if let Some(charge) = charge.filter(|_| !bytes.is_empty()) {
                this.rest = Some((bytes, charge));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let nothing_left = self.rest.as_ref().is_none_or(|(rest, _)| rest.is_empty());
        self.finished && nothing_left && !self.waits_for_its_client()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.rest {
            None => self.inner.size_hint(),
            Some((rest, _)) => {
                let mut hint = SizeHint::new();
                hint.set_lower(rest.len() as u64 + self.inner.size_hint().lower());
                if let Some(exact) = self.inner.size_hint().exact() {
                    hint.set_exact(rest.len() as u64 + exact);
                }
                hint
            }
        }
    }
}
