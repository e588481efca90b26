//! What people ask about access that is asked for: how each request stands ([`rows`]), all about one ([`detail`]), and why a Secret is there or isn't
//! ([`chain`]).
//!
//! Functions of what whoever asks could look at ([`Seen`]). Owns what is said, as data; how it is printed is the command's. Refuses values, which it is
//! never given, and to take what may not be looked at for what isn't there: each part says why it isn't known.

pub mod chain;
pub mod detail;
pub mod receivers;
pub mod rows;

use serde::Serialize;
use tenure_api::access::{AccessProvider, FluxAccessGrant, FluxAccessRequest, FluxAccessStandingGrant, name_target};
use tenure_api::time::Time;
use tenure_tenancy::access::approval::{Verdict, Word};

use self::receivers::Surrounding;
use super::answer::Answers;

/// A part that was looked at, or why it could not be.
pub type Looked<T> = Result<T, String>;

/// The word of a state that the controllers have recorded.
pub const APPROVED: &str = "Approved";
/// Somebody refused it.
pub const DENIED: &str = "Denied";
/// Nobody has answered.
pub const PENDING: &str = "Pending";
/// It was let through, and isn't any more.
pub const REVOKED: &str = "Revoked";

/// What was looked at.
#[derive(Clone, Debug)]
pub struct Seen {
    /// All requests of the platform namespace.
    pub requests: Looked<Vec<FluxAccessRequest>>,
    /// Grants there.
    pub grants: Looked<Vec<FluxAccessGrant>>,
    /// Standing grants there.
    pub standing: Looked<Vec<FluxAccessStandingGrant>>,
    /// AccessProviders there.
    pub providers: Looked<Vec<AccessProvider>>,
    /// Namespaces, and whose they are.
    pub surrounding: Looked<Surrounding>,
    /// The platform namespace.
    pub platform: String,
    /// Now.
    pub now: Time,
}

impl Seen {
    pub(super) fn find_provider(&self, name: &str) -> Looked<Option<&AccessProvider>> {
        let providers = self.providers.as_ref().map_err(Clone::clone)?;
        Ok(providers
            .iter()
            .find(|provider| provider.metadata.name.as_deref() == Some(name)))
    }

    /// How a request stands.
    #[must_use]
    pub fn judge(&self, request: &FluxAccessRequest) -> State {
        let recorded = request.status.as_ref().and_then(|status| status.state.clone());
        let (grants, standing) = match (&self.grants, &self.standing) {
            (Ok(grants), Ok(standing)) => (grants, standing),
            (Err(why), _) | (_, Err(why)) => {
                return State {
                    word: recorded.clone().unwrap_or_else(|| PENDING.to_owned()),
                    notes: vec![format!("grants could not be read: {why}")],
                    recorded,
                    ..State::default()
                };
            }
        };
        let answers = Answers {
            grants,
            standing,
            platform: &self.platform,
            now: &self.now,
        };
        let (word, said, notes) = match answers.judge(request) {
            Verdict::Approved(word) => (APPROVED, Some(word), Vec::new()),
            Verdict::Denied(word) => (DENIED, Some(word), Vec::new()),
            Verdict::Pending(notes) => {
                let was_approved = recorded
                    .as_deref()
                    .is_some_and(|state| [APPROVED, REVOKED].contains(&state));
                (if was_approved { REVOKED } else { PENDING }, None, notes)
            }
        };
        State {
            word: word.to_owned(),
            answer: said.map(Answered::from),
            notes,
            recorded,
        }
    }
}

/// How a request stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// `Pending`, `Approved`, `Denied` or `Revoked`.
    #[serde(rename = "state")]
    pub word: String,
    /// By whose word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answered>,
    /// Why answers that there are don't count, or aren't known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What the controllers have recorded, which is what is acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
}

/// Whose word it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answered {
    /// The FluxAccessGrant, or FluxAccessStandingGrant.
    pub object: String,
    /// Who wrote it.
    pub by: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Until when it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Time>,
    /// Whether it stands for more than one request.
    pub is_standing: bool,
}

impl From<Word> for Answered {
    fn from(word: Word) -> Self {
        Self {
            object: word.object,
            by: word.by,
            reason: word.reason,
            not_after: word.not_after,
            is_standing: word.is_standing,
        }
    }
}

/// Where a request is asked for, in words.
#[must_use]
pub fn name_asker(request: &FluxAccessRequest) -> String {
    let asked = &request.spec.asked_in;
    match asked.kind.as_str() {
        "Agent" => format!("agent {}", asked.name),
        _ => format!("FluxAccess {}/{}", asked.namespace, asked.name),
    }
}

/// The target that a request is about.
#[must_use]
pub fn target_of(request: &FluxAccessRequest) -> String {
    name_target(&request.spec.provider, request.spec.target.id)
}

fn name_of(request: &FluxAccessRequest) -> &str {
    request.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
