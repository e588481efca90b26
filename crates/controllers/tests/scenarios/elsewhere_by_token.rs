//! `spec.kubeConfig.configMapRef`: applies to a cluster that trusts this cluster's tokens. A token never goes out if this cluster's own API server
//! would accept it, or if it belongs to another namespace's account or to Tenure. No token appears in a message.

use serde_json::{Value, json};
use tenure_testkit::ServedCluster;

use crate::elsewhere::{NAMESPACE, has_value, in_shop, is_nowhere, until_there};
use crate::guards::allow_deletion;
use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, commit, condition};

const AUDIENCE: &str = "https://there.example";

fn config(namespace: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "production", "namespace": namespace }, "data": data,
    })
}

fn by_config_map() -> Value {
    json!({ "targetNamespace": null, "kubeConfig": { "configMapRef": { "name": "production" } } })
}

/// Returns the API server's own audiences, from a TokenRequest without audiences.
async fn find_audiences(stage: &Stage, namespace: &str) -> Vec<String> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": 3600 } });
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default/token");
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(review.to_string().into_bytes()).unwrap();
    let answer: Value = stage.admin.client().request(request).await.unwrap();
    serde_json::from_value(answer["spec"]["audiences"].clone()).unwrap()
}

/// Checks whether this cluster's API server authenticates a token.
async fn is_accepted_here(stage: &Stage, token: &str) -> bool {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let request =
        http::Request::post("/apis/authentication.k8s.io/v1/tokenreviews").header("content-type", "application/json");
    let request = request.body(review.to_string().into_bytes()).unwrap();
    let answer: Value = stage.admin.client().request(request).await.unwrap();
    answer["status"]["authenticated"] == true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_for_other_cluster_is_not_valid_here() {
    let (namespace, near) = ("elsewhere-d", "elsewhere-d-near");
    let there = ServedCluster::start().await.unwrap();
    // The front needs the stage's administrator, and the stage needs the front's address: so the address is found first.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap());
    let stage = Stage::set_allowing(namespace, std::slice::from_ref(&endpoint)).await;
    let mut stage = stage.planting(&[]).await;
    let front = there.trust(&stage.admin, AUDIENCE, listener).unwrap();
    stage.namespace(near).await;
    let account = |namespace: &str| json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "deployer", "namespace": namespace } });
    stage.admin.apply(account(namespace)).await.unwrap();
    // An authenticated user may do everything there.
    let binding = |user: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "deployer" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]
        })
    };
    there
        .admin
        .apply(binding(&format!("system:serviceaccount:{namespace}:deployer")))
        .await
        .unwrap();
    let files = [("ns.yaml", NAMESPACE), ("a.yaml", &*in_shop("a", "1"))];
    let repository = stage.repository(namespace, "app", &files).await;
    stage.kustomization(namespace, "app", "app", by_config_map()).await;

    let whole = json!({
        "provider": "generic", "address": endpoint, "ca.crt": front.authority, "audiences": format!("- {AUDIENCE}"),
        "serviceAccountName": "deployer",
    });
    let with = |key: &str, value: &str| {
        let mut data = whole.clone();
        data[key] = json!(value);
        data
    };
    let own = find_audiences(&stage, namespace).await;
    let own = own.first().unwrap();
    let attacks = [
        // A token that opens this cluster, sent to an address of the tenant's choice: alone, beside another audience, and with another spelling.
        (
            with("audiences", &format!("- {own}")),
            "is an audience of this cluster's own API server",
        ),
        (
            with("audiences", &format!("- {AUDIENCE}\n- {own}")),
            "is an audience of this cluster's own API server",
        ),
        (
            with("audiences", &format!("- {}/", own.to_uppercase())),
            "is an audience of this cluster's own API server",
        ),
        // Another namespace's account.
        (
            with("serviceAccountName", "kube-system:default"),
            "is not a valid ServiceAccount name",
        ),
        (
            with("serviceAccountName", "../kube-system/default"),
            "is not a valid ServiceAccount name",
        ),
        (with("serviceAccountName", "tenure-controller"), "does not exist"),
        // A forbidden address.
        (with("address", "https://169.254.169.254"), "metadata"),
        (with("address", "http://127.0.0.1:1"), "must begin with https://"),
        (with("provider", "aws"), "provider: aws is not supported yet"),
    ];
    for (data, expected) in attacks {
        stage.admin.apply(config(namespace, &data)).await.unwrap();
        let is_reported = |object: Option<&Value>| {
            let ready = object.and_then(|object| condition(object, "Ready"));
            ready.is_some_and(|ready| {
                ready["status"] == "False" && ready["message"].as_str().unwrap().contains(expected)
            })
        };
        stage.wait_for(KUSTOMIZATION, (namespace, "app"), is_reported).await;
        assert_eq!(front.take_shown(), [""; 0], "{expected}: a token went out");
    }

    // The control: a token for the other cluster, which is not valid here.
    stage.admin.apply(config(namespace, &whole)).await.unwrap();
    stage
        .ready(KUSTOMIZATION, (namespace, "app"), "True", "ReconciliationSucceeded")
        .await;
    until_there(&there, "a", has_value("1")).await;
    assert!(
        stage.get(CONFIG_MAP, ("shop", "a")).await.is_none(),
        "nothing is applied here"
    );
    let shown = front.take_shown();
    assert_eq!(shown.len(), 1, "one token is used until it ends");
    for token in &shown {
        stage.listen_for(namespace, token);
        assert!(
            !is_accepted_here(&stage, token).await,
            "a token went out that opens this cluster"
        );
    }
    let second = commit(&repository, &[("a.yaml", &in_shop("a", "2"))]).await;
    stage.wait_for_commit((namespace, "app"), &second).await;
    until_there(&there, "a", has_value("2")).await;
    is_nowhere(&stage, namespace, &[&shown[0]]).await;

    // An account without rights there fails, with the other cluster's message.
    stage.admin.apply(account(near)).await.unwrap();
    stage.repository(near, "app", &files).await;
    stage.admin.apply(config(near, &whole)).await.unwrap();
    stage.kustomization(near, "app", "app", by_config_map()).await;
    let is_forbidden = |object: Option<&Value>| {
        let ready = object.and_then(|object| condition(object, "Ready"));
        ready.is_some_and(|ready| {
            let message = ready["message"].as_str().unwrap();
            ready["status"] == "False" && message.contains(&format!("system:serviceaccount:{near}:deployer"))
        })
    };
    stage.wait_for(KUSTOMIZATION, (near, "app"), is_forbidden).await;

    // Its applied objects are deleted with it.
    stage.admin.delete(KUSTOMIZATION, (namespace, "app")).await.unwrap();
    allow_deletion(&stage, (namespace, "app")).await;
    stage
        .wait_for(KUSTOMIZATION, (namespace, "app"), |object| object.is_none())
        .await;
    until_there(&there, "a", |object| object.is_none()).await;
    stage.shut_down().await;
}
