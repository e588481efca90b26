//! The reconciliation of a source of any kind: requests at its interval, and fetches with Secrets that the namespace's identity reads.
//!
//! All kinds of sources share one planner, which knows no kind. The folder of each kind has the differences: the fields and the implemented ones of these, the request
//! of a fetch, and the description of a stored artifact. Tenure puts no finalizer on a source: an artifact without a reference is collected from the store without one.

mod outcome;
mod types;

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::metadata::FLUX_FINALIZER;
use tenure_api::{ObjectMeta, reason};
use tenure_tenancy::{DenialReason, LEAST_INTERVAL, Placement, ServiceAccount, identity};

pub use tenure_remote_requests::fetch::{FetchFailure, FetchReason, Fetched};
pub use types::{
    Attempt, FetchStep, Memory, ObservedParts, Obstacle, Snapshot, Source, SourceReference, SourceStatus, StatusParts,
    Step, SuccessReasons, TimingFields,
};

pub(crate) use types::{implement_source_parts, implement_source_status, name_secrets};

use crate::outcome::add_duration;
use crate::plan::{FinalizerChange, Next, Withheld};
use tenure_remote_requests::artifact::StoredArtifact;

/// A plan for a source of kind `S`.
pub type Plan<S> = crate::plan::Plan<Step<<S as Source>::Request>, ServiceAccount, <S as Source>::Status, Memory>;

/// The time limit of a fetch if the spec sets none (Flux's).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that a fetch may take: a longer one would hold a place of its lane for hours.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);
/// The first pause after a failed fetch; doubled up to the interval.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The result of [`admit_source`]: the identity that reads Secrets, and the parsed durations.
struct Admitted {
    identity: Option<ServiceAccount>,
    interval: Duration,
    timeout: Duration,
}

/// The parts of a fetch request that all kinds of sources have.
pub struct RequestBasis {
    /// The time limit.
    pub timeout: Duration,
    /// The stored artifact that was made with the same `ignore`.
    pub known: Option<StoredArtifact>,
    /// Whether the source belongs to the platform, and not to a tenant.
    pub platform: bool,
}

/// Plans the next steps for a source.
#[must_use]
pub fn plan<S: Source>(snapshot: &Snapshot<S>, now: Timestamp) -> Plan<S> {
    let mut plan = decide_plan(snapshot, now);
    if !snapshot.repository.has_own_status(&snapshot.beside) {
        plan.status = None;
    }
    plan
}

fn decide_plan<S: Source>(snapshot: &Snapshot<S>, now: Timestamp) -> Plan<S> {
    let metadata = snapshot.repository.metadata();
    let mut plan = Plan::<S>::idle(outcome::name_subject(snapshot), snapshot.memory.clone());
    if metadata.deletion_timestamp.is_some() {
        // Flux may have set this finalizer.
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
    if snapshot.repository.is_static() {
        let is_written = snapshot
            .repository
            .status()
            .is_some_and(|status| *status != S::Status::default());
        plan.status = is_written.then(S::Status::default);
        plan.withheld.push(Withheld {
            what: "fetch".to_owned(),
            why: "the object only names a registry, from which HelmCharts fetch".to_owned(),
        });
        plan.memory = Memory::default();
        return plan;
    }
    let suspended = snapshot.repository.timing().suspend;
    let suspended = suspended.then(|| "spec.suspend is true".to_owned());
    if let Some(why) = suspended.or_else(|| snapshot.repository.find_suspension(&snapshot.beside)) {
        plan.withheld.push(Withheld {
            what: "fetch".to_owned(),
            why,
        });
        plan.memory.beside = S::mark_beside(&snapshot.beside);
        return plan;
    }
    let admitted = match admit_source(snapshot) {
        Ok(admitted) => admitted,
        Err(refusal) => return outcome::plan_stalled(snapshot, now, &refusal),
    };
    let attempt = &snapshot.attempt;
    if attempt.generation != metadata.generation || attempt.requested_at != snapshot.repository.requested_at() {
        plan.next = Next::Restart;
        return plan;
    }
    match &attempt.fetched {
        Some(Err(failure)) => outcome::plan_failed(snapshot, now, failure, admitted.interval),
        Some(Ok(Fetched::Unchanged { .. })) => match &snapshot.stored {
            Some(stored) => outcome::plan_succeeded(snapshot, now, stored, None, admitted.interval),
            None => {
                // The upstream has not changed, but the artifact is no longer in the store. So the plan fetches in full at once.
                plan.next = Next::Restart;
                plan
            }
        },
        Some(Ok(Fetched::Stored { artifact, subject })) => outcome::plan_succeeded(
            snapshot,
            now,
            artifact,
            Some(subject.as_deref().unwrap_or_default()),
            admitted.interval,
        ),
        None => begin_fetch(snapshot, now, admitted, plan),
    }
}

/// Sends the request to the upstream, if it is due and all other objects that it needs exist.
fn begin_fetch<S: Source>(snapshot: &Snapshot<S>, now: Timestamp, admitted: Admitted, mut plan: Plan<S>) -> Plan<S> {
    let mark = S::mark_beside(&snapshot.beside);
    if let Err(obstacle) = snapshot.repository.check_beside(&snapshot.beside) {
        let mut plan = match obstacle {
            Obstacle::Refused(refusal) => outcome::plan_stalled(snapshot, now, &refusal),
            Obstacle::Unavailable { reason, message } => outcome::plan_waiting(snapshot, now, reason, &message),
        };
        plan.memory.beside = mark;
        return plan;
    }
    let again = snapshot.memory.last_asked;
    let again = again.map(|last| add_duration(last, snapshot.repository.pause_beside()));
    let not_before = if snapshot.memory.beside == mark {
        find_due_time(snapshot, now, admitted.interval)
    } else {
        again.filter(|at| *at > now)
    };
    if let Some(at) = not_before {
        plan.withheld.push(Withheld {
            what: "fetch".to_owned(),
            why: format!("not due before {at}"),
        });
        plan.next = Next::Done(Some(at));
        return plan;
    }
    plan.memory.beside = mark;
    plan_fetch(snapshot, now, admitted, plan)
}

fn plan_fetch<S: Source>(snapshot: &Snapshot<S>, now: Timestamp, admitted: Admitted, mut plan: Plan<S>) -> Plan<S> {
    let ignore = snapshot.repository.timing().ignore;
    let known = snapshot.stored.clone();
    let basis = RequestBasis {
        timeout: admitted.timeout,
        known: known.filter(|stored| stored.ignore.as_deref() == ignore),
        platform: matches!(snapshot.placement, Placement::Platform { .. }),
    };
    let request = snapshot.repository.write_request(basis, &snapshot.beside);
    plan.identity = admitted.identity;
    plan.steps.push(Step::Fetch(Box::new(request)));
    plan.memory.last_asked = Some(now);
    plan.next = Next::Again;
    plan.status = outcome::make_progress_status(snapshot, now);
    plan
}

/// Returns the time of the next request to the upstream, if it is not due now.
fn find_due_time<S: Source>(snapshot: &Snapshot<S>, now: Timestamp, interval: Duration) -> Option<Timestamp> {
    let (metadata, status) = (snapshot.repository.metadata(), snapshot.repository.status());
    let handled = status.and_then(SourceStatus::last_handled);
    let requested = snapshot.attempt.requested_at.as_deref();
    let last = snapshot.memory.last_asked?;
    let failing = snapshot.memory.failures > 0;
    if !failing {
        let observed = status.and_then(SourceStatus::observed_generation);
        let ignore = snapshot.repository.timing().ignore;
        let fresh = snapshot
            .stored
            .as_ref()
            .is_some_and(|stored| stored.ignore.as_deref() == ignore);
        if observed != metadata.generation || !fresh {
            return None;
        }
    }
    if requested.is_some() && requested != handled {
        return None;
    }
    if failing && snapshot.memory.failed_generation != metadata.generation {
        return None;
    }
    let uid = metadata.uid.as_deref().unwrap_or_default();
    let pause = if failing {
        find_pause(snapshot.memory.failures, interval)
    } else {
        tenure_api::jitter::add_jitter(interval, uid, last)
    };
    let due = add_duration(last, pause);
    // During the pause that a server asked for, a fetch runs only on request or after a change of the spec.
    let due = snapshot.memory.not_before.map_or(due, |not_before| due.max(not_before));
    (due > now).then_some(due)
}

/// Returns the pause after this many failures in a row.
fn find_pause(failures: u32, interval: Duration) -> Duration {
    FIRST_PAUSE
        .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(16)))
        .min(interval)
}

/// The reason why a source may not be fetched: its spec or its tenancy must change first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRefusal {
    /// The kind of the refusal.
    pub reason: SourceRefusalReason,
    /// The message: the field, the problem, and the remedy.
    pub message: String,
}

impl SourceRefusal {
    /// Creates the refusal of a field that is set and not implemented.
    #[must_use]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self {
            reason: SourceRefusalReason::UnsupportedField,
            message: message.into(),
        }
    }

    /// Creates the refusal of an invalid value.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            reason: SourceRefusalReason::InvalidSpec,
            message: message.into(),
        }
    }

    /// Creates the refusal of a URL that this kind of source can't fetch.
    #[must_use]
    pub fn invalid_url(message: impl Into<String>) -> Self {
        Self {
            reason: SourceRefusalReason::UrlInvalid,
            message: message.into(),
        }
    }
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceRefusalReason {
    /// A field is set that is not implemented.
    UnsupportedField,
    /// A field's value is not valid.
    InvalidSpec,
    /// The URL has a form that this kind of source can't fetch.
    UrlInvalid,
    /// The spec lacks something that the provider needs.
    InvalidProviderConfiguration,
    /// The object that `spec.verify` selects is not the fetched object.
    InvalidVerificationMode,
    /// The object names a source of a kind that it can't use.
    UnsupportedSourceKind,
    /// The name of a chart can't be one.
    InvalidChartReference,
    /// Tenancy denies a reference or an identity.
    Denied(DenialReason),
}

impl SourceRefusalReason {
    /// Returns the reason for conditions and events.
    fn as_str(self) -> &'static str {
        match self {
            Self::UnsupportedField => reason::UNSUPPORTED_FIELD,
            Self::InvalidSpec => reason::INVALID_SPEC,
            Self::UrlInvalid => reason::URL_INVALID,
            Self::InvalidProviderConfiguration => reason::INVALID_PROVIDER_CONFIGURATION,
            Self::InvalidVerificationMode => reason::INVALID_VERIFICATION_MODE,
            Self::UnsupportedSourceKind => reason::UNSUPPORTED_SOURCE_KIND,
            Self::InvalidChartReference => reason::INVALID_CHART_REFERENCE,
            Self::Denied(denial) => denial.as_str(),
        }
    }
}

/// Checks whether the source may be fetched: the identity that reads its Secrets, and fields that are implemented and valid.
fn admit_source<S: Source>(snapshot: &Snapshot<S>) -> Result<Admitted, SourceRefusal> {
    let source = &snapshot.repository;
    let timing = source.timing();
    let fields = source.list_unimplemented();
    if !fields.is_empty() {
        return Err(SourceRefusal::unsupported(format!(
            "{} is set, which is not supported yet: remove the field",
            fields.join(", ")
        )));
    }
    let interval = timing
        .interval
        .parse()
        .map_err(|error| SourceRefusal::invalid(format!("spec.interval: {error}")))?;
    let timeout = match timing.timeout {
        Some(timeout) => timeout
            .parse()
            .map_err(|error| SourceRefusal::invalid(format!("spec.timeout: {error}")))?,
        None => DEFAULT_TIMEOUT,
    };
    if timeout > LONGEST_TIMEOUT {
        let message = "spec.timeout: it is longer than an hour; write a duration such as 60s or 1m30s";
        return Err(SourceRefusal::invalid(message));
    }
    source.check()?;
    let mut references = source.list_references();
    references.extend(S::list_references_beside(&snapshot.beside));
    let identity = decide_identity(source.metadata(), &snapshot.placement, &references)?;
    for reference in &references {
        tenure_api::names::ObjectName::new(reference.name.to_owned())
            .map_err(|error| SourceRefusal::invalid(format!("{}: {error}", reference.field)))?;
    }
    Ok(Admitted {
        identity,
        interval: interval.max(snapshot.least_interval).max(LEAST_INTERVAL),
        timeout: timeout.max(Duration::from_secs(1)),
    })
}

/// Decides the identity that reads the objects to which the source refers.
fn decide_identity(
    metadata: &ObjectMeta,
    placement: &Placement,
    references: &[SourceReference<'_>],
) -> Result<Option<ServiceAccount>, SourceRefusal> {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    match (identity::decide_for_source(placement, namespace), references.first()) {
        (Ok(identity), _) => Ok(Some(identity)),
        // A public fetch needs no identity.
        (Err(_), None) => Ok(None),
        (Err(denial), Some(SourceReference { kind, name, .. })) => Err(SourceRefusal {
            reason: SourceRefusalReason::Denied(denial.reason),
            message: format!("{kind} {namespace}/{name} can't be read: {}", denial.message),
        }),
    }
}
