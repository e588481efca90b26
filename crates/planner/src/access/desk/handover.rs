//! Which requests go on beside the one of their entry that is acted on now, until it has taken their Secrets over.
//!
//! Owns that more is had without a moment of having nothing: what was approved before keeps its credential in each namespace until the one of the new request was
//! seen in use there, and as long as a source may still have what it fetched with it. Refuses to keep what nobody lets through any more, what would have
//! another form of Secret, and more than a few of one entry: who asks for something else every minute, with sources that never fetch, would collect credentials.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tenure_api::access::request::CredentialLedger;
use tenure_api::access::{FluxAccessRequest, FluxAccessRequestStatus};
use tenure_tenancy::access::approval::{Verdict, is_of_same_entry};

/// The most requests of one entry that go on beside the one that takes over from them.
pub const MOST_PREDECESSORS: usize = 4;

/// What others of the same entry look at in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Something of it lives at the host, or is being made.
    pub is_living: bool,
    /// Its current credential was seen in use.
    pub is_proven: bool,
    /// Uid of the Secret that was written for it.
    pub secret_uid: Option<String>,
}

/// What a request holds, by namespace.
#[must_use]
pub fn list_holdings(status: &FluxAccessRequestStatus) -> BTreeMap<String, Holding> {
    let ledgers = status.credentials.iter();
    ledgers
        .map(|ledger| (ledger.namespace.clone(), read_holding(ledger)))
        .collect()
}

/// Whether something of a credential lives at the host, or is being made.
#[must_use]
pub fn is_living(ledger: &CredentialLedger) -> bool {
    ledger.next.is_some() || ledger.current.is_some() || !ledger.retiring.is_empty()
}

fn read_holding(ledger: &CredentialLedger) -> Holding {
    let current = ledger.current.as_ref();
    Holding {
        is_living: is_living(ledger),
        is_proven: current.is_some_and(|held| held.verified_at.is_some()),
        secret_uid: ledger.secret_uid.clone(),
    }
}

/// The requests that go on until `heir`, which delivers to `deliveries`, has taken over from them, and where.
pub(super) fn list_predecessors<'a>(
    heir: &FluxAccessRequest,
    candidates: &[(&'a FluxAccessRequest, Verdict)],
    deliveries: &BTreeSet<String>,
) -> Vec<(&'a FluxAccessRequest, BTreeSet<String>)> {
    let is_let_through = |verdict: &Verdict| matches!(verdict, Verdict::Approved(_));
    let mut found: Vec<(&FluxAccessRequest, BTreeSet<String>)> = candidates
        .iter()
        .filter(|(request, verdict)| {
            is_let_through(verdict)
                && request.metadata.name != heir.metadata.name
                && request.spec.role == heir.spec.role
                && is_of_same_entry(&request.spec, &heir.spec)
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
