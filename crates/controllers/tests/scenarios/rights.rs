//! RBAC's rights in a tenant's namespaces, as the API server itself reports them. No admission checks reads, so RBAC is their only limit.

use http::Request;
use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use crate::deploy_keys::SECRET;
use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, condition, config_map};
use crate::tenants::{SURFACE, TENANT, adopt, surface, surface_ready, tenant};

/// A request: verb, resource with its subresource, and a name or none.
pub(crate) type Ask<'a> = (&'a str, &'a str, &'a str);

/// Checks by SubjectAccessReview whether RBAC allows a request of a user.
pub(crate) async fn is_allowed(stage: &Stage, user: &str, namespace: &str, (verb, resource, name): Ask<'_>) -> bool {
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

/// Waits for the expected answer, because RBAC applies a new binding with a delay.
async fn check(stage: &Stage, user: &str, namespace: &str, asks: &[Ask<'_>], allowed: bool) {
    for ask in asks {
        let answered = eventually(SOON, || async {
            match is_allowed(stage, user, namespace, *ask).await == allowed {
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

/// Requests that let a user act as the tenant's account, or show its keys.
const WAYS_TO_THE_ACCOUNT: [Ask<'static>; 14] = [
    ("impersonate", "serviceaccounts", "NAME-gitops"),
    ("create", "serviceaccounts/token", "NAME-gitops"),
    ("get", "secrets", "key"),
    ("list", "secrets", ""),
    ("watch", "secrets", ""),
    ("create", "secrets", ""),
    ("patch", "secrets", "key"),
    ("create", "pods", ""),
    ("create", "pods/exec", "web"),
    ("create", "pods/attach", "web"),
    ("create", "pods/portforward", "web"),
    ("create", "apps:deployments", ""),
    ("create", "batch:jobs", ""),
    ("create", "rbac.authorization.k8s.io:rolebindings", ""),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_cannot_become_account_in_home_namespace() {
    let stage = Stage::set("rights").await;
    tenant(&stage, "rights-blue").await;
    adopt(&stage, "rights-blue", "rights-dev").await;
    let owner = "rights-blue-owner";
    let ways = WAYS_TO_THE_ACCOUNT.map(|(verb, resource, name)| match name {
        "NAME-gitops" => (verb, resource, "rights-blue-gitops"),
        name => (verb, resource, name),
    });
    // In other namespaces she has Kubernetes' role, once it is bound there.
    check(&stage, owner, "rights-dev", &ways, true).await;
    let needed = [
        ("get", "tenure.dev:surfaces", "app"),
        ("list", "kustomize.toolkit.fluxcd.io:kustomizations", ""),
        ("list", "source.toolkit.fluxcd.io:gitrepositories", ""),
        ("list", "events", ""),
        ("get", "apps:deployments", "web"),
        ("list", "pods", ""),
        ("get", "pods/log", "web"),
        ("create", "configmaps", ""),
        ("delete", "namespaces", "rights-blue"),
    ];
    check(&stage, owner, "rights-blue", &needed, true).await;
    check(&stage, owner, "rights-blue", &ways, false).await;
    // A Tenant that names roles decides itself.
    let named = json!({ "spec": { "owners": [{ "kind": "User", "name": owner, "clusterRoles": ["admin"] }] } });
    stage.admin.patch(TENANT, ("", "rights-blue"), named).await.unwrap();
    check(&stage, owner, "rights-blue", &ways, true).await;
    stage.shut_down().await;
}

/// The kinds that authors write.
const WRITTEN: [&str; 9] = [
    "tenure.dev:surfaces",
    "source.toolkit.fluxcd.io:gitrepositories",
    "source.toolkit.fluxcd.io:ocirepositories",
    "source.toolkit.fluxcd.io:buckets",
    "source.extensions.fluxcd.io:artifactgenerators",
    "kustomize.toolkit.fluxcd.io:kustomizations",
    "notification.toolkit.fluxcd.io:receivers",
    "notification.toolkit.fluxcd.io:alerts",
    "notification.toolkit.fluxcd.io:providers",
];

/// An owner writes the objects that Tenure reconciles in the namespaces of its tenant. The controls of the denied requests are the allowed ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_writes_reconciled_objects_in_its_own_namespaces() {
    let stage = Stage::set("author").await;
    tenant(&stage, "author-blue").await;
    adopt(&stage, "author-blue", "author-dev").await;
    tenant(&stage, "author-red").await;
    let owner = "author-blue-owner";
    let verbs = ["create", "update", "patch", "delete", "watch"];
    let asks: Vec<Ask<'_>> = WRITTEN
        .iter()
        .flat_map(|kind| verbs.map(|verb| (verb, *kind, "")))
        .collect();
    for own in ["author-blue", "author-dev"] {
        check(&stage, owner, own, &asks, true).await;
    }
    // The answers of statuses, artifacts and approvals stay with the controllers.
    let parts: Vec<String> = WRITTEN.iter().map(|kind| format!("{kind}/status")).collect();
    let mut beyond: Vec<Ask<'_>> = parts.iter().map(|part| ("patch", part.as_str(), "")).collect();
    beyond.extend([
        ("create", "source.toolkit.fluxcd.io:externalartifacts", ""),
        ("create", "tenure.dev:fluxaccesses", ""),
        ("create", "helm.toolkit.fluxcd.io:helmreleases", ""),
        ("deletecollection", "kustomize.toolkit.fluxcd.io:kustomizations", ""),
    ]);
    check(&stage, owner, "author-blue", &beyond, false).await;
    for foreign in ["author-red", "tenure-system", "kube-system", ""] {
        check(&stage, owner, foreign, &asks, false).await;
    }
    // Her Surface is reconciled at home as the tenant's account, and nowhere else.
    let alice = stage.admin.impersonating(owner).unwrap();
    let repository = stage.git.create("author").await.unwrap();
    repository
        .commit([("a.yaml", &*config_map("a", "1"))], "first")
        .await
        .unwrap();
    let sources = json!([{ "name": "app", "url": stage.git.http_url("author"), "interval": "1s", "targetNamespace": "author-blue" }]);
    let own = |namespace: &str| {
        json!({
            "apiVersion": SURFACE.0, "kind": SURFACE.1, "metadata": { "name": "app", "namespace": namespace },
            "spec": { "sources": sources }
        })
    };
    alice.apply(own("author-blue")).await.unwrap();
    // Admission refuses the second one, if it checks writes.
    match alice.apply(own("author-dev")).await {
        Err(error) => assert!(error.to_string().contains("create the Surface there"), "{error}"),
        Ok(_) => {
            let is_refused = |surface: Option<&Value>| {
                let ready = surface.and_then(|surface| condition(surface, "Ready"));
                ready.is_some_and(|ready| ready["status"] == "False" && ready["reason"] == "WrongNamespace")
            };
            stage.wait_for(SURFACE, ("author-dev", "app"), is_refused).await;
        }
    }
    let ready = surface_ready(&stage, ("author-blue", "app")).await;
    let account = "system:serviceaccount:author-blue:author-blue-gitops";
    assert_eq!(ready["status"]["identity"], account);
    // An administrator leaves the role out.
    let none = json!({ "metadata": { "annotations": { "tenure.dev/author-role": "none" } } });
    stage.admin.patch(TENANT, ("", "author-blue"), none).await.unwrap();
    check(&stage, owner, "author-blue", &asks[..4], false).await;
    check(
        &stage,
        owner,
        "author-blue",
        &[("get", "tenure.dev:surfaces", "app")],
        true,
    )
    .await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_chooses_what_a_repository_may_write() {
    let stage = Stage::set("chosen").await;
    tenant(&stage, "chosen-blue").await;
    let account = "system:serviceaccount:chosen-blue:chosen-blue-gitops";
    let usual = [("create", "configmaps", ""), ("create", "apps:deployments", "")];
    check(&stage, account, "chosen-blue", &usual, true).await;
    let named = |role: Value| json!({ "metadata": { "annotations": { "tenure.dev/gitops-cluster-role": role } } });
    let choose = async |role: Value| {
        stage
            .admin
            .patch(TENANT, ("", "chosen-blue"), named(role))
            .await
            .unwrap();
    };
    choose(json!("tenure-tenant-gitops-cozystack")).await;
    let applications = [
        ("create", "apps.cozystack.io:kuberneteses", ""),
        ("delete", "apps.cozystack.io:postgreses", "db"),
        ("get", "configmaps", "variables"),
    ];
    check(&stage, account, "chosen-blue", &applications, true).await;
    check(&stage, account, "chosen-blue", &usual, false).await;
    let beyond = [("get", "secrets", "any"), ("create", "apps.cozystack.io:tenants", "")];
    check(&stage, account, "chosen-blue", &beyond, false).await;

    // A role that the controllers may not bind is bound only after an administrator allows it.
    let rules = json!([{ "apiGroups": [""], "resources": ["services"], "verbs": ["create"] }]);
    let role = |name: &str, rules: Value| json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules });
    stage.admin.apply(role("chosen-own", rules)).await.unwrap();
    choose(json!("chosen-own")).await;
    let is_refused = |tenant: Option<&Value>| {
        let ready = tenant.and_then(|tenant| condition(tenant, "Ready"));
        let message = ready.and_then(|ready| ready["message"].as_str());
        message.is_some_and(|message| message.contains("the verb bind on clusterroles by name, for chosen-own"))
    };
    stage.wait_for(TENANT, ("", "chosen-blue"), is_refused).await;
    check(&stage, account, "chosen-blue", &[("create", "services", "")], false).await;
    let bind = json!([{
        "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["chosen-own"]
    }]);
    stage.admin.apply(role("chosen-binds-own", bind)).await.unwrap();
    let controller = json!({ "kind": "ServiceAccount", "namespace": "tenure-system", "name": "tenure-controller" });
    stage
        .admin
        .apply(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "chosen-binds-own" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "chosen-binds-own" },
            "subjects": [controller]
        }))
        .await
        .unwrap();
    // The binding is retried after its pause.
    check(&stage, account, "chosen-blue", &[("create", "services", "")], true).await;
    stage.shut_down().await;
}

/// For a Secret from Git in the home namespace, only one thing is different: it is not watched, but read at each reconciliation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn account_reads_secrets_only_by_name_in_home_namespace() {
    let stage = Stage::set("keys").await;
    tenant(&stage, "keys-blue").await;
    adopt(&stage, "keys-blue", "keys-dev").await;
    let account = "system:serviceaccount:keys-blue:keys-blue-gitops";
    let (by_name, at_once) = (
        [("get", "secrets", "key")],
        [("list", "secrets", ""), ("watch", "secrets", "")],
    );
    check(&stage, account, "keys-blue", &by_name, true).await;
    check(&stage, account, "keys-dev", &by_name, true).await;
    check(&stage, account, "keys-dev", &at_once, true).await;
    check(&stage, account, "keys-blue", &at_once, false).await;

    let secret = |value: &str| {
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: kept}}\nstringData: {{value: \"{value}\"}}\n")
    };
    let repository = surface(&stage, "keys-blue", "app", &[("a.yaml", &secret("1"))], json!({})).await;
    surface_ready(&stage, ("keys-blue", "app")).await;
    let holds =
        |value: &'static str| move |found: Option<&Value>| found.is_some_and(|found| found["data"]["value"] == value);
    stage.wait_for(SECRET, ("keys-blue", "kept"), holds("MQ==")).await;
    // A hand edit is reverted at the next reconciliation.
    let edit = json!({ "stringData": { "value": "edited" } });
    stage.admin.patch(SECRET, ("keys-blue", "kept"), edit).await.unwrap();
    let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "now" } } });
    stage
        .admin
        .patch(KUSTOMIZATION, ("keys-blue", "app-app"), asked)
        .await
        .unwrap();
    stage.wait_for(SECRET, ("keys-blue", "kept"), holds("MQ==")).await;
    // The next commit replaces it with another.
    let other = config_map("other", "1");
    repository.commit([("a.yaml", other.as_str())], "second").await.unwrap();
    stage
        .wait_for(CONFIG_MAP, ("keys-blue", "other"), |found| found.is_some())
        .await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_users_of_the_account_are_reported() {
    let mut stage = Stage::set("others").await;
    tenant(&stage, "others-blue").await;
    let says = |value: &'static str, words: Vec<&'static str>| {
        move |tenant: Option<&Value>| {
            let condition = tenant.and_then(|tenant| condition(tenant, "AccountExclusive"));
            let message = condition.and_then(|condition| condition["message"].as_str());
            condition.is_some_and(|condition| condition["status"] == value)
                && message.is_some_and(|message| words.iter().all(|words| message.contains(words)))
        }
    };
    stage
        .wait_for(
            TENANT,
            ("", "others-blue"),
            says("True", vec!["others-blue-gitops", "no other account is known"]),
        )
        .await;
    // An editor, and an already running Pod.
    let editor = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "others-editor" });
    stage
        .admin
        .apply(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "editor", "namespace": "others-blue" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" }, "subjects": [editor]
        }))
        .await
        .unwrap();
    stage
        .admin
        .apply(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "squatter", "namespace": "others-blue" },
            "spec": { "serviceAccountName": "others-blue-gitops", "containers": [{ "name": "a", "image": "registry.example/a" }] }
        }))
        .await
        .unwrap();
    // It is also checked when the controllers start.
    stage.restart().await;
    let words = vec![
        "Pods run as it: squatter",
        "others-editor",
        "(RoleBinding editor)",
        "Not checked: Secrets",
    ];
    stage.wait_for(TENANT, ("", "others-blue"), says("False", words)).await;
    stage.shut_down().await;
}

/// If RBAC denies a surface's write, the Surface's status names the remedy, and the remedy is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_surface_without_a_right_names_the_missing_right() {
    let stage = Stage::set("remedy").await;
    tenant(&stage, "remedy-blue").await;
    let quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: own}\nspec: {hard: {pods: \"5\"}}\n";
    let _repository = surface(&stage, "remedy-blue", "app", &[("a.yaml", quota)], json!({})).await;
    let is_right_named = |surface: Option<&Value>| {
        let ready = surface.and_then(|surface| condition(surface, "Ready"));
        let message = ready.and_then(|ready| ready["message"].as_str());
        ready.is_some_and(|ready| ready["status"] == "False")
            && message.is_some_and(|message| {
                message.contains("an administrator gives ServiceAccount remedy-blue/remedy-blue-gitops the right to ")
                    && message.contains("resourcequotas, by a Role and a RoleBinding in namespace remedy-blue")
            })
    };
    stage.wait_for(SURFACE, ("remedy-blue", "app"), is_right_named).await;
    let group = "rbac.authorization.k8s.io";
    let account = json!({ "kind": "ServiceAccount", "namespace": "remedy-blue", "name": "remedy-blue-gitops" });
    for object in [
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": { "name": "quotas", "namespace": "remedy-blue" },
            "rules": [{ "apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["create", "patch"] }]
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": { "name": "quotas", "namespace": "remedy-blue" },
            "roleRef": { "apiGroup": group, "kind": "Role", "name": "quotas" }, "subjects": [account]
        }),
    ] {
        stage.admin.apply(object).await.unwrap();
    }
    surface_ready(&stage, ("remedy-blue", "app")).await;
    stage.shut_down().await;
}
