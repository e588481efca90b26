//! All about one request. Owns how a ledger is told to people: with numbers, times and fingerprints.

use serde::Serialize;
use tenure_api::access::request::{CredentialLedger, CredentialPhase, HeldCredential, HistoryEntry};
use tenure_api::access::{FluxAccessRequest, FluxAccessRequestSpec};
use tenure_api::condition::Condition;
use tenure_api::time::Time;
use tenure_tenancy::access::readers::OtherReader;

use super::receivers::{self, Receiver};
use super::rows::{self, Row};
use super::{Looked, Seen};
use crate::access::audit::Readers;
use crate::access::order::{self, Written};
use crate::access::request::hash_spec;

/// A request, with all that is told of it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    /// As in the list.
    #[serde(flatten)]
    pub row: Row,
    /// What is asked for.
    pub spec: FluxAccessRequestSpec,
    /// The hash of the spec, computed.
    pub spec_hash: String,
    /// Whether that is what the spec says: else somebody else than the controllers wrote it.
    pub hash_matches: bool,
    /// Namespaces that it names or matches, and whether they would have the Secret.
    pub receivers: Told<Vec<Receiver>>,
    /// The same as the controllers have recorded it: for who may not read namespaces and Tenants.
    pub recorded_receivers: Recorded,
    /// Who comes to the Secret besides those that are meant, by namespace.
    pub readers: Vec<OtherReaders>,
    /// What was made.
    pub ledger: Vec<Credential>,
    /// Orders to replace it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<Written>,
    /// What happened last.
    pub history: Vec<HistoryEntry>,
    /// Conditions, as the controllers say.
    pub conditions: Vec<Condition>,
}

/// The namespaces that would have the Secret, as the status says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// Their names, a hundred at most.
    pub namespaces: Vec<String>,
    /// How many more there are.
    pub more: u32,
}

/// A part that may not be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Told<T> {
    /// It is.
    Known {
        /// What it is.
        known: T,
    },
    /// It isn't.
    Unknown {
        /// Why.
        unknown: String,
    },
}

impl<T> From<Looked<T>> for Told<T> {
    fn from(looked: Looked<T>) -> Self {
        match looked {
            Ok(known) => Self::Known { known },
            Err(unknown) => Self::Unknown { unknown },
        }
    }
}

/// Who comes to the Secret of a namespace besides those who are meant.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherReaders {
    /// The namespace.
    pub namespace: String,
    /// By RoleBindings.
    pub by_namespace: Told<Vec<Other>>,
    /// By ClusterRoleBindings, which aren't the namespace's to change.
    pub by_cluster: Told<Vec<Other>>,
}

/// Somebody who does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Other {
    /// Who.
    pub who: String,
    /// How.
    pub way: String,
    /// By which binding.
    pub binding: String,
}

impl OtherReaders {
    /// As they were found.
    #[must_use]
    pub fn of(namespace: &str, readers: Readers) -> Self {
        let tell = |found: Looked<Vec<OtherReader>>| {
            let told = found.map(|found| {
                let told = found.into_iter().map(|reader| Other {
                    way: reader.way.to_string(),
                    who: reader.who,
                    binding: reader.binding,
                });
                told.collect()
            });
            Told::from(told)
        };
        Self {
            namespace: namespace.to_owned(),
            by_namespace: tell(readers.by_namespace),
            by_cluster: tell(readers.by_cluster),
        }
    }
}

/// The credential of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    /// The namespace.
    pub namespace: String,
    /// `InUse`, `Intent`, `Minted`, `Staged`, `Distributed` or `None`: how far the newest one has come.
    pub phase: String,
    /// The one that the Secret holds, as far as the controllers have recorded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<One>,
    /// Those that were in use, and still work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retiring: Vec<One>,
    /// When it is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_rotation: Option<Time>,
    /// What went wrong last, and is not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Nothing is tried before then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
    /// Why it is about to be replaced, where somebody ordered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered: Option<String>,
}

/// One credential, without its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct One {
    /// The host's number of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Its name at the host.
    pub name: String,
    /// SHA-256 of its value, as hex.
    pub fingerprint: String,
    /// When it was begun.
    pub begun_at: Option<Time>,
    /// How old it is, in seconds.
    pub age_seconds: i64,
    /// When the host ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// When all sources were seen to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_at: Option<Time>,
    /// When it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retire_at: Option<Time>,
}

impl One {
    fn of(held: &HeldCredential, now: &Time) -> Self {
        Self {
            id: held.id,
            name: held.name.clone(),
            fingerprint: held.fingerprint.clone(),
            begun_at: Some(held.begun_at.clone()),
            age_seconds: now.0.duration_since(held.begun_at.0).as_secs().max(0),
            expires_at: held.expires_at.clone(),
            verified_at: held.verified_at.clone(),
            retire_at: held.retire_at.clone(),
        }
    }
}

/// Tells all about one. Who reads its Secrets is asked of RBAC in each namespace, so whoever looked brings it.
#[must_use]
pub fn describe(seen: &Seen, request: &FluxAccessRequest, readers: Vec<OtherReaders>) -> Detail {
    let spec_hash = hash_spec(&request.spec);
    let status = request.status.clone().unwrap_or_default();
    Detail {
        row: rows::describe(seen, request),
        hash_matches: spec_hash == request.spec.spec_hash,
        spec_hash,
        receivers: receivers::list(seen, request).into(),
        recorded_receivers: Recorded {
            namespaces: status.receivers,
            more: status.more_receivers,
        },
        readers,
        ledger: status
            .credentials
            .iter()
            .map(|ledger| tell(request, ledger, &seen.now))
            .collect(),
        orders: order::list_all(request.metadata.annotations.as_ref()),
        history: status.history,
        conditions: status.conditions,
        spec: request.spec.clone(),
    }
}

pub(super) fn name_phase(ledger: &CredentialLedger) -> &'static str {
    match (&ledger.next, &ledger.current) {
        (Some(next), _) => match next.phase {
            CredentialPhase::Intent => "Intent",
            CredentialPhase::Minted => "Minted",
            CredentialPhase::Staged => "Staged",
            CredentialPhase::Distributed => "Distributed",
        },
        (None, Some(_)) => "InUse",
        (None, None) => "None",
    }
}

fn tell(request: &FluxAccessRequest, ledger: &CredentialLedger, now: &Time) -> Credential {
    let handled = ledger.handled_order.as_deref();
    let order = order::find(request.metadata.annotations.as_ref(), &ledger.namespace, handled);
    Credential {
        namespace: ledger.namespace.clone(),
        phase: name_phase(ledger).to_owned(),
        current: ledger.current.as_ref().map(|held| One::of(held, now)),
        retiring: ledger.retiring.iter().map(|held| One::of(held, now)).collect(),
        next_rotation: rows::find_due(request, ledger),
        trouble: ledger
            .trouble
            .as_ref()
            .map(|trouble| format!("{}: {}", trouble.reason, trouble.message)),
        retry_at: ledger.retry_at.clone(),
        ordered: order.map(|order| order.cause),
    }
}
