//! Whether a Receiver can be served: fields that are implemented and valid, resources that it may name, expressions that compile.

use std::time::Duration;

use tenure_api::names::ObjectName;
use tenure_api::receiver::ReceiverResource;
use tenure_api::{ReceiverSpec, reason};
use tenure_tenancy::{Denial, Placement, ServiceAccount, identity, reference};

use super::filter::find_filter_problem;
use super::types::{CheckedFilters, Memory, Snapshot};
use super::verify::Sender;
use crate::list_limits;

/// The interval between two reads of the Secret if the spec sets none (Flux's).
const INTERVAL: Duration = Duration::from_secs(600);

/// The kinds that a Receiver can ask Tenure to reconcile, and their API versions. Tenure reconciles no other kinds in `spec.resources`.
pub const RECONCILED: [(&str, &str); 6] = [
    ("Bucket", "source.toolkit.fluxcd.io/v1"),
    ("HelmChart", "source.toolkit.fluxcd.io/v1"),
    ("HelmRepository", "source.toolkit.fluxcd.io/v1"),
    ("GitRepository", "source.toolkit.fluxcd.io/v1"),
    ("OCIRepository", "source.toolkit.fluxcd.io/v1"),
    ("Kustomization", "kustomize.toolkit.fluxcd.io/v1"),
];

/// Flux's types that Tenure doesn't support.
const UNSUPPORTED: [&str; 4] = ["generic-oidc", "gcr", "acr", "cdevents"];

/// The reason why a Receiver can't be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReceiverProblem {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// True if the problem may end without a change of the Receiver, since the owner of its namespace may become known. Otherwise a user must change it.
    pub(super) may_pass: bool,
}

impl ReceiverProblem {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            may_pass: false,
        }
    }
}

impl From<Denial> for ReceiverProblem {
    fn from(denial: Denial) -> Self {
        Self {
            reason: denial.reason.as_str(),
            message: denial.message,
            may_pass: true,
        }
    }
}

/// The result of the validation: the identity and the Secret for the token, and the interval between reads.
pub(super) struct Admitted {
    pub(super) identity: ServiceAccount,
    pub(super) secret: String,
    pub(super) interval: Duration,
}

/// Checks whether a Receiver can be served, and remembers the result for its expressions.
pub(super) fn validate(snapshot: &Snapshot, memory: &mut Memory) -> Result<Admitted, ReceiverProblem> {
    let spec = &snapshot.receiver.spec;
    let namespace = snapshot.receiver.metadata.namespace.as_deref().unwrap_or_default();
    check_type(spec)?;
    let invalid = |message: String| ReceiverProblem::new(reason::INVALID_SPEC, message);
    let secret = spec.secret_ref.as_ref().ok_or_else(|| {
        let message = "spec.secretRef is missing: name a Secret with the key token, which the sender knows too";
        ReceiverProblem::new(reason::VALIDATION_FAILED, message)
    })?;
    ObjectName::new(secret.name.clone()).map_err(|error| invalid(format!("spec.secretRef.name: {error}")))?;
    let interval = match &spec.interval {
        Some(interval) => interval
            .parse()
            .map_err(|error| invalid(format!("spec.interval: {error}")))?,
        None => INTERVAL,
    };
    list_limits::check_receiver(spec).map_err(invalid)?;
    for (index, resource) in spec.resources.iter().enumerate() {
        check_resource(&snapshot.placement, namespace, index, resource)?;
    }
    let checked = memory.checked.insert(check_filters(snapshot));
    if let Some(problem) = &checked.problem {
        let message = format!("Reconciliation failed terminally due to configuration error: {problem}");
        return Err(ReceiverProblem::new(reason::INVALID_CEL_EXPRESSION, message));
    }
    Ok(Admitted {
        identity: identity::decide_for_source(&snapshot.placement, namespace)?,
        secret: secret.name.clone(),
        interval: interval.max(Duration::from_secs(1)),
    })
}

fn check_type(spec: &ReceiverSpec) -> Result<(), ReceiverProblem> {
    let name = spec.type_.as_str();
    if UNSUPPORTED.contains(&name) {
        let message = format!("spec.type: {name} is not supported yet: use generic-hmac, or the type of the Git host");
        return Err(ReceiverProblem::new(reason::UNSUPPORTED_FIELD, message));
    }
    if Sender::read(name).is_none() {
        let message = format!("spec.type: {name:?} is unknown: use one of {}", Sender::list_names());
        return Err(ReceiverProblem::new(reason::INVALID_SPEC, message));
    }
    if !spec.oidc_providers.is_empty() {
        let message = "spec.oidcProviders is for type generic-oidc, which is not supported yet: remove the field";
        return Err(ReceiverProblem::new(reason::UNSUPPORTED_FIELD, message));
    }
    Ok(())
}

fn check_resource(
    placement: &Placement,
    namespace: &str,
    index: usize,
    resource: &ReceiverResource,
) -> Result<(), ReceiverProblem> {
    let field = |name: &str| format!("spec.resources[{index}].{name}");
    let invalid = |message: String| ReceiverProblem::new(reason::INVALID_SPEC, message);
    let Some(api_version) = find_api_version(&resource.kind) else {
        let names: Vec<&str> = RECONCILED.iter().map(|(kind, _)| *kind).collect();
        let message = format!(
            "{}: {} can't be reconciled by a Receiver yet: use one of {}",
            field("kind"),
            resource.kind,
            names.join(", ")
        );
        return Err(ReceiverProblem::new(reason::UNSUPPORTED_FIELD, message));
    };
    let group = |api_version: &str| api_version.split('/').next().unwrap_or_default().to_owned();
    if let Some(given) = resource.api_version.as_deref().filter(|given| !given.is_empty())
        && group(given) != group(api_version)
    {
        let message = format!(
            "{}: {given:?} has no {}: {api_version} has",
            field("apiVersion"),
            resource.kind
        );
        return Err(invalid(message));
    }
    if resource.name == "*" {
        if resource.match_labels.is_empty() {
            let message = format!(
                "{} is missing: with the name *, labels select the objects",
                field("matchLabels")
            );
            return Err(invalid(message));
        }
    } else {
        ObjectName::new(resource.name.clone()).map_err(|error| invalid(format!("{}: {error}", field("name"))))?;
    }
    Ok(reference::check_receiver_resource(
        placement,
        namespace,
        resource.namespace.as_deref(),
        (&resource.kind, &resource.name),
    )?)
}

/// Finds the API version of a kind that can be asked to reconcile.
pub(super) fn find_api_version(kind: &str) -> Option<&'static str> {
    let found = RECONCILED.iter().find(|(known, _)| *known == kind);
    found.map(|(_, api_version)| *api_version)
}

fn check_filters(snapshot: &Snapshot) -> CheckedFilters {
    let metadata = &snapshot.receiver.metadata;
    let is_of_this = |checked: &&CheckedFilters| {
        checked.uid == metadata.uid && checked.generation == metadata.generation && metadata.generation.is_some()
    };
    let known = snapshot.memory.checked.as_ref().filter(is_of_this);
    known.cloned().unwrap_or_else(|| CheckedFilters {
        uid: metadata.uid.clone(),
        generation: metadata.generation,
        problem: find_filter_problem(&snapshot.receiver.spec),
    })
}
