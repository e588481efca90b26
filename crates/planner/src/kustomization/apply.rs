//! The apply, stage by stage: read, dry-run, compare, take over, apply what differs, wait until what others need is ready.
//!
//! A stage is applied only if every dry-run of it was accepted; all that were refused are named, not just the first.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tenure_api::metadata::{KUSTOMIZE_CONTROLLER, RECONCILE, SSA};
use tenure_api::{ObjectView, reason};

use super::contest;
use super::context::Context;
use super::custom_health::CustomHealth;
use super::desired::{Desired, DesiredObject};
use super::order::STAGES;
use super::ownership::{self, Kept, Ownership};
use super::recreate::{self, Recreation};
use super::takeover;
use super::types::{DriftedField, Settled};
use super::{Phase, ending, guard};
use crate::answer::{DeleteAnswer, Failure, Live, Reason, WriteAnswer};
use crate::digest;
use crate::ending::add_duration;
use crate::health::Health;
use crate::immutable;
use crate::object::Object;
use crate::plan::{Apply, Delete, Forecast, Next, Request, Stage};

/// How long the objects of an early stage may take to become ready (Flux's).
const STAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// What there is to do about one object.
enum Todo {
    Nothing,
    Skip(String),
    Read,
    DryRun,
    Try,
    TakeOver(crate::plan::TakeOver),
    Apply(Change),
    Delete(Delete),
    WaitGone,
    /// Its owner, named here, may be about to drop it.
    WaitOwner(String),
    /// Another Kustomization owns it.
    Kept(Kept),
    /// Applied; meanwhile kubectl wrote to it, which what was applied could not know.
    LookAgain,
    Refused(Failure),
}

/// What is to be applied.
#[derive(Default)]
struct Change {
    forced_back: Vec<DriftedField>,
    /// Instead of the desired object, where something of it is left to others.
    payload: Option<Object>,
}

/// Applies all stages; returns when every object is as desired, skipped, or backed off.
///
/// An object that is being deleted holds up itself and what can't be without it; it is waited for when all others are applied.
pub(super) fn apply(context: &mut Context<'_>, desired: &Desired) -> Phase<()> {
    let mut waiting: Vec<String> = Vec::new();
    let mut gone: Vec<&DesiredObject> = Vec::new();
    for stage in STAGES {
        let mut objects = Vec::new();
        for object in desired.objects.iter().filter(|object| object.stage == stage) {
            match gone.iter().find(|gone| needs(object, gone)) {
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
        let terminating = self::stage(context, desired, stage, &objects)?;
        if !matches!(stage, Stage::Custom | Stage::Rest) {
            objects.retain(|object| !terminating.iter().any(|gone| gone.target.id == object.target.id));
            wait_for_stage(context, desired, &objects, &mut waiting)?;
        }
        gone.extend(terminating);
    }
    wait_until_gone(context, &gone)
}

/// Whether an object can't be applied without another: it lives in that Namespace, or is of the kind which that defines.
fn needs(object: &DesiredObject, other: &DesiredObject) -> bool {
    let text = |path: &str| other.object.view().find_text(path);
    match other.target.id.kind.as_str() {
        "Namespace" => object.target.id.namespace == other.target.id.name,
        "CustomResourceDefinition" => {
            text("/spec/group") == Some(object.target.id.group.as_str())
                && text("/spec/names/kind") == Some(object.target.id.kind.as_str())
        }
        _ => false,
    }
}

/// Waits, within the attempt's time, until what is being deleted is gone and can be made anew.
fn wait_until_gone(context: &mut Context<'_>, gone: &[&DesiredObject]) -> Phase<()> {
    if gone.is_empty() {
        return Ok(());
    }
    let subjects: Vec<String> = gone.iter().map(|object| object.target.id.subject()).collect();
    let deadline = context.deadline();
    if context.now >= deadline {
        let message = format!("timeout waiting for the deletion of: {}", subjects.join(", "));
        return Err(ending::failed(context.fork(), reason::RECONCILIATION_FAILED, message));
    }
    for subject in subjects {
        context.withhold(subject, "it is being deleted: waiting until it is gone");
    }
    Err(ending::waiting(
        context.fork(),
        deadline,
        "Waiting for objects to be deleted".to_owned(),
    ))
}

/// Applies one stage; returns, when nothing more can be done in it, the objects that are being deleted.
fn stage<'a>(
    context: &mut Context<'_>,
    desired: &Desired,
    stage: Stage,
    objects: &[&'a DesiredObject],
) -> Phase<Vec<&'a DesiredObject>> {
    let mut reads = Vec::new();
    let mut dry_runs = Vec::new();
    let mut tries = Vec::new();
    let mut take_overs = Vec::new();
    let mut applies = Vec::new();
    let mut deletes = Vec::new();
    let mut gone = Vec::new();
    let mut refused: Vec<(&DesiredObject, Failure)> = Vec::new();
    let mut kept: Vec<(&DesiredObject, Kept)> = Vec::new();
    let mut owners: BTreeSet<String> = BTreeSet::new();
    let mut overtaken = false;
    for object in objects {
        match todo(context, object) {
            Todo::Nothing => {}
            Todo::Skip(why) => context.withhold(object.target.id.subject(), why),
            Todo::Read => reads.push(Request::Read(object.target.clone())),
            Todo::DryRun => dry_runs.push(*object),
            Todo::Try => tries.push(Request::Try(recreate::make_trial(object, apply_of(object)))),
            Todo::TakeOver(step) => take_overs.push(Request::TakeOver(step)),
            Todo::Apply(change) => applies.push((*object, change)),
            Todo::Delete(delete) => deletes.push(delete),
            Todo::WaitGone => gone.push(*object),
            Todo::WaitOwner(owner) => {
                context.withhold(object.target.id.subject(), format!("{owner} may be about to drop it"));
                owners.insert(owner);
            }
            Todo::Kept(why) => kept.push((object, why)),
            Todo::LookAgain => {
                context.withhold(
                    object.target.id.subject(),
                    "kubectl wrote to it at the same time: it is looked at again",
                );
                overtaken = true;
            }
            Todo::Refused(failure) => refused.push((object, failure)),
        }
    }
    if !reads.is_empty() {
        return Err(context.fork().again(reads));
    }
    if !dry_runs.is_empty() {
        let steps = dry_runs
            .iter()
            .map(|object| Request::DryRun(apply_of(object)))
            .collect();
        let mut plan = context.fork().again(steps);
        plan.forecast = forecast(context, desired, |later| later >= stage);
        return Err(plan);
    }
    if !tries.is_empty() {
        return Err(context.fork().again(tries));
    }
    if !kept.is_empty() {
        let others = refused
            .iter()
            .map(|(object, failure)| describe(context, object, failure));
        let others = others.collect();
        return Err(ownership::list_kept_by_others(context, stage, &kept, others));
    }
    if !refused.is_empty() {
        let transient = refused.iter().all(|(_, failure)| failure.is_transient());
        let lines: Vec<String> = refused
            .iter()
            .map(|(object, failure)| describe(context, object, failure))
            .collect();
        if lines.len() < objects.len() {
            let names: Vec<String> = refused.iter().map(|(object, _)| object.target.id.subject()).collect();
            context.withhold(
                format!("the rest of stage {}", stage.as_str()),
                format!("refused: {}", names.join(", ")),
            );
        }
        return Err(ending::failed_by(
            context.fork(),
            reason::RECONCILIATION_FAILED,
            lines.join("\n"),
            transient,
        ));
    }
    if !owners.is_empty() {
        let deadline = context.deadline();
        let owners: Vec<String> = owners.into_iter().collect();
        let message = format!("Waiting until objects may be taken over from {}", owners.join(", "));
        return Err(ending::waiting(context.fork(), deadline, message));
    }
    let guarded = guard::guard_recreation(context, deletes);
    if !guarded.free.is_empty() {
        let steps = guarded.free.into_iter().map(Request::Delete).collect();
        return Err(context.fork().again(steps));
    }
    if let Some(message) = guarded.held {
        return Err(ending::failed(context.fork(), reason::DELETION_GUARDED, message));
    }
    if !take_overs.is_empty() {
        return Err(context.fork().again(take_overs));
    }
    if !applies.is_empty() {
        let status = ending::status_before_apply(context, applies.iter().map(|(object, _)| &object.target));
        let mut steps = Vec::with_capacity(applies.len());
        for (object, Change { forced_back, payload }) in applies {
            contest::remember(context, &object.target.id, &forced_back);
            let existed = matches!(context.live(&object.target.id), Some(Live::Present(_)))
                && !context.snapshot.attempt.deleted.contains_key(&object.target.id);
            let recreated = context.snapshot.attempt.deleted.contains_key(&object.target.id);
            let word = if recreated {
                "recreated"
            } else if existed {
                "configured"
            } else {
                "created"
            };
            let line = format!(
                "{} {word}{}",
                object.target.id.subject(),
                contest::describe(&forced_back)
            );
            context.memory.changes.insert(object.target.id.clone(), line);
            let usual = apply_of(object);
            let object = payload.unwrap_or_else(|| usual.object.clone());
            steps.push(Request::Apply(Apply { object, ..usual }));
        }
        let mut plan = context.fork().again(steps);
        plan.status_first = status.is_some();
        plan.status = status;
        plan.forecast = forecast(context, desired, |later| later > stage);
        return Err(plan);
    }
    if overtaken {
        return Err(Box::new(context.fork().finish(Next::Restart)));
    }
    Ok(gone)
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

/// What there is to do about one object, by what is known of it.
fn todo(context: &mut Context<'_>, object: &DesiredObject) -> Todo {
    let id = &object.target.id;
    let attempt = &context.snapshot.attempt;
    let Some(live) = context.live(id) else {
        return Todo::Read;
    };
    if let Some(why) = find_skip_reason(&object.object.0, live.object()) {
        return Todo::Skip(why);
    }
    match attempt.applied.get(id) {
        Some(WriteAnswer::Done(answer)) => {
            // Settled it would stay as it is: its watch tells of no state that the answer has told of already.
            // Only for fields that somebody has: an annotation of kubectl's that Git itself has would come back each time.
            if take_over(context, object, &answer.0).is_some_and(|(_, entries)| !entries.is_empty()) {
                context.memory.settled.remove(id);
                return Todo::LookAgain;
            }
            settle(context, object, &answer.0);
            return Todo::Nothing;
        }
        Some(WriteAnswer::Failed(failure)) => return Todo::Refused(failure.clone()),
        None => {}
    }
    if let Live::Failed(failure) = live {
        return Todo::Refused(failure.clone());
    }
    let live_object = match attempt.deleted.get(id) {
        // What was read is from before the delete.
        Some(DeleteAnswer::Absent) => None,
        _ => live.object(),
    };
    if live_object.is_some_and(|live| ObjectView::of(live).is_being_deleted()) {
        return Todo::WaitGone;
    }
    if live_object.is_some() {
        match ownership::find_ownership(context, id) {
            Ownership::Free => {}
            Ownership::Awaited(owner) => return Todo::WaitOwner(owner),
            Ownership::Kept(kept) => return Todo::Kept(kept),
        }
    }
    if let Some(live) = live_object {
        if is_settled(context, object, live) {
            return Todo::Nothing;
        }
        if let Some(why) = contest::find_back_off(context, id) {
            return Todo::Skip(why);
        }
    }
    match attempt.deleted.get(id) {
        Some(DeleteAnswer::Failed(failure)) => return Todo::Refused(failure.clone()),
        // What was found out about it is about an object that is no more as it was.
        Some(DeleteAnswer::Changed { .. }) => {
            return Todo::Refused(Failure {
                reason: Reason::Conflict,
                message: "it was changed while it was to be deleted and made anew".to_owned(),
                ..Failure::default()
            });
        }
        // The object that was in the way is gone; its successor needs no dry-run, the refused one said all there was to say.
        Some(DeleteAnswer::Accepted | DeleteAnswer::Absent) if live_object.is_none() => {
            return Todo::Apply(Change::default());
        }
        Some(DeleteAnswer::Accepted | DeleteAnswer::Absent) => return Todo::WaitGone,
        None => {}
    }
    if let Some(WriteAnswer::Done(_)) = attempt.taken_over.get(id)
        && context.memory.looked_again.insert(id.clone())
    {
        // Only now is it seen what the apply takes away of what others had added.
        return Todo::DryRun;
    }
    let answer = match attempt.dry_runs.get(id) {
        None => return Todo::DryRun,
        Some(WriteAnswer::Failed(failure)) => {
            let Some(live) = live_object else {
                return Todo::Refused(failure.clone());
            };
            return match recreate::judge(context, object, live, failure) {
                Recreation::Refused => Todo::Refused(failure.clone()),
                Recreation::Try => Todo::Try,
                Recreation::Fails(failure) => Todo::Refused(failure),
                Recreation::Delete(delete) => Todo::Delete(delete),
            };
        }
        Some(WriteAnswer::Done(answer)) => &answer.0,
    };
    let Some(live) = live_object else {
        return Todo::Apply(Change::default());
    };
    let (without, with) = (
        context.ignored.strip(answer, live),
        context.ignored.strip(answer, answer),
    );
    let (before, after) = (digest::select_comparable(&without), digest::select_comparable(&with));
    let take_over = take_over(context, object, live);
    let taken_over = attempt.taken_over.get(id);
    if let Some(WriteAnswer::Failed(failure)) = taken_over {
        return Todo::Refused(failure.clone());
    }
    if (taken_over.is_some() || take_over.is_none()) && before == after {
        settle(context, object, live);
        return Todo::Nothing;
    }
    let forced_back = contest::find_changes(context, object, live, (&before, &after));
    if let Some(why) = contest::judge(context, id, &forced_back) {
        return Todo::Skip(why);
    }
    match take_over {
        Some((step, entries)) if taken_over.is_none() => {
            contest::keep(context, id, &forced_back, entries);
            Todo::TakeOver(step)
        }
        _ => Todo::Apply(Change {
            payload: context.ignored.resolve(&object.object, live, answer),
            forced_back,
        }),
    }
}

/// The take-over that a live object needs, and the entries of managedFields that it takes.
fn take_over(
    context: &Context<'_>,
    object: &DesiredObject,
    live: &Value,
) -> Option<(crate::plan::TakeOver, Vec<Value>)> {
    let merge = object.object.view().has_annotation(SSA, "Merge");
    if merge {
        return None;
    }
    takeover::find_take_over(
        &context.snapshot.settings,
        object.target.clone(),
        live,
        &object.object.0,
    )
}

/// The version of a live object.
pub(super) fn find_version(live: &Value) -> Option<String> {
    let version = ObjectView::of(live).find_text("/metadata/resourceVersion");
    version.map(str::to_owned)
}

fn is_settled(context: &Context<'_>, object: &DesiredObject, live: &Value) -> bool {
    context
        .memory
        .settled
        .get(&object.target.id)
        .is_some_and(|settled| settled.desired == object.digest && settled.live == digest_live(context, live))
}

fn settle(context: &mut Context<'_>, object: &DesiredObject, live: &Value) {
    let settled = Settled {
        desired: object.digest.clone(),
        live: digest_live(context, live),
    };
    context.memory.settled.insert(object.target.id.clone(), settled);
}

/// The digest of what counts of a live object here: what is left to others does not.
fn digest_live(context: &Context<'_>, live: &Value) -> String {
    digest::select_comparable(&context.ignored.strip(live, live)).digest()
}

/// Whether an annotation takes the object out of the apply; honoured on the desired and on the live object.
pub(super) fn find_skip_reason(desired: &Value, live: Option<&Value>) -> Option<String> {
    let says = |key: &str, value: &str| {
        let on = |object: &Value| ObjectView::of(object).has_annotation(key, value);
        on(desired) || live.is_some_and(on)
    };
    if says(SSA, "Ignore") {
        return Some(format!("annotation {SSA} says Ignore"));
    }
    if says(RECONCILE, "disabled") {
        return Some(format!("annotation {RECONCILE} says disabled"));
    }
    if says(SSA, "IfNotPresent") && live.is_some() {
        return Some(format!("annotation {SSA} says IfNotPresent, and it exists"));
    }
    None
}

fn describe(context: &Context<'_>, object: &DesiredObject, failure: &Failure) -> String {
    let id = &object.target.id;
    let attempt = &context.snapshot.attempt;
    let what = if attempt.applied.contains_key(id) {
        "apply"
    } else if matches!(attempt.tried.get(id), Some(WriteAnswer::Failed(_))) {
        "is not recreated, since its creation, tried under another name,"
    } else {
        "dry-run"
    };
    let reason = match &failure.reason {
        Reason::Unknown => String::new(),
        reason => format!(" ({reason})"),
    };
    let hint = if immutable::is_only_immutability(failure) && !attempt.tried.contains_key(id) {
        "; a field that can't be changed was changed: undo that, or let the object be recreated with spec.force"
    } else {
        ""
    };
    format!(
        "{} {what} failed{reason}: {}{hint} ({})",
        id.subject(),
        failure.message.trim_end(),
        object.origin
    )
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
    let mut custom = CustomHealth::of(context.spec());
    for object in objects {
        let id = &object.target.id;
        let Some(live) = context.live(id) else {
            continue;
        };
        if find_skip_reason(&object.object.0, live.object()).is_some() {
            continue;
        }
        match custom.judge(&mut context.memory.expressions, id, live, object.confidential) {
            Health::Current => {}
            Health::Failed(message) => {
                let message = format!("{} failed: {message} ({})", object.target.id.subject(), object.origin);
                return Err(ending::failed(context.fork(), reason::RECONCILIATION_FAILED, message));
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
        return Err(ending::failed(context.fork(), reason::RECONCILIATION_FAILED, message));
    }
    for line in waiting.iter() {
        context.withhold("the next stage", format!("waiting for {line}"));
    }
    let message = format!("Waiting for what others need: {}", waiting.join(", "));
    let mut plan = ending::waiting(context.fork(), deadline, message);
    plan.next = Next::Wait(deadline);
    Err(plan)
}

/// What is expected after a stage.
fn forecast(context: &Context<'_>, desired: &Desired, is_ahead: impl Fn(Stage) -> bool) -> Vec<Forecast> {
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
