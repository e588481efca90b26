//! `tenure install` and `tenure run` against an API server that another process serves over the network: here `tenure up --bare`, which is
//! what a kube-apiserver is and no more.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options, Repository};

use crate::process::{Up, client, fails, run, tenure};

/// How long anything may take; what comes comes much sooner.
const PATIENCE: Duration = Duration::from_secs(90);

/// A running `tenure run`, and what it says to standard error.
struct Controllers {
    child: Child,
    candidate: String,
    said: std::sync::mpsc::Receiver<String>,
}

impl Controllers {
    fn start(kubeconfig: &Path, data: &Path, more: &[&str]) -> Self {
        let mut command: Command = tenure(&["run", "--data", path(data), "--kubeconfig", path(kubeconfig)]);
        let mut child = command
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start tenure run");
        let errors = BufReader::new(child.stderr.take().expect("piped"));
        let (send, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let Some(Ok(first)) = lines.next() else {
            panic!("tenure run ended: {:?}", said.iter().collect::<Vec<_>>());
        };
        let mut words = first.split(' ');
        assert_eq!(words.next(), Some("controllers"), "{first}");
        let candidate = words.next().expect("a candidate").to_owned();
        Self { child, candidate, said }
    }

    /// Waits until it has said this.
    fn expect(&self, words: &str) {
        let mut heard = Vec::new();
        while let Ok(line) = self.said.recv_timeout(PATIENCE) {
            if line.contains(words) {
                return;
            }
            heard.push(line);
        }
        panic!("it did not say {words:?}, but {heard:#?}");
    }

    fn signal(&mut self, signal: nix::sys::signal::Signal) -> Option<i32> {
        let id = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).expect("an id"));
        nix::sys::signal::kill(id, signal).expect("signal");
        self.child.wait().expect("reap").code()
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// The administrator.
struct Admin(kube::Client);

impl Admin {
    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let (api_version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.0.clone(), namespace, &resource),
            None => Api::all_with(self.0.clone(), &resource),
        }
    }

    async fn apply(&self, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let parameters = PatchParams::apply("test").force();
        self.api(&object)
            .patch(name, &parameters, &Patch::Apply(&object))
            .await
            .unwrap();
    }

    async fn delete(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.api(object).delete(name, &Default::default()).await.unwrap();
    }

    async fn find(&self, object: &Value) -> Option<Value> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let found = self.api(object).get_opt(name).await.unwrap()?;
        Some(serde_json::to_value(found).unwrap())
    }

    /// Waits until an object is as it should be.
    async fn wait_for(&self, object: Value, expected: impl Fn(&Value) -> bool) {
        let started = Instant::now();
        let mut last = None;
        while started.elapsed() < PATIENCE {
            last = self.find(&object).await;
            if last.as_ref().is_some_and(&expected) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{object} is {last:#?}");
    }

    async fn wait_for_leader(&self, candidate: &str) {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": "tenure-system", "name": "tenure-controller"}});
        self.wait_for(lease, |lease| lease["spec"]["holderIdentity"] == candidate)
            .await;
    }
}

fn manifest(number: u32) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: greeting\ndata:\n  number: \"{number}\"\n")
}

async fn prepare_shop(admin: &Admin, git: &GitServer) -> Repository {
    let repository = git.create("shop").await.unwrap();
    repository
        .commit([("app.yaml", manifest(1))], "the beginning")
        .await
        .unwrap();
    admin
        .apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
        .await;
    let metadata = json!({"namespace": "shop", "name": "deployer"});
    admin
        .apply(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
        .await;
    admin
        .apply(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]}),
        )
        .await;
    admin
        .apply(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deployer"},
            "subjects": [{"kind": "ServiceAccount", "name": "deployer", "namespace": "shop"}]}),
        )
        .await;
    admin
        .apply(
            json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"namespace": "shop", "name": "shop"},
            "spec": {"interval": "2s", "url": git.http_url("shop"), "ref": {"branch": "main"}}}),
        )
        .await;
    admin
        .apply(
            json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"namespace": "shop", "name": "shop"},
            "spec": {"interval": "1h", "retryInterval": "1s", "prune": true, "path": "./", "targetNamespace": "shop",
                     "serviceAccountName": "deployer", "sourceRef": {"kind": "GitRepository", "name": "shop"}}}),
        )
        .await;
    repository
}

async fn wait_for_greeting(admin: &Admin, number: u32) {
    let greeting =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "greeting"}});
    admin
        .wait_for(greeting, |found| {
            found["data"]["number"]
                .as_str()
                .is_some_and(|found| found.parse() == Ok(number))
        })
        .await;
}

#[tokio::test]
async fn one_of_several_leads_and_another_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("cluster");
    let _up = Up::start(&data, &["--bare"]);
    let kubeconfig = data.join("kubeconfig");
    let admin = Admin(client(&data).await);

    let installed = run(&["install", "--kubeconfig", path(&kubeconfig)]);
    let said = String::from_utf8_lossy(&installed.stdout).into_owned();
    assert!(
        installed.status.success(),
        "{}",
        String::from_utf8_lossy(&installed.stderr)
    );
    assert!(said.contains("applied ClusterRole tenure-controller\n"), "{said}");

    let git_folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
    let repository = prepare_shop(&admin, &git).await;
    let allowed = format!("http://{}", git.http_address());
    let more = ["--allow-source", allowed.as_str()];
    let start = |name: &str, more: &[&str]| Controllers::start(&kubeconfig, &folder.path().join(name), more);

    // Flux's controller has its Lease: nothing begins.
    admin
        .apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flux-system"}}))
        .await;
    let flux = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "flux-system", "name": "kustomize-controller-leader-election"},
        "spec": {"holderIdentity": "kustomize-controller-5d8f", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}});
    admin.apply(flux.clone()).await;
    let mut first = start("first", &more);
    first.expect("held by kustomize-controller-5d8f");
    admin.delete(&flux).await;
    admin.wait_for_leader(&first.candidate).await;
    wait_for_greeting(&admin, 1).await;

    // Who acts is the controller's account, whoever the kubeconfig is for.
    let managed = admin
        .find(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "greeting"}}))
        .await
        .unwrap();
    assert_eq!(
        managed["metadata"]["managedFields"][0]["manager"],
        "kustomize-controller"
    );

    fails(
        &[
            "run",
            "--data",
            path(&folder.path().join("first")),
            "--kubeconfig",
            path(&kubeconfig),
        ],
        3,
        &["another process uses this folder", "--data"],
    );

    // The second waits, until the first is killed and its Lease has ended.
    let second = start("second", &more);
    second.expect("leads; this process waits");
    first.signal(nix::sys::signal::Signal::SIGKILL);
    repository
        .commit([("app.yaml", manifest(2))], "a change")
        .await
        .unwrap();
    admin.wait_for_leader(&second.candidate).await;
    wait_for_greeting(&admin, 2).await;

    // One that ends in good order gives the Lease back: the third needn't wait until it ends.
    let mut second = second;
    assert_eq!(second.signal(nix::sys::signal::Signal::SIGTERM), Some(0));
    let third = start("third", &more);
    admin.wait_for_leader(&third.candidate).await;
    repository.commit([("app.yaml", manifest(3))], "another").await.unwrap();
    wait_for_greeting(&admin, 3).await;
}

#[tokio::test]
async fn a_leader_whose_lease_is_taken_ends() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("cluster");
    let _up = Up::start(&data, &["--bare"]);
    let kubeconfig = data.join("kubeconfig");
    let admin = Admin(client(&data).await);
    assert!(run(&["install", "--kubeconfig", path(&kubeconfig)]).status.success());
    let mut leader = Controllers::start(&kubeconfig, &folder.path().join("run"), &[]);
    admin.wait_for_leader(&leader.candidate).await;
    admin
        .apply(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": "tenure-system", "name": "tenure-controller"},
            "spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 3600}}))
        .await;
    assert_eq!(leader.child.wait().unwrap().code(), Some(3));
    leader.expect("another process may lead from now on");
}

#[tokio::test]
async fn who_may_not_act_as_the_controller_is_told_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("cluster");
    let _up = Up::start(&data, &["--bare"]);
    let admin = Admin(client(&data).await);
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "default", "name": "nobody"}});
    admin.apply(account).await;
    let api: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(admin.0.clone(), "default");
    let request = serde_json::from_value(json!({"spec": {}})).unwrap();
    let token = api
        .create_token_request("nobody", &Default::default(), &request)
        .await
        .unwrap();
    let token = token.status.unwrap().token;
    // The administrator's kubeconfig with another user in it.
    let mut kubeconfig = kube::config::Kubeconfig::read_from(data.join("kubeconfig")).unwrap();
    kubeconfig.auth_infos[0].auth_info = Some(serde_json::from_value(json!({"token": token})).unwrap());
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, serde_json::to_string(&kubeconfig).unwrap()).unwrap();
    fails(
        &[
            "run",
            "--data",
            path(&folder.path().join("run")),
            "--kubeconfig",
            path(&file),
        ],
        3,
        &[
            "system:serviceaccount:default:nobody may not impersonate",
            "tenure-system:tenure-controller",
        ],
    );
    fails(
        &["install", "--kubeconfig", path(&file)],
        3,
        &["can't be installed", "forbidden"],
    );
    fails(&["run", "--kubeconfig", "/nonexistent"], 2, &["/nonexistent"]);
}

#[test]
fn what_is_installed_can_be_read_before() {
    let exported = run(&["install", "--export"]);
    assert!(exported.status.success());
    let text = String::from_utf8(exported.stdout).unwrap();
    for words in [
        "kind: CustomResourceDefinition",
        "name: tenure-leader",
        "name: tenure-system",
    ] {
        assert!(text.contains(words), "no {words:?}");
    }
}
