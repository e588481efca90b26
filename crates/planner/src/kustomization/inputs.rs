//! The inputs of a Kustomization's rendering from the cluster: the variables of `spec.postBuild` and the keys of `spec.decryption`. The module decides which ConfigMaps
//! and Secrets are read, which values they give, and whether a change of one starts an attempt.
//!
//! The plan's own steps read them, so as the ServiceAccount that applies: an object that this account may not read gives no values. A failed read is never taken for an
//! absence: an optional Secret that could not be read is not the same as a missing one.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tenure_api::kustomization::SubstituteReference;
use tenure_api::metadata::WATCH_CONFIG;
use tenure_api::names::is_dns_subdomain;
use tenure_api::{KustomizationSpec, ObjectId, ObjectView, reason};

use super::context::Context;
use super::types::{InputState, Snapshot};
use super::{Phase, decryption, outcome, remote_cluster};
use crate::answer::{Live, Reason};
use crate::list_limits;
use crate::object::Object;
use crate::plan::{Next, Watched};
use crate::render_inputs::{ALWAYS, DecryptionKeys, RenderInputs, Variable};

/// The form of a variable's name, in Flux's words.
const NAME: &str = "^[_[:alpha:]][_[:alpha:][:digit:]]*$";
pub(super) const CONFIG_MAP: &str = "ConfigMap";
pub(super) const SECRET: &str = "Secret";
const WITH_VARIABLES: &str = "WithVariables";

/// Refuses an invalid `spec.postBuild`, independent of the state of the cluster.
pub(super) fn check_spec(spec: &KustomizationSpec) -> Result<(), String> {
    decryption::check_spec(spec)?;
    let Some(post_build) = &spec.post_build else {
        return Ok(());
    };
    for name in post_build.substitute.iter().flatten().map(|(name, _)| name) {
        check_name(name).map_err(|message| format!("spec.postBuild.substitute: {message}"))?;
    }
    for (index, from) in post_build.substitute_from.iter().enumerate() {
        if from.kind != CONFIG_MAP && from.kind != SECRET {
            return Err(format!(
                "spec.postBuild.substituteFrom[{index}].kind must be {CONFIG_MAP} or {SECRET}"
            ));
        }
        if !is_dns_subdomain(&from.name) {
            return Err(format!(
                "spec.postBuild.substituteFrom[{index}].name: {:?} is not the name of a {}",
                from.name, from.kind
            ));
        }
    }
    match post_build.substitute_strategy.as_deref() {
        None | Some("" | WITH_VARIABLES | ALWAYS) => Ok(()),
        Some(_) => Err(format!(
            "spec.postBuild.substituteStrategy must be {WITH_VARIABLES} or {ALWAYS}"
        )),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_letter = |letter: char| letter == '_' || letter.is_ascii_alphabetic();
    let valid = name.starts_with(is_letter) && name.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit());
    if valid {
        return Ok(());
    }
    Err(format!(
        "'{}' var name is invalid, must match '{NAME}'",
        name.escape_debug()
    ))
}

pub(super) fn find_target(namespace: &str, kind: &str, name: &str) -> Watched {
    Watched {
        id: ObjectId {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            group: String::new(),
            kind: kind.to_owned(),
        },
        version: "v1".to_owned(),
    }
}

fn list_references(spec: &KustomizationSpec) -> &[SubstituteReference] {
    let post_build = spec.post_build.as_ref();
    post_build.map_or(&[], |post_build| post_build.substitute_from.as_slice())
}

/// Lists the objects to read and to watch, since a change of them can start an attempt.
pub(super) fn list_targets(snapshot: &Snapshot) -> Vec<Watched> {
    let namespace = snapshot.kustomization.metadata.namespace.as_deref().unwrap_or_default();
    let spec = &snapshot.kustomization.spec;
    let references = list_references(spec).iter().take(list_limits::SUBSTITUTE_FROM);
    references
        .map(|from| find_target(namespace, &from.kind, &from.name))
        .chain(decryption::find_secret(spec).map(|name| find_target(namespace, SECRET, name)))
        .collect()
}

/// Reads the inputs of the rendering.
pub(super) fn read_inputs(context: &Context<'_>) -> Phase<RenderInputs> {
    let spec = context.spec();
    let targets = list_targets(context.snapshot);
    let unread = targets.iter().filter(|target| context.find_here(&target.id).is_none());
    let mut unread: Vec<Watched> = unread.cloned().collect();
    unread.sort();
    unread.dedup();
    if !unread.is_empty() {
        let read = |target| remote_cluster::read_here(context.snapshot, target);
        return Err(context.fork().plan_again(unread.into_iter().map(read).collect()));
    }
    let inputs = gather_variables(context, &targets)?;
    if spec.decryption.is_none() {
        return Ok(inputs);
    }
    let mut keys = BTreeMap::new();
    if let Some(name) = decryption::find_secret(spec) {
        let what = format!("cannot get sops decryption Secret '{}/{name}'", context.namespace);
        let target = find_target(context.namespace, SECRET, name);
        let Some(secret) = find_object(context, (&what, SECRET), context.find_here(&target.id))? else {
            return Err(plan_build_failed(
                context,
                format!("{what}: not found: create it, with keys in *.agekey or *.asc"),
            ));
        };
        keys = decryption::read_keys(secret)
            .map_err(|message| plan_build_failed(context, format!("{what}: {message}")))?;
    }
    Ok(inputs.with_keys(DecryptionKeys::new(keys)))
}

fn gather_variables(context: &Context<'_>, targets: &[Watched]) -> Phase<RenderInputs> {
    let Some(post_build) = &context.spec().post_build else {
        return Ok(RenderInputs::default());
    };
    let mut variables = BTreeMap::new();
    for (from, target) in post_build.substitute_from.iter().zip(targets) {
        take_variables(context, from, context.find_here(&target.id), &mut variables)?;
        // The size is checked after each object, so that a hundred objects of a megabyte are never in memory at once.
        check_size(context, &variables)?;
    }
    if let Some(inline) = RenderInputs::inline(post_build).variables() {
        variables.extend(inline.iter().map(|(name, variable)| (name.clone(), variable.clone())));
    }
    check_size(context, &variables)?;
    Ok(RenderInputs::from_variables(post_build, variables))
}

fn check_size(context: &Context<'_>, variables: &BTreeMap<String, Variable>) -> Phase<()> {
    let lengths = variables.iter();
    let lengths = lengths.map(|(name, variable)| (name.as_str(), variable.value.len()));
    list_limits::check_variables("spec.postBuild", lengths).map_err(|message| plan_build_failed(context, message))
}

fn plan_build_failed(context: &Context<'_>, message: String) -> Box<super::Plan> {
    outcome::plan_failed(context.fork(), reason::BUILD_FAILED, message)
}

/// Returns the object of a read; nothing if it is absent. A failed read ends the plan.
fn find_object<'a>(
    context: &Context<'_>,
    (what, kind): (&str, &str),
    live: Option<&'a Live>,
) -> Phase<Option<&'a Object>> {
    match live {
        Some(Live::Present(object)) => Ok(Some(object)),
        Some(Live::Absent) => Ok(None),
        Some(Live::Unserved) | None => Err(plan_build_failed(
            context,
            format!("{what}: the API server does not serve its kind"),
        )),
        Some(Live::Failed(failure)) => {
            let message = if failure.reason == Reason::Forbidden {
                format!(
                    "{what}: {} may not get this {kind}: {}; give it the verb get on the {kind}, by a Role and a RoleBinding in namespace {}",
                    context.identity, failure.message, context.namespace
                )
            } else {
                format!("{what}: it can't be read: {}", failure.message)
            };
            let transient = failure.is_transient();
            Err(outcome::fail_with(
                context.fork(),
                reason::BUILD_FAILED,
                message,
                transient,
            ))
        }
    }
}

/// Adds the variables of one ConfigMap or Secret. They overwrite variables of earlier objects.
fn take_variables(
    context: &Context<'_>,
    from: &SubstituteReference,
    live: Option<&Live>,
    variables: &mut BTreeMap<String, Variable>,
) -> Phase<()> {
    let what = format!("substitute from '{}/{}' error", from.kind, from.name);
    let Some(object) = find_object(context, (&what, &from.kind), live)? else {
        if from.optional {
            return Ok(());
        }
        let message = format!(
            "{what}: not found in namespace {}: create it, or set optional: true",
            context.namespace
        );
        return Err(plan_build_failed(context, message));
    };
    let is_secret = from.kind == SECRET;
    for (name, value) in object.view().find_map("/data").into_iter().flatten() {
        check_name(name).map_err(|message| plan_build_failed(context, format!("{what}: {message}")))?;
        let Some(value) = read_value(value, is_secret) else {
            return Err(plan_build_failed(
                context,
                format!("{what}: the value of {name:?} can't be read"),
            ));
        };
        variables.insert(name.clone(), Variable::new(value, is_secret));
    }
    Ok(())
}

fn read_value(value: &Value, is_secret: bool) -> Option<Vec<u8>> {
    let text = value.as_str()?;
    if is_secret {
        STANDARD.decode(text).ok()
    } else {
        Some(text.as_bytes().to_vec())
    }
}

/// Checks whether a change triggers an attempt, for an object that is only an input of the rendering. Returns nothing for other objects, for which another check
/// decides.
pub(super) fn is_news(snapshot: &Snapshot, id: &ObjectId, before: &Live, now: &Live) -> Option<bool> {
    let is_input = remote_cluster::list_beside(snapshot)
        .iter()
        .any(|target| target.id == *id);
    if !is_input || snapshot.memory.settled.contains_key(id) {
        return None;
    }
    Some(triggers_attempt(snapshot, before, now))
}

/// Checks whether a change of an input of the rendering triggers an attempt: if the object has Flux's watch label, or if the last attempt failed. A failed attempt
/// may have failed because of any input.
pub(super) fn triggers_attempt(snapshot: &Snapshot, before: &Live, now: &Live) -> bool {
    // The label of the present object counts, or of the last state of a deleted object.
    let asked = is_labelled(now) || (now.is_gone() && is_labelled(before));
    asked || snapshot.memory.retry.is_some()
}

fn is_labelled(live: &Live) -> bool {
    let label = live
        .object()
        .and_then(|live| ObjectView::new(live).find_label(WATCH_CONFIG));
    label == Some("Enabled")
}

/// Returns the states of the objects that give inputs to the rendering. Objects that could not be read have none.
pub(super) fn list_states(snapshot: &Snapshot) -> BTreeMap<ObjectId, InputState> {
    let targets = list_targets(snapshot).into_iter();
    targets
        .filter_map(|target| Some((target.id.clone(), read_state(snapshot.find_here(&target.id)?)?)))
        .collect()
}

fn read_state(live: &Live) -> Option<InputState> {
    let digest = match live {
        Live::Present(object) => {
            let data = ["/data", "/binaryData"].map(|place| object.0.pointer(place).cloned().unwrap_or_default());
            Some(Sha256::digest(Value::from(data.to_vec()).to_string()).into())
        }
        Live::Absent => None,
        Live::Unserved | Live::Failed(_) => return None,
    };
    Some(InputState {
        digest,
        is_labelled: is_labelled(live),
    })
}

/// Restarts an attempt that ends, if an input with Flux's watch label has changed since the rendering. The reconciler compares later changes with the objects of the
/// last plan, so nothing else would notice this change before the next interval. Objects that the Kustomization applies itself don't count.
pub(super) fn restart_if_overtaken(snapshot: &Snapshot, plan: &mut super::Plan) {
    let rendered = snapshot.attempt.rendered.as_ref();
    if !matches!(plan.next, Next::Done(_)) || rendered.is_none_or(|rendered| rendered.outcome.is_err()) {
        return;
    }
    let now = list_states(snapshot);
    let is_overtaken = snapshot.memory.render_inputs.iter().any(|(id, before)| {
        let is_own = snapshot.memory.settled.contains_key(id) || plan.memory.settled.contains_key(id);
        now.get(id).is_some_and(|now| {
            let counts = now.is_labelled || (now.digest.is_none() && before.is_labelled);
            !is_own && counts && now.digest != before.digest
        })
    });
    if is_overtaken {
        plan.next = Next::Restart;
    }
}
