//! Admission of a Kustomization: its identity, and fields that are implemented, valid and allowed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::metadata::{FLUX_FINALIZER, OWNER_NAME};
use tenure_api::names::LONGEST_LABEL_VALUE;
use tenure_api::{Bucket, ExternalArtifact, GitRepository, KustomizationSpec, OciRepository, reason};
use tenure_tenancy::{DenialReason, LEAST_INTERVAL, identity, reference, write_scope};

use super::apply_mode::ApplyMode;
use super::changes::report_earlier_changes;
use super::context::{Context, name_subject};
use super::ignore::Ignored;
use super::types::{ServiceAccountFacts, Snapshot, read_apply_mode};
use super::{
    Phase, Plan, expression_memory, health_check, inputs, kube_config, outcome, remote_cluster, watched_objects,
};
use crate::list_limits;
use crate::overlay::Overlay;
use crate::plan::{FinalizerChange, Next, Withheld};
use crate::source::Source as _;

/// The time until the identity is decided again, if no watch reported a change.
const IDENTITY_INTERVAL: Duration = Duration::from_secs(30);

/// Checks that the name of the Kustomization can be a label's value, which every applied object gets. The API server's answer about such an object would name the
/// object and its file.
fn check_own_name(namespace: &str, name: &str) -> Result<(), String> {
    if name.len() <= LONGEST_LABEL_VALUE {
        return Ok(());
    }
    Err(format!(
        "metadata.name has {} characters, and every applied object gets the name as label {OWNER_NAME}, which holds at most {LONGEST_LABEL_VALUE}: create the \
         Kustomization with a shorter name, and delete this one (tenure delete kustomization/{name} -n {namespace})",
        name.len()
    ))
}

/// Decides the identity, and refuses a spec that is invalid independent of the source. Returns the context of the further phases.
pub(super) fn validate<'a>(snapshot: &'a Snapshot, now: Timestamp) -> Phase<Context<'a>> {
    let kustomization = &snapshot.kustomization;
    let (Some(namespace), Some(name)) = (
        kustomization.metadata.namespace.as_deref(),
        kustomization.metadata.name.as_deref(),
    ) else {
        let mut plan = Plan::idle(name_subject(snapshot), snapshot.memory.clone());
        plan.withheld.push(Withheld {
            what: "everything".to_owned(),
            why: "the object has no namespace or name".to_owned(),
        });
        return Err(Box::new(plan));
    };
    if kustomization.spec.suspend {
        let mut plan = Plan::idle(name_subject(snapshot), snapshot.memory.clone());
        plan.withheld.push(Withheld {
            what: "everything".to_owned(),
            why: "spec.suspend is true".to_owned(),
        });
        return Err(Box::new(plan));
    }
    let stalled = |reason: &str, message: String| {
        Box::new(outcome::plan_stalled_before_admission(snapshot, now, reason, message))
    };
    let denied = |denial: tenure_tenancy::Denial| {
        let mut plan = stalled(denial.reason.as_str(), denial.message);
        if denial.reason == DenialReason::IdentityMissing {
            // The owner of a namespace may become known without a change of this object.
            plan.next = Next::Done(Some(crate::outcome::add_duration(now, IDENTITY_INTERVAL)));
        }
        plan
    };

    check_own_name(namespace, name).map_err(|message| stalled(reason::INVALID_SPEC, message))?;
    let spec = &kustomization.spec;
    // The list limits are checked first, so that no later check reads a list that is too long.
    list_limits::check_kustomization(spec).map_err(|message| stalled(reason::INVALID_SPEC, message))?;
    let fields = list_unimplemented_fields(spec);
    if !fields.is_empty() {
        return Err(stalled(
            reason::UNSUPPORTED_FIELD,
            format!(
                "{} is set, which is not supported yet: remove the field",
                fields.join(", ")
            ),
        ));
    }
    let expressions = expression_memory::check(snapshot, now);
    if let Some((reason, message)) = &expressions.problem {
        let mut plan = stalled(reason, message.clone());
        plan.memory.expressions = expressions;
        return Err(plan);
    }
    kube_config::check_spec(spec).map_err(|(reason, message)| stalled(reason, message))?;
    let reach = snapshot.find_bounds();
    let source = &spec.source_ref;
    let referrer = snapshot.referrer();
    reference::check_source(referrer, &source.kind, source.namespace.as_deref(), &source.name).map_err(denied)?;
    let kinds = [
        GitRepository::NAME,
        OciRepository::NAME,
        Bucket::NAME,
        ExternalArtifact::NAME,
    ];
    if !kinds.contains(&source.kind.as_str()) {
        return Err(stalled(
            reason::UNSUPPORTED_FIELD,
            format!(
                "spec.sourceRef.kind: {} is not supported yet: only {} are",
                source.kind,
                kinds.join(", ")
            ),
        ));
    }
    for dependency in &spec.depends_on {
        reference::check_dependency(referrer, dependency.namespace.as_deref(), &dependency.name).map_err(denied)?;
    }
    if let Some(target) = &spec.target_namespace {
        write_scope::check_target_namespace(&reach, target).map_err(denied)?;
    }
    for check in &spec.health_checks {
        reference::check_health_check(&reach, &check.kind, check.namespace.as_deref(), &check.name).map_err(denied)?;
    }
    if spec.deletion_policy().is_none() {
        return Err(stalled(
            reason::INVALID_SPEC,
            "spec.deletionPolicy must be MirrorPrune, Delete, WaitForTermination or Orphan".to_owned(),
        ));
    }
    let duration = |field: &str, parsed: Result<Duration, tenure_api::duration::DurationError>| {
        parsed.map_err(|error| stalled(reason::INVALID_SPEC, format!("{field}: {error}")))
    };
    let interval = duration("spec.interval", spec.interval.parse())?;
    let timeout = duration("spec.timeout", spec.effective_timeout())?;
    let retry_interval = duration("spec.retryInterval", spec.effective_retry_interval())?;
    let path = normalise_path(spec.path.as_deref().unwrap_or_default())
        .map_err(|message| stalled(reason::INVALID_SPEC, message))?;
    let overlay = Overlay::from_spec(spec).map_err(|message| stalled(reason::INVALID_SPEC, message))?;
    inputs::check_spec(spec).map_err(|message| stalled(reason::INVALID_SPEC, message))?;
    let mode = ApplyMode::read(read_apply_mode(&kustomization.metadata).as_deref())
        .map_err(|message| stalled(reason::INVALID_SPEC, message))?;
    let identity =
        identity::decide_for_kustomization(&snapshot.placement, namespace, spec.service_account_name.as_deref())
            .map_err(denied)?;

    let mut memory = snapshot.memory.clone();
    memory.expressions = expressions;
    if memory.attempt != Some(snapshot.attempt.started) {
        memory.attempt = Some(snapshot.attempt.started);
        memory.changes.clear();
        memory.drift.clear();
        memory.taken.clear();
        memory.looked_again.clear();
        memory.read_after_all.clear();
        memory.confirmed.clear();
    }
    let mut context = Context {
        snapshot,
        now,
        namespace,
        name,
        identity,
        interval: interval.max(snapshot.least_interval).max(LEAST_INTERVAL),
        retry_interval: retry_interval.max(snapshot.least_interval).max(LEAST_INTERVAL),
        timeout,
        path,
        overlay,
        mode,
        detected: Vec::new(),
        // The rules are valid: an earlier check in this function has refused invalid ones.
        ignored: Arc::new(Ignored::from_spec(spec).unwrap_or_default()),
        memory,
        named: Arc::default(),
        withheld: Vec::new(),
        events: Vec::new(),
        // Objects of another cluster are watched only after the cluster is known.
        watch: if remote_cluster::is_elsewhere(snapshot) {
            Vec::new()
        } else {
            watched_objects::list_tracked(snapshot)
        },
        target: None,
        revision: None,
        built: None,
    };
    report_earlier_changes(&mut context);
    // The attempt began for another spec or another request, so its answers don't count.
    let attempt = &snapshot.attempt;
    if attempt.generation != kustomization.metadata.generation
        || attempt.requested_at != crate::read_requested_at(&kustomization.metadata)
        || attempt.apply != read_apply_mode(&kustomization.metadata)
        || is_newly_allowed(snapshot)
    {
        let by = format!("Kustomization/{namespace}/{name}");
        return Err(health_check::restart_attempt(context, &by, false));
    }
    let account = context.identity.clone();
    match &snapshot.service_account {
        ServiceAccountFacts::Usable | ServiceAccountFacts::NotLooked => Ok(context),
        ServiceAccountFacts::NotFound => Err(outcome::plan_failed(
            context,
            reason::IDENTITY_MISSING,
            format!(
                "nothing is applied: {account} does not exist; create the ServiceAccount and bind it to a role that allows what this \
                 Kustomization applies, or name another in spec.serviceAccountName"
            ),
        )),
        ServiceAccountFacts::NamespaceEnds(message) | ServiceAccountFacts::Forbidden(message) => {
            Err(outcome::plan_failed(
                context,
                reason::IDENTITY_MISSING,
                format!("nothing is applied: no token for {account}: {message}"),
            ))
        }
        ServiceAccountFacts::Unanswered(message) => Err(outcome::fail_with(
            context,
            reason::IDENTITY_MISSING,
            format!("nothing is applied: no token for {account}: {message}"),
            true,
        )),
    }
}

/// Checks whether a deletion was allowed since the attempt began. A removed annotation is no reason to restart.
fn is_newly_allowed(snapshot: &Snapshot) -> bool {
    let allowed = super::read_allowed_deletion(&snapshot.kustomization.metadata);
    allowed.is_some() && allowed != snapshot.attempt.allowed
}

/// Adds the finalizer to any plan, unless the object is being deleted or suspended.
pub(super) fn add_finalizer(snapshot: &Snapshot, plan: &mut Plan) {
    let metadata = &snapshot.kustomization.metadata;
    let present = metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FLUX_FINALIZER);
    if !present && metadata.deletion_timestamp.is_none() && !snapshot.kustomization.spec.suspend {
        plan.finalizer = Some(FinalizerChange::Add(FLUX_FINALIZER.to_owned()));
    }
}

/// Returns the fields that are set and not implemented.
fn list_unimplemented_fields(spec: &KustomizationSpec) -> Vec<&'static str> {
    let decryption = spec.decryption.as_ref();
    let set = [(
        "spec.decryption.serviceAccountName",
        decryption.is_some_and(|decryption| decryption.service_account_name.is_some()),
    )];
    set.into_iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(field, _)| field)
        .collect()
}

/// Returns the folder within the source, without `.`, `..` and doubled separators. A leading `/` is the source's root, as in Flux.
fn normalise_path(path: &str) -> Result<String, String> {
    let mut parts: Vec<&str> = Vec::new();
    if path.chars().any(char::is_control) {
        return Err(format!("spec.path: {path:?} contains a control character"));
    }
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return Err(format!("spec.path: {path:?} leads out of the source"));
                }
            }
            part => parts.push(part),
        }
    }
    Ok(if parts.is_empty() {
        ".".to_owned()
    } else {
        parts.join("/")
    })
}
