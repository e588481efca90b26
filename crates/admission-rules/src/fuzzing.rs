//! Any JSON as the request of an AdmissionReview: for a target of cargo-fuzz, and as a test over its first inputs. The module exists only for tests and under
//! `cfg(fuzzing)`, which cargo-fuzz sets.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "a check fails by a panic"
)]

use std::sync::Arc;

use serde_json::{Value, json};

use super::{ClusterQueries, Decision, Question, Request, decide};
use tenure_tenancy::mentions::Mention;
use tenure_tenancy::{FactIndex, TenancyFacts, TenantFacts};

/// Answers each question in the same way.
struct Answers {
    is_allowed: bool,
    object: Option<Value>,
}

impl ClusterQueries for Answers {
    fn is_allowed(&self, _question: &Question<'_>) -> bool {
        self.is_allowed
    }

    fn may_account(&self, _account: (&str, &str), _question: &Question<'_>) -> bool {
        self.is_allowed
    }

    fn find(&self, _group: &str, _plural: &str, _namespace: &str, _name: &str) -> Option<Arc<Value>> {
        self.object.clone().map(Arc::new)
    }

    fn find_mention(
        &self,
        _facts: &FactIndex,
        _tenant: &TenantFacts,
        _namespace: &str,
    ) -> Result<Option<Mention>, String> {
        if self.is_allowed {
            Ok(None)
        } else {
            Err("the list is not complete".to_owned())
        }
    }
}

/// Returns the facts of all checks: two tenants with bounds and namespaces.
#[must_use]
pub fn make_facts() -> FactIndex {
    let tenancy: TenancyFacts = serde_json::from_value(json!({
        "settings": { "platformNamespace": "tenure-system", "isGuarded": true },
        "tenants": [
            {
                "name": "blue", "uid": "t-blue", "recorded": { "blue": "n2", "blue-dev": "n3" }, "namespaceQuota": 4,
                "owners": [{ "kind": "User", "name": "alice" }, { "kind": "Group", "name": "blue-devs" }],
                "bounds": {
                    "containerRegistries": { "allowed": ["docker.io"], "allowedRegex": "[a-z]+\\.pull\\.example\\.org" },
                    "imagePullPolicies": ["Always"],
                    "priorityClasses": { "allowed": ["small"], "default": "small" },
                    "storageClasses": { "allowed": ["fast"] },
                    "ingressOptions": { "allowedClasses": { "allowed": ["web"] }, "allowedHostnames": { "allowed": ["blue.example.org"] } },
                    "serviceOptions": { "allowedServices": { "nodePort": false }, "externalIPs": { "allowed": ["192.0.2.0/24"] }, "forbiddenLabels": { "denied": ["example.org/secret"] } },
                    "namespaceOptions": { "forbiddenLabels": { "denied": ["example.org/no"] } }
                }
            },
            { "name": "red", "uid": "t-red", "recorded": { "red": "n4" }, "exclusiveAccount": true, "owners": [{ "kind": "User", "name": "rita" }] }
        ],
        "namespaces": [
            { "name": "tenure-system", "uid": "n0" },
            { "name": "blue", "uid": "n2", "tenantLabel": "blue" },
            { "name": "blue-dev", "uid": "n3", "tenantLabel": "blue" },
            { "name": "red", "uid": "n4", "tenantLabel": "red" }
        ]
    }))
    .unwrap();
    FactIndex::from_facts(&tenancy)
}

/// Decides a request with either answer of the authorizer.
pub fn check(facts: &FactIndex, request: &Value) {
    let Ok(read) = Request::read(request) else { return };
    for is_allowed in [false, true] {
        for object in [None, read.old_object.cloned()] {
            let answers = Answers { is_allowed, object };
            let decision = decide(facts, &read, &answers);
            assert_eq!(
                decision,
                decide(facts, &read, &answers),
                "the same request has two answers"
            );
            match decision {
                Decision::Deny(refusal) => assert!(!refusal.why.is_empty() && !refusal.remedy.is_empty()),
                Decision::Allow { changes, .. } => {
                    assert!(changes.is_empty() || read.object.is_some(), "a change of no object");
                }
            }
        }
    }
}

/// Returns the first inputs, whole AdmissionReviews.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let review = |operation: &str, (group, resource): (&str, &str), user: &str, object: Value, old: Value| {
        let namespace = object
            .pointer("/metadata/namespace")
            .and_then(Value::as_str)
            .unwrap_or("blue")
            .to_owned();
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": operation, "resource": { "group": group, "version": "v1", "resource": resource },
                "namespace": namespace, "name": object.pointer("/metadata/name"), "dryRun": false,
                "userInfo": { "username": user, "groups": ["blue-devs", "system:authenticated"], "extra": { "authentication.kubernetes.io/credential-id": ["JTI=x"] } },
                "object": object, "oldObject": old,
            }
        })
    };
    let object = |kind: &str, name: &str, spec: Value| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": "blue", "labels": { "a": "b" }, "finalizers": ["example.org/x"] }, "spec": spec });
    let pod = json!({
        "containers": [{ "name": "a", "image": "docker.io/library/a:1", "imagePullPolicy": "Always" }],
        "initContainers": [{ "image": "x.pull.example.org/a@sha256:00" }],
        "priorityClassName": "small", "serviceAccountName": "default",
        "volumes": [{ "image": { "reference": "quay.io/a" } }, { "persistentVolumeClaim": { "claimName": "c" } }],
    });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "blue-new", "labels": { "capsule.clastix.io/tenant": "blue" },
        "ownerReferences": [{ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": "blue", "uid": "t-blue" }],
    }});
    let kustomization = json!({
        "serviceAccountName": "flux", "sourceRef": { "kind": "GitRepository", "name": "a", "namespace": "red" },
        "targetNamespace": "red", "path": "./", "interval": "1m", "prune": true, "dependsOn": [{ "name": "b", "namespace": "red" }],
        "postBuild": { "substituteFrom": [{ "kind": "Secret", "name": "s" }] }, "kubeConfig": { "secretRef": { "name": "k" } },
    });
    let tenant = json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": "blue" }, "spec": { "owners": [{ "kind": "User", "name": "alice" }] } });
    let flux = "kustomize.toolkit.fluxcd.io";
    let null = Value::Null;
    let ingress = json!({ "ingressClassName": "web", "rules": [{ "host": "*.blue.example.org", "http": { "paths": [{ "path": "/", "pathType": "Prefix" }] } }], "tls": [{ "hosts": ["a"] }] });
    let service = json!({ "type": "NodePort", "externalIPs": ["192.0.2.7", "::1"], "externalName": "x.red.svc", "ports": [{ "port": 80 }] });
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "r", "namespace": "blue" }, "roleRef": { "kind": "ClusterRole", "name": "admin" }, "subjects": [{ "kind": "ServiceAccount", "namespace": "red", "name": "x" }] });
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "audiences": ["a"], "expirationSeconds": 600 } });
    let package = json!({ "variant": "default", "components": { "a": { "values": { "x": [1] } } } });
    let reviews = [
        review(
            "CREATE",
            ("", "pods"),
            "alice",
            object("Pod", "p", pod.clone()),
            null.clone(),
        ),
        review(
            "UPDATE",
            ("", "pods"),
            "alice",
            object("Pod", "p", pod.clone()),
            object("Pod", "p", pod),
        ),
        review("CREATE", ("", "namespaces"), "alice", namespace.clone(), null.clone()),
        review(
            "UPDATE",
            ("", "namespaces"),
            "rita",
            namespace.clone(),
            namespace.clone(),
        ),
        review("DELETE", ("", "namespaces"), "rita", null.clone(), namespace),
        review(
            "CREATE",
            (flux, "kustomizations"),
            "alice",
            object("Kustomization", "k", kustomization.clone()),
            null.clone(),
        ),
        review(
            "UPDATE",
            (flux, "kustomizations"),
            "system:serviceaccount:blue:flux",
            object("Kustomization", "k", kustomization.clone()),
            object("Kustomization", "k", kustomization),
        ),
        review(
            "UPDATE",
            ("capsule.clastix.io", "tenants"),
            "alice",
            tenant.clone(),
            tenant,
        ),
        review(
            "CREATE",
            ("networking.k8s.io", "ingresses"),
            "alice",
            object("Ingress", "i", ingress),
            null.clone(),
        ),
        review(
            "CREATE",
            ("", "services"),
            "alice",
            object("Service", "s", service),
            null.clone(),
        ),
        review(
            "CREATE",
            ("rbac.authorization.k8s.io", "rolebindings"),
            "alice",
            binding,
            null.clone(),
        ),
        review(
            "CREATE",
            ("", "serviceaccounts"),
            "system:serviceaccount:tenure-system:tenure",
            request,
            null.clone(),
        ),
        review(
            "CREATE",
            ("", "persistentvolumeclaims"),
            "alice",
            object(
                "PersistentVolumeClaim",
                "c",
                json!({ "storageClassName": "fast", "volumeName": "v" }),
            ),
            null.clone(),
        ),
        review(
            "UPDATE",
            ("tenure.dev", "surfaces"),
            "alice",
            object("Surface", "s", json!({ "sources": [], "rendering": {} })),
            null.clone(),
        ),
        review(
            "UPDATE",
            ("cozystack.io", "packages"),
            "alice",
            object("Package", "p", package.clone()),
            object("Package", "p", package),
        ),
    ];
    reviews.iter().map(|review| review.to_string().into_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_around_the_first_inputs_are_decided() {
        let facts = make_facts();
        let mut decided = 0;
        for seed in seeds() {
            let review: Value = serde_json::from_slice(&seed).unwrap();
            decided += usize::from(Request::read(&review["request"]).is_ok());
            let mut pointers = Vec::new();
            list_pointers(&review["request"], String::new(), &mut pointers);
            for pointer in pointers {
                for other in [
                    Value::Null,
                    json!(-1),
                    json!(""),
                    json!([]),
                    json!({}),
                    json!([null]),
                    json!("*"),
                ] {
                    let mut request = review["request"].clone();
                    *request.pointer_mut(&pointer).unwrap() = other;
                    check(&facts, &request);
                }
            }
        }
        assert_eq!(decided, seeds().len());
    }

    fn list_pointers(value: &Value, at: String, pointers: &mut Vec<String>) {
        let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
        match value {
            Value::Object(map) => map
                .iter()
                .for_each(|(key, value)| list_pointers(value, format!("{at}/{}", escape(key)), pointers)),
            Value::Array(list) => list
                .iter()
                .enumerate()
                .for_each(|(index, value)| list_pointers(value, format!("{at}/{index}"), pointers)),
            _ => {}
        }
        pointers.push(at);
    }
}
