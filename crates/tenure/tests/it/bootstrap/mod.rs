//! `tenure bootstrap` on the embedded control plane: the steps, their repetition after a kill, and the refusals.

mod attacks;
pub(crate) mod bed;
mod flux;
mod hosts;

use std::path::{Path, PathBuf};

use serde_json::Value;
use tenure_git_server::{Content, Tls};

use self::bed::{Bed, KEY, SURFACE, TOKEN, get, write_map};
use crate::process::{Up, tenure};

const COMPONENTS: &str = "clusters/a/tenure-system/tenure-components.yaml";

/// A control plane that may fetch from the server of the bed.
struct Cluster {
    _up: Up,
    kubeconfig: PathBuf,
}

impl Cluster {
    fn start(bed: &Bed, more: &[&str]) -> Self {
        let data = bed.path("cluster");
        let allowed = bed.allowed();
        let flags = [&["--allow-platform-source", allowed.as_str()], more].concat();
        Self {
            _up: Up::start(&data, &flags),
            kubeconfig: data.join("kubeconfig"),
        }
    }
}

/// Checks that no file below a folder contains a text.
fn expect_nowhere(folder: &Path, text: &str) {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if let Ok(content) = std::fs::read(&path) {
                let found = content.windows(text.len()).any(|window| window == text.as_bytes());
                assert!(!found, "{} contains it", path.display());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_cluster_and_repository_become_a_platform() {
    let bed = Bed::start().await;
    let cluster = Cluster::start(&bed, &[]);
    let kubeconfig = &cluster.kubeconfig;
    let arguments = bed.https_arguments("./clusters/a");

    // A dry run shows the steps, and writes nothing.
    let dry = [arguments.as_slice(), &["--dry-run".to_owned()]].concat();
    bed.run_with_key(kubeconfig, &dry)
        .expect(0, &["make a deploy key", "push 2 commits", "nothing was written"]);
    assert!(bed.list_commits().is_empty() && get(kubeconfig, KEY).await.is_null());

    let first = bed.run_with_key(kubeconfig, &arguments);
    first.expect(0, &["can't push", "the platform reconciles itself from the repository"]);
    let commits = bed.list_commits();
    assert_eq!(
        commits,
        ["Add the installation of Tenure 0.1.0", "Add the platform's Surface"]
    );
    let surface = get(kubeconfig, SURFACE).await;
    let head = bed.repository.resolve("main").await.unwrap().unwrap();
    assert_eq!(
        surface["status"]["sources"][0]["appliedRevision"],
        format!("main@sha1:{head}")
    );
    // The Surface is in the inventory of its own Kustomization.
    let kustomization =
        "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/tenure-system/kustomizations/platform-repository";
    let inventory = get(kubeconfig, kustomization).await["status"]["inventory"].to_string();
    assert!(
        inventory.contains("tenure-system_platform_tenure.dev_Surface"),
        "{inventory}"
    );

    // A file in the folder is applied.
    bed.repository
        .commit([("clusters/a/app.yaml", write_map("app"))], "an application")
        .await
        .unwrap();
    let again = bed.run_with_key(kubeconfig, &arguments);
    again.expect(0, &["nothing was to be done"]);
    assert_eq!(
        get(kubeconfig, "/api/v1/namespaces/default/configmaps/app").await["kind"],
        "ConfigMap"
    );

    // The next run changes nothing.
    let versions = async || {
        let mut versions = Vec::new();
        for path in [
            SURFACE,
            KEY,
            "/api/v1/namespaces/tenure-system/serviceaccounts/platform-gitops",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/tenure-platform-gitops",
        ] {
            let found = get(kubeconfig, path).await;
            versions.push(found["metadata"]["resourceVersion"].clone());
            assert!(found["metadata"]["resourceVersion"].is_string(), "{path}: {found}");
        }
        (versions, bed.list_commits())
    };
    let before = versions().await;
    bed.run_with_key(kubeconfig, &arguments)
        .expect(0, &["nothing was to be done"]);
    assert_eq!(versions().await, before);

    // An upgrade is one commit.
    let components = String::from_utf8(bed.repository.read("main", COMPONENTS).await.unwrap()).unwrap();
    let older = components.replace("bootstrap 0.1.0", "bootstrap 0.0.9");
    bed.repository
        .commit([(COMPONENTS, older)], "an older version")
        .await
        .unwrap();
    let count = bed.list_commits().len();
    bed.run_with_key(kubeconfig, &arguments).expect(0, &["push 1 commit"]);
    let commits = bed.list_commits();
    assert_eq!(commits.len(), count + 1);
    assert_eq!(
        commits.last().map(String::as_str),
        Some("Update the installation of Tenure to 0.1.0")
    );

    // The credential is stored nowhere: not in the store, not in the repository, in no file that the command left.
    drop(cluster);
    expect_nowhere(bed.folder.path(), TOKEN);
    assert!(!first.text.contains(TOKEN) && !again.text.contains(TOKEN));
    let left = std::fs::read_dir(bed.folder.path()).unwrap();
    let left = left.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with("tenure-bootstrap")
    });
    assert_eq!(left.count(), 0);
}

/// The command is killed after each of its lines, over ssh. The last run finishes the bootstrap, with two commits and one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_bootstrap_goes_on() {
    let bed = Bed::start().await;
    let cluster = Cluster::start(&bed, &[]);
    let key = bed.write_push_key();
    let arguments = bed.ssh_arguments(&key, "clusters/a");
    let mut lines = 1;
    let mut known_key = Value::Null;
    let ended = loop {
        if let Some(ended) = bed.run_until_line(&cluster.kubeconfig, &arguments, lines) {
            break ended;
        }
        lines += 1;
        assert!(lines < 60, "it never ends");
        let found = get(&cluster.kubeconfig, KEY).await["data"]["identity.pub"].clone();
        assert!(known_key.is_null() || found == known_key, "a second key was made");
        known_key = found;
    };
    ended.expect(0, &["the platform reconciles itself from the repository"]);
    assert!(lines > 4, "{}", ended.text);
    assert_eq!(
        bed.list_commits(),
        ["Add the installation of Tenure 0.1.0", "Add the platform's Surface"]
    );
    assert_eq!(get(&cluster.kubeconfig, KEY).await["data"]["identity.pub"], known_key);
}

/// A second writer pushes after the bootstrap's fetch. The bootstrap fetches again, and adds its commits on top.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_branch_is_read_again() {
    let bed = Bed::start().await;
    let cluster = Cluster::start(&bed, &[]);
    bed.repository
        .commit([("README.md", "one")], "the beginning")
        .await
        .unwrap();
    let other = bed
        .repository
        .commit_on("other", [("README.md", "two")], "another writer")
        .await
        .unwrap();
    let hooks = bed.repository.folder().join("hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    // Only the first push finds the branch moved.
    let hook = format!(
        "#!/bin/sh\ntest -e moved && exit 0\ntouch moved\nenv -u GIT_QUARANTINE_PATH git update-ref refs/heads/main {other}\n"
    );
    write_hook(&hooks, &hook);
    let ended = bed.run_with_key(&cluster.kubeconfig, &bed.https_arguments("clusters/a"));
    ended.expect(0, &["the branch has moved meanwhile", "the platform reconciles itself"]);
    let commits = bed.list_commits();
    assert_eq!(commits[commits.len() - 3..][..1], ["another writer"]);
}

fn write_hook(hooks: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let path = hooks.join("pre-receive");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_name_their_cause() {
    let bed = Bed::start().await;
    let cluster = Cluster::start(&bed, &[]);
    let kubeconfig = &cluster.kubeconfig;
    let check = |arguments: Vec<String>, code: i32, words: &[&str]| {
        let ended = bed.run_with_key(kubeconfig, &arguments);
        ended.expect(code, words);
        assert!(!ended.text.contains(TOKEN), "{}", ended.text);
    };
    let url = bed.git.http_url("platform");
    let with_url = |url: &str| bed.complete(&["git", "--url", url], "a");
    check(with_url(&url), 2, &["no ssh address", "--source-url ssh://"]);
    let password = url.replace("://", "://me:secret@");
    check(
        with_url(&password),
        2,
        &["contains a user or a password", "--password-file"],
    );
    check(with_url("http://git.example/a.git"), 2, &["no TLS"]);
    check(bed.https_arguments("a/../../b"), 2, &["the path leaves the repository"]);

    let without_git = tenure(&["bootstrap"])
        .args(bed.https_arguments("a"))
        .env("KUBECONFIG", kubeconfig)
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&without_git.stderr).into_owned();
    assert!(
        words.contains("there is no git on PATH") && words.contains("install git"),
        "{words}"
    );

    // A server with another key, and a server with an unknown key.
    let other = Bed::start().await;
    let port = bed.git.ssh_address().unwrap().port();
    let other_port = other.git.ssh_address().unwrap().port();
    let wrong = other
        .git
        .known_hosts()
        .unwrap()
        .replace(&other_port.to_string(), &port.to_string());
    let wrong = bed.write_private("wrong_hosts", &wrong);
    let replace = |mut arguments: Vec<String>, hosts: &str| {
        let at = arguments
            .iter()
            .position(|argument| argument == "--known-hosts")
            .unwrap();
        match hosts {
            "" => drop(arguments.drain(at..at + 2)),
            _ => arguments[at + 1] = hosts.to_owned(),
        }
        arguments
    };
    let key = bed.write_push_key();
    check(
        replace(bed.ssh_arguments(&key, "a"), &wrong),
        3,
        &["the server shows another key than the known ones"],
    );
    check(
        replace(bed.https_arguments("a"), ""),
        2,
        &["is unknown", "--trust-host-key"],
    );
    check(replace(bed.https_arguments("a"), "/nonexistent"), 2, &["/nonexistent"]);

    // A repository without the branch, and one with other things.
    let commit = async |changes: Vec<(&str, Content)>| {
        bed.repository.commit(changes, "other things").await.unwrap();
    };
    commit(vec![("b/app.yaml", Content::from("a: b"))]).await;
    let mut branch = bed.https_arguments("a");
    branch.extend(["--branch".to_owned(), "production".to_owned()]);
    check(branch, 1, &["has no branch production", "it has main"]);
    check(
        bed.https_arguments("b"),
        1,
        &["b holds other things", "b/app.yaml", "--accept-content"],
    );
    commit(vec![("c/tenure-system/values.txt", Content::from("x"))]).await;
    check(
        bed.https_arguments("c"),
        1,
        &["c/tenure-system holds other things: c/tenure-system/values.txt"],
    );

    // The server has another key than the first bootstrap would pin: the proof fails at once, and nothing is pushed.
    let count = bed.list_commits().len();
    check(
        replace(bed.https_arguments("a"), &wrong),
        3,
        &["not the key that known_hosts names"],
    );
    assert_eq!(bed.list_commits().len(), count);
    // The right keys replace the wrong ones beside the same deploy key.
    check(
        bed.https_arguments("a"),
        0,
        &["pin the server's keys", "the platform reconciles itself"],
    );

    // A protected branch.
    let hooks = bed.repository.folder().join("hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    write_hook(
        &hooks,
        "#!/bin/sh\necho 'You are not allowed to push to protected branches.'\nexit 1\n",
    );
    let mut changed = bed.https_arguments("a");
    changed.extend(["--interval".to_owned(), "7m".to_owned()]);
    check(
        changed,
        1,
        &["refuses commits on main", "You are not allowed to push", "--branch"],
    );
}

/// The first connection trusts the shown key only on request, and pins it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shown_host_key_is_trusted_on_request() {
    let bed = Bed::start().await;
    let cluster = Cluster::start(&bed, &[]);
    let mut arguments = bed.https_arguments(".");
    let at = arguments
        .iter()
        .position(|argument| argument == "--known-hosts")
        .unwrap();
    arguments.splice(at..at + 2, ["--trust-host-key".to_owned()]);
    let ended = bed.run_with_key(&cluster.kubeconfig, &arguments);
    ended.expect(0, &["SHA256:", "will trust"]);
    // The pinned key is enough from then on.
    arguments.remove(at);
    bed.run_with_key(&cluster.kubeconfig, &arguments)
        .expect(0, &["nothing was to be done"]);
}

/// A server with a certificate of a private authority gets the push only if a flag names the authority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_authority_is_trusted_by_flag() {
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = parameters.self_signed(&key).unwrap().pem();
    let tls = Tls {
        certificate: certificate.clone(),
        key: key.serialize_pem(),
        client_authority: None,
    };
    let bed = Bed::start_with(Some(tls)).await;
    let cluster = Cluster::start(&bed, &[]);
    let arguments = bed.https_arguments("clusters/a");
    bed.run_with_key(&cluster.kubeconfig, &arguments)
        .expect(3, &["certificate"]);
    let file = bed.write_private("ca.pem", &certificate);
    let trusting = [arguments.as_slice(), &["--ca-file".to_owned(), file]].concat();
    bed.run_with_key(&cluster.kubeconfig, &trusting)
        .expect(0, &["the platform reconciles itself"]);
}
