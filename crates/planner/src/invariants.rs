//! The invariants of every plan, for any snapshot. All tests check them on every plan that they make.

use std::collections::BTreeSet;

use tenure_api::inventory::AllowedDeletion;
use tenure_api::{KustomizationStatus, ObjectId};
use tenure_tenancy::inventory;
use tenure_tenancy::write_scope::{self, Scope};

use crate::answer::{DeleteAnswer, Live, WriteAnswer};
use crate::kustomization;
use crate::plan::{Delete, FinalizerChange, Next, Plan, Request, Step};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Checks the invariants of a plan of any kind, and returns one line for each violation.
#[must_use]
pub fn check_plan<S: Step, I, T, M>(plan: &Plan<S, I, T, M>) -> Vec<String> {
    let mut violations = Vec::new();
    for step in &plan.steps {
        if plan.identity.is_none() && !step.is_public() {
            violations.push(format!("step without identity: {step}"));
        }
    }
    if plan.next == Next::Again && plan.steps.is_empty() {
        violations.push("plans again without a step: it would plan for ever".to_owned());
    }
    if plan.next != Next::Again && !plan.steps.is_empty() {
        violations.push("has steps whose answers nobody will look at".to_owned());
    }
    if plan.status_first && (plan.status.is_none() || plan.steps.is_empty()) {
        violations.push("waits for a status that it doesn't have, or before nothing".to_owned());
    }
    if matches!(plan.finalizer, Some(FinalizerChange::Remove(_)))
        && (!plan.steps.is_empty() || plan.next != Next::Forget)
    {
        violations.push("removes the finalizer while there is something to do".to_owned());
    }
    violations
}

/// Checks the further invariants of a Kustomization's plan, and returns one line for each violation.
#[must_use]
pub fn check_kustomization_plan(snapshot: &kustomization::Snapshot, plan: &kustomization::Plan) -> Vec<String> {
    let mut violations = check_plan(plan);
    let is_elsewhere = snapshot.kustomization.spec.kube_config.is_some();
    if is_elsewhere != plan.target.is_some() && !plan.watch.is_empty() {
        violations.push("watches in another cluster than it applies to".to_owned());
    }
    for step in &plan.steps {
        if is_elsewhere != plan.target.is_some() && matches!(step, kustomization::Step::Ask(_)) {
            violations.push(format!("asks another cluster than it applies to: {step}"));
        }
        let kustomization::Step::Ask(step) = step else {
            continue;
        };
        let id = match step {
            Request::Read(target) => Some(&target.id),
            Request::DryRun(apply) | Request::Try(apply) | Request::Create(apply) | Request::Apply(apply) => {
                Some(&apply.id)
            }
            Request::TakeOver(take_over) => Some(&take_over.target.id),
            Request::Disown(disown) => Some(&disown.target.id),
            Request::Release(release) => Some(&release.target.id),
            Request::TryDelete(delete) | Request::Delete(delete) => Some(&delete.target.id),
            Request::ResolveKinds(_) | Request::FindClaims(_) => None,
        };
        let Some(id) = id else { continue };
        let health_checked = matches!(step, Request::Read(_)) && plan.watch.iter().any(|watched| watched.id == *id);
        // Admission judges the creation of a namespace. Nothing else reaches one that isn't the tenant's.
        let is_creation = matches!(step, Request::Try(_) | Request::Create(_))
            && write_scope::find_new_namespace(&snapshot.find_bounds(), Scope::Cluster, id).is_some();
        if !health_checked && !is_creation && inventory::check_entry(&snapshot.find_bounds(), id).is_err() {
            violations.push(format!("reaches beyond its namespaces: {step}"));
        }
        if let Request::Delete(delete) = step {
            violations.extend(deletes_what_is_not_ours(snapshot, plan, delete));
        }
        if let Request::Apply(apply) | Request::Create(apply) = step {
            let text = apply.id.to_string();
            let stored_first = plan.status_first
                && plan
                    .status
                    .as_ref()
                    .is_some_and(|new| inventory_ids(new).contains(&text));
            if !stored_first && !old_inventory(snapshot).contains(&text) {
                violations.push(format!("applies what no stored inventory names: {step}"));
            }
        }
        if let Request::Try(apply) = step
            && apply.object.view().find_text("/metadata/name") == Some(apply.id.name.as_str())
            && matches!(snapshot.live.get(&apply.id), Some(Live::Present(_)))
        {
            violations.push(format!("tries a creation under the name of what is there: {step}"));
        }
        if let Request::Apply(apply) = step {
            violations.extend(takes_from_neighbours(snapshot, &apply.id));
        }
        if let Request::Apply(apply) | Request::Create(apply) | Request::DryRun(apply) = step {
            let (namespace, name) = name_owner(snapshot);
            if !inventory::is_owned(&apply.object.0, namespace, name) {
                violations.push(format!("applies without owner labels: {step}"));
            }
        }
    }
    violations.extend(loses_inventory(snapshot, plan));
    violations.extend(deletes_out_of_order(snapshot, plan));
    violations.extend(deletes_before_all_is_known(snapshot, plan));
    violations.extend(puts_off_recreated(snapshot, plan));
    violations.extend(deletes_unasked(snapshot, plan));
    violations
}

/// Lists the deletions of a plan.
fn list_deletes(plan: &kustomization::Plan) -> impl Iterator<Item = &Delete> {
    plan.steps.iter().filter_map(|step| match step {
        kustomization::Step::Ask(Request::Delete(delete)) => Some(delete),
        _ => None,
    })
}

/// Checks that a recreation deletes nothing in a stage with an object that can't be applied: everything refused in the stage is deleted for its own recreation. With
/// `tenure.dev/apply: Partial`, each object stands alone.
fn deletes_before_all_is_known(snapshot: &kustomization::Snapshot, plan: &kustomization::Plan) -> Vec<String> {
    let attempt = &snapshot.attempt;
    if !matches!(attempt.apply.as_deref(), None | Some("" | "All")) {
        return Vec::new();
    }
    let deleted: BTreeSet<&ObjectId> = list_deletes(plan).map(|delete| &delete.target.id).collect();
    let mut violations = Vec::new();
    for id in deleted.iter().filter(|id| attempt.dry_runs.contains_key(**id)) {
        let stage = kustomization::find_stage(snapshot, id);
        let refused = attempt.dry_runs.iter().filter(|(other, answer)| {
            matches!(answer, WriteAnswer::Failed(_))
                && kustomization::find_stage(snapshot, other) == stage
                && !deleted.contains(other)
                && !attempt.deleted.contains_key(*other)
        });
        violations.extend(refused.map(|(other, _)| {
            format!(
                "deletes {} although {} is refused in the same stage",
                id.subject(),
                other.subject()
            )
        }));
    }
    violations
}

/// Checks that a deleted object is re-created before any other object is written or deleted. An object that needs another recreated one comes after that.
fn puts_off_recreated(snapshot: &kustomization::Snapshot, plan: &kustomization::Plan) -> Vec<String> {
    let attempt = &snapshot.attempt;
    let recreating = &plan.memory.recreating;
    let is_needed =
        |id: &ObjectId| ["Namespace", "CustomResourceDefinition", "Role", "ClusterRole"].contains(&id.kind.as_str());
    if recreating.iter().any(is_needed) {
        return Vec::new();
    }
    let is_missing = |id: &&ObjectId| {
        let is_absent = matches!(snapshot.live.get(*id), Some(Live::Absent));
        let is_deleted = matches!(
            attempt.deleted.get(*id),
            Some(DeleteAnswer::Accepted | DeleteAnswer::Absent)
        );
        let is_refused = matches!(attempt.dry_runs.get(*id), Some(WriteAnswer::Failed(_))) && !is_deleted;
        is_absent && !is_refused && !attempt.applied.contains_key(*id)
    };
    let Some(missing) = recreating.iter().find(is_missing) else {
        return Vec::new();
    };
    let written = plan.steps.iter().filter_map(|step| match step {
        kustomization::Step::Ask(Request::Apply(apply) | Request::Create(apply)) => Some(&apply.id),
        kustomization::Step::Ask(Request::Delete(delete)) => Some(&delete.target.id),
        kustomization::Step::Ask(Request::TakeOver(take_over)) => Some(&take_over.target.id),
        _ => None,
    });
    let others = written.filter(|id| !recreating.contains(*id));
    others
        .map(|id| format!("writes {} before {} is re-created", id.subject(), missing.subject()))
        .collect()
}

/// Checks that an object of a protected kind is deleted only if exactly this incarnation was allowed to go, or goes with its namespace. The status stores the permission
/// before the deletion, so that a restart loses no part of it.
fn deletes_unasked(snapshot: &kustomization::Snapshot, plan: &kustomization::Plan) -> Vec<String> {
    let allowed = plan.memory.allowed.as_ref();
    let new = plan.status.as_ref().filter(|_| plan.status_first);
    let stored = new.or(snapshot.kustomization.status.as_ref());
    let mut violations = Vec::new();
    for delete in list_deletes(plan).filter(|delete| kustomization::is_guarded(snapshot, &delete.target.id)) {
        let id = &delete.target.id;
        let uid = delete.uid.clone().unwrap_or_default();
        if allowed.and_then(|allowed| allowed.objects.get(id)) != Some(&uid) {
            violations.push(format!("deletes {}, which is protected, unasked", id.subject()));
        }
        let entry = AllowedDeletion {
            id: id.to_string(),
            uid,
        };
        if !stored.is_some_and(|status| status.allowed_deletions.contains(&entry)) {
            violations.push(format!("deletes {} before the permission is stored", id.subject()));
        }
    }
    violations
}

/// Checks the order of a removal: children first, namespaces after everything else, and last the rights of the acting ServiceAccount. A recreation has an order of its own.
fn deletes_out_of_order(snapshot: &kustomization::Snapshot, plan: &kustomization::Plan) -> Vec<String> {
    let removed = list_deletes(plan).map(|delete| &delete.target.id);
    let removed: Vec<&ObjectId> = removed
        .filter(|id| !snapshot.attempt.dry_runs.contains_key(*id))
        .collect();
    let gives_rights = |id: &ObjectId| gives_own_rights(snapshot, plan, id);
    let own = removed.iter().find(|id| gives_rights(id));
    let namespace = removed.iter().find(|id| is_namespace(id));
    let mut violations = Vec::new();
    for id in &removed {
        if let Some(first) = own.filter(|_| !gives_rights(id) && id.group != RBAC) {
            violations.push(format!(
                "deletes {} together with its own rights, {}",
                id.subject(),
                first.subject()
            ));
        }
        if let Some(first) = namespace.filter(|_| !is_namespace(id)) {
            violations.push(format!("deletes {} together with {}", id.subject(), first.subject()));
        }
    }
    let Some(other) = removed.iter().find(|id| !is_child(id)) else {
        return violations;
    };
    let children = list_awaited_children(snapshot, own.is_some());
    violations.extend(children.map(|child| format!("deletes {}, which {} may need", other.subject(), child.subject())));
    if let Some(last) = own.or(namespace) {
        let failed = snapshot.attempt.deleted.iter();
        let failed = failed.filter(|(id, answer)| matches!(answer, DeleteAnswer::Failed(_)) && !gives_rights(id));
        violations
            .extend(failed.map(|(id, _)| format!("deletes {} although {} is left", last.subject(), id.subject())));
    }
    violations
}

fn is_namespace(id: &ObjectId) -> bool {
    (id.group.is_empty() && id.kind == "Namespace") || (id.group == "capsule.clastix.io" && id.kind == "Tenant")
}

fn is_child(id: &ObjectId) -> bool {
    ["Kustomization", "HelmRelease", "Surface"].contains(&id.kind.as_str())
}

/// Checks whether an object is the acting ServiceAccount, a binding that names it, or the role in such a binding.
fn gives_own_rights(snapshot: &kustomization::Snapshot, plan: &kustomization::Plan, id: &ObjectId) -> bool {
    let Some(identity) = plan.identity.as_ref().filter(|_| plan.target.is_none()) else {
        return false;
    };
    let names = |binding: &ObjectId, live: &serde_json::Value| {
        let subjects = live.get("subjects").and_then(serde_json::Value::as_array);
        subjects.into_iter().flatten().any(|subject| {
            let text = |key: &str| subject.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
            let namespace = Some(text("namespace"))
                .filter(|text| !text.is_empty())
                .unwrap_or(&binding.namespace);
            text("kind") == "ServiceAccount" && text("name") == identity.name() && namespace == identity.namespace()
        })
    };
    let live = |id: &ObjectId| snapshot.live.get(id).and_then(Live::object);
    let is_account = id.kind == "ServiceAccount" && id.namespace == identity.namespace() && id.name == identity.name();
    let is_binding = id.kind.ends_with("RoleBinding") && live(id).is_some_and(|live| names(id, live));
    let mut bindings = snapshot.live.keys().filter(|other| other.kind.ends_with("RoleBinding"));
    let is_role = bindings.any(|binding| {
        let Some(live) = live(binding).filter(|live| names(binding, live)) else {
            return false;
        };
        let text = |path: &str| live.pointer(path).and_then(serde_json::Value::as_str);
        let is_beside = id.namespace.is_empty() || id.namespace == binding.namespace;
        is_beside && text("/roleRef/kind") == Some(id.kind.as_str()) && text("/roleRef/name") == Some(id.name.as_str())
    });
    is_account || is_binding || is_role
}

/// Lists the children that are being deleted and that a removal waits for. `for_rights`: the removal deletes the rights of the ServiceAccount. For other objects, only
/// children count that this attempt deleted, since their time is not over.
fn list_awaited_children(snapshot: &kustomization::Snapshot, for_rights: bool) -> impl Iterator<Item = ObjectId> {
    let (namespace, name) = name_owner(snapshot);
    let metadata = &snapshot.kustomization.metadata;
    let above = metadata.labels.iter().flatten().map(|(_, value)| value);
    let above = above.chain(metadata.owner_references.iter().flatten().map(|owner| &owner.name));
    let above: BTreeSet<&str> = above.map(String::as_str).chain([name]).collect();
    let inventory = old_inventory(snapshot).into_iter();
    inventory
        .filter_map(|text| text.parse::<ObjectId>().ok())
        .filter(move |id| {
            let Some(Live::Present(live)) = snapshot.live.get(id).filter(|_| is_child(id)) else {
                return false;
            };
            let is_going = live.view().is_being_deleted() && inventory::is_owned(&live.0, namespace, name);
            let is_above = above.contains(id.name.as_str()) || snapshot.endings.cycle.contains(id);
            is_going && (for_rights || (snapshot.attempt.deleted.contains_key(id) && !is_above))
        })
}

fn name_owner(snapshot: &kustomization::Snapshot) -> (&str, &str) {
    let metadata = &snapshot.kustomization.metadata;
    (
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

fn inventory_ids(status: &KustomizationStatus) -> Vec<String> {
    let entries = status.inventory.iter().flat_map(|inventory| &inventory.entries);
    entries.map(|entry| entry.id.clone()).collect()
}

fn old_inventory(snapshot: &kustomization::Snapshot) -> Vec<String> {
    let status = snapshot.kustomization.status.as_ref();
    status.map(inventory_ids).unwrap_or_default()
}

fn deletes_what_is_not_ours(
    snapshot: &kustomization::Snapshot,
    plan: &kustomization::Plan,
    delete: &Delete,
) -> Vec<String> {
    let id = &delete.target.id;
    let mut violations = Vec::new();
    let (namespace, name) = name_owner(snapshot);
    let Some(Live::Present(live)) = snapshot.live.get(id) else {
        return vec![format!("deletes what it has not looked at: {}", id.subject())];
    };
    if !inventory::is_owned(&live.0, namespace, name) {
        violations.push(format!("deletes what does not say that it is ours: {}", id.subject()));
    }
    let text = |path: &str| live.view().find_text(path);
    if text("/metadata/uid") != delete.uid.as_deref()
        || text("/metadata/resourceVersion") != delete.resource_version.as_deref()
    {
        violations.push(format!(
            "deletes without the uid and version that it looked at: {}",
            id.subject()
        ));
    }
    // A recreation also deletes desired objects; the inventory must name every other deleted object.
    let recreated = snapshot.attempt.dry_runs.contains_key(id);
    if !recreated && !old_inventory(snapshot).contains(&id.to_string()) {
        violations.push(format!("deletes what the inventory does not name: {}", id.subject()));
    }
    let can_be_made = matches!(snapshot.attempt.tried.get(id), Some(WriteAnswer::Done(_)));
    let can_go = matches!(
        snapshot.attempt.tried_deletes.get(id),
        Some(DeleteAnswer::Accepted | DeleteAnswer::Absent)
    );
    if recreated && !(can_be_made && can_go) {
        violations.push(format!("recreates what was not tried before: {}", id.subject()));
    }
    if recreated && !plan.memory.recreating.contains(id) {
        violations.push(format!("does not remember to recreate {}", id.subject()));
    }
    let deleting = snapshot.kustomization.metadata.deletion_timestamp.is_some();
    let unwanted = |survey: &kustomization::Survey| survey.asked.contains(id) && !survey.wanted.contains_key(id);
    if !recreated && !deleting && !snapshot.survey.as_ref().is_some_and(unwanted) {
        violations.push(format!("prunes what others may want: {}", id.subject()));
    }
    if plan
        .memory
        .backed_off
        .get(id)
        .is_some_and(|back_off| back_off.until > snapshot.attempt.started && recreated)
    {
        violations.push(format!("recreates what is contested: {}", id.subject()));
    }
    violations
}

/// Checks that only the platform takes an object of another owner, or a Kustomization one from its own neighbour.
fn takes_from_neighbours(snapshot: &kustomization::Snapshot, id: &ObjectId) -> Option<String> {
    let rival = snapshot.rivals.get(snapshot.owners.get(id)?)?;
    let (namespace, _) = name_owner(snapshot);
    let asker = (&snapshot.placement, namespace);
    let precedence = tenure_tenancy::owner::decide_precedence(asker, (&rival.placement, &rival.namespace));
    let believed = tenure_tenancy::owner::is_believed(&rival.placement, id);
    (believed && precedence == tenure_tenancy::owner::Precedence::Owner)
        .then(|| format!("takes what another owns: {}", id.subject()))
}

/// Checks that an entry leaves the inventory only if its object is gone, isn't the Kustomization's, or is given up by the spec.
fn loses_inventory(snapshot: &kustomization::Snapshot, plan: &kustomization::Plan) -> Vec<String> {
    let Some(status) = &plan.status else { return Vec::new() };
    let new = inventory_ids(status);
    let (namespace, name) = name_owner(snapshot);
    let mut violations = Vec::new();
    for old in old_inventory(snapshot) {
        if new.contains(&old) || !snapshot.kustomization.spec.prune {
            continue;
        }
        let Ok(id) = old.parse::<ObjectId>() else { continue };
        if inventory::check_entry(&snapshot.placement, &id).is_err() {
            continue;
        }
        let gone = match (snapshot.live.get(&id), snapshot.attempt.deleted.get(&id)) {
            (_, Some(DeleteAnswer::Absent)) | (Some(Live::Absent | Live::Unserved), _) => true,
            (Some(Live::Present(live)), _) => {
                let says = |key: &str, value: &str| live.view().has_annotation(key, value);
                !inventory::is_owned(&live.0, namespace, name)
                    || kustomization::keeps_kinds(snapshot, &id)
                    || says(tenure_api::metadata::PRUNE, "disabled")
                    || says(tenure_api::metadata::RECONCILE, "disabled")
                    || says(tenure_api::metadata::SSA, "Ignore")
            }
            _ => false,
        };
        if !gone {
            violations.push(format!("the inventory loses {old}, which may still be there"));
        }
    }
    violations
}
