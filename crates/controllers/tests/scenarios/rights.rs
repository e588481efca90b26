//! What RBAC gives whom in a tenant's namespaces, as the API server itself says it: reads meet no admission, so that nothing else stops them.

use http::Request;
use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use crate::stage::Stage;
use crate::tenants::{adopt, tenant};

/// What somebody asks: verb, resource with its subresource, and a name or none.
type Ask = (&'static str, &'static str, &'static str);

/// Whether RBAC lets somebody do it, by SubjectAccessReview.
async fn may(stage: &Stage, user: &str, namespace: &str, (verb, resource, name): Ask) -> bool {
    let (group, resource) = resource.split_once(':').unwrap_or(("", resource));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let attributes = json!({
        "namespace": namespace, "verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name
    });
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": { "user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes }
    });
    let request = Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
        .header("content-type", "application/json")
        .body(review.to_string().into_bytes())
        .unwrap();
    let answer: Value = stage.admin.client().request(request).await.unwrap();
    answer["status"]["allowed"] == true
}

/// What is right of it in the end: RBAC is told of a binding a moment after it is written.
async fn check(stage: &Stage, user: &str, namespace: &str, asks: &[Ask], allowed: bool) {
    for ask in asks {
        let answered = eventually(SOON, || async {
            match may(stage, user, namespace, *ask).await == allowed {
                true => Ok(()),
                false => Err(()),
            }
        });
        assert!(
            answered.await.is_ok(),
            "{user} in {namespace}, {ask:?}: allowed is not {allowed}"
        );
    }
}

/// What makes somebody the tenant's account, or shows its keys.
const WAYS_TO_THE_ACCOUNT: [Ask; 16] = [
    ("impersonate", "serviceaccounts", "NAME-gitops"),
    ("create", "serviceaccounts/token", "NAME-gitops"),
    ("get", "secrets", "key"),
    ("list", "secrets", ""),
    ("watch", "secrets", ""),
    ("create", "secrets", ""),
    ("patch", "secrets", "key"),
    ("create", "pods", ""),
    ("get", "pods", "web"),
    ("get", "pods/log", "web"),
    ("create", "pods/exec", "web"),
    ("create", "pods/attach", "web"),
    ("create", "pods/portforward", "web"),
    ("create", "apps:deployments", ""),
    ("create", "batch:jobs", ""),
    ("create", "rbac.authorization.k8s.io:rolebindings", ""),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_is_not_the_account_where_that_lives() {
    let stage = Stage::set("rights").await;
    tenant(&stage, "rights-blue").await;
    adopt(&stage, "rights-blue", "rights-dev").await;
    let owner = "rights-blue-owner";
    let ways = WAYS_TO_THE_ACCOUNT.map(|(verb, resource, name)| match name {
        "NAME-gitops" => (verb, resource, "rights-blue-gitops"),
        name => (verb, resource, name),
    });
    // Elsewhere she has what Kubernetes' role gives, once that is bound there.
    check(&stage, owner, "rights-dev", &ways, true).await;
    let needed = [
        ("get", "tenure.dev:surfaces", "app"),
        ("list", "kustomize.toolkit.fluxcd.io:kustomizations", ""),
        ("list", "source.toolkit.fluxcd.io:gitrepositories", ""),
        ("list", "events", ""),
        ("get", "apps:deployments", "web"),
        ("create", "configmaps", ""),
        ("delete", "namespaces", "rights-blue"),
    ];
    check(&stage, owner, "rights-blue", &needed, true).await;
    check(&stage, owner, "rights-blue", &ways, false).await;
    // Who names roles decides himself.
    let named = json!({ "spec": { "owners": [{ "kind": "User", "name": owner, "clusterRoles": ["admin"] }] } });
    stage
        .admin
        .patch(crate::tenants::TENANT, ("", "rights-blue"), named)
        .await
        .unwrap();
    check(&stage, owner, "rights-blue", &ways, true).await;
    stage.end().await;
}
