//! The rule for finalizers on objects that Tenure manages in a tenant's namespaces, and on these namespaces.
//!
//! A finalizer keeps an object after its deletion: a RoleBinding of a removed owner would still grant rights. So no identity of a tenant adds one to an object
//! with Tenure's label, or changes a label or an owner by which Tenure knows it. A list of a tenant's identities would miss the users and groups that an owner
//! binds. The rule therefore denies every user but these: the API server, Tenure, users with the verb `adopt`, and users that may update such objects in every
//! namespace. No tenant can grant that last right; controllers that set finalizers of their own have it.

use std::collections::BTreeSet;

use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, MANAGING_LABELS};

use super::bindings;
use super::kubernetes::is_api_server_or_tenure;
use super::{Case, Findings, Question, Refusal, Rule};
use tenure_tenancy::placement::TenantFacts;
use tenure_tenancy::rights::ADOPT;

/// Subresources through which the metadata of an object can be written.
pub(super) const PARTS: [&str; 1] = ["status"];
/// The verb that a controller of the platform has in all namespaces.
pub(super) const UPDATE: &str = "update";
/// The paths of an object's finalizers, and of a Namespace's second list.
const LISTS: [&str; 2] = ["/metadata/finalizers", "/spec/finalizers"];
/// The finalizer in the `spec` of a Namespace that the API server sets on each of them.
pub(super) const KUBERNETES: &str = "kubernetes";
/// The field that names the owners of an object.
const OWNERS: &str = "ownerReferences";
pub(super) const REMEDY: &str = "leave it as it is, or ask an administrator (verb adopt on tenants)";

/// Checks whether an object has Tenure's label.
pub(super) fn is_managed(object: &Value) -> bool {
    ObjectView::new(object).find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE)
}

/// Checks whether Tenure writes objects of this resource in tenants' namespaces. A new object may have Tenure's label before
/// Tenure takes the object over.
pub(super) fn is_written(group: &str, resource: &str) -> bool {
    match group {
        "" => matches!(
            resource,
            "limitranges" | "resourcequotas" | "secrets" | "serviceaccounts"
        ),
        "networking.k8s.io" => resource == "networkpolicies",
        bindings::GROUP => matches!(resource, "rolebindings" | "roles"),
        _ => false,
    }
}

pub(super) fn check(case: Case<'_>, _: &mut Findings) -> Result<(), Refusal> {
    let request = case.request;
    let resource = request.resource;
    let is_part = resource.subresource.is_empty() || PARTS.contains(&resource.subresource);
    let Some(tenant) = case.tenant.filter(|_| request.writes() && is_part) else {
        return Ok(());
    };
    if (resource.group, resource.name) == ("", "namespaces") {
        return Ok(());
    }
    let Some(new) = request.object else { return Ok(()) };
    let old = request.old_object.filter(|old| is_managed(old));
    let (user, name) = (request.actor.user, request.name);
    let found = match old.and_then(|old| find_changed(old, new)) {
        Some(OWNERS) => write_owners_message(user, resource.name, name),
        Some(label) => write_label_message(user, label, resource.name, name),
        None if !is_managed(new) => return Ok(()),
        None => match find_added(old, new, &LISTS[..1]) {
            Some(finalizer) => write_finalizer_message(user, finalizer, resource.name, name),
            None => return Ok(()),
        },
    };
    let everywhere = Question {
        verb: UPDATE,
        group: resource.group,
        resource: resource.name,
        namespace: "",
        name: "",
    };
    refuse(case, &tenant.name, &everywhere, found)
}

/// Denies a finalizer that a request adds to a tenant's namespace.
pub(super) fn check_namespace(case: Case<'_>, tenant: &TenantFacts, name: &str) -> Result<(), Refusal> {
    let Some(new) = case.request.object else { return Ok(()) };
    let Some(finalizer) = find_added(case.request.old_object, new, &LISTS) else {
        return Ok(());
    };
    let why = write_finalizer_message(case.request.actor.user, finalizer, "namespaces", name);
    // The right to update namespaces is no criterion: some platforms let all users update them.
    let everywhere = Question {
        verb: UPDATE,
        group: bindings::GROUP,
        resource: bindings::RESOURCE,
        namespace: "",
        name: "",
    };
    refuse(case, &tenant.name, &everywhere, why)
}

fn refuse(case: Case<'_>, tenant: &str, everywhere: &Question<'_>, why: String) -> Result<(), Refusal> {
    if is_api_server_or_tenure(case)
        || case.is_allowed(&Question::about_tenant(ADOPT, tenant))
        || case.is_allowed(everywhere)
    {
        return Ok(());
    }
    Err(Refusal {
        rule: Rule::ManagedObjects,
        why,
        remedy: REMEDY.to_owned(),
    })
}

/// Returns the first label by which Tenure knows the object, or its owners, if a request changes
/// it.
fn find_changed(old: &Value, new: &Value) -> Option<&'static str> {
    let label = |object: &Value, key: &str| ObjectView::new(object).find_label(key).unwrap_or_default().to_owned();
    let owners = |object: &Value| {
        let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        owners.cloned().unwrap_or_default()
    };
    let changed = MANAGING_LABELS
        .into_iter()
        .find(|key| label(old, key) != label(new, key));
    changed.or_else(|| (owners(old) != owners(new)).then_some(OWNERS))
}

/// Returns a finalizer that the new object has and the old one doesn't.
fn find_added<'a>(old: Option<&Value>, new: &'a Value, paths: &[&str]) -> Option<&'a str> {
    let list = |object: &'a Value, path: &str| {
        let names = object.pointer(path).and_then(Value::as_array);
        names.into_iter().flatten().filter_map(Value::as_str)
    };
    paths.iter().find_map(|path| {
        let old = old.and_then(|old| old.pointer(path)?.as_array());
        let old: BTreeSet<&str> = old.into_iter().flatten().filter_map(Value::as_str).collect();
        let is_kubernetes = |name: &str| *path == "/spec/finalizers" && name == KUBERNETES;
        list(new, path).find(|name| !is_kubernetes(name) && !old.contains(name))
    })
}

/// Returns the message about a finalizer.
pub(super) fn write_finalizer_message(user: &str, finalizer: &str, resource: &str, name: &str) -> String {
    format!("metadata.finalizers: {user} may not set {finalizer} on {resource} {name}, which Tenure manages")
}

/// Returns the message about a label by which Tenure knows an object.
pub(super) fn write_label_message(user: &str, label: &str, resource: &str, name: &str) -> String {
    format!("metadata.labels: {user} may not change {label} of {resource} {name}, which Tenure manages")
}

/// Returns the message about owners.
pub(super) fn write_owners_message(user: &str, resource: &str, name: &str) -> String {
    format!("metadata.{OWNERS}: {user} may not change the owners of {resource} {name}, which Tenure manages")
}
