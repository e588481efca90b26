//! Recreation: an object is deleted and re-created, because the API server refuses the wanted change to it.
//!
//! Before the deletion, two dry-runs: one creates the object under another name, without the fields that the API server set; one deletes it. This module writes the
//! object for the first. It refuses objects that are bound to their name or uid, and bindings that may give the ServiceAccount its own rights.

use serde_json::Value;
use tenure_api::digest::digest_bytes;
use tenure_api::metadata::FORCE;
use tenure_api::{ObjectId, ObjectView};

use super::context::Context;
use super::desired::DesiredObject;
use super::object_action::find_version;
use super::remote_cluster;
use crate::answer::{DeleteAnswer, Failure, Reason, WriteAnswer};
use crate::immutable;
use crate::object::Object;
use crate::plan::{Apply, Delete, Propagation};

/// The longest part of a name that the trial keeps, so that the name with its suffix fits the kinds with the shortest names.
const NAME_KEPT: usize = 43;

/// The action after a refused change.
pub(super) enum Recreation {
    /// No action: the refusal stands.
    Refused,
    /// A dry-run of its creation comes first.
    Try,
    /// A dry-run of the deletion comes first.
    TryDelete(Delete),
    /// The dry-run of the creation or of the deletion was refused.
    Fails(Failure),
    /// The object is deleted, and re-created after it is gone.
    Delete(Delete),
}

/// Decides the action after a refused change of an existing object.
pub(super) fn decide_recreation(
    context: &Context<'_>,
    object: &DesiredObject,
    live: &Value,
    failure: &Failure,
) -> Recreation {
    if !is_asked_for(context, object, live) || !immutable::is_only_immutability(failure) {
        return Recreation::Refused;
    }
    if let Some(failure) = find_own_rights(context, &object.target.id, live) {
        return Recreation::Fails(failure);
    }
    match context.snapshot.attempt.tried.get(&object.target.id) {
        None => Recreation::Try,
        Some(WriteAnswer::Failed(failure)) => Recreation::Fails(failure.clone()),
        Some(WriteAnswer::Done(_)) => judge_deletion(
            context,
            Delete {
                target: object.target.clone(),
                uid: ObjectView::new(live).find_text("/metadata/uid").map(str::to_owned),
                resource_version: find_version(live),
                propagation: Propagation::Background,
                why: format!("recreated, because these can't be changed: {}", list_fields(failure)),
            },
        ),
    }
}

/// Decides about an object after the dry-run of its creation passed.
fn judge_deletion(context: &Context<'_>, delete: Delete) -> Recreation {
    match context.snapshot.attempt.tried_deletes.get(&delete.target.id) {
        None => Recreation::TryDelete(delete),
        Some(DeleteAnswer::Accepted | DeleteAnswer::Absent) => Recreation::Delete(delete),
        Some(DeleteAnswer::Changed { .. }) => Recreation::Fails(make_conflict()),
        Some(DeleteAnswer::Failed(failure)) => Recreation::Fails(failure.clone()),
    }
}

/// Returns the failure for an object that changed between the look at it and its deletion.
pub(super) fn make_conflict() -> Failure {
    Failure {
        reason: Reason::Conflict,
        message: "it was changed before it could be deleted and recreated".to_owned(),
        ..Failure::default()
    }
}

/// Finds the reason to keep a binding that names the acting ServiceAccount: after the deletion, the ServiceAccount may lack the right to create it again. A dry-run
/// can't find that, since the binding still exists. In another cluster the acting user is unknown, and nothing is checked.
pub(super) fn find_own_rights(context: &Context<'_>, id: &ObjectId, live: &Value) -> Option<Failure> {
    let is_binding =
        id.group == "rbac.authorization.k8s.io" && ["RoleBinding", "ClusterRoleBinding"].contains(&&*id.kind);
    if !is_binding || remote_cluster::is_elsewhere(context.snapshot) {
        return None;
    }
    let subjects = live.get("subjects").and_then(Value::as_array);
    let mut subjects = subjects.into_iter().flatten();
    let is_own = subjects.any(|subject| is_subject(context, id, subject));
    is_own.then(|| Failure {
        message: format!(
            "it names {}, which may then lack the right to create it again: apply the new binding under another name, and remove this one in a later commit",
            context.identity
        ),
        ..Failure::default()
    })
}

/// Checks whether a subject of a binding is the ServiceAccount that acts, or a group that it is in.
fn is_subject(context: &Context<'_>, binding: &ObjectId, subject: &Value) -> bool {
    let text = |key: &str| subject.get(key).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (context.identity.namespace(), context.identity.name());
    let its_namespace = match text("namespace") {
        "" => binding.namespace.as_str(),
        namespace => namespace,
    };
    match text("kind") {
        "ServiceAccount" => text("name") == name && its_namespace == namespace,
        "User" => text("name") == context.identity.to_string(),
        "Group" => {
            let group = text("name");
            ["system:authenticated", "system:serviceaccounts"].contains(&group)
                || group.strip_prefix("system:serviceaccounts:") == Some(namespace)
        }
        _ => false,
    }
}

/// Checks the conditions of a recreation. It deletes, so it needs the same as a prune: a request for it, and a live object that has no other owner. An object with a
/// field that names one incarnation of an object can't be re-created.
fn is_asked_for(context: &Context<'_>, object: &DesiredObject, live: &Value) -> bool {
    let asked = |object: &Value| ObjectView::new(object).has_annotation(FORCE, "enabled");
    let owned = tenure_tenancy::inventory::is_owned(live, context.namespace, context.name);
    let bound = ["/metadata/uid", "/metadata/resourceVersion"]
        .iter()
        .any(|path| object.object.view().has(path));
    (context.spec().force || asked(&object.object.0) || asked(live)) && owned && !bound
}

/// Returns the fields that a refusal names.
fn list_fields(failure: &Failure) -> String {
    let names: Vec<&str> = failure.causes.iter().map(|cause| cause.field.as_str()).collect();
    names.join(", ")
}

/// Makes the object for the trial of the creation: under a free name, without the fields that the API server gave to the existing one.
pub(super) fn make_trial(object: &DesiredObject, apply: Apply) -> Apply {
    let mut tried = object.object.0.clone();
    if let Some(metadata) = tried.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("name".to_owned(), Value::String(make_trial_name(&object.target.id)));
        for field in [
            "generation",
            "creationTimestamp",
            "managedFields",
            "selfLink",
            "generateName",
        ] {
            metadata.remove(field);
        }
    }
    if let Some(fields) = tried.as_object_mut() {
        fields.remove("status");
    }
    let id = &object.target.id;
    if id.group.is_empty() && id.kind == "Service" {
        remove_allocated(&mut tried);
    }
    Apply {
        object: Object(tried),
        ..apply
    }
}

/// Addresses and ports are given to one Service at a time; that it is headless is its own choice.
fn remove_allocated(service: &mut Value) {
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let headless = |value: &Value| value == "None" || value.get(0).is_some_and(|first| first == "None");
    for field in ["clusterIP", "clusterIPs"] {
        if spec.get(field).is_some_and(|value| !headless(value)) {
            spec.remove(field);
        }
    }
    spec.remove("healthCheckNodePort");
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
}

fn make_trial_name(id: &ObjectId) -> String {
    let kept: String = id.name.chars().take(NAME_KEPT).collect();
    let digest = digest_bytes(id.to_string().as_bytes());
    let digits: String = digest
        .chars()
        .skip_while(|character| *character != ':')
        .skip(1)
        .take(8)
        .collect();
    format!("{}-{digits}", kept.trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn trial_service_drops_allocated_addresses_and_ports() {
        let mut service = json!({ "spec": {
            "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "healthCheckNodePort": 30_001, "type": "NodePort",
            "ports": [{ "port": 80, "nodePort": 30_000 }, { "port": 81 }] } });
        remove_allocated(&mut service);
        assert_eq!(
            service,
            json!({ "spec": { "type": "NodePort", "ports": [{ "port": 80 }, { "port": 81 }] } })
        );
        let mut headless = json!({ "spec": { "clusterIP": "None", "clusterIPs": ["None"] } });
        remove_allocated(&mut headless);
        assert_eq!(
            headless,
            json!({ "spec": { "clusterIP": "None", "clusterIPs": ["None"] } })
        );
    }

    #[test]
    fn the_name_of_a_trial_is_another_and_short() {
        for name in ["a", "a.b", &"x".repeat(253), &format!("{}.{}", "y".repeat(42), "z")] {
            let id = ObjectId {
                namespace: "team".to_owned(),
                name: name.to_owned(),
                group: String::new(),
                kind: "Service".to_owned(),
            };
            let tried = make_trial_name(&id);
            assert_ne!(tried, name);
            assert!(tried.len() <= 52, "{tried}");
            assert!(!tried.contains(".-"), "{tried}");
        }
    }
}
