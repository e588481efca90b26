//! Platform surfaces that may write Packages report whether a rule protects the fields of the platform's chart from them.

use serde_json::{Value, json};

use crate::stage::{Stage, condition};
use crate::tenants::SURFACE;

const RIGHTS: &str = "rbac.authorization.k8s.io";
const PLATFORM: &str = "tenure-system";

/// Creates a surface of the platform with its own account, which has these verbs on Packages, or only on the named ones. Returns it once its status
/// has the condition.
async fn reconcile(stage: &Stage, name: &str, verbs: Value, packages: &[&str]) -> Value {
    let mut rules = json!([{ "apiGroups": ["cozystack.io"], "resources": ["packages"], "verbs": verbs }]);
    if !packages.is_empty() {
        rules[0]["resourceNames"] = json!(packages);
    }
    for object in [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": PLATFORM } }),
        json!({ "apiVersion": format!("{RIGHTS}/v1"), "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules }),
        json!({
            "apiVersion": format!("{RIGHTS}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": RIGHTS, "kind": "ClusterRole", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": PLATFORM }]
        }),
        json!({
            "apiVersion": SURFACE.0, "kind": SURFACE.1, "metadata": { "name": name, "namespace": PLATFORM },
            "spec": { "serviceAccountName": name, "sources": [{
                "name": "a", "url": stage.git.http_url("no-such"), "ref": { "branch": "main" }
            }] }
        }),
    ] {
        stage.admin.apply(object).await.unwrap();
    }
    let is_reported = |surface: Option<&Value>| surface.is_some_and(|surface| condition(surface, "Ready").is_some());
    stage.wait_for(SURFACE, (PLATFORM, name), is_reported).await.unwrap()
}

/// The account of the Surface may write Packages, and no rule stops it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn surface_reports_missing_protection_of_chart_fields() {
    let stage = Stage::set("ownership").await;
    let package = json!({
        "apiVersion": "cozystack.io/v1alpha1", "kind": "Package", "metadata": { "name": "cozystack.owned" },
        "spec": { "variant": "default" }
    });
    stage.admin.apply_as("helm-controller", package).await.unwrap();
    let writes = json!(["get", "list", "create", "update", "patch"]);
    let read_condition = |surface: &Value| {
        let found = condition(surface, "OwnershipNotEnforced");
        found.map(|found| format!("{} {}: {}", found["status"], found["reason"], found["message"]))
    };
    if stage.is_embedded() {
        let kept = reconcile(&stage, "ownership-kept", writes.clone(), &[]).await;
        assert_eq!(read_condition(&kept), None);
        let named = ["cozystack.owned"];
        let kept = reconcile(&stage, "ownership-named-kept", writes.clone(), &named).await;
        assert_eq!(read_condition(&kept), None);
        // An account that only gets a warning is not stopped, and the status says so.
        let mut all = writes.clone();
        all.as_array_mut().unwrap().push(json!("override"));
        let warned = reconcile(&stage, "ownership-warned", all, &[]).await;
        let ownership_condition = read_condition(&warned).expect("a condition");
        assert!(
            ownership_condition.starts_with("\"True\" \"TrialAllowed\""),
            "{ownership_condition}"
        );
        stage.send_guard_away();
    }
    let reads = reconcile(&stage, "ownership-reads", json!(["get", "list"]), &[]).await;
    assert_eq!(read_condition(&reads), None);
    let free = reconcile(&stage, "ownership-free", writes.clone(), &[]).await;
    let ownership_condition = read_condition(&free).expect("a condition");
    assert!(
        ownership_condition.starts_with("\"True\" \"TrialAllowed\"") && ownership_condition.contains("cozystack.owned"),
        "{ownership_condition}"
    );
    // An account that may write single Packages is tried with an existing one. An account with no existing one, or only the free one, takes nothing
    // from a chart.
    let named = ["cozystack.no-such", "cozystack.owned"];
    let free = reconcile(&stage, "ownership-named", json!(["patch", "get"]), &named).await;
    let ownership_condition = read_condition(&free).expect("a condition");
    assert!(
        ownership_condition.starts_with("\"True\" \"TrialAllowed\"") && ownership_condition.contains("cozystack.owned"),
        "{ownership_condition}"
    );
    let none = ["cozystack.cozystack-platform", "cozystack.no-such"];
    let none = reconcile(&stage, "ownership-named-none", json!(["patch", "get"]), &none).await;
    assert_eq!(read_condition(&none), None);
    let stored = stage
        .get(("cozystack.io/v1alpha1", "Package"), ("", "cozystack.owned"))
        .await
        .unwrap();
    assert_eq!(stored["spec"]["variant"], "default");
    stage.shut_down().await;
}
