//! How a GitRepository is reconciled: asked at its interval, fetched with a Secret that is read as the namespace's identity.
//!
//! Tenure puts no finalizer on it: an artifact that nobody refers to is collected from the store without one.

mod ending;
mod types;

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::git_repository::GitRepositoryRef;
use tenure_api::metadata::FLUX_FINALIZER;
use tenure_api::{GitRepositorySpec, GitRepositoryStatus, reason};
use tenure_tenancy::{DenialReason, Placement, ServiceAccount, identity};

pub use types::{Attempt, FetchFailure, FetchReason, FetchRequest, Fetched, Memory, Snapshot, Step};

use crate::ending::add_duration;
use crate::plan::{FinalizerChange, Next, Withheld};

/// A plan for a GitRepository.
pub type Plan = crate::plan::Plan<Step, ServiceAccount, GitRepositoryStatus, Memory>;

/// How long a fetch may take when the spec does not say (Flux's).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that a fetch may take: a longer one would hold a place of its lane for hours.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);
/// The first pause after a failed fetch; doubled up to the interval.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// What admission found out.
struct Admitted {
    identity: Option<ServiceAccount>,
    interval: Duration,
    timeout: Duration,
}

/// What to do about a GitRepository.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let metadata = &snapshot.repository.metadata;
    let mut plan = Plan::idle(ending::name_subject(snapshot), snapshot.memory.clone());
    if metadata.deletion_timestamp.is_some() {
        // One that Flux put there.
        if metadata
            .finalizers
            .iter()
            .flatten()
            .any(|finalizer| finalizer == FLUX_FINALIZER)
        {
            plan.finalizer = Some(FinalizerChange::Remove(FLUX_FINALIZER.to_owned()));
        }
        plan.next = Next::Forget;
        return plan;
    }
    if snapshot.repository.spec.suspend {
        plan.withheld.push(Withheld {
            what: "fetch".to_owned(),
            why: "spec.suspend is true".to_owned(),
        });
        return plan;
    }
    let admitted = match admit(snapshot) {
        Ok(admitted) => admitted,
        Err(refusal) => return ending::stalled(snapshot, now, &refusal),
    };
    let attempt = &snapshot.attempt;
    if attempt.generation != metadata.generation || attempt.requested_at != crate::read_requested_at(metadata) {
        plan.next = Next::Restart;
        return plan;
    }
    match &attempt.fetched {
        Some(Err(failure)) => ending::failed(snapshot, now, failure, admitted.interval),
        Some(Ok(Fetched::Unchanged { .. })) => match &snapshot.stored {
            Some(stored) => ending::succeeded(snapshot, now, stored, None, admitted.interval),
            None => {
                // What the upstream was compared with is no longer in the store: fetched in full, at once.
                plan.next = Next::Restart;
                plan
            }
        },
        Some(Ok(Fetched::Stored { artifact, subject })) => ending::succeeded(
            snapshot,
            now,
            artifact,
            Some(subject.as_deref().unwrap_or_default()),
            admitted.interval,
        ),
        None => match not_due(snapshot, now, admitted.interval) {
            Some(at) => {
                plan.withheld.push(Withheld {
                    what: "fetch".to_owned(),
                    why: format!("not due before {at}"),
                });
                plan.next = Next::Done(Some(at));
                plan
            }
            None => fetch(snapshot, now, admitted, plan),
        },
    }
}

fn fetch(snapshot: &Snapshot, now: Timestamp, admitted: Admitted, mut plan: Plan) -> Plan {
    let spec = &snapshot.repository.spec;
    let reference = spec.reference.clone().unwrap_or_default();
    let nothing_named = GitRepositoryRef::default() == reference;
    let request = FetchRequest {
        url: spec.url.clone(),
        reference: if nothing_named {
            GitRepositoryRef {
                branch: Some("master".to_owned()),
                ..GitRepositoryRef::default()
            }
        } else {
            reference
        },
        secret: spec.secret_ref.as_ref().map(|secret| secret.name.clone()),
        ignore: spec.ignore.clone(),
        timeout: admitted.timeout,
        known: snapshot.stored.clone().filter(|stored| stored.ignore == spec.ignore),
        platform: matches!(snapshot.placement, Placement::Platform { .. }),
    };
    plan.identity = admitted.identity;
    plan.steps.push(Step::Fetch(Box::new(request)));
    plan.memory.last_asked = Some(now);
    plan.next = Next::Again;
    plan.status = ending::reconciling(snapshot, now);
    plan
}

/// When the upstream is to be asked next, if that is not now.
fn not_due(snapshot: &Snapshot, now: Timestamp, interval: Duration) -> Option<Timestamp> {
    let status = snapshot.repository.status.as_ref();
    let handled = status.and_then(|status| status.last_handled_reconcile_at.as_ref());
    let requested = snapshot.attempt.requested_at.as_ref();
    let last = snapshot.memory.last_asked?;
    let failing = snapshot.memory.failures > 0;
    if !failing {
        let observed = status.and_then(|status| status.observed_generation);
        let fresh = snapshot
            .stored
            .as_ref()
            .is_some_and(|stored| stored.ignore == snapshot.repository.spec.ignore);
        if observed != snapshot.repository.metadata.generation || !fresh {
            return None;
        }
    }
    if requested.is_some() && requested != handled {
        return None;
    }
    if failing && snapshot.memory.failed_generation != snapshot.repository.metadata.generation {
        return None;
    }
    let uid = snapshot.repository.metadata.uid.as_deref().unwrap_or_default();
    let pause = if failing {
        pause(snapshot.memory.failures, interval)
    } else {
        crate::jitter::add_jitter(interval, uid, last)
    };
    let due = add_duration(last, pause);
    (due > now).then_some(due)
}

/// How long is paused after so many failures in a row.
fn pause(failures: u32, interval: Duration) -> Duration {
    FIRST_PAUSE
        .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(16)))
        .min(interval)
}

/// Why it may not be fetched.
struct Refusal {
    reason: RefusalReason,
    message: String,
}

/// What kind of refusal it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RefusalReason {
    UnsupportedField,
    InvalidSpec,
    UrlInvalid,
    Denied(DenialReason),
}

impl RefusalReason {
    /// The word as it stands in conditions and events.
    fn as_str(self) -> &'static str {
        match self {
            Self::UnsupportedField => reason::UNSUPPORTED_FIELD,
            Self::InvalidSpec => reason::INVALID_SPEC,
            Self::UrlInvalid => reason::URL_INVALID,
            Self::Denied(denial) => denial.as_str(),
        }
    }
}

/// Whether it may be fetched: as whom its Secret is read, with fields that are implemented and valid.
fn admit(snapshot: &Snapshot) -> Result<Admitted, Refusal> {
    let spec = &snapshot.repository.spec;
    let fields = unimplemented(spec);
    if !fields.is_empty() {
        return Err(Refusal {
            reason: RefusalReason::UnsupportedField,
            message: format!(
                "{} is set, which is not supported yet: remove the field",
                fields.join(", ")
            ),
        });
    }
    let invalid = |message: String| Refusal {
        reason: RefusalReason::InvalidSpec,
        message,
    };
    let interval = spec
        .interval
        .parse()
        .map_err(|error| invalid(format!("spec.interval: {error}")))?;
    let timeout = match &spec.timeout {
        Some(timeout) => timeout
            .parse()
            .map_err(|error| invalid(format!("spec.timeout: {error}")))?,
        None => DEFAULT_TIMEOUT,
    };
    if timeout > LONGEST_TIMEOUT {
        let message = "spec.timeout: it is longer than an hour; write a duration such as 60s or 1m30s";
        return Err(invalid(message.to_owned()));
    }
    let known_scheme = ["http://", "https://", "ssh://"]
        .iter()
        .any(|scheme| spec.url.reveal().starts_with(scheme));
    if !known_scheme {
        return Err(Refusal {
            reason: RefusalReason::UrlInvalid,
            message: "spec.url must begin with http://, https:// or ssh://".to_owned(),
        });
    }
    let namespace = snapshot.repository.metadata.namespace.as_deref().unwrap_or_default();
    let identity = match (
        identity::decide_for_source(&snapshot.placement, namespace),
        &spec.secret_ref,
    ) {
        (Ok(identity), _) => Some(identity),
        // What is public needs no identity.
        (Err(_), None) => None,
        (Err(denial), Some(secret)) => {
            return Err(Refusal {
                reason: RefusalReason::Denied(denial.reason),
                message: format!("Secret {namespace}/{} can't be read: {}", secret.name, denial.message),
            });
        }
    };
    if let Some(secret) = &spec.secret_ref {
        tenure_api::names::ObjectName::new(secret.name.clone())
            .map_err(|error| invalid(format!("spec.secretRef.name: {error}")))?;
    }
    Ok(Admitted {
        identity,
        interval: interval.max(Duration::from_secs(1)),
        timeout: timeout.max(Duration::from_secs(1)),
    })
}

/// The fields that are set and not implemented.
fn unimplemented(spec: &GitRepositorySpec) -> Vec<&'static str> {
    let set = [
        ("spec.include", !spec.include.is_empty()),
        (
            "spec.provider",
            spec.provider.as_deref().is_some_and(|provider| provider != "generic"),
        ),
        ("spec.proxySecretRef", spec.proxy_secret_ref.is_some()),
        ("spec.recurseSubmodules", spec.recurse_submodules),
        ("spec.serviceAccountName", spec.service_account_name.is_some()),
        ("spec.sparseCheckout", !spec.sparse_checkout.is_empty()),
        ("spec.verify", spec.verify.is_some()),
    ];
    set.into_iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(field, _)| field)
        .collect()
}
