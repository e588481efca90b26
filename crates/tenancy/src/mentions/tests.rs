//! The index of names: which objects name which namespaces.

use serde_json::json;

use super::*;
use crate::placement::TenancyFacts;

fn kind_of(name: &str) -> &'static MentioningKind {
    MENTIONING_KINDS.iter().find(|kind| kind.kind == name).unwrap()
}

fn named<'a>(kind: &str, object: &'a Value) -> Vec<&'a str> {
    list_named_namespaces(kind_of(kind), object).into_iter().collect()
}

#[test]
fn every_way_to_name_a_namespace_is_found() {
    for (kind, object, expected) in [
        (
            "ClusterRoleBinding",
            json!({ "subjects": [
                { "kind": "ServiceAccount", "namespace": "argocd", "name": "controller" },
                { "kind": "Group", "name": "system:serviceaccounts:ci" },
                { "kind": "User", "name": "system:serviceaccount:ops:robot" },
                { "kind": "Group", "name": "system:serviceaccounts" }
            ] }),
            vec!["argocd", "ci", "ops"],
        ),
        (
            "Tenant",
            json!({ "spec": {
                "owners": [{ "kind": "ServiceAccount", "name": "system:serviceaccount:ci:robot" }],
                "additionalRoleBindings": [{ "subjects": [{ "kind": "ServiceAccount", "namespace": "build", "name": "x" }] }]
            }, "status": { "namespaces": ["other"] } }),
            vec!["build", "ci"],
        ),
        (
            "MutatingWebhookConfiguration",
            json!({ "webhooks": [{
                "clientConfig": { "service": { "namespace": "cert-manager", "name": "webhook" } },
                "namespaceSelector": { "matchExpressions": [{ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["free"] }] },
                "matchConditions": [{ "expression": "request.userInfo.username != 'system:serviceaccount:tools:own'" }]
            }] }),
            vec!["cert-manager", "free", "tools"],
        ),
        (
            "APIService",
            json!({ "spec": { "service": { "namespace": "metrics", "name": "x" } } }),
            vec!["metrics"],
        ),
        (
            "CustomResourceDefinition",
            json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "service": { "namespace": "conv" } } } } } }),
            vec!["conv"],
        ),
        (
            "ValidatingAdmissionPolicyBinding",
            json!({ "spec": { "paramRef": { "namespace": "params", "name": "x" } } }),
            vec!["params"],
        ),
        (
            "StorageClass",
            json!({ "parameters": { "csi.storage.k8s.io/provisioner-secret-namespace": "secrets" } }),
            vec!["secrets"],
        ),
        (
            "NetworkPolicy",
            json!({ "spec": { "ingress": [{ "from": [{ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "web" } } }] }] } }),
            vec!["web"],
        ),
        (
            "Kustomization",
            json!({ "spec": { "targetNamespace": "apps", "sourceRef": { "namespace": "sources" }, "dependsOn": [{ "namespace": "infra" }] } }),
            vec!["apps", "infra", "sources"],
        ),
        (
            "Alert",
            json!({ "spec": { "eventSources": [{ "kind": "Kustomization", "namespace": "seen", "name": "*" }] } }),
            vec!["seen"],
        ),
        (
            "AccessProvider",
            json!({ "spec": { "namespaces": ["shop", "shop-*"], "groupNamespaces": ["group"] } }),
            vec!["group", "shop"],
        ),
        (
            "PersistentVolume",
            json!({ "spec": { "claimRef": { "namespace": "waiting", "name": "data" } } }),
            vec!["waiting"],
        ),
        (
            "PersistentVolume",
            json!({ "spec": { "claimRef": { "namespace": "bound", "name": "data", "uid": "u" } } }),
            vec![],
        ),
    ] {
        assert_eq!(named(kind, &object), expected, "{object}");
    }
}

#[test]
fn broken_objects_name_nothing() {
    let mut deep = json!("system:serviceaccount:deep:x");
    for _ in 0..1_000 {
        deep = json!([deep]);
    }
    for object in [
        json!(null),
        json!([]),
        json!({ "spec": { "namespace": 1, "namespaces": "a", "claimRef": [], "key": {} } }),
        json!({ "subjects": ["system:serviceaccount:", "system:serviceaccounts:é", "system:serviceaccount:-a-:x"] }),
        json!({ "é": "a", "xnamespacé": "a" }),
        json!({ "spec": deep }),
    ] {
        assert!(named("RoleBinding", &object).is_empty(), "{object:.100}");
    }
}

/// Tenants `blue`, `red` and `red-two`, each with a namespace; `free` has no tenant.
fn describe() -> FactIndex {
    let owned = |name: &str, tenant: &str| json!({ "name": name, "uid": name, "tenantLabel": tenant, "tenantOwners": [{ "name": tenant, "uid": tenant }] });
    let tenancy = json!({
        "tenants": [
            { "name": "blue", "uid": "blue" }, { "name": "red", "uid": "red", "homeNamespace": "rouge" },
            { "name": "red-two", "uid": "red-two" }
        ],
        "namespaces": [owned("blue-a", "blue"), owned("red-a", "red"), owned("red-two", "red-two"), { "name": "free", "uid": "f" }]
    });
    FactIndex::from_facts(&serde_json::from_value::<TenancyFacts>(tenancy).unwrap())
}

struct Stage {
    facts: FactIndex,
    index: MentionIndex,
}

impl Stage {
    fn new() -> Self {
        Self {
            facts: describe(),
            index: MentionIndex::default(),
        }
    }

    fn set_object(&mut self, kind: &str, place: (&str, &str), object: Option<&Value>) {
        let settings = Settings::default();
        self.index.set_object(&settings, kind_of(kind), place, object);
    }

    fn find(&self, tenant: &str, namespace: &str) -> Option<String> {
        let tenant = self.facts.find_tenant(tenant).unwrap();
        let found = self.index.find_outside(&self.facts, tenant, namespace);
        found.map(|mention| mention.to_string())
    }
}

fn bind(namespace: &str) -> Value {
    json!({ "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": "x" }] })
}

#[test]
fn objects_outside_a_tenant_count() {
    let mut stage = Stage::new();
    stage.set_object("ClusterRoleBinding", ("", "left-over"), Some(&bind("argocd")));
    stage.set_object("RoleBinding", ("free", "deploys"), Some(&bind("red-ci")));
    stage.set_object("RoleBinding", ("blue-a", "secret-name"), Some(&bind("ci")));
    assert_eq!(stage.find("red", "argocd").unwrap(), "ClusterRoleBinding left-over");
    assert_eq!(stage.find("red", "red-ci").unwrap(), "RoleBinding free/deploys");
    assert_eq!(stage.find("red", "ci").unwrap(), "a RoleBinding of another Tenant");
    assert_eq!(stage.find("blue", "ci"), None);
    assert_eq!(stage.find("red", "red-other"), None);
    stage.set_object("ClusterRoleBinding", ("", "left-over"), None);
    stage.set_object("RoleBinding", ("free", "deploys"), Some(&bind("elsewhere")));
    assert_eq!(stage.find("red", "argocd"), None);
    assert_eq!(stage.find("red", "red-ci"), None);
}

#[test]
fn a_tenant_takes_no_names_that_begin_with_anothers() {
    let mut stage = Stage::new();
    for name in ["red-ci", "rouge", "red-two-ci", "shared"] {
        stage.set_object("RoleBinding", ("blue-a", name), Some(&bind(name)));
    }
    assert_eq!(stage.find("red", "red-ci"), None);
    assert_eq!(stage.find("red", "rouge"), None);
    assert_eq!(stage.find("red-two", "red-two-ci"), None);
    // The longest matching name decides.
    assert!(stage.find("red", "red-two-ci").is_some());
    assert!(stage.find("red", "shared").is_some());
}

#[test]
fn a_tenants_own_objects_do_not_count() {
    let mut stage = Stage::new();
    let owners =
        json!({ "spec": { "owners": [{ "kind": "ServiceAccount", "name": "system:serviceaccount:ci:robot" }] } });
    stage.set_object("Tenant", ("", "red"), Some(&owners));
    let mut own = bind("ci");
    own["metadata"] =
        json!({ "labels": { "capsule.clastix.io/tenant": "red", "app.kubernetes.io/managed-by": "tenure" } });
    stage.set_object("ClusterRoleBinding", ("", "tenure:red:own"), Some(&own));
    stage.set_object("RoleBinding", ("red-a", "deploys"), Some(&bind("ci")));
    assert_eq!(stage.find("red", "ci"), None);
    assert_eq!(
        stage.find("blue", "ci").unwrap(),
        "a ClusterRoleBinding of another Tenant"
    );
    stage.set_object("ClusterRoleBinding", ("", "tenure:red:own"), None);
    stage.set_object("RoleBinding", ("red-a", "deploys"), None);
    assert_eq!(stage.find("blue", "ci").unwrap(), "another Tenant");
}

#[test]
fn one_namespace_fills_no_memory() {
    let mut stage = Stage::new();
    let many: Vec<Value> = (0..5_000)
        .map(|number| json!({ "kind": "ServiceAccount", "namespace": format!("n-{number}"), "name": "x" }))
        .collect();
    let many = json!({ "subjects": many });
    for name in ["a", "b", "c"] {
        stage.set_object("RoleBinding", ("blue-a", name), Some(&many));
    }
    assert_eq!(stage.index.by_named.len(), MOST_NAMED);
    // An administrator's objects are all stored.
    stage.set_object("ClusterRoleBinding", ("", "all"), Some(&many));
    assert_eq!(stage.index.by_named.len(), 5_000);
    for name in ["a", "b", "c"] {
        stage.set_object("RoleBinding", ("blue-a", name), None);
    }
    stage.index.forget_kind(kind_of("ClusterRoleBinding"));
    assert!(stage.index.by_named.is_empty() && stage.index.objects.is_empty() && stage.index.counts.is_empty());
}
