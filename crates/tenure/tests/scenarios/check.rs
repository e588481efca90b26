//! `tenure check` against a real cluster: the answers of RBAC, the schema, policies and owners of fields, with file and line, and that nothing is written.

use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use crate::world::{Cluster, Controllers, describe};

/// Returns a ConfigMap whose value is the last line.
fn config_map(name: &str, namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\ndata:\n  key: ours\n"
    )
}

fn service(name: &str, spec: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: check-blue\nspec:\n  {spec}\n")
}

/// Returns a HelmRelease with its account and chart in the last lines.
fn release(name: &str, account: &str, more: &str) -> String {
    format!(
        "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {{name: {name}, namespace: check-blue}}\nspec:\n  interval: 1h\n  # Admission checks these.\n  serviceAccountName: {account}\n  chartRef: {{kind: OCIRepository, name: app{more}}}\n"
    )
}

/// Returns names and versions of the objects in the tenant's namespace.
async fn list_versions(cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    for (version, kind) in [("v1", "ConfigMap"), ("v1", "Service"), ("v1", "ResourceQuota")] {
        let object =
            json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "any", "namespace": "check-blue" } });
        for object in cluster
            .admin
            .api(&object)
            .list(&Default::default())
            .await
            .expect("a list")
        {
            let metadata = &object.metadata;
            found.push(format!("{kind} {:?} {:?}", metadata.name, metadata.resource_version));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_finds_refusals_of_cluster_and_writes_nothing() {
    let cluster = Cluster::start_own_with("--policies", "applied ClusterRole tenure-policies").await;
    let _controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &["--policies"]);
    cluster.wait_until_in_force().await;
    let tenant = json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": "check-blue" },
        "spec": {
            "owners": [{ "kind": "User", "name": "alice" }],
            "serviceOptions": { "allowedServices": { "nodePort": false } },
            "additionalRoleBindings": [{
                "clusterRoleName": "tenure-helm-author",
                "subjects": [{ "kind": "ServiceAccount", "name": "check-blue-gitops", "namespace": "check-blue" }]
            }]
        }
    });
    for definition in tenure_api::crds::helm_crds().expect("definitions") {
        cluster.admin.apply(definition).await;
    }
    cluster.admin.apply(tenant.clone()).await;
    let is_ready = |found: &Value| found["status"]["conditions"][0]["status"] == "True";
    cluster.admin.wait_for(tenant, is_ready).await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "clash", "namespace": "check-blue" }, "data": { "key": "theirs" }
    });
    cluster.admin.apply(theirs).await;

    let folder = cluster.data("files");
    std::fs::create_dir_all(&folder).expect("a folder");
    let files = [
        ("good.yaml", config_map("good", "check-blue")),
        ("clash.yaml", config_map("clash", "check-blue")),
        ("foreign.yaml", config_map("foreign", "default")),
        (
            "quota.yaml",
            "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: more, namespace: check-blue}\nspec: {hard: {pods: '9'}}\n".to_owned(),
        ),
        ("node.yaml", service("node", "type: NodePort\n  ports: [{port: 80}]")),
        ("port.yaml", service("port", "ports:\n  - port: 123456")),
        ("release.yaml", release("release", "check-blue-gitops", "")),
        ("account.yaml", release("account", "default", "")),
        ("chart.yaml", release("chart", "check-blue-gitops", ", namespace: default")),
        (
            "unknown.yaml",
            "apiVersion: example.org/v1\nkind: Nothing\nmetadata: {name: it, namespace: check-blue}\n".to_owned(),
        ),
    ];
    let write = |files: &[(&str, String)]| {
        for (name, text) in files {
            std::fs::write(folder.join(name), text).expect("a file");
        }
        let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
        let list = format!("resources: [{}]\n", names.join(", "));
        std::fs::write(folder.join("kustomization.yaml"), list).expect("a file");
    };
    write(&files);
    let check = ["check", folder.to_str().expect("a path"), "--tenant", "check-blue"];
    // The facts that policies read reach the namespace and the API server a moment later.
    let judged = eventually(SOON, || async {
        let output = describe(&cluster.run(&check));
        if output.contains("(service-options)") {
            Ok(())
        } else {
            Err(output)
        }
    });
    judged.await.expect("what the Tenant says is judged");
    let before = list_versions(&cluster).await;
    let account = "system:serviceaccount:check-blue:check-blue-gitops";
    let quota = format!("{account} may not patch and create resourcequotas in namespace check-blue");
    let words = [
        "clash.yaml:7: warning: ownership: ConfigMap/check-blue/clash: .data.key: conflict with",
        "foreign.yaml:1: error: admission: ConfigMap/default/foreign: ",
        "quota.yaml:1: error: rbac: ResourceQuota/check-blue/more: ",
        &quota,
        "node.yaml:7: error: admission: Service/check-blue/node: ",
        "(service-options)",
        "port.yaml:8: error: schema: Service/check-blue/port: spec.ports[0].port: ",
        "account.yaml:7: error: admission: HelmRelease/check-blue/account: ",
        "(flux-account)",
        "chart.yaml:8: error: admission: HelmRelease/check-blue/chart: ",
        "(flux-references)",
        "unknown.yaml:1: error: schema: Nothing/check-blue/it: ",
        "10 objects checked as ",
    ];
    let output = cluster.check(&check, 1, &words);
    assert!(
        !output.contains("ConfigMap/check-blue/good") && !output.contains("HelmRelease/check-blue/release"),
        "valid objects are not reported: {output}"
    );
    // The control: valid files have no findings.
    write(&files[..1]);
    cluster.check(&check, 0, &["0 errors, 0 warnings, 0 notes"]);
    assert_eq!(list_versions(&cluster).await, before, "a check writes nothing");
}
