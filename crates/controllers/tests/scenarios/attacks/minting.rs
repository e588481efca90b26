//! Tokens that Tenure's own accounts may request. A compromised lane of namespaces without a tenant, or the controllers, which may bind lanes in any
//! namespace, must not get an administrator's token.

use serde_json::{Value, json};
use tenure_testkit::{Admin, SOON, eventually};

use super::lanes::{LANE, ROLE_BINDING, account, assert_forbidden, binding};
use crate::stage::{GIT_REPOSITORY, Stage, condition, config_map, request_token};

const CLUSTER_ROLE_BINDING: (&str, &str) = ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding");
const NAMESPACE: &str = "attacks-minting";
const ENFORCEMENT: (&str, &str) = ("tenure.dev/v1alpha1", "Enforcement");
/// A namespace as Flux's own installation had it.
const FLUX: &str = "attacks-minting-flux";

/// Waits for the answer, because a server follows policies, roles and bindings with a watch.
async fn until_answered(who: &Admin, (namespace, name): (&str, &str), part: Option<&str>) {
    let asked = eventually(SOON, || async {
        match (request_token(who, namespace, name).await, part) {
            (Ok(_), None) => Ok(()),
            (Err(message), Some(part)) if message.contains(part) => Ok(()),
            (answer, _) => Err(answer.map(|_| "a token".to_owned())),
        }
    });
    if let Err(last) = asked.await {
        panic!("of {namespace}/{name}: {last:?}, not {part:?}");
    }
}

async fn make_account(admin: &Admin, namespace: &str, name: &str) {
    let metadata = json!({ "name": name, "namespace": namespace });
    let object = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
    admin.apply(object).await.unwrap();
}

/// Returns the Role and RoleBinding that permit the token. Only an administrator may write them.
fn grant(namespace: &str, name: &str, to: &Value) -> [Value; 2] {
    let metadata = json!({ "name": "mints-an-administrator", "namespace": namespace });
    let rules = json!([{
        "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["mint-administrator"], "resourceNames": [name]
    }]);
    let role = json!({ "apiVersion": ROLE_BINDING.0, "kind": "Role", "metadata": metadata, "rules": rules });
    let mut bound = binding(
        ROLE_BINDING.1,
        Some(namespace),
        "mints-an-administrator",
        "mints-an-administrator",
        to,
    );
    bound["roleRef"]["kind"] = json!("Role");
    [role, bound]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenure_accounts_get_no_token_of_administrator() {
    let stage = Stage::set(NAMESPACE).await.planting(&[]).await;
    let admin = &stage.admin;
    let repository = stage
        .repository(NAMESPACE, "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization(NAMESPACE, "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit((NAMESPACE, "app"), &first).await;
    stage.namespace(FLUX).await;
    for (namespace, name) in [(NAMESPACE, "mighty"), (FLUX, "kustomize-controller")] {
        make_account(admin, namespace, name).await;
        make_account(admin, namespace, "plain").await;
        let name_of_binding = format!("attacks-minting-{name}");
        let subject = account(namespace, name);
        let bound = binding(
            CLUSTER_ROLE_BINDING.1,
            None,
            &name_of_binding,
            "cluster-admin",
            &subject,
        );
        admin.apply(bound).await.unwrap();
    }
    let lane = stage.bearing("tenure-system", "tenure-lane-pool").await;
    let hub = stage.bearing("tenure-system", "tenure-controller").await;

    // In the lane's namespace.
    let refused = Some("which is an administrator of the cluster");
    until_answered(&lane, (NAMESPACE, "plain"), None).await;
    until_answered(&lane, (NAMESPACE, "mighty"), refused).await;
    // An account that could make itself an administrator.
    for (group, resource, verb) in [
        ("", "secrets", "list"),
        ("", "pods", "create"),
        ("", "serviceaccounts/token", "create"),
        ("apps", "daemonsets", "create"),
        ("rbac.authorization.k8s.io", "clusterroles", "escalate"),
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations",
            "create",
        ),
    ] {
        let name = format!("attacks-minting-{}-{verb}", resource.replace('/', "-"));
        make_account(admin, NAMESPACE, &name).await;
        let rules = json!([{ "apiGroups": [group], "resources": [resource], "verbs": [verb] }]);
        let role = json!({ "apiVersion": ROLE_BINDING.0, "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules });
        admin.apply(role).await.unwrap();
        let bound = binding(CLUSTER_ROLE_BINDING.1, None, &name, &name, &account(NAMESPACE, &name));
        admin.apply(bound).await.unwrap();
        until_answered(&lane, (NAMESPACE, &name), refused).await;
        admin.delete(CLUSTER_ROLE_BINDING, ("", &name)).await.unwrap();
        until_answered(&lane, (NAMESPACE, &name), None).await;
        admin
            .delete((ROLE_BINDING.0, "ClusterRole"), ("", &name))
            .await
            .unwrap();
    }

    // In another namespace: a thief with the controller's token binds the lane there, and can't bind the controller itself.
    let (pool, itself) = (
        account("tenure-system", "tenure-lane-pool"),
        account("tenure-system", "tenure-controller"),
    );
    let bound = |subject| binding(ROLE_BINDING.1, Some(FLUX), LANE, "tenure-lane", subject);
    assert_forbidden(hub.apply(bound(&itself)).await, "a lane's role for the controller");
    hub.apply(bound(&pool)).await.unwrap();
    until_answered(&lane, (FLUX, "plain"), None).await;
    until_answered(&lane, (FLUX, "kustomize-controller"), refused).await;
    // The controller can't grant itself the permission either.
    let [role, _] = grant(FLUX, "kustomize-controller", &itself);
    assert_forbidden(hub.apply(role).await, "a Role with the verb");

    // An administrator may permit it, for one account and for one lane.
    for object in grant(NAMESPACE, "mighty", &pool) {
        admin.apply(object).await.unwrap();
    }
    until_answered(&lane, (NAMESPACE, "mighty"), None).await;
    until_answered(&lane, (FLUX, "kustomize-controller"), refused).await;

    for name in ["mighty", "kustomize-controller"] {
        let name = format!("attacks-minting-{name}");
        admin.delete(CLUSTER_ROLE_BINDING, ("", &name)).await.unwrap();
    }
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enforcement_reports_shared_lane_that_may_mint_administrator() {
    let namespace = "attacks-minting-shared";
    let stage = Stage::set(namespace).await.planting(&[]).await;
    let lane = account("tenure-system", "tenure-lane-pool");
    for object in grant(namespace, "mighty", &lane) {
        stage.admin.apply(object).await.unwrap();
    }
    stage.repository(namespace, "app", &[]).await;
    let find = |enforcement: Option<&Value>, type_: &str| {
        let found = enforcement
            .and_then(|enforcement| condition(enforcement, type_))
            .cloned();
        let found = found.unwrap_or_default();
        let is_reported = found["message"].as_str().is_some_and(|message| {
            message.contains(&format!(
                "Namespace/{namespace}: system:serviceaccount:tenure-system:tenure-lane-pool"
            )) && message.contains("(serviceaccounts mighty)")
        });
        (found["status"].as_str().unwrap_or_default().to_owned(), is_reported)
    };
    let refused = ("False".to_owned(), true);
    let target = ("", "tenure");
    let looks = |enforcement: Option<&Value>| {
        find(enforcement, "LanesSeparated") == refused && find(enforcement, "Ready") == refused
    };
    stage.wait_for(ENFORCEMENT, target, looks).await;

    // The lane leaves the namespace. Its right there endangers no other namespace any more.
    stage.admin.delete(GIT_REPOSITORY, (namespace, "app")).await.unwrap();
    let looks = |enforcement: Option<&Value>| enforcement.is_some() && !find(enforcement, "LanesSeparated").1;
    stage.wait_for(ENFORCEMENT, target, looks).await;
    stage.shut_down().await;
}
