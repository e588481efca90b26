//! Admission: a user can't grant rights beyond its own, nothing is created in a missing namespace, and an object that
//! violates its schema is refused with the names of the fields.

use http::Method;
use serde_json::{Value, json};

use crate::place::{Place, send};

const RBAC: &str = "apis/rbac.authorization.k8s.io/v1";

/// Grants `user` these rights in the namespace.
async fn grant_rules(place: &Place, user: &str, rules: Value) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": user, "namespace": place.namespace }, "rules": rules
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": user, "namespace": place.namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]
    });
    place.admin.apply(role).await.unwrap();
    place.admin.apply(binding).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_cannot_grant_rights_they_lack() {
    let place = Place::set("admission-a").await;
    let rules = json!([
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["get", "create"] },
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"] }
    ]);
    grant_rules(&place, "clerk", rules).await;
    let clerk = place.asked_by("clerk");
    let role = |name: &str, verbs: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": name },
            "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": verbs }]
        })
    };
    let roles = place.path(RBAC, "roles");
    let json_body = Some("application/json");
    let post = |body: Value| {
        let (clerk, roles) = (clerk.clone(), roles.clone());
        async move { send(&clerk, Method::POST, &roles, json_body, &body).await }
    };
    // On a real cluster, rights reach every authorizer only after a while.
    let made = tenure_testkit::eventually(tenure_testkit::SOON, || post(role("reads", json!(["get"]))));
    made.await.unwrap();
    let refused = post(role("deletes", json!(["get", "delete"]))).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    assert_eq!(
        refused.message,
        "roles.rbac.authorization.k8s.io \"deletes\" is forbidden: user \"clerk\" (groups=[\"system:authenticated\"]) is attempting to \
         grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}"
    );
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "more" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "clerk" }]
    });
    let bindings = place.path(RBAC, "rolebindings");
    let refused = send(&clerk, Method::POST, &bindings, json_body, &binding).await;
    assert_eq!(refused.unwrap_err().code, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_made_where_there_is_no_namespace() {
    let place = Place::set("admission-b").await;
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
    let refused = place
        .create("/api/v1/namespaces/admission-nowhere/configmaps", &map)
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (404, "namespaces \"admission-nowhere\" not found")
    );
    let refused = place
        .delete("/api/v1/namespaces/kube-system", &Value::Null)
        .await
        .unwrap_err();
    assert_eq!(refused.code, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schema_violations_are_refused_by_field() {
    let place = Place::set("admission-c").await;
    let kustomizations = place.path("apis/kustomize.toolkit.fluxcd.io/v1", "kustomizations");
    let kustomization = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": "apps" },
        "spec": { "interval": "1m", "prune": "yes", "sourceRef": { "kind": "GitRepository", "name": "apps" } }
    });
    let refused = place.create(&kustomizations, &kustomization).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    let causes = refused.details.unwrap().causes;
    assert_eq!(
        (causes[0].reason.as_str(), causes[0].field.as_str()),
        ("FieldValueTypeInvalid", "spec.prune")
    );
    let strict = format!("{kustomizations}?fieldValidation=Strict");
    let mut unknown = kustomization.clone();
    unknown["spec"]["prune"] = json!(true);
    unknown["spec"]["prunes"] = json!(true);
    let refused = place.create(&strict, &unknown).await.unwrap_err();
    assert_eq!(refused.code, 400);
    assert!(
        refused
            .message
            .ends_with("strict decoding error: unknown field \"spec.prunes\""),
        "{}",
        refused.message
    );
}
