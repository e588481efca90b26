//! The objects that an administrator and an owner write, and the requests: as in `docs/howto/access-to-a-git-host.md`.

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_git_access::rotation_order::RotationOrder;

/// The path of the platform's access objects.
pub(super) const PROJECTS: &str = "/apis/tenure.dev/v1alpha1/namespaces/tenure-system";
/// The path of requests.
pub(super) const REQUESTS: &str = "/apis/tenure.dev/v1alpha1/namespaces/tenure-system/fluxaccessrequests";
/// The path of grants.
pub(super) const GRANTS: &str = "/apis/tenure.dev/v1alpha1/namespaces/tenure-system/fluxaccessgrants";
/// The path of the platform's sources.
pub(super) const SOURCES: &str = "/apis/source.toolkit.fluxcd.io/v1/namespaces/tenure-system/gitrepositories";
/// The file with the agent's entries.
pub(super) const CONFIGURATION: &str = ".gitlab/agents/prod/config.yaml";
/// The user that may approve everything.
pub(super) const OWNER: &str = "olga";

pub(super) const PLATFORM: &str = "tenure-system";
const STAGING: &str = "tenure-access-work-staging";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Returns the path of a project.
pub(super) fn project_path(index: usize) -> String {
    format!("shops/p-{index}")
}

fn name_namespace(index: usize) -> String {
    format!("n-{index}")
}

fn list_namespaces(count: usize) -> Vec<String> {
    (0..count).map(name_namespace).collect()
}

/// Writes entries for this many projects.
pub(super) fn configure(projects: usize, namespaces: usize) -> String {
    let names = list_namespaces(namespaces).join(", ");
    let mut text = "flux_access:\n  role: read_repository\n  projects:\n".to_owned();
    for index in 0..projects {
        text.push_str(&format!(
            "  - {{ id: {}, secret_name: p-{index}, namespaces: [{names}] }}\n",
            project_path(index)
        ));
    }
    text
}

/// Writes as many entries as a configuration may have: projects, and groups.
pub(super) fn configure_most() -> String {
    let entry = |kind: &str, index: usize| {
        format!(
            "  - {{ id: shops/{kind}-{index}, secret_name: {kind}-{index}, namespaces: [n-0, \"team-*\"], rotate: 30d }}\n"
        )
    };
    let list = |kind: &str| {
        (0..super::MOST_PROJECTS)
            .map(|index| entry(kind, index))
            .collect::<String>()
    };
    format!(
        "flux_access:\n  role: read_repository\n  projects:\n{}  groups:\n{}",
        list("p"),
        list("g")
    )
}

/// Describes a namespace that may receive credentials. Each object has the path of its collection.
pub(super) fn describe_namespace(index: usize) -> [(String, Value); 2] {
    let name = name_namespace(index);
    let writer = json!({ "kind": "ServiceAccount", "name": "tenure-secret-writer", "namespace": PLATFORM });
    [
        (
            "/api/v1/namespaces".to_owned(),
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
        ),
        bind_role(&name, "tenure-secret-writer", "ClusterRole", writer),
    ]
}

fn bind_role(namespace: &str, name: &str, kind: &str, subject: Value) -> (String, Value) {
    (
        format!("/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings"),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": { "name": name, "namespace": namespace },
            "roleRef": { "apiGroup": RBAC, "kind": kind, "name": name }, "subjects": [subject]
        }),
    )
}

/// Describes the objects that an administrator creates once for a host.
pub(super) fn describe_host(address: &str, authoriser: &str, agents: &str, namespaces: usize) -> Vec<(String, Value)> {
    let core = |plural: &str| format!("/api/v1/namespaces/{PLATFORM}/{plural}");
    let cluster = |plural: &str| format!("/apis/{RBAC}/v1/{plural}");
    let metadata = |name: &str| json!({ "name": name, "namespace": PLATFORM });
    let secret = |name: &str, data: Value| {
        (
            core("secrets"),
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata(name), "stringData": data }),
        )
    };
    let account = json!({ "kind": "ServiceAccount", "name": "authoriser", "namespace": PLATFORM });
    let owner = json!({ "kind": "User", "name": OWNER, "apiGroup": RBAC });
    vec![
        (
            core("serviceaccounts"),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("authoriser") }),
        ),
        secret("authoriser", json!({ "token": authoriser })),
        secret(STAGING, json!({})),
        (
            format!("/apis/{RBAC}/v1/namespaces/{PLATFORM}/roles"),
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata("authoriser"),
                "rules": [{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["authoriser", STAGING], "verbs": ["get", "patch"] }]
            }),
        ),
        bind_role(PLATFORM, "authoriser", "Role", account),
        (
            cluster("clusterroles"),
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": { "name": "answers" },
                "rules": [
                    { "apiGroups": ["tenure.dev"], "resources": ["fluxaccesstargets"], "verbs": ["approve"] },
                    { "apiGroups": ["tenure.dev"], "resources": ["fluxaccessgrants"], "verbs": ["create"] },
                    { "apiGroups": ["tenure.dev"], "resources": ["fluxaccessrequests"], "verbs": ["get", "patch"] }
                ]
            }),
        ),
        (
            cluster("clusterrolebindings"),
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "answers" },
                "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": "answers" }, "subjects": [owner]
            }),
        ),
        (
            SOURCES.to_owned(),
            json!({
                "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": metadata("agents"),
                "spec": { "url": agents, "ref": { "branch": "main" }, "interval": "10m" }
            }),
        ),
        (
            format!("{PROJECTS}/accessproviders"),
            json!({
                "apiVersion": "tenure.dev/v1alpha1", "kind": "AccessProvider", "metadata": metadata("work"),
                "spec": {
                    "kind": "gitlab", "address": address, "topLevelGroup": "shops", "namespaces": list_namespaces(namespaces),
                    "authoriser": { "serviceAccountName": "authoriser", "secretRef": { "name": "authoriser" } },
                    "agent": { "name": "prod", "sourceRef": { "kind": "GitRepository", "name": "agents" } }
                }
            }),
        ),
    ]
}

/// Describes a source in the first namespace, with a project's credential.
pub(super) fn describe_source(index: usize, url: &str) -> Value {
    json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "app", "namespace": name_namespace(0) },
        "spec": { "url": url, "ref": { "branch": "main" }, "interval": "10m", "secretRef": { "name": format!("p-{index}") } }
    })
}

/// Returns the name of an object.
pub(super) fn name_of(object: &Value) -> &str {
    ObjectView::new(object).read_text("/metadata/name")
}

/// Returns the name of a request's target.
pub(super) fn target_of(request: &Value) -> String {
    let id = ObjectView::new(request).find_number("/spec/target/id");
    format!("work-{}", id.unwrap_or_default())
}

/// Describes the owner's grant for a request.
pub(super) fn describe_grant(request: &Value) -> Value {
    let view = ObjectView::new(request);
    let read = |path: &str| view.read_text(path);
    json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccessGrant", "metadata": { "name": name_of(request), "namespace": PLATFORM },
        "spec": {
            "requestRef": { "name": name_of(request), "uid": read("/metadata/uid") }, "target": target_of(request),
            "specHash": read("/spec/specHash"), "requestedBy": read("/spec/requestedBy"), "decision": "Approved", "approvedBy": OWNER,
        }
    })
}

/// Describes the owner's order to replace all of a request's credentials.
pub(super) fn describe_order() -> Value {
    let order = RotationOrder {
        namespace: None,
        by: OWNER.to_owned(),
        at: Timestamp::now(),
        is_leak: true,
        cause: "all are replaced".to_owned(),
    };
    let (key, value) = order.write();
    json!({ "metadata": { "annotations": { key: value } } })
}

/// Makes a patch that backdates the record of a request's credentials by an hour.
pub(super) fn age_request(request: &Value) -> anyhow::Result<Value> {
    let view = ObjectView::new(request);
    let mut credentials = view.list("/status/credentials").to_vec();
    for ledger in &mut credentials {
        let begun = ledger
            .pointer_mut("/current/begunAt")
            .context("a ledger has no current credential")?;
        let at: Timestamp = begun.as_str().unwrap_or_default().parse()?;
        *begun = json!(at.checked_sub(SignedDuration::from_hours(1))?.to_string());
    }
    let version = view.read_text("/metadata/resourceVersion");
    Ok(json!({ "metadata": { "resourceVersion": version }, "status": { "credentials": credentials } }))
}
