//! A repository that `flux bootstrap` made.

use serde_json::json;

use super::Cluster;
use super::bed::{Bed, get, write_map};

const COMPONENTS: &str = include_str!("gotk-components.yaml");
const KEY: &str = "/api/v1/namespaces/flux-system/secrets/flux-system";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repository_of_flux_is_taken_over_without_a_commit() {
    let bed = Bed::start().await;
    let allowed = bed.allowed();
    let flags = [
        "--default-service-account",
        "flux-system=kustomize-controller",
        "--allow-source",
        &allowed,
    ];
    let cluster = Cluster::start(&bed, &flags);
    let sync = format!(
        "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {{name: flux-system, namespace: flux-system}}\n\
         spec: {{interval: 1m0s, ref: {{branch: main}}, secretRef: {{name: flux-system}}, url: '{}'}}\n---\n\
         apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: flux-system, namespace: flux-system}}\n\
         spec: {{interval: 10m0s, path: ./clusters/a, prune: true, sourceRef: {{kind: GitRepository, name: flux-system}}}}\n",
        bed.ssh_url()
    );
    let folder = "clusters/a/flux-system";
    let listed = "resources: [gotk-components.yaml, gotk-sync.yaml]\n".to_owned();
    let files = [
        (format!("{folder}/gotk-components.yaml"), COMPONENTS.to_owned()),
        (format!("{folder}/gotk-sync.yaml"), sync),
        (format!("{folder}/kustomization.yaml"), listed),
        ("clusters/a/app.yaml".to_owned(), write_map("app")),
    ];
    bed.repository.commit(files, "Add Flux").await.unwrap();

    // Flux's own controller still reconciles the cluster.
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "flux-system" } });
    crate::commands::apply(&bed.path("cluster"), namespace, "/api/v1/namespaces/flux-system").await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/flux-system/leases/kustomize-controller-leader-election";
    let held = |seconds: i64, now: &str| {
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "namespace": "flux-system", "name": "kustomize-controller-leader-election" },
        "spec": { "holderIdentity": "kustomize-controller-5d8f", "leaseDurationSeconds": seconds, "renewTime": now } })
    };
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    crate::commands::apply(&bed.path("cluster"), held(3600, &now), lease).await;
    let key = bed.write_push_key();
    let arguments = bed.ssh_arguments(&key, "clusters/a");
    bed.run_with_key(&cluster.kubeconfig, &arguments)
        .expect(1, &["kustomize-controller reconciles this cluster", "--replicas 0"]);
    crate::commands::apply(&bed.path("cluster"), held(1, "2026-01-01T00:00:00.000000Z"), lease).await;

    let ended = bed.run_with_key(&cluster.kubeconfig, &arguments);
    ended.expect(
        0,
        &[
            "made by flux bootstrap",
            "the platform reconciles itself from the repository",
        ],
    );
    assert_eq!(bed.list_commits(), ["Add Flux"]);
    assert!(get(&cluster.kubeconfig, KEY).await["data"]["identity"].is_string());
    assert_eq!(
        get(&cluster.kubeconfig, "/api/v1/namespaces/default/configmaps/app").await["kind"],
        "ConfigMap"
    );
    // None of Flux's controllers is started.
    let deployments = get(&cluster.kubeconfig, "/apis/apps/v1/namespaces/flux-system/deployments").await;
    assert_eq!(deployments["items"], json!([]));
    bed.run_with_key(&cluster.kubeconfig, &arguments)
        .expect(0, &["nothing was to be done"]);
}
