//! The apply, stage by stage: read, dry-run, compare, take over, apply what differs, wait until what others need is ready.
//!
//! A stage is applied only if every dry-run of it was accepted; all that were refused are named, not just the first.

use std::time::Duration;

use serde_json::Value;
use tenure_api::metadata::{FORCE, KUSTOMIZE_CONTROLLER, RECONCILE, SSA};
use tenure_api::reason;

use super::contest;
use super::context::Context;
use super::desired::{Desired, DesiredObject};
use super::order::Stage;
use super::takeover;
use super::types::{DriftedField, Settled};
use super::{Phase, ending};
use crate::answer::{DeleteAnswer, Failure, Live, WriteAnswer};
use crate::digest;
use crate::ending::later;
use crate::health::{self, Health};
use crate::plan::{Apply, Delete, Forecast, Next, Step};

/// How long the objects of an early stage may take to become ready (Flux's).
const STAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// What there is to do about one object.
enum Todo {
    Nothing,
    Skip(String),
    Read,
    DryRun,
    TakeOver(crate::plan::TakeOver),
    Apply { forced_back: Vec<DriftedField> },
    Delete(Delete),
    WaitGone,
    Refused(Failure),
}

/// Applies all stages; returns when every object is as desired, skipped, or backed off.
pub(super) fn apply(context: &mut Context<'_>, desired: &Desired) -> Phase<()> {
    let mut waiting: Vec<String> = Vec::new();
    for stage in Stage::ALL {
        let objects: Vec<&DesiredObject> = desired.objects.iter().filter(|object| object.stage == stage).collect();
        if objects.is_empty() {
            continue;
        }
        self::stage(context, desired, stage, &objects)?;
        if stage != Stage::Rest {
            wait_for_stage(context, desired, &objects, &mut waiting)?;
        }
    }
    Ok(())
}

fn stage(context: &mut Context<'_>, desired: &Desired, stage: Stage, objects: &[&DesiredObject]) -> Phase<()> {
    let mut reads = Vec::new();
    let mut dry_runs = Vec::new();
    let mut take_overs = Vec::new();
    let mut applies = Vec::new();
    let mut deletes = Vec::new();
    let mut gone = Vec::new();
    let mut refused: Vec<(&DesiredObject, Failure)> = Vec::new();
    for object in objects {
        match todo(context, object) {
            Todo::Nothing => {}
            Todo::Skip(why) => context.withhold(object.target.id.subject(), why),
            Todo::Read => reads.push(Step::Read(object.target.clone())),
            Todo::DryRun => dry_runs.push(*object),
            Todo::TakeOver(step) => take_overs.push(Step::TakeOver(step)),
            Todo::Apply { forced_back } => applies.push((*object, forced_back)),
            Todo::Delete(step) => deletes.push(Step::Delete(step)),
            Todo::WaitGone => gone.push(object.target.id.subject()),
            Todo::Refused(failure) => refused.push((object, failure)),
        }
    }
    if !reads.is_empty() {
        return Err(context.fork().again(reads));
    }
    if !dry_runs.is_empty() {
        let steps = dry_runs.iter().map(|object| Step::DryRun(apply_of(object))).collect();
        let created = dry_runs
            .iter()
            .filter(|object| matches!(context.live(&object.target.id), Some(Live::Absent)))
            .map(|object| &object.target);
        let status = ending::status_before_creation(context, created);
        let mut plan = context.fork().again(steps);
        plan.status = status;
        plan.forecast = forecast(context, desired, |later| later >= stage);
        return Err(plan);
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
    if !deletes.is_empty() {
        return Err(context.fork().again(deletes));
    }
    if !gone.is_empty() {
        let deadline = context.deadline();
        if context.now >= deadline {
            let message = format!("timeout waiting for the deletion of: {}", gone.join(", "));
            return Err(ending::failed(context.fork(), reason::RECONCILIATION_FAILED, message));
        }
        for subject in gone {
            context.withhold(subject, "it is being deleted: waiting until it is gone");
        }
        return Err(ending::waiting(
            context.fork(),
            deadline,
            "Waiting for objects to be deleted".to_owned(),
        ));
    }
    if !take_overs.is_empty() {
        return Err(context.fork().again(take_overs));
    }
    if !applies.is_empty() {
        let mut steps = Vec::with_capacity(applies.len());
        for (object, forced_back) in applies {
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
            steps.push(Step::Apply(apply_of(object)));
        }
        let mut plan = context.fork().again(steps);
        plan.forecast = forecast(context, desired, |later| later > stage);
        return Err(plan);
    }
    Ok(())
}

fn apply_of(object: &DesiredObject) -> Apply {
    Apply {
        id: object.target.id.clone(),
        object: object.object.clone(),
        origin: object.origin.clone(),
        manager: KUSTOMIZE_CONTROLLER.to_owned(),
        force: true,
    }
}

/// What there is to do about one object, by what is known of it.
fn todo(context: &mut Context<'_>, object: &DesiredObject) -> Todo {
    let id = &object.target.id;
    let attempt = &context.snapshot.attempt;
    let Some(live) = context.live(id) else {
        return Todo::Read;
    };
    if let Some(why) = skipped(&object.object.0, live.object()) {
        return Todo::Skip(why);
    }
    match attempt.applied.get(id) {
        Some(WriteAnswer::Done(answer)) => {
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
    if live_object.is_some_and(|live| live.pointer("/metadata/deletionTimestamp").is_some()) {
        return Todo::WaitGone;
    }
    if let Some(live) = live_object {
        if is_settled(context, object, live) {
            return Todo::Nothing;
        }
        if let Some(why) = contest::backed_off(context, id) {
            return Todo::Skip(why);
        }
    }
    match attempt.deleted.get(id) {
        Some(DeleteAnswer::Failed(failure)) => return Todo::Refused(failure.clone()),
        // The object that was in the way is gone; its successor needs no dry-run, the refused one said all there was to say.
        Some(DeleteAnswer::Accepted | DeleteAnswer::Absent) if live_object.is_none() => {
            return Todo::Apply {
                forced_back: Vec::new(),
            };
        }
        Some(DeleteAnswer::Accepted | DeleteAnswer::Absent) => return Todo::WaitGone,
        None => {}
    }
    let answer = match attempt.dry_runs.get(id) {
        None => return Todo::DryRun,
        Some(WriteAnswer::Failed(failure)) => {
            return match live_object {
                Some(live) if may_recreate(context, object, live) && is_immutable(failure) => Todo::Delete(Delete {
                    target: object.target.clone(),
                    uid: live.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned),
                    propagation: "Background".to_owned(),
                    why: format!("recreated, because the change is refused: {}", failure.message),
                }),
                _ => Todo::Refused(failure.clone()),
            };
        }
        Some(WriteAnswer::Done(answer)) => &answer.0,
    };
    let Some(live) = live_object else {
        return Todo::Apply {
            forced_back: Vec::new(),
        };
    };
    let (before, after) = (digest::comparable(live), digest::comparable(answer));
    let merge = annotation(&object.object.0, SSA).is_some_and(|value| value.eq_ignore_ascii_case("Merge"));
    let take_over = if merge {
        None
    } else {
        takeover::needed(object.target.clone(), live)
    };
    let taken_over = attempt.taken_over.get(id);
    if let Some(WriteAnswer::Failed(failure)) = taken_over {
        return Todo::Refused(failure.clone());
    }
    // After a take-over the dry-run does not show what the apply will now remove: it is applied in any case.
    if taken_over.is_none() && take_over.is_none() && before == after {
        settle(context, object, live);
        return Todo::Nothing;
    }
    let forced_back = contest::changes(context, object, live, &before, &after);
    if let Some(why) = contest::judge(context, id, &forced_back) {
        return Todo::Skip(why);
    }
    match take_over {
        Some(step) if taken_over.is_none() => {
            contest::keep(context, id, &forced_back);
            Todo::TakeOver(step)
        }
        _ => Todo::Apply { forced_back },
    }
}

fn is_settled(context: &Context<'_>, object: &DesiredObject, live: &Value) -> bool {
    context.memory.settled.get(&object.target.id).is_some_and(|settled| {
        settled.desired == object.digest && settled.live == digest::of(&digest::comparable(live))
    })
}

fn settle(context: &mut Context<'_>, object: &DesiredObject, live: &Value) {
    let settled = Settled {
        desired: object.digest.clone(),
        live: digest::of(&digest::comparable(live)),
    };
    context.memory.settled.insert(object.target.id.clone(), settled);
}

pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// Whether an annotation takes the object out of the apply; honoured on the desired and on the live object.
pub(super) fn skipped(desired: &Value, live: Option<&Value>) -> Option<String> {
    let says = |key: &str, value: &str| {
        let on = |object: &Value| annotation(object, key).is_some_and(|found| found.eq_ignore_ascii_case(value));
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

/// Recreating deletes, so it needs what pruning needs: that it was asked for, and that the live object is not somebody else's.
fn may_recreate(context: &Context<'_>, object: &DesiredObject, live: &Value) -> bool {
    let asked = |object: &Value| annotation(object, FORCE).is_some_and(|value| value.eq_ignore_ascii_case("enabled"));
    let owned = tenure_tenancy::inventory::is_owned(live, context.namespace, context.name);
    (context.spec().force || asked(&object.object.0) || asked(live)) && owned
}

fn is_immutable(failure: &Failure) -> bool {
    failure.reason == "Invalid" || failure.reason == "Conflict" || failure.message.contains("field is immutable")
}

fn describe(context: &Context<'_>, object: &DesiredObject, failure: &Failure) -> String {
    let id = &object.target.id;
    let dry_run = if context.snapshot.attempt.applied.contains_key(id) {
        "apply"
    } else {
        "dry-run"
    };
    let reason = if failure.reason.is_empty() {
        String::new()
    } else {
        format!(" ({})", failure.reason)
    };
    let hint = if is_immutable(failure) && failure.reason == "Invalid" && failure.message.contains("immutable") {
        "; a field that can't be changed was changed: undo that, or let the object be recreated with spec.force"
    } else {
        ""
    };
    format!(
        "{} {dry_run} failed{reason}: {}{hint} ({})",
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
    for object in objects {
        let Some(live) = context.live(&object.target.id) else {
            continue;
        };
        if skipped(&object.object.0, live.object()).is_some() {
            continue;
        }
        match health::of_live(live) {
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
    let deadline = later(context.snapshot.attempt.started, STAGE_TIMEOUT.min(context.timeout));
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
    for later in Stage::ALL.into_iter().filter(|later| is_ahead(*later)) {
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
            forecasts.push(Forecast {
                stage: later.as_str().to_owned(),
                actions,
            });
        }
    }
    let pruned: Vec<String> = super::prune::candidates(context, desired)
        .into_iter()
        .map(|target| format!("delete {}, if it is still ours", target.id.subject()))
        .collect();
    if context.spec().prune && !pruned.is_empty() {
        forecasts.push(Forecast {
            stage: "prune".to_owned(),
            actions: pruned,
        });
    }
    if context.spec().wait {
        forecasts.push(Forecast {
            stage: "health".to_owned(),
            actions: vec!["wait until every object is healthy".to_owned()],
        });
    }
    forecasts
}
