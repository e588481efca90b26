//! Answers to users about access requests: the state of each request ([`rows`]), all facts about one ([`detail`]), and the reason why a Secret exists or is missing
//! ([`chain`]).
//!
//! All functions work on the facts that the user may read ([`ObservedFacts`]), and return data. The command prints the data. The facts contain no values. A part that the
//! user may not read is not reported as missing: each such part has the reason why it is unknown.

pub mod chain;
pub mod detail;
pub mod receivers;
pub mod rows;

use serde::Serialize;
use tenure_api::access::{AccessProvider, FluxAccessGrant, FluxAccessRequest, FluxAccessStandingGrant, name_target};
use tenure_api::time::Time;
use tenure_tenancy::access::approval::{ApproverAnswer, Verdict};

use self::receivers::KnownPlacements;
use tenure_git_access::answer::Answers;

/// A part that was read, or the reason why not.
pub type ReadResult<T> = Result<T, String>;

/// The state of an approved request, as the controllers record it.
pub const APPROVED: &str = "Approved";
/// The state of a denied request.
pub const DENIED: &str = "Denied";
/// The state of a request without an answer.
pub const PENDING: &str = "Pending";
/// The state of a request that was approved earlier, and no longer is.
pub const REVOKED: &str = "Revoked";

/// The access objects, namespaces and Tenants that a command read. An unreadable part has its reason.
#[derive(Clone, Debug)]
pub struct ObservedFacts {
    /// All requests of the platform namespace.
    pub requests: ReadResult<Vec<FluxAccessRequest>>,
    /// Grants in the platform namespace.
    pub grants: ReadResult<Vec<FluxAccessGrant>>,
    /// Standing grants in the platform namespace.
    pub standing_grants: ReadResult<Vec<FluxAccessStandingGrant>>,
    /// AccessProviders in the platform namespace.
    pub providers: ReadResult<Vec<AccessProvider>>,
    /// Namespaces and their tenants.
    pub surrounding: ReadResult<KnownPlacements>,
    /// The platform namespace.
    pub platform: String,
    /// The current time.
    pub now: Time,
}

impl ObservedFacts {
    pub(super) fn find_provider(&self, name: &str) -> ReadResult<Option<&AccessProvider>> {
        let providers = self.providers.as_ref().map_err(Clone::clone)?;
        Ok(providers
            .iter()
            .find(|provider| provider.metadata.name.as_deref() == Some(name)))
    }

    /// Returns the state of a request.
    #[must_use]
    pub fn find_state(&self, request: &FluxAccessRequest) -> State {
        let recorded = request.status.as_ref().and_then(|status| status.state.clone());
        let (grants, standing_grants) = match (&self.grants, &self.standing_grants) {
            (Ok(grants), Ok(standing_grants)) => (grants, standing_grants),
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
            standing_grants,
            platform: &self.platform,
            now: &self.now,
        };
        let (word, answer, notes) = match answers.judge(request) {
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
            answer: answer.map(RequestAnswer::from),
            notes,
            recorded,
        }
    }
}

/// The state of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// `Pending`, `Approved`, `Denied` or `Revoked`.
    #[serde(rename = "state")]
    pub word: String,
    /// The answer that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<RequestAnswer>,
    /// The reasons why existing answers don't count or are unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The state that the controllers have recorded, on which they act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
}

/// An answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestAnswer {
    /// The FluxAccessGrant, or FluxAccessStandingGrant.
    pub object: String,
    /// The author.
    pub by: String,
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The end of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Time>,
    /// True if the answer applies to more than one request.
    pub is_standing: bool,
}

impl From<ApproverAnswer> for RequestAnswer {
    fn from(word: ApproverAnswer) -> Self {
        Self {
            object: word.object,
            by: word.by,
            reason: word.reason,
            not_after: word.not_after,
            is_standing: word.is_standing,
        }
    }
}

/// Returns the place of a request's entry, in words.
#[must_use]
pub fn name_asker(request: &FluxAccessRequest) -> String {
    let asked = &request.spec.asked_in;
    match asked.kind.as_str() {
        "Agent" => format!("agent {}", asked.name),
        _ => format!("FluxAccess {}/{}", asked.namespace, asked.name),
    }
}

/// Returns the name of a request's target.
#[must_use]
pub fn target_of(request: &FluxAccessRequest) -> String {
    name_target(&request.spec.provider, request.spec.target.id)
}

fn name_of(request: &FluxAccessRequest) -> &str {
    request.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
