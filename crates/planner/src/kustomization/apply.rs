//! The apply, stage by stage: read, dry-run, compare, take over, apply the differences, wait until objects that others need are ready.
//!
//! A stage is applied only if every dry-run of it was accepted, unless a partial apply is requested. The status names all refused objects, not just the first.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_api::metadata::KUSTOMIZE_CONTROLLER;
use tenure_api::{ObjectId, ObjectView, reason};

use super::apply_mode::{self, ApplyMode};
use super::changes;
use super::claims::{self, UnknownOwners};
use super::contested_fields;
use super::context::Context;
use super::custom_health::CustomHealth;
use super::deletion_wait::{describe_wait, wait_until_gone};
use super::desired::{Desired, DesiredObject};
use super::object_action::{Change, ObjectAction, choose_action, find_skip_reason};
use super::order::STAGES;
use super::ownership::{self, KeptObject};
use super::preview::DifferenceKind;
use super::recreate;
use super::types::Snapshot;
use super::{Phase, Plan, guard, missing_right, namespace_creation, outcome};
use crate::answer::{DeleteAnswer, Failure, Live, Reason, WriteAnswer};
use crate::health::Health;
use crate::immutable;
use crate::outcome::add_duration;
use crate::plan::{Apply, Delete, Forecast, Next, Request, Stage};

/// The time in which the objects of an early stage have to become ready (Flux's).
const STAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Applies all stages; returns when every object is as desired, skipped, or backed off.
///
/// An object that is being deleted holds up itself and its dependents. The plan waits for it after all others are applied.
pub(super) fn apply(context: &mut Context<'_>, desired: &Desired) -> Phase<()> {
    recreate_first(context, desired)?;
    let mut waiting: Vec<String> = Vec::new();
    let mut gone: Vec<&DesiredObject> = Vec::new();
    for stage in STAGES {
        let mut objects = Vec::new();
        for object in desired.objects.iter().filter(|object| object.stage == stage) {
            match gone.iter().find(|gone| needs_object(object, gone)) {
                Some(gone) if context.mode == ApplyMode::DetectOnly => {
                    let what = format!("can't be checked before {} exists", gone.target.id.subject());
                    apply_mode::record_difference(context, object, DifferenceKind::Unseen, &what);
                }
                Some(gone) => {
                    let why = format!(
                        "{} is being deleted: waiting until it is gone",
                        gone.target.id.subject()
                    );
                    context.withhold(object.target.id.subject(), why);
                }
                None => objects.push(object),
            }
        }
        if objects.is_empty() {
            continue;
        }
        let terminating = self::apply_stage(context, desired, stage, &objects)?;
        let is_waited_for = !matches!(
            stage,
            Stage::Policies | Stage::Protections | Stage::Custom | Stage::Rest
        );
        if is_waited_for && context.mode != ApplyMode::DetectOnly {
            objects.retain(|object| !terminating.iter().any(|gone| gone.target.id == object.target.id));
            wait_for_stage(context, desired, &objects, &mut waiting)?;
        }
        gone.extend(terminating);
    }
    match context.mode {
        ApplyMode::DetectOnly => Ok(()),
        ApplyMode::All | ApplyMode::Partial => wait_until_gone(context, &gone),
    }
}

/// Applies the objects that were deleted for a recreation, before anything else can fail. Their own stage reports a refusal. An object that a finalizer holds
/// is waited for after all other objects are applied.
fn recreate_first(context: &mut Context<'_>, desired: &Desired) -> Phase<()> {
    let snapshot = context.snapshot;
    context
        .memory
        .recreating
        .retain(|id| desired.contains(id) && !is_kept(snapshot, id));
    if context.memory.recreating.is_empty() || context.mode == ApplyMode::DetectOnly {
        return Ok(());
    }
    let deleted: Vec<&DesiredObject> = desired
        .objects
        .iter()
        .filter(|object| context.memory.recreating.contains(&object.target.id))
        .collect();
    let first = deleted.iter().copied();
    let first: Vec<&DesiredObject> = first
        .filter(|object| !deleted.iter().any(|other| needs_object(object, other)))
        .collect();
    let mut looked = context.fork();
    let found = Found::look_at_objects(&mut looked, &first);
    if !found.reads.is_empty() {
        return Err(looked.plan_again(found.reads));
    }
    if !found.dry_runs.is_empty() {
        return Err(looked.plan_again(list_dry_runs(&found.dry_runs)));
    }
    if !found.applies.is_empty() {
        return Err(write(&mut looked, desired, None, found.applies));
    }
    // Without finalizers the object is gone as soon as the deletion is accepted. The watch reports it in a moment.
    let is_reported = |object: &&DesiredObject| {
        let live = context.find_live(&object.target.id).and_then(Live::object);
        live.is_none_or(|live| ObjectView::new(live).is_being_deleted())
    };
    if found.gone.iter().all(is_reported) {
        return Ok(());
    }
    let deadline = looked.find_deadline();
    if context.now >= deadline {
        return Ok(());
    }
    let message = describe_wait(context, &found.gone);
    Err(outcome::plan_waiting(looked, deadline, message))
}

/// Checks whether an object needs no recreation any more: its deletion was refused, or another client created it.
fn is_kept(snapshot: &Snapshot, id: &ObjectId) -> bool {
    let is_deleted = matches!(
        snapshot.attempt.deleted.get(id),
        Some(DeleteAnswer::Accepted | DeleteAnswer::Absent)
    );
    let live = snapshot.live.get(id).and_then(Live::object);
    !is_deleted && live.is_some_and(|live| !ObjectView::new(live).is_being_deleted())
}

fn list_dry_runs(objects: &[&DesiredObject]) -> Vec<Request> {
    let objects = objects.iter();
    objects.map(|object| Request::DryRun(apply_of(object))).collect()
}

/// Checks whether an object can't be applied without another: it lives in that Namespace, is of the kind which that defines, or binds that role.
fn needs_object(object: &DesiredObject, other: &DesiredObject) -> bool {
    let text = |path: &str| other.object.view().find_text(path);
    let refers = |path: &str| object.object.view().find_text(path);
    match other.target.id.kind.as_str() {
        "Role" | "ClusterRole" if other.target.id.group == "rbac.authorization.k8s.io" => {
            refers("/roleRef/kind") == Some(other.target.id.kind.as_str())
                && refers("/roleRef/name") == Some(other.target.id.name.as_str())
                && [object.target.id.namespace.as_str(), ""].contains(&other.target.id.namespace.as_str())
        }
        "Namespace" => object.target.id.namespace == other.target.id.name,
        "CustomResourceDefinition" => {
            text("/spec/group") == Some(object.target.id.group.as_str())
                && text("/spec/names/kind") == Some(object.target.id.kind.as_str())
        }
        _ => false,
    }
}

/// The findings about the objects of a stage, each list in the order of their apply.
#[derive(Default)]
struct Found<'a> {
    reads: Vec<Request>,
    dry_runs: Vec<&'a DesiredObject>,
    tries: Vec<Request>,
    take_overs: Vec<crate::plan::TakeOver>,
    applies: Vec<(&'a DesiredObject, Change)>,
    deletes: Vec<(&'a DesiredObject, Delete)>,
    gone: Vec<&'a DesiredObject>,
    refused: Vec<(&'a DesiredObject, Failure)>,
    kept: Vec<(&'a DesiredObject, KeptObject)>,
    /// Objects whose owner, named here, may be about to drop them.
    awaited: Vec<(&'a DesiredObject, String)>,
    /// Whether kubectl wrote at the same time.
    overtaken: bool,
}

impl<'a> Found<'a> {
    fn look_at_objects(context: &mut Context<'_>, objects: &[&'a DesiredObject]) -> Self {
        let mut found = Self::default();
        for object in objects {
            match choose_action(context, object) {
                ObjectAction::Nothing => {}
                ObjectAction::Skip(why) => context.withhold(object.target.id.subject(), why),
                ObjectAction::Read => found.reads.push(Request::Read(object.target.clone())),
                ObjectAction::DryRun => found.dry_runs.push(*object),
                ObjectAction::Try => {
                    let trial = recreate::make_trial(object, apply_of(object));
                    found.tries.push(Request::Try(trial));
                }
                ObjectAction::TryDelete(delete) => found.tries.push(Request::TryDelete(delete)),
                ObjectAction::TakeOver(step) => found.take_overs.push(step),
                ObjectAction::Apply(change) => found.applies.push((*object, change)),
                ObjectAction::Delete(delete) => found.deletes.push((*object, delete)),
                ObjectAction::WaitGone => found.gone.push(*object),
                ObjectAction::WaitOwner(owner) => {
                    context.withhold(object.target.id.subject(), format!("{owner} may be about to drop it"));
                    found.awaited.push((*object, owner));
                }
                ObjectAction::Kept(why) => found.kept.push((*object, why)),
                ObjectAction::LookAgain => {
                    context.withhold(
                        object.target.id.subject(),
                        "kubectl wrote to it at the same time: it is looked at again",
                    );
                    found.overtaken = true;
                }
                ObjectAction::Refused(failure) => found.refused.push((*object, failure)),
            }
        }
        found
    }
}

/// Applies one stage; returns, when nothing more can be done in it, the objects that are being deleted.
fn apply_stage<'a>(
    context: &mut Context<'_>,
    desired: &Desired,
    stage: Stage,
    objects: &[&'a DesiredObject],
) -> Phase<Vec<&'a DesiredObject>> {
    let mut found = Found::look_at_objects(context, objects);
    if !found.reads.is_empty() {
        return Err(context.fork().plan_again(found.reads));
    }
    if !found.dry_runs.is_empty() {
        let mut plan = context.fork().plan_again(list_dry_runs(&found.dry_runs));
        plan.forecast = forecast_stages(context, desired, |later| later >= stage);
        return Err(plan);
    }
    if !found.tries.is_empty() {
        return Err(context.fork().plan_again(found.tries));
    }
    if context.mode == ApplyMode::DetectOnly {
        check_refused(context, stage, objects.len(), &found)?;
        return Ok(detect_changes(context, found));
    }
    if context.mode == ApplyMode::All {
        check_refused(context, stage, objects.len(), &found)?;
    }
    if !found.awaited.is_empty() {
        let deadline = context.find_deadline();
        let owners: BTreeSet<String> = found.awaited.into_iter().map(|(_, owner)| owner).collect();
        let owners: Vec<String> = owners.into_iter().collect();
        let message = format!("Waiting until moved objects are released by {}", owners.join(", "));
        return Err(outcome::plan_waiting(context.fork(), deadline, message));
    }
    let deletes: Vec<Delete> = found.deletes.drain(..).map(|(_, delete)| delete).collect();
    let owners = match claims::find_claim_owners(context, &deletes) {
        Ok(owners) => owners,
        Err(UnknownOwners::Ask(requests)) => return Err(context.fork().plan_again(requests)),
        Err(UnknownOwners::Failed(message)) => {
            return Err(outcome::plan_failed(
                context.fork(),
                reason::RECONCILIATION_FAILED,
                message,
            ));
        }
    };
    let guarded = guard::guard_recreation(context, deletes, &owners);
    // Deletions begin after everything in the stage is allowed.
    if let (Some(message), ApplyMode::All) = (guarded.find_stop(), context.mode) {
        return Err(outcome::plan_failed(
            context.fork(),
            reason::DELETION_GUARDED,
            message.to_owned(),
        ));
    }
    // An object that is invalid until its fields are taken over may be refused afterwards, too. So take-overs come before deletions.
    if !found.take_overs.is_empty() {
        let steps = found.take_overs.into_iter().map(Request::TakeOver).collect();
        return Err(context.fork().plan_again(steps));
    }
    if !guarded.free.is_empty() {
        return Err(delete_objects(context, guarded.free));
    }
    if !found.applies.is_empty() {
        return Err(write(context, desired, Some(stage), found.applies));
    }
    if found.overtaken {
        return Err(Box::new(context.fork().into_plan(Next::Restart)));
    }
    // The accepted objects of the stage are applied.
    check_refused(context, stage, objects.len(), &found)?;
    match guarded.held {
        Some(message) => Err(outcome::plan_failed(context.fork(), reason::DELETION_GUARDED, message)),
        None => Ok(found.gone),
    }
}

/// Deletes objects for a recreation.
fn delete_objects(context: &mut Context<'_>, deletes: Vec<Delete>) -> Box<Plan> {
    for delete in &deletes {
        let id = &delete.target.id;
        let line = format!("{} deleted: {}", id.subject(), delete.why);
        changes::record_change(context, id, line);
        context.memory.settled.remove(id);
        context.memory.recreating.insert(id.clone());
    }
    let steps = deletes.into_iter().map(Request::Delete).collect();
    guard::store_allowed(context.snapshot, context.fork().plan_again(steps))
}

/// Ends the attempt if anything of a stage is refused or another's.
fn check_refused(context: &mut Context<'_>, stage: Stage, count: usize, found: &Found<'_>) -> Phase<()> {
    let lines = found.refused.iter();
    let lines: Vec<String> = lines
        .map(|(object, failure)| describe_failure(context, object, failure))
        .collect();
    if !found.kept.is_empty() {
        return Err(ownership::list_owned_by_others(context, stage, &found.kept, lines));
    }
    if lines.is_empty() {
        return Ok(());
    }
    if let Some(plan) = namespace_creation::wait_for_rights(context, &found.refused) {
        return Err(plan);
    }
    let transient = found.refused.iter().all(|(_, failure)| failure.is_transient());
    if lines.len() < count {
        let names = found.refused.iter().map(|(object, _)| object.target.id.subject());
        let names: Vec<String> = names.collect();
        let what = match context.mode {
            ApplyMode::Partial => format!("all stages after stage {}", stage.as_str()),
            ApplyMode::All | ApplyMode::DetectOnly => format!("the rest of stage {}", stage.as_str()),
        };
        context.withhold(what, format!("refused: {}", names.join(", ")));
    }
    let message = lines.join("\n");
    Err(outcome::fail_with(
        context.fork(),
        reason::RECONCILIATION_FAILED,
        message,
        transient,
    ))
}

/// Notes the would-be changes of a stage; returns the missing objects, since objects that need them can't be checked.
fn detect_changes<'a>(context: &mut Context<'_>, found: Found<'a>) -> Vec<&'a DesiredObject> {
    let mut missing = Vec::new();
    for (object, change) in found.applies {
        let exists = matches!(context.find_live(&object.target.id), Some(Live::Present(_)));
        apply_mode::record_apply(context, object, change, exists);
        if !exists {
            missing.push(object);
        }
    }
    for (object, owner) in found.awaited {
        let words = format!("would be taken over if {owner} drops it");
        apply_mode::record_difference(context, object, DifferenceKind::TakenOver, &words);
    }
    for (object, _) in found.deletes {
        apply_mode::record_difference(
            context,
            object,
            DifferenceKind::Recreated,
            "would be deleted and re-created, since an immutable field changes",
        );
    }
    for object in found.gone {
        let words = "is being deleted, and would be re-created";
        apply_mode::record_difference(context, object, DifferenceKind::Recreated, words);
        missing.push(object);
    }
    missing
}

/// Makes the plan that applies the differences of a stage, or the steps before all of them.
fn write(
    context: &mut Context<'_>,
    desired: &Desired,
    stage: Option<Stage>,
    applies: Vec<(&DesiredObject, Change)>,
) -> Box<Plan> {
    let status = outcome::make_status_before_apply(context, applies.iter().map(|(object, _)| &object.target));
    let mut steps = Vec::with_capacity(applies.len());
    for (
        object,
        Change {
            forced_back, payload, ..
        },
    ) in applies
    {
        contested_fields::record_correction(context, &object.target.id, &forced_back);
        let recreated = context.memory.recreating.contains(&object.target.id);
        let existed = matches!(context.find_live(&object.target.id), Some(Live::Present(_)));
        let word = match (recreated, existed) {
            (true, _) => "recreated",
            (false, true) => "configured",
            (false, false) => "created",
        };
        let line = format!(
            "{} {word}{}",
            object.target.id.subject(),
            contested_fields::describe_changes(&forced_back)
        );
        changes::record_change(context, &object.target.id, line);
        let usual = apply_of(object);
        let object = payload.unwrap_or_else(|| usual.object.clone());
        steps.push(Request::Apply(Apply { object, ..usual }));
    }
    let mut plan = context.fork().plan_again(steps);
    plan.status_first = status.is_some();
    plan.status = status;
    plan.forecast = forecast_stages(context, desired, |later| stage.is_none_or(|stage| later > stage));
    plan
}

fn apply_of(object: &DesiredObject) -> Apply {
    Apply {
        id: object.target.id.clone(),
        object: object.object.clone(),
        origin: object.origin.clone(),
        manager: KUSTOMIZE_CONTROLLER.to_owned(),
        force: true,
        confidential: object.confidential,
    }
}

fn describe_failure(context: &Context<'_>, object: &DesiredObject, failure: &Failure) -> String {
    let id = &object.target.id;
    let attempt = &context.snapshot.attempt;
    let what = if attempt.applied.contains_key(id) {
        "apply failed"
    } else if matches!(attempt.tried.get(id), Some(WriteAnswer::Failed(_))) {
        "is not re-created: the dry run of its creation failed"
    } else if attempt.deleted.contains_key(id) {
        "is not re-created: its deletion failed"
    } else if attempt.tried_deletes.contains_key(id) {
        "is not re-created: the dry run of its deletion failed"
    } else if keeps_own_rights(context, id, failure) {
        "is not recreated"
    } else {
        "dry-run failed"
    };
    let reason = match &failure.reason {
        Reason::Unknown => String::new(),
        reason => format!(" ({reason})"),
    };
    let hint = if immutable::is_only_immutability(failure) && !attempt.tried.contains_key(id) {
        "; an immutable field was changed: undo the change in Git, or set spec.force: true to delete and re-create the object"
    } else {
        ""
    };
    let grant = missing_right::write_advice(failure, &context.identity, id).map(|advice| format!("; {advice}"));
    let grant = grant.unwrap_or_default();
    format!(
        "{} {what}{reason}: {}{hint}{grant} ({})",
        id.subject(),
        failure.message.trim_end(),
        object.origin
    )
}

/// Checks whether a failure reports that a binding may give the ServiceAccount its own rights.
fn keeps_own_rights(context: &Context<'_>, id: &ObjectId, failure: &Failure) -> bool {
    let live = context.find_live(id).and_then(Live::object);
    live.and_then(|live| recreate::find_own_rights(context, id, live))
        .as_ref()
        == Some(failure)
}

/// Waits until the objects of an early stage are ready, if any of them was changed in this attempt.
fn wait_for_stage(
    context: &mut Context<'_>,
    desired: &Desired,
    objects: &[&DesiredObject],
    waiting: &mut Vec<String>,
) -> Phase<()> {
    let needed_later = desired
        .objects
        .iter()
        .any(|later| objects.iter().any(|object| later.stage > object.stage));
    if !needed_later {
        return Ok(());
    }
    let mut custom = CustomHealth::from_spec(context.spec());
    for object in objects {
        let id = &object.target.id;
        let Some(live) = context.find_live(id) else {
            continue;
        };
        if find_skip_reason(&object.object.0, live.object()).is_some() {
            continue;
        }
        match custom.assess_object(&mut context.memory.expressions, id, live, object.confidential) {
            Health::Current => {}
            Health::Failed(message) => {
                let message = format!("{} failed: {message} ({})", object.target.id.subject(), object.origin);
                return Err(outcome::plan_failed(
                    context.fork(),
                    reason::RECONCILIATION_FAILED,
                    message,
                ));
            }
            health => waiting.push(format!("{} status: '{}'", object.target.id.subject(), health.as_str())),
        }
    }
    if waiting.is_empty() {
        return Ok(());
    }
    let deadline = add_duration(context.snapshot.attempt.started, STAGE_TIMEOUT.min(context.timeout));
    if context.now >= deadline {
        let message = format!("timeout waiting for: [{}]", waiting.join(", "));
        return Err(outcome::plan_failed(
            context.fork(),
            reason::RECONCILIATION_FAILED,
            message,
        ));
    }
    for line in waiting.iter() {
        context.withhold("the next stage", format!("waiting for {line}"));
    }
    let message = format!("Waiting for objects that later ones depend on: {}", waiting.join(", "));
    let mut plan = outcome::plan_waiting(context.fork(), deadline, message);
    plan.next = Next::Wait(deadline);
    Err(plan)
}

/// Returns the expected actions after a stage.
fn forecast_stages(context: &Context<'_>, desired: &Desired, is_ahead: impl Fn(Stage) -> bool) -> Vec<Forecast> {
    let mut forecasts = Vec::new();
    for later in STAGES.into_iter().filter(|later| is_ahead(*later)) {
        let actions: Vec<String> = desired
            .objects
            .iter()
            .filter(|object| object.stage == later)
            .map(|object| {
                format!(
                    "apply {}, if it differs ({})",
                    object.target.id.subject(),
                    object.origin
                )
            })
            .collect();
        if !actions.is_empty() {
            forecasts.push(Forecast { stage: later, actions });
        }
    }
    let pruned: Vec<String> = super::prune::list_candidates(context, desired)
        .into_iter()
        .map(|target| format!("delete {}, if it is still ours", target.id.subject()))
        .collect();
    if context.spec().prune && !pruned.is_empty() {
        forecasts.push(Forecast {
            stage: Stage::Prune,
            actions: pruned,
        });
    }
    if context.spec().wait {
        forecasts.push(Forecast {
            stage: Stage::Health,
            actions: vec!["wait until every object is healthy".to_owned()],
        });
    }
    forecasts
}
