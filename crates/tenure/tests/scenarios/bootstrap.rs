//! `tenure bootstrap` of a cluster whose controllers run outside: the repository gets the whole installation, and the platform applies it again.

use serde_json::Value;

use crate::bed::{Bed, SURFACE, get};
use crate::world::{Cluster, Controllers, name_object};

const COMPONENTS: &str = "clusters/a/tenure-system/tenure-components.yaml";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bootstrapped_platform_applies_its_own_installation() {
    let bed = Bed::start().await;
    let cluster = match Cluster::start_real_bare(&[]).await {
        Some(cluster) => cluster,
        None => Cluster::start_own_bare().await,
    };
    let key = bed.write_push_key();
    let mut arguments = bed.ssh_arguments(&key, "clusters/a");
    arguments.push("--without-deployment".to_owned());
    let allowed = bed.allowed();
    let (kubeconfig, data) = (cluster.kubeconfig.clone(), cluster.data("run"));
    // The controllers start when their account exists, in place of a kubelet.
    let controllers = async {
        let account = name_object("v1", "ServiceAccount", "tenure-system", "tenure-controller");
        cluster.admin.wait_for(account, |_| true).await;
        // A source reads its Secrets as this account, which Kubernetes' own controller would create.
        cluster
            .admin
            .apply(name_object("v1", "ServiceAccount", "tenure-system", "default"))
            .await;
        let surface = name_object("tenure.dev/v1alpha1", "Surface", "tenure-system", "platform");
        cluster.admin.wait_for(surface, |_| true).await;
        Controllers::start(&cluster.kubeconfig, &data, &["--allow-platform-source", &allowed])
    };
    let run = tokio::task::spawn_blocking({
        let (kubeconfig, arguments) = (kubeconfig.clone(), arguments.clone());
        move || {
            let ended = bed.run_with_key(&kubeconfig, &arguments);
            (bed, ended)
        }
    });
    let (_controllers, run) = tokio::join!(controllers, run);
    let (bed, ended) = run.unwrap();
    ended.expect(
        0,
        &["objects applied", "the platform reconciles itself from the repository"],
    );
    assert_eq!(bed.list_commits().len(), 2);
    // The installation is in the inventory of the platform.
    let path = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/tenure-system/kustomizations/platform-repository";
    let found = get(&kubeconfig, path).await;
    let inventory = found["status"]["inventory"].to_string();
    for id in [
        "_tenure-controller_rbac.authorization.k8s.io_ClusterRole",
        "_surfaces.tenure.dev_apiextensions.k8s.io_CustomResourceDefinition",
    ] {
        assert!(inventory.contains(id), "no {id} in {inventory}");
    }
    // A second run changes neither the repository nor the cluster.
    let version = async || {
        let crd = get(
            &kubeconfig,
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/surfaces.tenure.dev",
        )
        .await;
        let surface = get(&kubeconfig, SURFACE).await;
        [crd, surface].map(|object: Value| object["metadata"]["generation"].clone())
    };
    let before = version().await;
    bed.run_with_key(&kubeconfig, &arguments)
        .expect(0, &["nothing was to be done"]);
    assert_eq!((version().await, bed.list_commits().len()), (before, 2));

    // A change of the installation by hand is reverted: the repository has the truth.
    let role = name_object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "tenure-viewer");
    let mut changed = role.clone();
    changed["rules"] = serde_json::json!([]);
    cluster.admin.apply(changed).await;
    cluster
        .admin
        .wait_for(role, |found| {
            found["rules"].as_array().is_some_and(|rules| !rules.is_empty())
        })
        .await;

    // An upgrade is one commit, and the platform applies it.
    let components = String::from_utf8(bed.repository.read("main", COMPONENTS).await.unwrap()).unwrap();
    let older = components.replace("bootstrap 0.1.0", "bootstrap 0.0.9");
    bed.repository
        .commit([(COMPONENTS, older)], "an older version")
        .await
        .unwrap();
    bed.run_with_key(&kubeconfig, &arguments).expect(0, &["push 1 commit"]);
    assert_eq!(bed.list_commits().len(), 4);
}
