//! `tenure install` and `tenure uninstall` are killed after every third relevant object, in CI after fewer. Even then, no account of Tenure's has rights without the
//! policies that bound them, and the next process finishes the work.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use tenure_testkit::choose_length;

use crate::process::{run, tenure};
use crate::world::{Cluster, describe, lease, name_object};

const IMAGE: &str =
    "registry.example/tenure:0.1.0@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// An installation with every account.
const INSTALL: [&str; 6] = [
    "install",
    "--image",
    IMAGE,
    "--admission",
    "--policies",
    "--lanes=deployment",
];

const UNINSTALL: [&str; 3] = ["uninstall", "--yes", "--with-protection"];

/// Kinds of bindings; the policies that bound them have other kinds.
const RIGHTS: [&str; 2] = ["RoleBinding", "ClusterRoleBinding"];
const BOUNDS: [&str; 2] = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];

/// The largest number of uninstallations until one has nothing left to do.
const MOST_PROCESSES: usize = 400;

/// Returns the names of the objects of an installation, without their content.
fn list_objects() -> Vec<Value> {
    let exported = run(&[&INSTALL[..], &["--export"]].concat());
    assert!(exported.status.success(), "{}", describe(&exported));
    let text = String::from_utf8(exported.stdout).unwrap();
    let read = |document: &str| {
        let find = |field: &str, lines: &mut dyn Iterator<Item = &str>| {
            let mut lines: &mut dyn Iterator<Item = &str> = lines;
            let value = Iterator::find_map(&mut lines, |line| line.strip_prefix(field)).unwrap_or_default();
            value.trim_matches('"').to_owned()
        };
        let metadata = || {
            let after = document.lines().skip_while(|line| *line != "metadata:").skip(1);
            after.take_while(|line| line.starts_with(' '))
        };
        name_object(
            &find("apiVersion: ", &mut document.lines()),
            &find("kind: ", &mut document.lines()),
            &find("  namespace: ", &mut metadata()),
            &find("  name: ", &mut metadata()),
        )
    };
    text.split("\n---\n").map(read).collect()
}

fn is_of(object: &Value, kinds: &[&str]) -> bool {
    kinds.contains(&object["kind"].as_str().unwrap())
}

/// The bindings of an installation, and the policies that bound them.
struct Parts {
    rights: Vec<Value>,
    bounds: Vec<Value>,
}

impl Parts {
    fn sort_objects(objects: &[Value]) -> Self {
        let list = |kinds: &[&str]| -> Vec<Value> {
            let of_kinds = objects.iter().filter(|object| is_of(object, kinds));
            of_kinds.cloned().collect()
        };
        let parts = Self {
            rights: list(&RIGHTS),
            bounds: list(&BOUNDS),
        };
        assert!(parts.rights.len() > 4 && parts.bounds.len() > 16);
        parts
    }

    /// Fails if a binding exists without a policy that bounds it. Returns the number of both.
    async fn check(&self, cluster: &Cluster, moment: &str) -> usize {
        let mut given = Vec::new();
        for binding in &self.rights {
            given.extend(cluster.admin.find(binding).await.map(|_| binding));
        }
        let mut missing = Vec::new();
        for bound in &self.bounds {
            if cluster.admin.find(bound).await.is_none() {
                missing.push(bound);
            }
        }
        assert!(
            given.is_empty() || missing.is_empty(),
            "{moment}: {given:?} are there without {missing:?}"
        );
        given.len() + self.bounds.len() - missing.len()
    }
}

/// Whether a line reports a finished write.
fn tells_of_write(line: &str) -> bool {
    let is_of_plan = [" ", "goes:", "kept:", "and "]
        .iter()
        .any(|start| line.starts_with(start));
    line.starts_with("applied ") || (line.contains(": ") && !is_of_plan)
}

/// Runs the program and kills it after it has reported this many writes. Returns the last write, or `None` if the program ended before.
///
/// The program waits for its reader after a few lines, since the socket has room for no more. So it can't be far ahead of a slow reader.
fn kill_after(cluster: &Cluster, arguments: &[&str], writes: usize) -> Option<String> {
    let (reader, writer) = UnixStream::pair().unwrap();
    setsockopt(&writer, sockopt::SndBuf, &1).unwrap();
    let mut child = tenure(arguments)
        .env("KUBECONFIG", &cluster.kubeconfig)
        .stdout(OwnedFd::from(writer))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::with_capacity(1, reader).lines();
    let mut reported = lines.map(Result::unwrap).filter(|line| tells_of_write(line));
    if let Some(last) = reported.nth(writes - 1) {
        child.kill().unwrap();
        child.wait().unwrap();
        return Some(last);
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    None
}

/// Runs the program, and interrupts it as Ctrl-C does after it has reported this many writes. Returns its exit code and its standard error.
fn interrupt_after(cluster: &Cluster, arguments: &[&str], writes: usize) -> (Option<i32>, String) {
    let (reader, writer) = UnixStream::pair().unwrap();
    setsockopt(&writer, sockopt::SndBuf, &1).unwrap();
    let child = tenure(arguments)
        .env("KUBECONFIG", &cluster.kubeconfig)
        .stdout(OwnedFd::from(writer))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::with_capacity(1, reader).lines();
    let mut reported = lines.map_while(Result::ok).filter(|line| tells_of_write(line));
    reported.nth(writes - 1).expect("a write");
    let process = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGINT).unwrap();
    // The program ends only if it can write its last lines.
    reported.for_each(drop);
    let output = child.wait_with_output().unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_installation_says_how_it_goes_on() {
    let cluster = Cluster::start_own_bare().await;
    let (code, stderr) = interrupt_after(&cluster, &INSTALL, 3);
    assert_eq!(code, Some(130), "{stderr}");
    for words in ["objects are applied", "Run the same command again"] {
        assert!(stderr.contains(words), "no {words:?} in {stderr}");
    }
    cluster.check(&INSTALL, 0, &["applied Deployment tenure-controller"]);
    let (code, stderr) = interrupt_after(&cluster, &UNINSTALL, 3);
    assert_eq!(code, Some(130), "{stderr}");
    assert!(stderr.contains("run the same command again to finish"), "{stderr}");
    // Nothing holds the Lease, so the next run doesn't wait for its end.
    cluster.check(&UNINSTALL, 0, &["the installation is removed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_installation_gives_no_rights_that_nothing_bounds() {
    let objects = list_objects();
    let parts = Parts::sort_objects(&objects);
    let cluster = match Cluster::start_real_bare(&[]).await {
        Some(cluster) => cluster,
        None => Cluster::start_own_bare().await,
    };
    let mut seen = BTreeSet::new();
    let relevant = [RIGHTS, BOUNDS].concat();
    let of_parts = objects
        .iter()
        .enumerate()
        .filter(|(_, object)| is_of(object, &relevant));
    // Each process applies all objects before the last one again. With every third object, or in CI every fifth, the test is short enough.
    for (index, object) in of_parts.step_by(choose_length(5, 3)) {
        let last = kill_after(&cluster, &INSTALL, index + 1).unwrap();
        let moment = format!("install, killed after {object}, {last:?}");
        seen.insert(parts.check(&cluster, &moment).await);
    }
    // The processes died at different moments.
    assert!(seen.len() > 4, "{seen:?}");
    assert_eq!(kill_after(&cluster, &INSTALL, usize::MAX), None);
    for object in &objects {
        assert!(cluster.admin.find(object).await.is_some(), "{object} is not there");
    }

    seen.clear();
    let mut is_complete = false;
    for _ in 1..MOST_PROCESSES {
        let Some(last) = kill_after(&cluster, &UNINSTALL, choose_length(5, 3)) else {
            is_complete = true;
            break;
        };
        let moment = format!("uninstall, killed after {last:?}");
        // The dead process holds the Lease, and the test would wait for its end.
        if cluster.admin.find(&lease()).await.is_some() {
            cluster.admin.delete(&lease()).await;
        }
        seen.insert(parts.check(&cluster, &moment).await);
    }
    assert!(is_complete && seen.len() > 1, "{seen:?}");
    let goes = [&relevant[..], &["Namespace"]].concat();
    for object in objects.iter().filter(|object| is_of(object, &goes)) {
        let found = cluster.admin.find(object).await.unwrap_or_default();
        let is_there = found.is_object() && !found["metadata"]["deletionTimestamp"].is_string();
        assert!(!is_there, "{object} is there");
    }
}
