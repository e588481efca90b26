//! The real control plane starts, answers, and leaves no process behind.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use tenure_testkit::{Admin, Kubernetes, KubernetesBinaries};

#[tokio::test]
async fn a_real_control_plane() {
    let Some(binaries) = KubernetesBinaries::find().unwrap() else {
        eprintln!("skipped: TENURE_KUBERNETES_BIN does not name a folder with kube-apiserver and etcd");
        return;
    };
    let kubernetes = Kubernetes::start(&binaries, true).await.unwrap();
    let client = kubernetes.client().await.unwrap();
    assert!(
        client
            .apiserver_version()
            .await
            .unwrap()
            .git_version
            .starts_with("v1.36.")
    );
    let accounts = Admin::new(client.clone())
        .list(("v1", "ServiceAccount"), "default")
        .await
        .unwrap();
    assert_eq!(accounts.len(), 1);
    let folder = kubernetes.kubeconfig().parent().unwrap().to_owned();
    drop(kubernetes);
    assert!(!folder.exists());
    assert!(client.apiserver_version().await.is_err(), "it still answers");
}
