//! `tenure who` and `tenure audit` on a real kube-apiserver: a writer chooses the manager's name, and the server's own audit log has the user.

use serde_json::{Value, json};

use crate::process::connect;
use crate::world::{Admin, Cluster};

/// Writes as a user, under the name of a field manager.
async fn write(cluster: &Cluster, user: &str, (path, manager): (&str, &str), body: &Value) {
    let mut kubeconfig = kube::config::Kubeconfig::read_from(&cluster.kubeconfig).expect("kubeconfig");
    for named in &mut kubeconfig.auth_infos {
        if let Some(info) = &mut named.auth_info {
            info.impersonate = Some(user.to_owned());
        }
    }
    let request = http::Request::patch(format!("{path}?fieldManager={manager}&force=true"))
        .header("content-type", "application/apply-patch+yaml")
        .body(body.to_string().into_bytes())
        .unwrap();
    connect(kubeconfig).await.request::<Value>(request).await.unwrap();
}

fn config_map(name: &str, labels: &Value, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "ledger", "labels": labels },
        "data": { "value": value }
    })
}

#[tokio::test]
async fn a_real_servers_audit_log_tells_who_wrote_what() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
    std::fs::write(&policy, rules).unwrap();
    let log = folder.path().join("audit.log").display().to_string();
    let server = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={log}"),
    ];
    let server = server.each_ref().map(String::as_str);
    let Some(cluster) = Cluster::start_real_with(&server, &[]).await else {
        return;
    };
    let admin: &Admin = &cluster.admin;
    admin
        .apply(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "ledger" } }))
        .await;
    let group = "rbac.authorization.k8s.io";
    let users = ["alice", "bob"].map(|name| json!({ "apiGroup": group, "kind": "User", "name": name }));
    admin
        .apply(json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": { "name": "writers", "namespace": "ledger" },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "edit" }, "subjects": users
        }))
        .await;
    admin
        .wait_for(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": "ledger" } }), |_| true)
        .await;
    // Bob writes under the name of Flux's controller.
    let map = "/api/v1/namespaces/ledger/configmaps";
    write(
        &cluster,
        "alice",
        (&format!("{map}/map"), "kubectl-edit"),
        &config_map("map", &json!({}), "hers"),
    )
    .await;
    let gone = json!({ "kustomize.toolkit.fluxcd.io/name": "old", "kustomize.toolkit.fluxcd.io/namespace": "ledger" });
    write(
        &cluster,
        "bob",
        (&format!("{map}/left"), "kustomize-controller"),
        &config_map("left", &gone, "his"),
    )
    .await;

    // The administrator's kubeconfig impersonated them. The log has both users, and the output shows the impersonated one.
    let who = ["who", "configmap/map", "-n", "ledger", "--audit-log", &log];
    cluster.check(&who, 0, &["WRITTEN BY", "kubectl-edit", "alice, impersonated by "]);
    let audit = ["audit", "-n", "ledger", "--audit-log", &log];
    let output = cluster.check(
        &audit,
        1,
        &[
            "ConfigMap/ledger/left",
            "abandoned the whole object: kustomize-controller since ",
            "bob, impersonated by ",
            "Kustomization ledger/old, which applied it, is gone: delete it",
        ],
    );
    assert!(!output.contains("ConfigMap/ledger/map\n"), "{output}");
    // Without the log, only the manager's name is known.
    let without = cluster.check(&["audit", "-n", "ledger"], 1, &["kustomize-controller"]);
    assert!(!without.contains("bob"), "{without}");
}
