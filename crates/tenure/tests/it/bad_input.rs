//! Failures around a start, and wrong usage: the message names the problem, its place and the action, and the exit code fits.

use crate::process::{Up, fails};

#[test]
fn two_processes_on_one_folder() {
    let data = tempfile::tempdir().unwrap();
    let _first = Up::start(data.path(), &[]);
    let folder = data.path().to_str().unwrap();
    fails(
        &["up", "--data", folder, "--port", "0"],
        3,
        &["error:", folder, "in use", "hint:"],
    );
}

#[test]
fn flags_of_pods_that_are_not_installed() {
    fails(
        &["install", "--without-deployment", "--", "--log-level", "debug"],
        2,
        &[
            "--without-deployment installs no Pods that could get the flags: --log-level debug",
            "hint: leave out the flags after --",
        ],
    );
}

#[test]
fn a_port_in_use() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let data = tempfile::tempdir().unwrap();
    fails(
        &["up", "--data", data.path().to_str().unwrap(), "--port", &port],
        3,
        &["error:", &port, "in use", "hint:", "--port"],
    );
}

#[test]
fn invalid_store_is_refused_and_left_unchanged() {
    let data = tempfile::tempdir().unwrap();
    drop(Up::start(data.path(), &[]));
    let store = std::fs::read_dir(data.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "redb"))
        .expect("a store file");
    std::fs::write(&store, b"this is no store").unwrap();
    fails(
        &["up", "--data", data.path().to_str().unwrap(), "--port", "0"],
        3,
        &["error:", store.to_str().unwrap(), "hint:"],
    );
    assert_eq!(
        std::fs::read(&store).unwrap(),
        b"this is no store",
        "what can't be read is left as it is"
    );
}

#[test]
fn a_data_folder_that_is_a_file() {
    let data = tempfile::NamedTempFile::new().unwrap();
    fails(
        &["up", "--data", data.path().to_str().unwrap(), "--port", "0"],
        3,
        &["error:", data.path().to_str().unwrap()],
    );
}

#[test]
fn wrong_usage() {
    for (arguments, words) in [
        (
            &["get", "--kubeconfig", "/nonexistent/kubeconfig"][..],
            &["/nonexistent/kubeconfig", "hint:"][..],
        ),
        (&["get"], &["kubeconfig", "hint:"]),
        (&["up", "--allow-source", "git.example"], &["git.example", "scheme"]),
        (&["up", "--default-service-account", "x"], &["NAMESPACE=NAME", "hint:"]),
        (&["--log", "=", "version"], &["--log"]),
        (&["events", "--for", "ks"], &["KIND/NAME", "hint:"]),
        (&["frobnicate"], &["frobnicate"]),
    ] {
        fails(arguments, 2, words);
    }
}
