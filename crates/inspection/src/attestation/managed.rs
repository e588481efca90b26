//! Edits by hand of objects that Git manages. Nothing is fetched for these attacks. The objects look as a Kustomization leaves them after an apply, in the fields that
//! the rule reads. The source of the Kustomization doesn't exist, so its reconciler changes nothing and only reports this.
//!
//! The Kustomization is created before the objects that it seems to have applied. Without it, an edit would rightly be allowed.

use serde_json::{Value, json};
use tenure_admission_rules::Rule;
use tenure_api::metadata::{
    HAND_EDITS, HAND_EDITS_REFUSE, KUSTOMIZE_CONTROLLER, OTHER_WRITERS, OWNER_NAME, OWNER_NAMESPACE,
};

use super::fixtures::write_deployment;
use super::rights::set;
use super::{Attack, AttackRequest, ExpectedDefense, Names, Sender, Verb};

/// The name of the Kustomization, and of the objects that it seems to have applied.
const MANAGED: &str = "attest-managed";
/// The name of the Kustomization that names the owner among its other writers, and of its objects.
const SHARED: &str = "attest-shared";
/// The revision that seems to have been applied: no commit has this digest.
const REVISION: &str = "attest@sha1:0000000000000000000000000000000000000000";
/// The field manager of the objects that no Kustomization seems to have applied, as managedFields show it.
const MANAGER: &str = "tenure-attest";

/// Lists the objects to create, in this order. If one can't be created, the later ones are not created either.
#[must_use]
pub fn list_managed_attack_targets(names: &Names) -> Vec<AttackRequest> {
    let (home, owner) = (names.tenant(), names.user(&names.platform, &names.owner()));
    let lay =
        |verb: Verb, path: String, body: Value| AttackRequest::new(Sender::Administrator, verb, path, body).for_real();
    let kustomizations = format!("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{home}/kustomizations");
    let mut targets = Vec::new();
    for (name, writers, kinds) in [
        (SHARED, Some(owner.as_str()), ["_ConfigMap"].as_slice()),
        (MANAGED, None, &["_ConfigMap", "apps_Deployment"]),
    ] {
        let mut annotations = json!({ HAND_EDITS: HAND_EDITS_REFUSE });
        if let Some(writers) = writers {
            set(&mut annotations, "", OTHER_WRITERS, json!(writers));
        }
        let object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": { "name": name, "annotations": annotations },
            "spec": {
                // The objects that the Kustomization seems to have applied are deleted with the namespace.
                "interval": "1h", "prune": false, "path": "./attest", "serviceAccountName": names.account(),
                "sourceRef": { "kind": "GitRepository", "name": "attest-absent" },
            },
        });
        let entries = kinds
            .iter()
            .map(|kind| json!({ "id": format!("{home}_{name}_{kind}"), "v": "v1" }));
        let entries: Vec<Value> = entries.collect();
        let status = json!({ "lastAppliedRevision": REVISION, "inventory": { "entries": entries } });
        targets.extend([
            lay(Verb::Create, format!("{kustomizations}?fieldManager={MANAGER}"), object),
            lay(
                Verb::Change,
                format!("{kustomizations}/{name}/status?fieldManager={MANAGER}"),
                json!({ "status": status }),
            ),
        ]);
    }
    let git = |path: String| format!("{path}?fieldManager={KUSTOMIZE_CONTROLLER}");
    for name in [SHARED, MANAGED] {
        let path = git(find_config_map(names, name));
        let object = make_config_map(names, name, json!({ "git": "applied" }));
        targets.push(lay(Verb::Apply, path, object));
    }
    let mut deployment = write_deployment(MANAGED);
    set(&mut deployment, "/metadata", "labels", write_mark(names, MANAGED));
    targets.push(lay(Verb::Apply, git(find_deployment(names)), deployment));
    targets
}

fn find_config_map(names: &Names, name: &str) -> String {
    format!("/api/v1/namespaces/{}/configmaps/{name}", names.tenant())
}

fn find_deployment(names: &Names) -> String {
    format!("/apis/apps/v1/namespaces/{}/deployments/{MANAGED}", names.tenant())
}

/// Writes the labels that say which Kustomization applied something.
fn write_mark(names: &Names, name: &str) -> Value {
    json!({ OWNER_NAME: name, OWNER_NAMESPACE: names.tenant() })
}

fn make_config_map(names: &Names, name: &str, data: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "labels": write_mark(names, name) },
        "data": data,
    })
}

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let path = |name: &str| find_config_map(names, name);
    let change = |name: &str, body: Value| AttackRequest::new(Sender::Owner, Verb::Change, path(name), body);
    let data = |data: Value| json!({ "data": data });
    let replace = |who: Sender, change: &dyn Fn(&mut Value)| {
        let mut object = make_config_map(names, MANAGED, json!({ "git": "applied" }));
        change(&mut object);
        AttackRequest::new(who, Verb::Replace, path(MANAGED), object)
    };
    let edit = |object: &mut Value| set(object, "/data", "git", json!("edited"));
    let add = |object: &mut Value| set(object, "/data", "own", json!("added"));
    let apply = |manager: &str, object: Value| {
        let path = format!("{}?fieldManager={manager}&force=true", path(MANAGED));
        AttackRequest::new(Sender::Owner, Verb::Apply, path, object)
    };
    let replicas = |part: &str| {
        let path = format!("{}{part}", find_deployment(names));
        AttackRequest::new(Sender::Owner, Verb::Change, path, json!({ "spec": { "replicas": 1 } }))
    };
    let unmarked = json!({
        "metadata": { "labels": { OWNER_NAME: null, OWNER_NAMESPACE: null } }, "data": { "git": "edited" },
    });
    let own = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": MANAGED }, "data": { "own": "added" },
    });
    let stop = ExpectedDefense::Rule(Rule::GitManaged);
    vec![
        Attack::new(
            "hand-edit",
            "an owner changes by hand a field that Git manages, where that is refused",
            stop,
            change(MANAGED, data(json!({ "git": "edited" }))),
            change(MANAGED, data(json!({ "own": "added" }))),
        ),
        Attack::new(
            "hand-edit-as-no-writer",
            "an owner takes away by hand a field that Git manages, and is no writer who is listed there",
            stop,
            change(MANAGED, data(json!({ "git": null }))),
            change(SHARED, data(json!({ "git": null }))),
        ),
        Attack::new(
            "hand-edit-by-replacement",
            "an owner replaces an object that Git manages, as only the account that applies it may",
            stop,
            replace(Sender::Owner, &edit),
            replace(Sender::Account, &edit),
        ),
        Attack::new(
            "hand-edit-without-managers",
            "an owner replaces such an object and throws away who has which of its fields",
            stop,
            replace(Sender::Owner, &|object| {
                edit(object);
                set(object, "/metadata", "managedFields", json!([{}]));
            }),
            replace(Sender::Owner, &add),
        ),
        Attack::new(
            "hand-edit-without-mark",
            "an owner changes such a field and takes away at the same time the labels that say who applied it",
            stop,
            change(MANAGED, unmarked),
            change(
                MANAGED,
                json!({ "metadata": { "labels": { "attest.tenure.dev/own": "added" } } }),
            ),
        ),
        Attack::new(
            "hand-edit-as-gits-manager",
            "an owner applies such a field by force under the field manager of Git",
            stop,
            apply(
                KUSTOMIZE_CONTROLLER,
                make_config_map(names, MANAGED, json!({ "git": "edited" })),
            ),
            apply("attest", own),
        ),
        Attack::new(
            "hand-edit-of-replicas",
            "an owner changes in a Deployment how many replicas Git says, which he may scale",
            stop,
            replicas(""),
            replicas("/scale"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::names;
    use super::*;

    #[test]
    fn defenses_are_created_before_managed_objects() {
        let names = names();
        let targets = list_managed_attack_targets(&names);
        let home = format!("/namespaces/{}/", names.tenant());
        for target in &targets {
            assert!(!target.dry_run && target.who == Sender::Administrator, "{target:?}");
            assert!(target.path.contains(&home), "it goes with the tenant: {target:?}");
        }
        let is_of_git = |target: &AttackRequest| target.verb == Verb::Apply;
        let first = targets.iter().position(is_of_git).unwrap();
        assert!(targets[first..].iter().all(is_of_git), "{targets:#?}");
        // Each object that seems to be Git's is in the inventory of the Kustomization that its labels name.
        for object in targets[first..].iter().map(|target| &target.body) {
            let kustomization = object["metadata"]["labels"][OWNER_NAME].as_str().unwrap();
            let status = format!("/kustomizations/{kustomization}/status?");
            let status = targets.iter().find(|target| target.path.contains(&status)).unwrap();
            let entries = status.body["status"]["inventory"]["entries"].as_array().unwrap();
            let id = tenure_api::ObjectId {
                namespace: names.tenant(),
                ..tenure_api::ObjectId::from_object(object).unwrap()
            };
            assert!(entries.iter().any(|entry| entry["id"] == id.to_string()), "{object:#}");
        }
    }

    #[test]
    fn every_edit_is_repeatable_dry_run() {
        for attack in list(&names()) {
            assert!(attack.takes_time() && attack.attempt.dry_run && attack.burst.is_none());
        }
    }
}
