//! Attacks on a bootstrap: a link out of the folder, and a deploy key that pushes.

use std::process::Command;

use base64::Engine as _;
use tenure_git_server::Content;

use super::Cluster;
use super::bed::{Bed, KEY, SURFACE, get};

/// Returns the private half of the deploy key.
async fn read_key(cluster: &Cluster) -> String {
    let secret = get(&cluster.kubeconfig, KEY).await;
    let decode = |text: &str| base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    String::from_utf8(decode(secret["data"]["identity"].as_str().unwrap())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn link_out_of_path_ends_bootstrap() {
    let bed = Bed::start().await;
    let cluster = Cluster::start(&bed, &[]);
    let link = |target: &str| Content::Link(target.to_owned());
    let outside = Content::from("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: outside, namespace: default}\n");
    for (entries, path, words) in [
        (
            vec![("a/app.yaml", link("../elsewhere/app.yaml"))],
            "a",
            "a/app.yaml is a symbolic link out of a",
        ),
        (vec![("b", link("elsewhere"))], "b", "b is a symbolic link"),
        (
            vec![("c/tenure-system", link("../elsewhere"))],
            "c",
            "c/tenure-system is a symbolic link",
        ),
        (
            vec![("d/tenure-system/tenure-sync.yaml", link("../../elsewhere/app.yaml"))],
            "d",
            "is a symbolic link out of d",
        ),
        (
            vec![
                ("e/x/y/up", link("../..")),
                ("e/app.yaml", link("x/y/up/../elsewhere/app.yaml")),
            ],
            "e",
            "e/app.yaml is a symbolic link out of e",
        ),
        (
            vec![("f/app.yaml", link("/etc/passwd"))],
            "f",
            "is a symbolic link out of f",
        ),
    ] {
        let changes = [vec![("elsewhere/app.yaml", outside.clone())], entries].concat();
        bed.repository.commit(changes, "a link").await.unwrap();
        let count = bed.list_commits().len();
        bed.run_with_key(&cluster.kubeconfig, &bed.https_arguments(path))
            .expect(1, &[words]);
        assert_eq!(bed.list_commits().len(), count, "{path}");
    }
    assert!(get(&cluster.kubeconfig, KEY).await.is_null() && get(&cluster.kubeconfig, SURFACE).await.is_null());
}

/// A key that may push ends the bootstrap before the first commit. After it was added for reading only, the bootstrap goes on, and the server refuses a push with the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deploy_key_never_pushes() {
    let bed = Bed::start().await;
    let cluster = Cluster::start(&bed, &[]);
    let arguments = bed.https_arguments("clusters/a");
    let added = std::sync::Mutex::new(0);
    let ended = bed.run(&cluster.kubeconfig, &arguments, |key| {
        *added.lock().unwrap() = bed.add_key(key, true)
    });
    ended.expect(1, &["the deploy key may push", "add it for reading only"]);
    assert!(bed.list_commits().is_empty() && get(&cluster.kubeconfig, SURFACE).await.is_null());
    assert!(bed.access.revoke(added.into_inner().unwrap()));
    bed.run_with_key(&cluster.kubeconfig, &arguments)
        .expect(0, &["can't push"]);

    let key = bed.write_private("stolen", &read_key(&cluster).await);
    let ssh = format!(
        "ssh -F none -o BatchMode=yes -o IdentitiesOnly=yes -i {key} -o UserKnownHostsFile={}",
        bed.path("known_hosts").display()
    );
    let git = |arguments: &[&str], folder: &str| {
        let output = Command::new("git")
            .args(["-c", "user.name=thief", "-c", "user.email=thief@example.org"])
            .args(arguments)
            .current_dir(bed.path(folder))
            .env("GIT_SSH_COMMAND", &ssh)
            .output()
            .unwrap();
        output.status.success()
    };
    assert!(git(&["clone", "--quiet", &bed.ssh_url(), "clone"], ""));
    assert!(git(
        &["commit", "--quiet", "--allow-empty", "-m", "by the thief"],
        "clone"
    ));
    assert!(!git(&["push", "--quiet", "origin", "HEAD:main"], "clone"));
    assert_eq!(bed.list_commits().len(), 2);
    // The private half is in no message, and in no object but its Secret.
    let inside = read_key(&cluster).await.lines().nth(1).unwrap().to_owned();
    let events = get(&cluster.kubeconfig, "/api/v1/events").await.to_string();
    let surface = get(&cluster.kubeconfig, SURFACE).await.to_string();
    assert!(!ended.text.contains(&inside) && !events.contains(&inside) && !surface.contains(&inside));
}

/// A Secret of that name that a bootstrap did not make is neither used nor overwritten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_secret_is_not_used() {
    let bed = Bed::start().await;
    let cluster = Cluster::start(&bed, &[]);
    let object = serde_json::json!({ "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "platform-deploy-key", "namespace": "tenure-system" },
        "stringData": { "identity": "x", "identity.pub": "y", "known_hosts": "z" } });
    crate::commands::apply(&bed.path("cluster"), object, KEY).await;
    let ended = bed.run_with_key(&cluster.kubeconfig, &bed.https_arguments("a"));
    ended.expect(1, &["Secret/tenure-system/platform-deploy-key", "can't be used"]);
    assert_eq!(get(&cluster.kubeconfig, KEY).await["data"]["identity"], "eA==");
}
