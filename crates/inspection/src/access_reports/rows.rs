//! The list of requests, with one row for each. This module computes the time of the next replacement.

use jiff::SignedDuration;
use serde::Serialize;
use tenure_api::access::{FluxAccessRequest, Period};
use tenure_api::condition::{self, READY};
use tenure_api::time::Time;

use super::{ObservedFacts, State, name_asker, name_of, target_of};
use tenure_git_access::rotation::schedule;

/// The row of a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The name of the request.
    pub name: String,
    /// The state of the request.
    #[serde(flatten)]
    pub state: State,
    /// Name of the FluxAccessTarget.
    pub target: String,
    /// `project` or `group`.
    pub scope: String,
    /// The current path of the target, as far as is known.
    pub path: String,
    /// The role of the credential.
    pub role: String,
    /// The interval of replacement.
    pub rotate: String,
    /// Name of the Secret.
    pub secret_name: String,
    /// The user that requested the access.
    pub requested_by: String,
    /// The object and field of the entry that requests the access.
    pub asked_in: String,
    /// The Tenant of that namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The namespaces in the request, as written.
    pub namespaces: Vec<String>,
    /// The number of namespaces with a credential.
    pub delivered: usize,
    /// The creation time of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The earliest replacement of its credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_rotation: Option<Time>,
    /// The condition Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// The message of the condition Ready.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Returns the rows of all readable requests, sorted by name.
///
/// # Errors
/// The requests could not be read.
pub fn list(seen: &ObservedFacts) -> super::ReadResult<Vec<Row>> {
    let requests = seen.requests.as_ref().map_err(Clone::clone)?;
    let mut rows: Vec<Row> = requests.iter().map(|request| describe_row(seen, request)).collect();
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(rows)
}

/// Returns the row of one request.
#[must_use]
pub fn describe_row(seen: &ObservedFacts, request: &FluxAccessRequest) -> Row {
    let (spec, status) = (&request.spec, request.status.as_ref());
    let ledgers = || status.into_iter().flat_map(|status| &status.credentials);
    let ready = status.and_then(|status| condition::find(&status.conditions, READY));
    Row {
        name: name_of(request).to_owned(),
        state: seen.find_state(request),
        target: target_of(request),
        scope: spec.target.scope.clone(),
        path: status
            .and_then(|status| status.path.clone())
            .unwrap_or_else(|| spec.target.path.clone()),
        role: spec.role.clone(),
        rotate: spec.rotate.clone(),
        secret_name: spec.secret_name.clone(),
        requested_by: spec.requested_by.clone(),
        asked_in: name_asker(request),
        tenant: spec.asked_in.tenant.clone(),
        namespaces: spec.namespaces.clone(),
        delivered: ledgers().filter(|ledger| ledger.current.is_some()).count(),
        since: request.metadata.creation_timestamp.clone(),
        next_rotation: ledgers()
            .filter_map(|ledger| find_due(request, ledger))
            .min_by_key(|time| time.0),
        ready: ready.map(|ready| ready.status.as_str().to_owned()),
        message: ready.map(|ready| ready.message.clone()).unwrap_or_default(),
    }
}

/// Returns the time of the next planned replacement in a namespace. The time is by the local clock, because only the controllers know the host's clock.
pub(super) fn find_due(
    request: &FluxAccessRequest,
    ledger: &tenure_api::access::request::CredentialLedger,
) -> Option<Time> {
    let rotate: Period = request.spec.rotate.parse().ok()?;
    let uid = request.metadata.uid.as_deref()?;
    let held = ledger.current.as_ref()?;
    Some(Time(schedule::find_due_time(held, rotate, uid, SignedDuration::ZERO)))
}
