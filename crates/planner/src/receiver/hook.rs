//! A request to a Receiver, as far as anybody looks at it, and what is answered. Refuses to be printed: it may hold a token.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use serde::{Deserialize, Serialize};
use tenure_api::Receiver;
use tenure_tenancy::{Placement, ServiceAccount, identity, reference};

use super::HOOK_PREFIX;
use super::types::HookPath;

/// The headers that are looked at, in small letters; no other is handed on.
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

/// A request, whole.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delivery {
    /// Its path.
    pub path: HookPath,
    /// Those of [`HEADERS`] that it has.
    pub headers: BTreeMap<String, String>,
    /// Its body.
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

    /// The media type without its parameters, in small letters.
    pub(super) fn find_media_type(&self) -> String {
        let whole = self.find_header("content-type");
        whole.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }
}

/// The path of a request, if it can be a Receiver's: the prefix and 64 hexadecimal digits.
#[must_use]
pub fn name_path(path: &str) -> Option<HookPath> {
    let digest = path.strip_prefix(HOOK_PREFIX)?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (digest.len() == 64 && digest.bytes().all(is_digit)).then(|| HookPath(path.to_owned()))
}

/// What is answered. Nobody who can't prove to know the token hears anything but [`Verdict::Unknown`] and [`Verdict::TooMany`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// All that it is about is asked to reconcile.
    Done,
    /// There is no Receiver at this path, or it was not sent by who it is for.
    Unknown,
    /// It is verified, and is not what is listened to, or can't be read.
    Refused,
    /// It is verified, and the Receiver is suspended.
    Suspended,
    /// More come than are taken.
    TooMany,
    /// It is verified, and not all that it is about could be asked. The log says why.
    Failed,
    /// Who could answer doesn't: it may come again.
    Unavailable,
}

impl Verdict {
    /// The status of the answer over HTTP, and its one line.
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

/// As whom the token of a Receiver is read for a request, and the Secret that holds it.
///
/// # Errors
/// What is answered.
pub fn admit(receiver: &Receiver, placement: &Placement) -> Result<(ServiceAccount, String), Verdict> {
    let (metadata, spec) = (&receiver.metadata, &receiver.spec);
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let is_going = metadata.deletion_timestamp.is_some();
    let secret = spec.secret_ref.as_ref().filter(|_| !is_going).ok_or(Verdict::Unknown)?;
    let account = identity::decide_for_source(placement, namespace).map_err(|_| Verdict::Unknown)?;
    Ok((account, secret.name.clone()))
}

/// Where to look for what an entry of `spec.resources` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sought<'a> {
    /// Which entry.
    pub entry: usize,
    /// The kind.
    pub kind: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The name; every one that bears the labels without it.
    pub name: Option<&'a str>,
    /// Labels.
    pub labels: &'a BTreeMap<String, String>,
}

impl Sought<'_> {
    /// Whether an object that bears these labels is meant.
    #[must_use]
    pub fn is_meant(&self, name: &str, labels: Option<&BTreeMap<String, String>>) -> bool {
        match self.name {
            Some(own) => own == name,
            None => self
                .labels
                .iter()
                .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value)),
        }
    }
}

/// What a Receiver names and may ask to reconcile, or why it may not: whose a namespace is can have changed since there is a path.
pub fn list_sought<'a>(
    receiver: &'a Receiver,
    placement: &Placement,
) -> impl Iterator<Item = Result<Sought<'a>, String>> {
    let own = receiver.metadata.namespace.as_deref().unwrap_or_default();
    let resources = receiver.spec.resources.iter().enumerate();
    resources.map(move |(entry, resource)| {
        let target = (resource.kind.as_str(), resource.name.as_str());
        reference::check_receiver_resource(placement, own, resource.namespace.as_deref(), target)
            .map_err(|denial| denial.message)?;
        Ok(Sought {
            entry,
            kind: &resource.kind,
            namespace: resource.namespace.as_deref().unwrap_or(own),
            name: Some(resource.name.as_str()).filter(|name| *name != "*"),
            labels: &resource.match_labels,
        })
    })
}
