//! The objects that protect tenants from each other, and the rights of tenants: NetworkPolicies, ResourceQuotas and LimitRanges of Tenants, the admission policies
//! with the facts that they read, and the bindings of owners.
//!
//! All of them stay by default. If they are deleted, the rights are deleted first: no owner ever has rights without their limits.

use serde_json::json;
use tenure_api::ObjectView;
use tenure_api::metadata::{LANE_BINDING, TENANT_LABEL};

use super::{Action, ObservedObject, Plan, RemovalChoice, Snapshot, Step, is_ours, name_object, plan_deletion};

/// The kinds that limit the contents of a Tenant's namespace.
pub const BOUNDING_KINDS: [(&str, &str); 3] = [
    ("networking.k8s.io", "NetworkPolicy"),
    ("", "ResourceQuota"),
    ("", "LimitRange"),
];

/// Checks whether the policies stay. The facts that they read stay with them.
pub(super) fn keeps_policies(snapshot: &Snapshot, choice: RemovalChoice) -> bool {
    !choice.with_protection && !snapshot.policies.is_empty()
}

/// Checks whether an object of the installation is an admission policy, or binds one.
pub(super) fn is_policy(kind: &str) -> bool {
    kind.starts_with("ValidatingAdmissionPolicy")
}

/// Deletes the bindings that Tenure wrote for Tenants. A binding with a finalizer gives its rights until it is gone, so its subjects are removed.
pub(super) fn withdraw_rights(snapshot: &Snapshot, choice: RemovalChoice) -> Vec<Step> {
    match choice.with_protection {
        true => list_bindings(snapshot)
            .filter_map(|seen| plan_deletion(seen).or_else(|| remove_subjects(seen)))
            .collect(),
        false => Vec::new(),
    }
}

/// Removes the subjects from a RoleBinding that is being deleted, and that a finalizer holds.
pub(super) fn remove_subjects(seen: &ObservedObject) -> Option<Step> {
    let object = ObjectView::new(&seen.object);
    let is_held = object.list_texts("/metadata/finalizers").next().is_some();
    let has_subjects = object.list_views("/subjects").next().is_some();
    if !is_held || !has_subjects {
        return None;
    }
    let metadata = json!({
        "uid": object.read_text("/metadata/uid"), "resourceVersion": object.read_text("/metadata/resourceVersion")
    });
    Some(Step {
        path: seen.path.clone(),
        says: format!(
            "{}: without its subjects, since finalizers hold it",
            name_object(&seen.object)
        ),
        action: Action::Patch(json!({ "metadata": metadata, "subjects": [] })),
    })
}

/// Reports the bindings that finalizers hold. The writer of a finalizer, or an administrator, has to remove it.
fn tell_held(snapshot: &Snapshot, plan: &mut Plan) {
    for seen in list_bindings(snapshot) {
        let object = ObjectView::new(&seen.object);
        let finalizers: Vec<&str> = object.list_texts("/metadata/finalizers").collect();
        let has_subjects = object.list_views("/subjects").next().is_some();
        if object.is_being_deleted() && !finalizers.is_empty() && !has_subjects {
            plan.stays.push(format!(
                "{}, which gives no rights any more: finalizers hold it ({}). An administrator removes those that no controller removes",
                name_object(&seen.object),
                finalizers.join(", ")
            ));
        }
    }
}

/// Deletes the policies after the controllers have ended, because the facts that policies read are then no longer updated.
pub(super) fn delete_policies(snapshot: &Snapshot, choice: RemovalChoice) -> Vec<Step> {
    match keeps_policies(snapshot, choice) {
        true => Vec::new(),
        false => snapshot.policies.iter().filter_map(plan_deletion).collect(),
    }
}

/// Deletes the objects with which Tenure limited the namespaces of Tenants.
pub(super) fn delete_bounds(snapshot: &Snapshot, choice: RemovalChoice) -> Vec<Step> {
    match choice.with_protection {
        true => snapshot.bounds.iter().filter_map(plan_deletion).collect(),
        false => Vec::new(),
    }
}

/// Reports the protection that stays.
pub(super) fn report_kept_protection(snapshot: &Snapshot, choice: RemovalChoice, plan: &mut Plan) {
    if choice.with_protection {
        tell_held(snapshot, plan);
        return;
    }
    for (_, kind) in BOUNDING_KINDS {
        let of_kind = |seen: &&ObservedObject| ObjectView::new(&seen.object).read_text("/kind") == kind;
        let count = snapshot.bounds.iter().filter(of_kind).count();
        if count > 0 {
            plan.stays
                .push(format!("{count} {kind} of Tenants; --with-protection deletes them"));
        }
    }
    let bindings = list_bindings(snapshot).count();
    if bindings > 0 {
        plan.stays.push(format!(
            "{bindings} RoleBinding of the owners and accounts of Tenants; --with-protection deletes them"
        ));
    }
    if keeps_policies(snapshot, choice) {
        let count = snapshot.policies.len();
        plan.stays.push(format!(
            "{count} admission policies and bindings, with the facts that they read on namespaces: they go on with the last facts; --with-protection deletes them"
        ));
    }
}

/// Lists the RoleBindings that Tenure wrote for the owners and accounts of Tenants.
fn list_bindings(snapshot: &Snapshot) -> impl Iterator<Item = &ObservedObject> {
    snapshot.role_bindings.iter().filter(|seen| {
        let object = ObjectView::new(&seen.object);
        is_ours(&seen.object)
            && object.find_label(TENANT_LABEL).is_some()
            && object.read_text("/metadata/name") != LANE_BINDING
    })
}
