//! After an uninstallation is killed at any of its writes, the next one finishes it without any memory of the first.

use std::collections::BTreeSet;

use super::deletions_tests::make_protected;
use super::*;

/// Returns the lists of a snapshot. One object may be in several lists.
fn list_lists(snapshot: &mut Snapshot) -> [&mut Vec<ObservedObject>; 15] {
    [
        &mut snapshot.deployments,
        &mut snapshot.installed,
        &mut snapshot.reconciled,
        &mut snapshot.custom,
        &mut snapshot.tenants,
        &mut snapshot.access,
        &mut snapshot.group_services,
        &mut snapshot.owned,
        &mut snapshot.bounds,
        &mut snapshot.role_bindings,
        &mut snapshot.inside,
        &mut snapshot.policies,
        &mut snapshot.stated,
        &mut snapshot.tenant_rights,
        &mut snapshot.cluster_role_bindings,
    ]
}

fn merge_patch(onto: &mut Value, patch: &Value) {
    match patch {
        Value::Object(fields) => {
            if !onto.is_object() {
                *onto = Value::Object(serde_json::Map::new());
            }
            for (key, value) in fields {
                match (onto.as_object_mut(), value) {
                    (Some(map), Value::Null) => drop(map.remove(key)),
                    (Some(map), value) => merge_patch(map.entry(key.clone()).or_insert(Value::Null), value),
                    (None, _) => {}
                }
            }
        }
        value => *onto = value.clone(),
    }
}

/// Executes a step as an API server does.
fn carry_out(snapshot: &mut Snapshot, step: &Step) {
    for list in list_lists(snapshot) {
        match &step.action {
            Action::Delete { uid } => {
                list.retain(|seen| seen.path != step.path || seen.object["metadata"]["uid"].as_str() != Some(uid));
            }
            Action::Patch(patch) => {
                for seen in list.iter_mut().filter(|seen| seen.path == step.path) {
                    merge_patch(&mut seen.object, patch);
                }
            }
        }
    }
    // An observation doesn't list objects that no longer have an owner, or namespaces that no longer have facts.
    let is_owned = |seen: &ObservedObject| {
        ObjectView::new(&seen.object)
            .list_views("/metadata/ownerReferences")
            .next()
            .is_some()
    };
    snapshot.owned.retain(is_owned);
}

/// Plans and executes all steps. After `killed_after` steps, another process continues. Returns the names of the deleted objects.
fn uninstall_stepwise(
    snapshot: &mut Snapshot,
    choice: RemovalChoice,
    killed_after: Option<usize>,
) -> (BTreeSet<String>, usize) {
    let (mut deleted, mut steps) = (BTreeSet::new(), 0);
    for _ in 0..200 {
        let plan = plan(snapshot, choice).unwrap();
        let Some(stage) = plan.stages.first() else {
            return (deleted, steps);
        };
        // The steps of a stage run concurrently, so they may end in any order, including this one.
        for step in stage.iter().rev() {
            carry_out(snapshot, step);
            *snapshot.attempts.entry(step.path.clone()).or_default() += 1;
            if let Some(name) = step.says.strip_suffix(": deleted") {
                deleted.insert(name.to_owned());
            }
            steps += 1;
            check_bounds(snapshot);
            if killed_after == Some(steps) {
                snapshot.attempts.clear();
                break;
            }
        }
    }
    panic!("it never ends");
}

/// No owner and no account of Tenure ever has rights without their limits.
fn check_bounds(snapshot: &Snapshot) {
    if !snapshot.role_bindings.is_empty() {
        assert_eq!((snapshot.bounds.len(), snapshot.policies.len()), (3, 1));
    }
    let count = |kinds: [&str; 2]| {
        let installed = snapshot.installed.iter();
        installed
            .filter(|seen| kinds.contains(&read_kind(&seen.object)))
            .count()
    };
    let bounds = count(["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]);
    let rights = count(["ClusterRoleBinding", "RoleBinding"]);
    assert!(rights == 0 || bounds == 2, "{rights} bindings, {bounds} bounds");
}

#[test]
fn uninstallation_finishes_after_kill_at_any_write() {
    for kinds in [KindChoice::None, KindChoice::Own, KindChoice::All] {
        for with_protection in [false, true] {
            let choice = RemovalChoice { kinds, with_protection };
            let listed: BTreeSet<String> = plan(&make_protected(), choice).unwrap().goes.into_iter().collect();
            let mut end = make_protected();
            let (wanted, steps) = uninstall_stepwise(&mut end, choice, None);
            assert!(steps > 5, "{steps}");
            for after in 1..steps {
                let mut left = make_protected();
                let (deleted, _) = uninstall_stepwise(&mut left, choice, Some(after));
                assert_eq!(deleted, wanted, "{choice:?}: killed after {after}");
                left.attempts.clear();
                end.attempts.clear();
                assert_eq!(
                    format!("{left:?}"),
                    format!("{end:?}"),
                    "{choice:?}: killed after {after}"
                );
            }
            // The first plan, which users confirm, lists all of them.
            assert!(
                wanted.is_subset(&listed),
                "{:?}",
                wanted.difference(&listed).collect::<Vec<_>>()
            );
        }
    }
}
