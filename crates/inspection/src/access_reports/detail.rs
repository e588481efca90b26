//! All facts about one request. A ledger is shown with numbers, times and fingerprints.

use serde::Serialize;
use tenure_api::access::request::{CredentialLedger, CredentialPhase, HeldCredential, HistoryEntry};
use tenure_api::access::{FluxAccessRequest, FluxAccessRequestSpec};
use tenure_api::condition::Condition;
use tenure_api::time::Time;
use tenure_tenancy::access::readers::OtherReader;

use super::receivers::{self, Receiver};
use super::rows::{self, Row};
use super::{ObservedFacts, ReadResult};
use crate::access_audit::Readers;
use tenure_git_access::request::hash_spec;
use tenure_git_access::rotation_order::{self, RotationOrder};

/// A request with all its facts.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    /// The row in the list.
    #[serde(flatten)]
    pub row: Row,
    /// The spec of the request.
    pub spec: FluxAccessRequestSpec,
    /// The computed hash of the spec.
    pub spec_hash: String,
    /// True if the hash equals the recorded one. Otherwise another writer than the controllers wrote the spec.
    pub hash_matches: bool,
    /// The namespaces that the request names or matches, each with whether it would have the Secret.
    pub receivers: MaybeUnknown<Vec<Receiver>>,
    /// The namespaces as the controllers recorded them, for users that may not read namespaces and Tenants.
    pub recorded_receivers: RecordedNamespaces,
    /// The subjects that can get the Secret besides the intended ones, by namespace.
    pub readers: Vec<OtherReaders>,
    /// The credentials.
    pub ledger: Vec<Credential>,
    /// Orders to replace the credential.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<RotationOrder>,
    /// The last occurrences.
    pub history: Vec<HistoryEntry>,
    /// Conditions, as the controllers set them.
    pub conditions: Vec<Condition>,
}

/// The namespaces that would have the Secret, from the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedNamespaces {
    /// The first hundred names.
    pub namespaces: Vec<String>,
    /// The number of further namespaces.
    pub more: u32,
}

/// A part that may be unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum MaybeUnknown<T> {
    /// The part is known.
    Known {
        /// The content.
        known: T,
    },
    /// The part is unknown.
    Unknown {
        /// The reason.
        unknown: String,
    },
}

impl<T> From<ReadResult<T>> for MaybeUnknown<T> {
    fn from(looked: ReadResult<T>) -> Self {
        match looked {
            Ok(known) => Self::Known { known },
            Err(unknown) => Self::Unknown { unknown },
        }
    }
}

/// The subjects that can get the Secret of a namespace besides the intended ones.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherReaders {
    /// The namespace.
    pub namespace: String,
    /// Subjects with RoleBindings.
    pub by_namespace: MaybeUnknown<Vec<SecretReader>>,
    /// Subjects with ClusterRoleBindings, which the namespace's owners can't change.
    pub by_cluster: MaybeUnknown<Vec<SecretReader>>,
}

/// A subject that can get the Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretReader {
    /// The subject.
    pub who: String,
    /// The way to the Secret.
    pub way: String,
    /// The binding.
    pub binding: String,
}

impl OtherReaders {
    /// Converts the readers that were found.
    #[must_use]
    pub fn from_readers(namespace: &str, readers: Readers) -> Self {
        let convert_readers = |found: ReadResult<Vec<OtherReader>>| {
            let readers = found.map(|found| {
                let readers = found.into_iter().map(|reader| SecretReader {
                    way: reader.way.to_string(),
                    who: reader.who,
                    binding: reader.binding,
                });
                readers.collect()
            });
            MaybeUnknown::from(readers)
        };
        Self {
            namespace: namespace.to_owned(),
            by_namespace: convert_readers(readers.by_namespace),
            by_cluster: convert_readers(readers.by_cluster),
        }
    }
}

/// The credential of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    /// The namespace.
    pub namespace: String,
    /// The phase of the newest credential: `InUse`, `Intent`, `Minted`, `Staged`, `Distributed` or `None`.
    pub phase: String,
    /// The credential in the Secret, as far as the controllers have recorded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<CredentialDetail>,
    /// Earlier credentials that still work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retiring: Vec<CredentialDetail>,
    /// The time of the replacement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_rotation: Option<Time>,
    /// The last failure, if it is not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The time of the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
    /// The cause of an ordered replacement that is still to come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered: Option<String>,
}

/// One credential, without its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialDetail {
    /// The host's number of the credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The name at the host.
    pub name: String,
    /// SHA-256 of the value, as hex.
    pub fingerprint: String,
    /// The start of the credential.
    pub begun_at: Option<Time>,
    /// The age in seconds.
    pub age_seconds: i64,
    /// The time at which the host ends the credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// The time at which all sources were seen to use the credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_at: Option<Time>,
    /// The time of the revocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retire_at: Option<Time>,
}

impl CredentialDetail {
    fn from_held(held: &HeldCredential, now: &Time) -> Self {
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

/// Returns all facts about one request. The caller finds the readers of its Secrets with RBAC in each namespace, and passes them.
#[must_use]
pub fn describe_request(seen: &ObservedFacts, request: &FluxAccessRequest, readers: Vec<OtherReaders>) -> Detail {
    let spec_hash = hash_spec(&request.spec);
    let status = request.status.clone().unwrap_or_default();
    Detail {
        row: rows::describe_row(seen, request),
        hash_matches: spec_hash == request.spec.spec_hash,
        spec_hash,
        receivers: receivers::list(seen, request).into(),
        recorded_receivers: RecordedNamespaces {
            namespaces: status.receivers,
            more: status.more_receivers,
        },
        readers,
        ledger: status
            .credentials
            .iter()
            .map(|ledger| describe_credential(request, ledger, &seen.now))
            .collect(),
        orders: rotation_order::list_all(request.metadata.annotations.as_ref()),
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

fn describe_credential(request: &FluxAccessRequest, ledger: &CredentialLedger, now: &Time) -> Credential {
    let handled = ledger.handled_order.as_deref();
    let order = rotation_order::find(request.metadata.annotations.as_ref(), &ledger.namespace, handled);
    Credential {
        namespace: ledger.namespace.clone(),
        phase: name_phase(ledger).to_owned(),
        current: ledger
            .current
            .as_ref()
            .map(|held| CredentialDetail::from_held(held, now)),
        retiring: ledger
            .retiring
            .iter()
            .map(|held| CredentialDetail::from_held(held, now))
            .collect(),
        next_rotation: rows::find_due(request, ledger),
        trouble: ledger
            .trouble
            .as_ref()
            .map(|trouble| format!("{}: {}", trouble.reason, trouble.message)),
        retry_at: ledger.retry_at.clone(),
        ordered: order.map(|order| order.cause),
    }
}
