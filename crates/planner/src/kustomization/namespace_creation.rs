//! The creation of a tenant's namespaces from Git. A Namespace that the tenant doesn't have yet is created first, with a request that admission judges as it judges an
//! owner's own. The other objects wait until the Tenant has recorded the namespace: from then on it bounds the tenant's writes.
//!
//! The request is a create (POST) of a minimal Namespace. An apply (PATCH) would need the right to change every namespace of the cluster, and some of them no
//! admission judges. Once the namespace is the tenant's, the apply of the whole object needs rights in that namespace alone.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tenure_api::metadata::{OWNER_NAME, OWNER_NAMESPACE, TENANT_LABEL, TENURE_CONTROLLER};
use tenure_api::{ObjectId, reason};

use super::apply_mode::{self, ApplyMode};
use super::changes;
use super::context::Context;
use super::desired::{Desired, DesiredObject};
use super::preview::DifferenceKind;
use super::{Phase, Plan, missing_right, outcome};
use crate::answer::{Failure, Reason, WriteAnswer};
use crate::object::Object;
use crate::outcome::{add_duration, join_names};
use crate::plan::{Apply, Next, Request};

/// The time limit for the Tenant to record a new namespace and to bind its accounts there.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause before the next attempt while a right in a new namespace is missing.
const PAUSE: Duration = Duration::from_secs(1);
/// The most new namespaces of one revision. A dry-run of each comes before the first creation, and admission judges every one.
const MOST: usize = 256;
/// The most namespaces that are tried or created before the answers are looked at: a list beyond the quota costs no more than this.
const AT_ONCE: usize = 16;
/// The most bytes of names in a message.
const NAMED: usize = 700;

/// Creates the desired namespaces that the tenant doesn't have yet, and waits until the Tenant has recorded them.
pub(super) fn create_namespaces(context: &mut Context<'_>, desired: &Desired) -> Phase<()> {
    let now = context.now;
    let created = &mut context.memory.created_namespaces;
    created.retain(|_, since| now < add_duration(*since, PATIENCE));
    let new = &desired.new_namespaces;
    if new.is_empty() {
        return Ok(());
    }
    if context.mode == ApplyMode::DetectOnly {
        record_expected(context, desired);
        return Ok(());
    }
    if new.len() > MOST {
        let message = format!(
            "the revision has {} new namespaces: at most {MOST} are created at a time; divide them among several commits",
            new.len()
        );
        return Err(outcome::plan_failed(
            context.fork(),
            reason::RECONCILIATION_FAILED,
            message,
        ));
    }
    let attempt = &context.snapshot.attempt;
    let is_untried = |object: &&DesiredObject| !attempt.tried.contains_key(&object.target.id);
    let refused: Vec<(&DesiredObject, &Failure)> = new
        .iter()
        .filter_map(|object| Some((object, find_refusal(context, &object.target.id)?)))
        .collect();
    if !refused.is_empty() {
        let lines: Vec<String> = refused
            .iter()
            .map(|(object, failure)| describe_refusal(object, failure))
            .collect();
        let transient = refused.iter().all(|(_, failure)| failure.is_transient());
        for (object, _) in refused.iter().filter(|(_, failure)| !failure.is_transient()) {
            context.memory.created_namespaces.remove(&object.target.id.name);
        }
        let message = lines.join("\n");
        return Err(outcome::fail_with(
            context.fork(),
            reason::RECONCILIATION_FAILED,
            message,
            transient,
        ));
    }
    let tries: Vec<Request> = new.iter().filter(is_untried).take(AT_ONCE).map(try_creation).collect();
    if !tries.is_empty() {
        return Err(context.fork().plan_again(tries));
    }
    let is_missing = |object: &&DesiredObject| {
        let id = &object.target.id;
        !attempt.created.contains_key(id) && matches!(attempt.tried.get(id), Some(WriteAnswer::Done(_)))
    };
    let missing: Vec<&DesiredObject> = new.iter().filter(is_missing).take(AT_ONCE).collect();
    match missing.is_empty() {
        true => Err(wait_until_recorded(context, new)),
        false => Err(apply_namespaces(context, &missing)),
    }
}

/// Returns the plan that waits for rights in namespaces that were created lately, if nothing else is refused. The Tenant binds its accounts there a moment after it has
/// recorded the namespace.
pub(super) fn wait_for_rights(context: &mut Context<'_>, refused: &[(&DesiredObject, Failure)]) -> Option<Box<Plan>> {
    let created = &context.memory.created_namespaces;
    let lacks_right = |(object, failure): &(&DesiredObject, Failure)| {
        let id = &object.target.id;
        let namespace = match id.namespace.is_empty() {
            true => &id.name,
            false => &id.namespace,
        };
        created.contains_key(namespace) && missing_right::write_advice(failure, &context.identity, id).is_some()
    };
    if refused.is_empty() || !refused.iter().all(lacks_right) {
        return None;
    }
    let names: Vec<String> = created.keys().cloned().collect();
    let until = add_duration(context.now, PAUSE);
    let message = format!("Waiting for rights in the new namespaces {}", join_names(&names, NAMED));
    let mut plan = outcome::plan_waiting(context.fork(), until, message);
    // A further plan of this attempt would get the same answers.
    plan.next = Next::Done(Some(until));
    Some(plan)
}

/// Records the namespaces and objects that would be created, in the mode without writes. Objects in a new namespace can't be dry-run before the namespace exists.
fn record_expected(context: &mut Context<'_>, desired: &Desired) {
    for object in &desired.new_namespaces {
        apply_mode::record_difference(context, object, DifferenceKind::Created, "would be created");
    }
    for object in &desired.in_new_namespaces {
        let words = format!(
            "can't be checked before Namespace/{} exists",
            object.target.id.namespace
        );
        apply_mode::record_difference(context, object, DifferenceKind::Unseen, &words);
    }
}

/// Returns the dry-run of a creation, with the whole object, since admission also checks its labels.
fn try_creation(object: &DesiredObject) -> Request {
    Request::Try(apply_of(object, object.object.clone()))
}

/// Returns the creation of a minimal Namespace with the owner labels only. The apply that follows sets the other labels, so that a later apply can remove them.
fn create_minimal(object: &DesiredObject) -> Request {
    let view = object.object.view();
    let labels: Map<String, Value> = [TENANT_LABEL, OWNER_NAME, OWNER_NAMESPACE]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), json!(view.find_label(key)?))))
        .collect();
    let minimal = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": object.target.id.name, "labels": labels },
    });
    Request::Create(apply_of(object, Object(minimal)))
}

fn apply_of(object: &DesiredObject, content: Object) -> Apply {
    Apply {
        id: object.target.id.clone(),
        object: content,
        origin: object.origin.clone(),
        manager: TENURE_CONTROLLER.to_owned(),
        force: false,
        confidential: object.confidential,
    }
}

/// Returns the plan that creates namespaces. It stores the inventory with their names first, so that a crash loses no namespace.
fn apply_namespaces(context: &mut Context<'_>, missing: &[&DesiredObject]) -> Box<Plan> {
    let status = outcome::make_status_before_apply(context, missing.iter().map(|object| &object.target));
    for object in missing {
        let id = &object.target.id;
        changes::record_change(context, id, format!("{} created", id.subject()));
        context.memory.created_namespaces.insert(id.name.clone(), context.now);
    }
    let steps = missing.iter().map(|object| create_minimal(object)).collect();
    let mut plan = context.fork().plan_again::<Request>(steps);
    if !plan.steps.is_empty() {
        plan.status_first = status.is_some();
        plan.status = status;
    }
    plan
}

/// Finds the refusal of a creation or of its dry-run. A namespace that this Kustomization has just created exists already.
fn find_refusal<'a>(context: &Context<'a>, id: &ObjectId) -> Option<&'a Failure> {
    let attempt = &context.snapshot.attempt;
    let is_created = context.memory.created_namespaces.contains_key(&id.name);
    let answers = [attempt.created.get(id), attempt.tried.get(id)];
    answers.into_iter().flatten().find_map(|answer| match answer {
        WriteAnswer::Failed(failure) if is_created && failure.reason == Reason::AlreadyExists => None,
        WriteAnswer::Failed(failure) => Some(failure),
        WriteAnswer::Done(_) => None,
    })
}

fn describe_refusal(object: &DesiredObject, failure: &Failure) -> String {
    let remedy = match failure.reason {
        Reason::AlreadyExists => {
            "; it isn't the tenant's: choose another name, or ask an administrator to give it to the tenant (tenure adopt)"
        }
        Reason::Forbidden if failure.message.contains(" cannot create resource \"namespaces\"") => {
            "; a tenant's namespaces are created from Git where admission checks writes, by the tenant's GitOps account or an owner's ServiceAccount"
        }
        _ => "",
    };
    let reason = match &failure.reason {
        Reason::Unknown => String::new(),
        reason => format!(" ({reason})"),
    };
    format!(
        "{} can't be created for the tenant{reason}: {}{remedy} ({})",
        object.target.id.subject(),
        failure.message.trim_end(),
        object.origin
    )
}

fn wait_until_recorded(context: &mut Context<'_>, new: &[DesiredObject]) -> Box<Plan> {
    let names: Vec<String> = new.iter().map(|object| object.target.id.name.clone()).collect();
    let names = join_names(&names, NAMED);
    let deadline = add_duration(context.find_start(), PATIENCE.min(context.timeout));
    if context.now >= deadline {
        let message = format!(
            "timeout: the Tenant has not recorded the new namespaces {names}: look at its conditions NamespacesRecorded and Ready"
        );
        return outcome::plan_failed(context.fork(), reason::RECONCILIATION_FAILED, message);
    }
    context.withhold(
        "everything else",
        format!("the Tenant has not recorded namespaces {names} yet"),
    );
    let message = format!("Waiting until the Tenant has recorded the new namespaces {names}");
    outcome::plan_waiting(context.fork(), deadline, message)
}
