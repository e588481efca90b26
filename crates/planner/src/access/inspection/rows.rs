//! Requests as a list: a row each. Owns what is the next time at which something of one is replaced.

use jiff::SignedDuration;
use serde::Serialize;
use tenure_api::access::{FluxAccessRequest, Period};
use tenure_api::condition::{self, READY};
use tenure_api::time::Time;

use super::{Seen, State, name_asker, name_of, target_of};
use crate::access::rotation::schedule;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its name.
    pub name: String,
    /// How it stands.
    #[serde(flatten)]
    pub state: State,
    /// Name of the FluxAccessTarget.
    pub target: String,
    /// `project` or `group`.
    pub scope: String,
    /// The path that the target has now, as far as anybody knows.
    pub path: String,
    /// What for.
    pub role: String,
    /// How often it is replaced.
    pub rotate: String,
    /// Name of the Secret.
    pub secret_name: String,
    /// Who asks.
    pub requested_by: String,
    /// Where it is asked for.
    pub asked_in: String,
    /// The Tenant whose namespace that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Namespaces that are asked for, as they were written.
    pub namespaces: Vec<String>,
    /// How many namespaces hold a credential.
    pub delivered: usize,
    /// Since when it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// When the first of its credentials is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_rotation: Option<Time>,
    /// The condition Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// What it says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The rows of all requests that could be looked at, by their names.
///
/// # Errors
/// Requests could not be looked at.
pub fn list(seen: &Seen) -> super::Looked<Vec<Row>> {
    let requests = seen.requests.as_ref().map_err(Clone::clone)?;
    let mut rows: Vec<Row> = requests.iter().map(|request| describe(seen, request)).collect();
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(rows)
}

/// The row of one.
#[must_use]
pub fn describe(seen: &Seen, request: &FluxAccessRequest) -> Row {
    let (spec, status) = (&request.spec, request.status.as_ref());
    let ledgers = || status.into_iter().flat_map(|status| &status.credentials);
    let ready = status.and_then(|status| condition::find(&status.conditions, READY));
    Row {
        name: name_of(request).to_owned(),
        state: seen.judge(request),
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

/// When the credential of a namespace is replaced, if nothing else happens. By the clock here: what the host's is, only the controllers know.
pub(super) fn find_due(
    request: &FluxAccessRequest,
    ledger: &tenure_api::access::request::CredentialLedger,
) -> Option<Time> {
    let rotate: Period = request.spec.rotate.parse().ok()?;
    let uid = request.metadata.uid.as_deref()?;
    let held = ledger.current.as_ref()?;
    Some(Time(schedule::due(held, rotate, uid, SignedDuration::ZERO)))
}
