//! The verification of a request: did the expected sender send it, and does the Receiver listen to its event? The rules are Flux's, type by type. The time of a
//! comparison doesn't depend on the correct part of a guess. An empty token is refused, because some hosts' own libraries accept every sender with it.

use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use serde::Deserialize;
use subtle::ConstantTimeEq as _;
use tenure_api::Receiver;

use super::hook::{Delivery, Verdict};
use super::types::HookPath;
use super::{filter, find_path};

/// The sender of a Receiver's requests (`spec.type`), which decides how a request is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Generic,
    GenericHmac,
    GitHub,
    GitLab,
    Bitbucket,
    Harbor,
    DockerHub,
    Quay,
    Nexus,
}

const SENDERS: [(&str, Sender); 9] = [
    ("generic", Sender::Generic),
    ("generic-hmac", Sender::GenericHmac),
    ("github", Sender::GitHub),
    ("gitlab", Sender::GitLab),
    ("bitbucket", Sender::Bitbucket),
    ("harbor", Sender::Harbor),
    ("dockerhub", Sender::DockerHub),
    ("quay", Sender::Quay),
    ("nexus", Sender::Nexus),
];

impl Sender {
    /// Reads the kind from the spec's word.
    pub(super) fn read(name: &str) -> Option<Self> {
        let found = SENDERS.iter().find(|(known, _)| *known == name);
        found.map(|(_, sender)| *sender)
    }

    /// Lists all words.
    pub(super) fn list_names() -> String {
        SENDERS.map(|(name, _)| name).join(", ")
    }

    /// Returns the header that names the event, for senders that have one.
    fn find_event_header(self) -> Option<&'static str> {
        match self {
            // Gitea sends GitHub's header.
            Self::GitHub => Some("x-github-event"),
            Self::GitLab => Some("x-gitlab-event"),
            Self::Bitbucket => Some("x-event-key"),
            Self::Generic | Self::GenericHmac | Self::Harbor | Self::DockerHub | Self::Quay | Self::Nexus => None,
        }
    }
}

/// Verifies a request with the present token.
///
/// # Errors
/// The verdict to answer.
pub fn verify_request(receiver: &Receiver, delivery: &Delivery, token: &[u8]) -> Result<(), Verdict> {
    let sender = Sender::read(&receiver.spec.type_).ok_or(Verdict::Unknown)?;
    // A token that was taken back opens nothing, not even until the path of the next one is known.
    if token.is_empty() || !is_path_of(&delivery.path, token, receiver) {
        return Err(Verdict::Unknown);
    }
    if !is_sent_by(sender, delivery, token) {
        return Err(Verdict::Unknown);
    }
    if receiver.spec.suspend {
        return Err(Verdict::Suspended);
    }
    if !has_body_of(sender, delivery) || !filter::is_readable(&receiver.spec, delivery) {
        return Err(Verdict::Refused);
    }
    let events = &receiver.spec.events;
    match sender.find_event_header().map(|header| delivery.find_header(header)) {
        Some(event) if !events.is_empty() && !events.iter().any(|known| is_same_word(known, event)) => {
            Err(Verdict::Refused)
        }
        _ => Ok(()),
    }
}

/// Checks whether a path follows from the token.
#[must_use]
pub fn is_path_of(path: &HookPath, token: &[u8], receiver: &Receiver) -> bool {
    is_same(path.as_str(), find_path(token, receiver).as_str().as_bytes())
}

/// Checks whether the request proves that its sender knows the token. Some types prove nothing: there, knowledge of the path counts.
fn is_sent_by(sender: Sender, delivery: &Delivery, token: &[u8]) -> bool {
    let header = |name| delivery.find_header(name);
    match sender {
        Sender::Generic | Sender::DockerHub | Sender::Quay => true,
        Sender::GenericHmac => is_signed(header("x-signature"), &delivery.body, token),
        Sender::GitHub | Sender::Bitbucket => {
            let signature = match header("x-hub-signature-256") {
                "" => header("x-hub-signature"),
                signature => signature,
            };
            is_signed(signature, &delivery.body, token)
        }
        Sender::GitLab => is_same(header("x-gitlab-token"), token),
        Sender::Harbor => is_same(header("authorization"), token),
        Sender::Nexus => {
            let code = hex::encode(compute_mac::<Hmac<sha1::Sha1>>(&delivery.body, token));
            is_same(header("x-nexus-webhook-signature"), code.as_bytes())
        }
    }
}

fn is_same(given: &str, wanted: &[u8]) -> bool {
    given.as_bytes().ct_eq(wanted).into()
}

/// Checks whether `algorithm=hexadecimal` is the code of a body.
fn is_signed(signature: &str, body: &[u8], token: &[u8]) -> bool {
    let Some((algorithm, code)) = signature.split_once('=') else {
        return false;
    };
    let Ok(given) = hex::decode(code) else { return false };
    let wanted = match algorithm {
        "sha1" => compute_mac::<Hmac<sha1::Sha1>>(body, token),
        "sha256" => compute_mac::<Hmac<sha2::Sha256>>(body, token),
        "sha512" => compute_mac::<Hmac<sha2::Sha512>>(body, token),
        _ => return false,
    };
    given.ct_eq(&wanted).into()
}

/// Computes the authentication code of a body, which needs the token.
fn compute_mac<M: Mac + KeyInit>(body: &[u8], token: &[u8]) -> Vec<u8> {
    match <M as KeyInit>::new_from_slice(token) {
        Ok(mac) => mac.chain_update(body).finalize().into_bytes().to_vec(),
        // HMAC takes keys of any length, so this can't fail.
        Err(_) => Vec::new(),
    }
}

/// Compares two words without regard to case.
fn is_same_word(known: &str, event: &str) -> bool {
    known.to_lowercase() == event.to_lowercase()
}

/// Checks whether the body has the form of this sender's requests.
fn has_body_of(sender: Sender, delivery: &Delivery) -> bool {
    let is_form = || delivery.find_media_type() == "application/x-www-form-urlencoded";
    match sender {
        Sender::Generic | Sender::GenericHmac | Sender::GitLab | Sender::Harbor => true,
        Sender::GitHub | Sender::Bitbucket => delivery.find_media_type() == "application/json" || is_form(),
        Sender::DockerHub => is_json::<DockerHubBody>(delivery),
        Sender::Quay => is_json::<QuayBody>(delivery),
        Sender::Nexus => is_json::<NexusBody>(delivery),
    }
}

fn is_json<'a, T: Deserialize<'a>>(delivery: &'a Delivery) -> bool {
    serde_json::from_slice::<T>(&delivery.body).is_ok()
}

/// The part of Docker Hub's body that is read.
#[derive(Deserialize)]
struct DockerHubBody {
    #[serde(rename = "push_data")]
    _push_data: Option<DockerHubPush>,
    #[serde(rename = "repository")]
    _repository: Option<DockerHubRepository>,
}

#[derive(Deserialize)]
struct DockerHubPush {
    #[serde(rename = "tag")]
    _tag: Option<String>,
}

#[derive(Deserialize)]
struct DockerHubRepository {
    #[serde(rename = "repo_url")]
    _url: Option<String>,
}

/// The used part of Quay's body.
#[derive(Deserialize)]
struct QuayBody {
    #[serde(rename = "docker_url")]
    _url: Option<String>,
    #[serde(rename = "updated_tags")]
    _tags: Option<Vec<String>>,
}

/// The used part of Nexus' body.
#[derive(Deserialize)]
struct NexusBody {
    #[serde(rename = "action")]
    _action: Option<String>,
    #[serde(rename = "repositoryName")]
    _repository: Option<String>,
}
