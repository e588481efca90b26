//! Memory of requests: their bodies while they arrive, and the values decoded from them.
//!
//! [`RequestMemoryBounds`] limits both, [`IncomingBody`] reads a body, and [`WorkingMemory`] estimates the size of the values decoded
//! from the body and from stored objects. Bodies and values wait for free bytes before they use any. A body that is
//! too large or too late is refused, and so is a request that finds no free bytes in time.
//!
//! ```text
//!  body ─▶ charged as it arrives ─▶ weighed ─▶ values charged (waits for room) ─▶ body given back ─▶ work ─▶ values given back
//! ```
//!
//! Bodies and values have separate ledgers. A request that waits for its values holds only a body, so it never blocks
//! requests that have their values.

mod decoded_size;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;

use crate::byte_ledger::{Account, Charge, Growing};
use crate::http::ApiError;
use crate::http::body::MAX_BODY;
use crate::long_requests::LargeParts;

/// Longest time for a body to arrive.
const BODY: Duration = Duration::from_secs(30);
/// Longest pause of the sender while free bytes are few.
const QUIET: Duration = Duration::from_secs(2);
/// Bytes of a body that are not charged: a request needs about as much memory besides its body.
const UNCHARGED: usize = 16 * 1024;
/// Values decoded from a body or stored object of at most this size are not charged.
const LIGHT: usize = 4 * 1024;

/// Limits for the memory of requests: for their bodies, and for the objects decoded from them. ServiceAccounts of one
/// namespace are one user.
#[derive(Debug, Clone)]
pub struct RequestMemoryBounds {
    /// Bytes of the bodies of one user's requests, from their arrival until the decoded values are charged.
    pub user_body_bytes: usize,
    /// Bytes of the bodies of all requests.
    pub total_body_bytes: usize,
    /// Bytes of the decoded objects of one user's requests during the work on them: the sent objects, and the stored
    /// objects that they change.
    pub user_object_bytes: usize,
    /// Bytes of the decoded objects of all requests.
    pub total_object_bytes: usize,
}

impl Default for RequestMemoryBounds {
    fn default() -> Self {
        Self {
            user_body_bytes: 16 << 20,
            total_body_bytes: 64 << 20,
            user_object_bytes: 64 << 20,
            total_object_bytes: 192 << 20,
        }
    }
}

/// The reason why a body was not accepted.
#[derive(Debug)]
pub(crate) enum BodyRejection {
    /// The body is invalid; the sender gets this error.
    Wrong(ApiError),
    /// No bytes were free in time: the sender should retry.
    NoRoom,
}

/// A complete body, and the charge for its bytes.
#[derive(Debug, Default)]
pub(crate) struct ReceivedBody {
    pub(crate) bytes: Bytes,
    _charge: Option<Charge>,
}

/// Reads the body of one request, and charges its bytes to an account as they arrive.
#[derive(Debug)]
pub(crate) struct IncomingBody {
    /// The account to which the body is charged.
    account: Arc<Account>,
    /// How long the body waits for free bytes.
    patience: Duration,
    quiet: Duration,
}

impl IncomingBody {
    pub(crate) fn new(account: Arc<Account>, patience: Duration) -> Self {
        Self {
            account,
            patience,
            quiet: QUIET,
        }
    }

    /// Reads a body within the allowed time.
    pub(crate) async fn read_body<B>(self, body: B) -> Result<ReceivedBody, BodyRejection>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        tokio::time::timeout(BODY, self.read_up_to_limit(body))
            .await
            .unwrap_or_else(|_| Err(BodyRejection::Wrong(late_body_error())))
    }

    /// Reads a body and stops at the limit. The length in the header has no effect.
    async fn read_up_to_limit<B>(self, body: B) -> Result<ReceivedBody, BodyRejection>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        let mut body = std::pin::pin!(body);
        let mut growing = Growing::new(self.account.clone());
        let mut charged = UNCHARGED;
        let mut gathered: Option<BytesMut> = None;
        let mut first: Option<Bytes> = None;
        while let Some(data) = self.next_part(body.as_mut(), &growing).await? {
            let so_far = gathered
                .as_ref()
                .map_or_else(|| first.as_ref().map_or(0, Bytes::len), BytesMut::len);
            let length = so_far + data.len();
            if length > MAX_BODY {
                return Err(BodyRejection::Wrong(ApiError::too_large(MAX_BODY)));
            }
            if length > charged {
                charged = length.next_power_of_two().min(MAX_BODY);
                if !growing.grow_within(charged, self.patience).await {
                    return Err(BodyRejection::NoRoom);
                }
            }
            match (&mut gathered, first.take()) {
                (None, None) => first = Some(data),
                (None, Some(head)) => gathered = Some(join_bytes(&head, &data, charged)),
                (Some(before), _) if before.capacity() < length => *before = join_bytes(before, &data, charged),
                (Some(before), _) => before.extend_from_slice(&data),
            }
        }
        let held = gathered.as_ref().map(BytesMut::capacity);
        let bytes = gathered.map(BytesMut::freeze).or(first).unwrap_or_default();
        let charge = growing.end_growth(held.unwrap_or(bytes.len()));
        Ok(ReceivedBody { bytes, _charge: charge })
    }

    /// Reads the next part of a body. While other bodies wait for free bytes, a silent sender gets less time.
    async fn next_part<B>(&self, mut body: Pin<&mut B>, growing: &Growing) -> Result<Option<Bytes>, BodyRejection>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        loop {
            let frame = if growing.is_empty() {
                body.frame().await
            } else {
                match tokio::time::timeout(self.quiet, body.frame()).await {
                    Ok(frame) => frame,
                    Err(_) if growing.is_short() => return Err(BodyRejection::Wrong(late_body_error())),
                    Err(_) => continue,
                }
            };
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| {
                let why = format!("the body could not be read: {error}");
                BodyRejection::Wrong(ApiError::bad_request(why))
            })?;
            // Trailers follow the data, and this server doesn't use them.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

fn too_dense(bytes: usize) -> ApiError {
    let message = format!(
        "the body of this request needs {} MiB of memory, more than the limit for all requests: split it into smaller requests",
        bytes >> 20
    );
    ApiError::new(413, "RequestEntityTooLarge", message)
}

fn late_body_error() -> ApiError {
    ApiError::new(408, "Timeout", "the request's body did not arrive in time")
}

fn join_bytes(before: &[u8], data: &[u8], capacity: usize) -> BytesMut {
    let mut joined = BytesMut::with_capacity(capacity);
    joined.extend_from_slice(before);
    joined.extend_from_slice(data);
    joined
}

/// The memory that the work on a request will need: its body, the values decoded from the body, its selectors, and the
/// stored object of the request.
#[derive(Debug)]
pub(crate) struct WorkingMemory {
    /// The body.
    taken: ReceivedBody,
    /// The stored object and the selectors of the request.
    asked: LargeParts,
    form: Form,
    /// Whether the stored object is in memory twice: before and after the change.
    changes: bool,
}

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    JsonPatch,
    Yaml,
    Protobuf,
}

impl Form {
    /// Returns the format by the same rule as decoding: an invalid type counts as JSON.
    fn from_headers(headers: &HeaderMap) -> Self {
        let form = headers.get(CONTENT_TYPE).and_then(|form| form.to_str().ok());
        let form = form.unwrap_or_default().split(';').next().unwrap_or_default();
        match form.trim().to_ascii_lowercase().as_str() {
            "application/vnd.kubernetes.protobuf" => Self::Protobuf,
            "application/json-patch+json" => Self::JsonPatch,
            form if form.contains("yaml") => Self::Yaml,
            _ => Self::Json,
        }
    }
}

impl WorkingMemory {
    /// Returns the memory need of a request with this body. `verb` tells whether a stored object is in memory twice,
    /// before and after the change.
    pub(crate) fn new(taken: ReceivedBody, asked: LargeParts, headers: &HeaderMap, verb: &str) -> Self {
        Self {
            taken,
            asked,
            form: Form::from_headers(headers),
            changes: verb == "patch",
        }
    }

    /// Checks whether the request is so small that it is not charged.
    pub(crate) fn is_light(&self) -> bool {
        let stored = self.asked.stored.as_ref().map_or(0, |entry| entry.bytes.len());
        self.taken.bytes.len() <= LIGHT && stored <= LIGHT && !self.asked.multiplies && self.asked.selectors == 0
    }

    /// Returns an upper bound for the size of the values decoded from the body.
    fn weigh_body(&self) -> usize {
        let body = &self.taken.bytes;
        match self.form {
            Form::Json | Form::JsonPatch => decoded_size::weigh_json(body),
            Form::Yaml => decoded_size::weigh_yaml(body),
            Form::Protobuf => decoded_size::weigh_protobuf(body),
        }
    }

    /// Returns an upper bound for the whole request, if the decoded body has the size `sent`.
    fn estimate_size(&self, sent: usize) -> usize {
        let body = &self.taken.bytes;
        let stored = self.asked.stored.as_ref();
        let stored = stored.map_or(0, |entry| decoded_size::weigh_json(&entry.bytes));
        let changed = match self.form {
            // A JSON patch can copy from the sent and from the stored values.
            Form::JsonPatch => decoded_size::weigh_copies(stored + sent, body),
            _ if self.changes => stored + sent,
            _ => 0,
        };
        body.len() + sent + stored + changed + self.asked.selectors
    }

    /// Returns the body once its decoded values are charged. The caller holds the returned charge until the work has
    /// ended. The charge of the body is released, as the new charge includes it.
    pub(crate) async fn charge_decoded(
        self,
        objects: &Arc<Account>,
        patience: Duration,
    ) -> Result<(Bytes, Option<Charge>), BodyRejection> {
        if self.is_light() {
            return Ok((self.taken.bytes, None));
        }
        let sent = self.weigh_body();
        // Only the body counts here: a stored object must stay reachable, however it was stored. YAML is left out,
        // because its weight is a guess.
        if self.form != Form::Yaml && objects.is_too_small(sent) {
            return Err(BodyRejection::Wrong(too_dense(sent)));
        }
        let charge = objects.charge_within(self.estimate_size(sent), patience).await;
        let charge = charge.ok_or(BodyRejection::NoRoom)?;
        Ok((self.taken.bytes, Some(charge)))
    }
}

#[cfg(test)]
mod tests;
