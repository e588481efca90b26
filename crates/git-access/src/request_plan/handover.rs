//! The requests that continue beside the current request of their entry, until that one has taken over their Secrets.
//!
//! An extended request must leave no gap. So an earlier approved request keeps its credential in each namespace until the new request's credential is seen in use
//! there, and while a source may still use the old value. Requests don't continue without an approval, or with another form of Secret. At most a few of one entry
//! continue. Otherwise an asker that changes the entry every minute, with sources that never fetch, would collect credentials.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tenure_api::access::request::CredentialLedger;
use tenure_api::access::{FluxAccessRequest, FluxAccessRequestStatus};
use tenure_tenancy::access::approval::{Verdict, is_of_same_entry};

/// The maximum of requests of one entry that continue beside their successor.
pub const MOST_PREDECESSORS: usize = 4;

/// The state of a request's credential in one namespace, by which earlier requests of the same entry decide whether they continue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryState {
    /// A credential of the request exists at the host, or is being made.
    pub is_living: bool,
    /// The current credential was seen in use.
    pub is_proven: bool,
    /// Uid of the Secret that was written for the request.
    pub secret_uid: Option<String>,
}

/// Returns the state of a request's credential in each namespace, by the namespace's name.
#[must_use]
pub fn list_holdings(status: &FluxAccessRequestStatus) -> BTreeMap<String, DeliveryState> {
    let ledgers = status.credentials.iter();
    ledgers
        .map(|ledger| (ledger.namespace.clone(), read_holding(ledger)))
        .collect()
}

/// Checks whether a credential in a ledger exists at the host, or is being made.
#[must_use]
pub fn is_living(ledger: &CredentialLedger) -> bool {
    ledger.next.is_some() || ledger.current.is_some() || !ledger.retiring.is_empty()
}

fn read_holding(ledger: &CredentialLedger) -> DeliveryState {
    let current = ledger.current.as_ref();
    DeliveryState {
        is_living: is_living(ledger),
        is_proven: current.is_some_and(|held| held.verified_at.is_some()),
        secret_uid: ledger.secret_uid.clone(),
    }
}

/// Lists the requests that continue until `successor`, which delivers to `deliveries`, has taken over from them, each with its namespaces.
pub(super) fn list_predecessors<'a>(
    successor: &FluxAccessRequest,
    candidates: &[(&'a FluxAccessRequest, Verdict)],
    deliveries: &BTreeSet<String>,
) -> Vec<(&'a FluxAccessRequest, BTreeSet<String>)> {
    let is_let_through = |verdict: &Verdict| matches!(verdict, Verdict::Approved(_));
    let mut found: Vec<(&FluxAccessRequest, BTreeSet<String>)> = candidates
        .iter()
        .filter(|(request, verdict)| {
            is_let_through(verdict)
                && request.metadata.name != successor.metadata.name
                && request.spec.role == successor.spec.role
                && is_of_same_entry(&request.spec, &successor.spec)
        })
        .map(|(request, _)| {
            let holdings = request.status.iter().flat_map(list_holdings);
            let living = holdings.filter(|(namespace, holding)| holding.is_living && deliveries.contains(namespace));
            (*request, living.map(|(namespace, _)| namespace).collect())
        })
        .filter(|(_, places): &(_, BTreeSet<String>)| !places.is_empty())
        .collect();
    let made = |request: &FluxAccessRequest| request.metadata.creation_timestamp.as_ref().map(|time| time.0);
    found.sort_by_key(|(request, _)| Reverse((made(request), request.metadata.name.clone())));
    found.truncate(MOST_PREDECESSORS);
    found
}
