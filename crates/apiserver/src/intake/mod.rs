//! What requests hold in memory: their bodies while they arrive, and what is made of them.
//!
//! Owns how much of both there may be ([`IntakeBounds`]), how a body is taken in ([`Arriving`]), and what the values weigh that are made of
//! it and of what is stored ([`Burden`]). Both wait for room before they take it. Refuses bodies that are too large or too late, whatever
//! finds no room in time, and to know what a body says.
//!
//! ```text
//!  body ─▶ charged as it arrives ─▶ weighed ─▶ values charged (waits for room) ─▶ body given back ─▶ work ─▶ values given back
//! ```
//!
//! The two have ledgers of their own: what waits for room for its values holds a body, and nothing that those wait for who have such room.

mod weight;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;

use crate::asked::Asked;
use crate::http::ApiError;
use crate::http::body::MAX_BODY;
use crate::ledger::{Account, Charge, Growing};

/// How long a body may take to arrive.
const BODY: Duration = Duration::from_secs(30);
/// How long its sender may send nothing while there is hardly any room left.
const QUIET: Duration = Duration::from_secs(2);
/// So much of a body is not charged: a request that is worked on has as much beside it.
const UNCHARGED: usize = 16 * 1024;
/// What is made of a body, or of a stored object, up to this size is not charged either.
const LIGHT: usize = 4 * 1024;

/// How much requests may hold. ServiceAccounts of one namespace are one user.
#[derive(Debug, Clone)]
pub struct IntakeBounds {
    /// Bytes of the bodies of one user's requests, from their arrival until there is room for what is made of them.
    pub user_body_bytes: usize,
    /// The same of all bodies.
    pub total_body_bytes: usize,
    /// Bytes that objects take in memory while one user's requests are worked on: those that were sent, and those that they change.
    pub user_object_bytes: usize,
    /// The same of all objects.
    pub total_object_bytes: usize,
}

impl Default for IntakeBounds {
    fn default() -> Self {
        Self {
            user_body_bytes: 16 << 20,
            total_body_bytes: 64 << 20,
            user_object_bytes: 64 << 20,
            total_object_bytes: 192 << 20,
        }
    }
}

/// Why a body was not taken in.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// Its sender is told what is wrong with it.
    Wrong(ApiError),
    /// There was no room for it in time: it should come again.
    NoRoom,
}

/// A body that is all there, and what is charged for it.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) bytes: Bytes,
    _charge: Option<Charge>,
}

/// Takes in a body.
#[derive(Debug)]
pub(crate) struct Arriving {
    /// Where it is charged.
    account: Arc<Account>,
    /// How long it waits for room.
    patience: Duration,
    quiet: Duration,
}

impl Arriving {
    pub(crate) fn new(account: Arc<Account>, patience: Duration) -> Self {
        Self {
            account,
            patience,
            quiet: QUIET,
        }
    }

    /// Takes in a body, in the time that it has.
    pub(crate) async fn take<B>(self, body: B) -> Result<Taken, NotTaken>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        tokio::time::timeout(BODY, self.gather(body))
            .await
            .unwrap_or_else(|_| Err(NotTaken::Wrong(late())))
    }

    /// Reads a body and stops at the limit, however long it claims to be.
    async fn gather<B>(self, body: B) -> Result<Taken, NotTaken>
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
                return Err(NotTaken::Wrong(ApiError::too_large(MAX_BODY)));
            }
            if length > charged {
                charged = length.next_power_of_two().min(MAX_BODY);
                if !growing.grow_within(charged, self.patience).await {
                    return Err(NotTaken::NoRoom);
                }
            }
            match (&mut gathered, first.take()) {
                (None, None) => first = Some(data),
                (None, Some(head)) => gathered = Some(joined(&head, &data, charged)),
                (Some(before), _) if before.capacity() < length => *before = joined(before, &data, charged),
                (Some(before), _) => before.extend_from_slice(&data),
            }
        }
        let held = gathered.as_ref().map(BytesMut::capacity);
        let bytes = gathered.map(BytesMut::freeze).or(first).unwrap_or_default();
        let charge = growing.end(held.unwrap_or(bytes.len()));
        Ok(Taken { bytes, _charge: charge })
    }

    /// The next part of a body. Who sends nothing while others wait for the room that it holds is not waited for as long.
    async fn next_part<B>(&self, mut body: Pin<&mut B>, growing: &Growing) -> Result<Option<Bytes>, NotTaken>
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
                    Err(_) if growing.is_short() => return Err(NotTaken::Wrong(late())),
                    Err(_) => continue,
                }
            };
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| {
                let why = format!("the body could not be read: {error}");
                NotTaken::Wrong(ApiError::bad_request(why))
            })?;
            // What is no data comes after it, and says nothing here.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

fn too_dense(bytes: usize) -> ApiError {
    let message = format!(
        "the body of this request comes to {} MiB in memory, which is more than there is for all requests: send less at once",
        bytes >> 20
    );
    ApiError::new(413, "RequestEntityTooLarge", message)
}

fn late() -> ApiError {
    ApiError::new(408, "Timeout", "the request's body did not arrive in time")
}

fn joined(before: &[u8], data: &[u8], capacity: usize) -> BytesMut {
    let mut joined = BytesMut::with_capacity(capacity);
    joined.extend_from_slice(before);
    joined.extend_from_slice(data);
    joined
}

/// What the work on a request will hold: its body, and what is made of that and of the stored object that it is about.
#[derive(Debug)]
pub(crate) struct Burden {
    taken: Taken,
    asked: Asked,
    form: Form,
    changes: bool,
}

/// How a body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    JsonPatch,
    Yaml,
    Protobuf,
}

impl Form {
    /// As it is told for decoding: a type that is not one is taken for JSON.
    fn of(headers: &HeaderMap) -> Self {
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

impl Burden {
    /// What a request with this body will hold. `verb` says whether a stored object is there twice, before and after.
    pub(crate) fn new(taken: Taken, asked: Asked, headers: &HeaderMap, verb: &str) -> Self {
        Self {
            taken,
            asked,
            form: Form::of(headers),
            changes: verb == "patch",
        }
    }

    /// Whether it is so little that it is not charged.
    pub(crate) fn is_light(&self) -> bool {
        let stored = self.asked.stored.as_ref().map_or(0, |entry| entry.bytes.len());
        self.taken.bytes.len() <= LIGHT && stored <= LIGHT && !self.asked.multiplies
    }

    /// The bytes that its body comes to, at most.
    fn weigh_body(&self) -> usize {
        let body = &self.taken.bytes;
        match self.form {
            Form::Json | Form::JsonPatch => weight::weigh_json(body),
            Form::Yaml => weight::weigh_yaml(body),
            Form::Protobuf => weight::weigh_protobuf(body),
        }
    }

    /// The bytes that it comes to, at most, with a body of which this is made.
    fn weigh(&self, sent: usize) -> usize {
        let body = &self.taken.bytes;
        let stored = self.asked.stored.as_ref();
        let stored = stored.map_or(0, |entry| weight::weigh_json(&entry.bytes));
        let changed = match self.form {
            // What is copied may come from either.
            Form::JsonPatch => weight::weigh_copies(stored + sent, body),
            _ if self.changes => stored + sent,
            _ => 0,
        };
        body.len() + sent + stored + changed
    }

    /// The body, once there is room for what is made of it. That room is to be held until the work on it has ended; the body's own
    /// is given back, as it is a part of that.
    pub(crate) async fn lift(
        self,
        objects: &Arc<Account>,
        patience: Duration,
    ) -> Result<(Bytes, Option<Charge>), NotTaken> {
        if self.is_light() {
            return Ok((self.taken.bytes, None));
        }
        let sent = self.weigh_body();
        // Of the body only, as what is stored must be within reach, however it came there; and not where its weight is a guess.
        if self.form != Form::Yaml && objects.is_too_small(sent) {
            return Err(NotTaken::Wrong(too_dense(sent)));
        }
        let charge = objects.charge_within(self.weigh(sent), patience).await;
        let charge = charge.ok_or(NotTaken::NoRoom)?;
        Ok((self.taken.bytes, Some(charge)))
    }
}

#[cfg(test)]
mod tests;
