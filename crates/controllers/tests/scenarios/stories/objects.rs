//! The objects of the slots.

use serde_json::{Value, json};

use super::plot::{Content, RESOURCES, Slot, Version};
use crate::stage::KUSTOMIZATION;

/// The account that applies everything.
pub(super) const ACCOUNT: &str = "gitops";
pub(super) const RBAC: &str = "rbac.authorization.k8s.io/v1";
pub(super) const FIXED: &str = "stories.example.org/fixed";
pub(super) const FREE: &str = "stories.example.org/free";

/// The kinds of all objects, each with its `apiVersion`.
pub(super) const KINDS: [(&str, &str); 13] = [
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "ServiceAccount"),
    ("v1", "PersistentVolumeClaim"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    (RBAC, "Role"),
    (RBAC, "RoleBinding"),
    ("postgresql.cnpg.io/v1", "Cluster"),
    ("stories.example.org/v1", "Keeper"),
    KUSTOMIZATION,
    ("v1", "Namespace"),
];

/// Checks whether the kind is protected by default, by the documentation of the guards.
pub(super) fn is_protected(kind: &str) -> bool {
    ["PersistentVolumeClaim", "StatefulSet", "Namespace", "Cluster"].contains(&kind)
}

/// Returns the custom kinds of the stories. Their field `fixed` can't be changed.
pub(super) fn list_definitions() -> [Value; 2] {
    let fixed = json!({ "type": "integer", "x-kubernetes-validations": [{ "rule": "self == oldSelf" }] });
    let schema = json!({ "type": "object", "properties": {
        "spec": { "type": "object", "properties": { "fixed": fixed } }
    } });
    [
        ("postgresql.cnpg.io", "clusters", "Cluster"),
        ("stories.example.org", "keepers", "Keeper"),
    ]
    .map(|(group, plural, kind)| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": {
                "group": group, "scope": "Namespaced", "names": { "plural": plural, "kind": kind },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
            },
        })
    })
}

/// Returns the ServiceAccount and its binding to a role.
pub(super) fn write_account(name: &str, role: &str, namespace: &str) -> Vec<Value> {
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } }),
        json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }]
        }),
    ]
}

/// Returns the rules of the account, without one right.
pub(super) fn list_rules(lack: Option<(&str, &str)>) -> Vec<Value> {
    let verbs = [
        "get", "list", "watch", "create", "patch", "update", "delete", "bind", "escalate",
    ];
    let rules = RESOURCES.iter().map(|(group, resource)| {
        let verbs = verbs.iter().filter(|verb| lack != Some((**verb, *resource)));
        json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs.collect::<Vec<_>>() })
    });
    rules.collect()
}

/// Returns the objects of a slot, without their namespace.
pub(super) fn write_slot(slot: Slot, version: Version, namespace: &str) -> Vec<Value> {
    let mut objects = match slot {
        Slot::Child => {
            let mut objects = write_account("child", "child", namespace);
            objects.push(json!({
                "apiVersion": KUSTOMIZATION.0, "kind": KUSTOMIZATION.1, "metadata": { "name": "child" },
                "spec": {
                    "interval": "10m", "retryInterval": "1s", "timeout": "30s", "prune": true, "path": "./child",
                    "targetNamespace": namespace, "serviceAccountName": "child",
                    "sourceRef": { "kind": "GitRepository", "name": "app" }
                }
            }));
            objects
        }
        Slot::Own => write_account(ACCOUNT, ACCOUNT, namespace),
        _ => vec![write_object(slot, version, namespace)],
    };
    for object in &mut objects {
        let annotations = &mut object["metadata"]["annotations"];
        annotations[FIXED] = Value::String(version.fixed.to_string());
        annotations[FREE] = Value::String(version.free.to_string());
    }
    objects
}

fn write_object(slot: Slot, version: Version, namespace: &str) -> Value {
    let fixed = version.fixed.to_string();
    let container = json!({ "name": "c", "image": format!("example.com/c:{fixed}") });
    let claim_spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": format!("class-{fixed}"),
        "resources": { "requests": { "storage": "1Gi" } }
    });
    let (api_version, kind, name, content) = match slot {
        Slot::Config => (
            "v1",
            "ConfigMap",
            "config",
            json!({ "immutable": true, "data": { "fixed": fixed } }),
        ),
        Slot::Settings => (
            "v1",
            "ConfigMap",
            "settings",
            json!({ "data": { format!("key-{}", version.form): version.free.to_string() } }),
        ),
        Slot::Secret => {
            let values: serde_json::Map<String, Value> = list_secret_keys(version)
                .into_iter()
                .map(|key| (key, Value::String(format!("value-{}", version.free))))
                .collect();
            ("v1", "Secret", "secret", json!({ "stringData": values }))
        }
        Slot::Claim => ("v1", "PersistentVolumeClaim", "claim", json!({ "spec": claim_spec })),
        Slot::Web => {
            let labels = json!({ "app": "web", "fixed": fixed });
            let mut container = container;
            match version.form % 3 {
                0 => container["env"] = json!([{ "name": "LEVEL", "value": "1" }]),
                1 => {
                    let source = json!({ "configMapKeyRef": { "name": "settings", "key": "level", "optional": true } });
                    container["env"] = json!([{ "name": "LEVEL", "valueFrom": source }]);
                }
                _ => {}
            }
            let replicas = if version.is_broken { -1 } else { 0 };
            let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
            let spec = json!({ "replicas": replicas, "selector": { "matchLabels": labels }, "template": template });
            ("apps/v1", "Deployment", "web", json!({ "spec": spec }))
        }
        Slot::Store => {
            let labels = json!({ "app": "store" });
            let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
            let spec = json!({
                "replicas": 0, "serviceName": format!("store-{fixed}"), "selector": { "matchLabels": labels }, "template": template,
                "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": claim_spec }]
            });
            ("apps/v1", "StatefulSet", "store", json!({ "spec": spec }))
        }
        Slot::Once => {
            let completions = if version.is_broken { -1 } else { 1 };
            let template = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
            let spec = json!({ "suspend": true, "completions": completions, "template": template });
            ("batch/v1", "Job", "once", json!({ "spec": spec }))
        }
        Slot::Reader => {
            let verbs = &["get", "list"][..=usize::from(version.form > 3)];
            let rule = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": verbs });
            (RBAC, "Role", "reader", json!({ "rules": [rule] }))
        }
        Slot::Readers => {
            let role =
                json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("reader-{fixed}") });
            let subjects = json!([{ "kind": "ServiceAccount", "name": "reader", "namespace": namespace }]);
            (
                RBAC,
                "RoleBinding",
                "readers",
                json!({ "roleRef": role, "subjects": subjects }),
            )
        }
        Slot::Database => (
            "postgresql.cnpg.io/v1",
            "Cluster",
            "database",
            json!({ "spec": { "fixed": version.fixed } }),
        ),
        Slot::Keeper => (
            "stories.example.org/v1",
            "Keeper",
            "keeper",
            json!({ "spec": { "fixed": version.fixed } }),
        ),
        Slot::Space => {
            let name = format!("{namespace}-space");
            return json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        }
        Slot::Child | Slot::Own => unreachable!(),
    };
    let mut object = content;
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object["metadata"] = json!({ "name": name });
    object
}

/// Returns the keys of the Secret: its form says which.
pub(super) fn list_secret_keys(version: Version) -> Vec<String> {
    let keys = ["a", "b", "c"].into_iter().enumerate();
    let chosen = keys.filter(|(bit, _)| version.form >> bit & 1 == 1);
    chosen.map(|(_, key)| key.to_owned()).collect()
}

/// Returns a key of an object: its kind and name.
pub(super) fn key_of(object: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// Returns the wanted objects by their keys, each with its slot.
pub(super) fn list_wanted(
    content: &Content,
    namespace: &str,
) -> std::collections::BTreeMap<(String, String), (Slot, Value)> {
    let objects = content.iter().flat_map(|(slot, version)| {
        let objects = write_slot(*slot, *version, namespace);
        objects.into_iter().map(|object| (key_of(&object), (*slot, object)))
    });
    objects.collect()
}
