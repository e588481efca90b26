//! The used parts of a request to a Receiver, and the answer. A request is never printed: it may hold a token.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use serde::{Deserialize, Serialize};
use tenure_api::Receiver;
use tenure_tenancy::{Placement, ServiceAccount, identity, reference};

use super::HOOK_PREFIX;
use super::types::HookPath;
use crate::list_limits::RECEIVER_RESOURCES;

/// The headers that are used, in lower case; no other header is handed on.
pub const HEADERS: [&str; 10] = [
    "authorization",
    "content-type",
    "x-event-key",
    "x-github-event",
    "x-gitlab-event",
    "x-gitlab-token",
    "x-hub-signature",
    "x-hub-signature-256",
    "x-nexus-webhook-signature",
    "x-signature",
];

/// The longest body, in bytes (Flux's).
pub const WHOLE_BODY: usize = 3 << 20;

/// A complete HTTP request to a Receiver: its path, the used headers, and the body.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delivery {
    /// The path of the request.
    pub path: HookPath,
    /// The headers of the request that [`HEADERS`] names.
    pub headers: BTreeMap<String, String>,
    /// The body of the request.
    #[serde(serialize_with = "write_bytes", deserialize_with = "read_bytes")]
    pub body: Vec<u8>,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a request of {} bytes", self.body.len())
    }
}

fn write_bytes<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&base64::engine::general_purpose::STANDARD.encode(bytes))
}

fn read_bytes<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let decoded = base64::engine::general_purpose::STANDARD.decode(text);
    decoded.map_err(|_| serde::de::Error::custom("a body that is not base64"))
}

impl Delivery {
    pub(super) fn find_header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }

    /// Finds the media type without its parameters, in small letters.
    pub(super) fn find_media_type(&self) -> String {
        let whole = self.find_header("content-type");
        whole.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }
}

/// Returns the path of a request, if it can be a Receiver's: the prefix and 64 hexadecimal digits.
#[must_use]
pub fn name_path(path: &str) -> Option<HookPath> {
    let digest = path.strip_prefix(HOOK_PREFIX)?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (digest.len() == 64 && digest.bytes().all(is_digit)).then(|| HookPath(path.to_owned()))
}

/// The answer to a request. A client that can't prove knowledge of the token gets only [`Verdict::Unknown`] and [`Verdict::TooMany`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// All objects of the request were asked to reconcile.
    Done,
    /// No Receiver has this path, or the expected sender did not send the request.
    Unknown,
    /// The request is verified, but its event is not listened to, or can't be read.
    Refused,
    /// The request is verified, and the Receiver is suspended.
    Suspended,
    /// The request exceeds the allowed rate.
    TooMany,
    /// The request is verified, but some of its objects could not be asked. The log says why.
    Failed,
    /// The lane does not answer: the client may try again.
    Unavailable,
}

impl Verdict {
    /// Returns the status of the answer over HTTP, and its one line.
    #[must_use]
    pub fn describe(self) -> (u16, &'static str) {
        match self {
            Self::Done => (200, "done"),
            Self::Unknown => (404, "not found"),
            Self::Refused => (400, "this event is not listened to, or its body can't be read"),
            Self::Suspended => (503, "suspended"),
            Self::TooMany => (429, "too many requests"),
            Self::Failed => (500, "not everything could be asked to reconcile"),
            Self::Unavailable => (503, "not available"),
        }
    }
}

/// Finds the account that reads the token of a Receiver for a request, and the Secret that holds the token.
///
/// # Errors
/// The verdict to answer.
pub fn find_token_access(receiver: &Receiver, placement: &Placement) -> Result<(ServiceAccount, String), Verdict> {
    let (metadata, spec) = (&receiver.metadata, &receiver.spec);
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let is_going = metadata.deletion_timestamp.is_some();
    let secret = spec.secret_ref.as_ref().filter(|_| !is_going).ok_or(Verdict::Unknown)?;
    let account = identity::decide_for_source(placement, namespace).map_err(|_| Verdict::Unknown)?;
    Ok((account, secret.name.clone()))
}

/// The objects that one entry of `spec.resources` selects: one by name, or all with the labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookTarget<'a> {
    /// The index of the entry.
    pub entry: usize,
    /// The kind.
    pub kind: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The name. Without a name, the entry selects all objects with `labels`.
    pub name: Option<&'a str>,
    /// Labels.
    pub labels: &'a BTreeMap<String, String>,
}

impl HookTarget<'_> {
    /// Checks whether the entry selects an object with this name and these labels.
    #[must_use]
    pub fn is_meant(&self, name: &str, labels: Option<&BTreeMap<String, String>>) -> bool {
        match self.name {
            Some(own) => own == name,
            None if self.labels.len() > labels.map_or(0, BTreeMap::len) => false,
            None => self
                .labels
                .iter()
                .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value)),
        }
    }
}

/// Lists what the entries of `spec.resources` select. For an entry outside the Receiver's tenancy, returns the reason instead: the owner of a namespace can have
/// changed since the path was created.
pub fn list_sought<'a>(
    receiver: &'a Receiver,
    placement: &Placement,
) -> impl Iterator<Item = Result<HookTarget<'a>, String>> {
    let own = receiver.metadata.namespace.as_deref().unwrap_or_default();
    // A Receiver with more entries is invalid, and its status reports this.
    let resources = receiver.spec.resources.iter().take(RECEIVER_RESOURCES).enumerate();
    resources.map(move |(entry, resource)| {
        let target = (resource.kind.as_str(), resource.name.as_str());
        reference::check_receiver_resource(placement, own, resource.namespace.as_deref(), target)
            .map_err(|denial| denial.message)?;
        Ok(HookTarget {
            entry,
            kind: &resource.kind,
            namespace: resource.namespace.as_deref().unwrap_or(own),
            name: Some(resource.name.as_str()).filter(|name| *name != "*"),
            labels: &resource.match_labels,
        })
    })
}
