//! Helpers of these scenarios: a cluster that another process serves over the network, its administrator, and running controllers.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Repository};
use tenure_testkit::{KUBERNETES_BIN, Kubernetes, KubernetesBinaries, ServedCluster};

use crate::process::{Up, connect, tenure};

/// The timeout for all waits; the usual wait is much shorter.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// The label of namespaces that a test made, and that the next test may remove.
const TEST_LABEL: &str = "tenure.dev/test";

/// A cluster that another process serves, without any controllers of Tenure.
pub(crate) struct Cluster {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) admin: Admin,
    up: Option<Up>,
    _real: Option<Kubernetes>,
    _served: Option<ServedCluster>,
}

impl Cluster {
    /// Starts `tenure up --bare`, or takes the real cluster that `TENURE_TEST_KUBECONFIG` names, without objects of other tests.
    pub(crate) async fn start() -> Self {
        Self::start_or_share(std::env::var_os(tenure_testkit::TEST_KUBECONFIG)).await
    }

    async fn start_or_share(shared: Option<std::ffi::OsString>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (up, kubeconfig) = match shared {
            None => {
                let data = folder.path().join("cluster");
                (Some(Up::start(&data, &["--bare"])), data.join("kubeconfig"))
            }
            Some(kubeconfig) => {
                let _already_chosen = rustls::crypto::ring::default_provider().install_default();
                drop(tenure_testkit::Cluster::start().await.unwrap());
                (None, PathBuf::from(kubeconfig))
            }
        };
        let admin = Admin(connect(kube::config::Kubeconfig::read_from(&kubeconfig).expect("kubeconfig")).await);
        Self {
            kubeconfig,
            folder,
            admin,
            up,
            _real: None,
            _served: None,
        }
    }

    /// Starts or takes a cluster, and installs everything that the controllers need.
    pub(crate) async fn start_installed() -> Self {
        Self::start().await.install().await
    }

    /// Starts an empty cluster for one test: `tenure up --bare`.
    pub(crate) async fn start_own_bare() -> Self {
        Self::start_or_share(None).await
    }

    /// Starts a cluster for one test (`tenure up --bare`), with everything that the controllers need. It is for controllers that end and leave objects that block the
    /// deletion of a namespace.
    pub(crate) async fn start_own_installed() -> Self {
        Self::start_own_bare().await.install().await
    }

    /// Starts a cluster for one test with the flag `more` of `tenure install`, which reports `applied`. The cluster is real if the binaries exist, else embedded with
    /// its built-in controllers, so the test needs two threads. On a shared cluster, later tests would find the additional objects.
    pub(crate) async fn start_own_with(more: &str, applied: &str) -> Self {
        if let Some(cluster) = Self::start_real(&[more]).await {
            return cluster;
        }
        let cluster = Self::start_collecting().await;
        cluster.check(&["install", "--without-deployment", more], 0, &[applied]);
        cluster
    }

    /// Starts an embedded control plane for one test, with its built-in controllers, which empty namespaces and collect garbage, and with everything that Tenure's
    /// controllers need. It runs in the test's process, so the test needs two threads.
    pub(crate) async fn start_collecting() -> Self {
        let served = ServedCluster::start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, served.kubeconfig()).unwrap();
        let admin = Admin(connect(kube::config::Kubeconfig::read_from(&kubeconfig).expect("kubeconfig")).await);
        let cluster = Self {
            kubeconfig,
            folder,
            admin,
            up: None,
            _real: None,
            _served: Some(served),
        };
        cluster.install().await
    }

    /// Waits until the Enforcement reports that admission is in force.
    pub(crate) async fn wait_until_in_force(&self) {
        let enforcement = name_object("tenure.dev/v1alpha1", "Enforcement", "", "tenure");
        let is_ready = |found: &Value| {
            let conditions = found["status"]["conditions"].as_array();
            let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
            conditions.is_some_and(|conditions| conditions.iter().any(is_ready))
        };
        self.admin.wait_for(enforcement, is_ready).await;
    }

    /// Starts `tenure up` for one test with these flags. Admission checks writes, and the controllers run.
    pub(crate) async fn start_up(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("cluster");
        let up = Up::start(&data, flags);
        let kubeconfig = data.join("kubeconfig");
        let admin = Admin(connect(kube::config::Kubeconfig::read_from(&kubeconfig).expect("kubeconfig")).await);
        Self {
            kubeconfig,
            folder,
            admin,
            up: Some(up),
            _real: None,
            _served: None,
        }
    }

    /// Starts a real control plane for one test, with everything that the controllers need and `more`; `None` without the binaries.
    pub(crate) async fn start_real(more: &[&str]) -> Option<Self> {
        Self::start_real_with(&[], more).await
    }

    /// Starts a real control plane with more arguments of the API server.
    pub(crate) async fn start_real_with(server: &[&str], more: &[&str]) -> Option<Self> {
        let cluster = Self::start_real_bare(server).await?;
        let installed = cluster.run(&[&["install", "--without-deployment"], more].concat());
        assert!(installed.status.success(), "{}", describe(&installed));
        Some(cluster)
    }

    /// Starts an empty real control plane.
    pub(crate) async fn start_real_bare(server: &[&str]) -> Option<Self> {
        let Some(binaries) = KubernetesBinaries::find().unwrap() else {
            eprintln!("skipped: {KUBERNETES_BIN} names no real control plane");
            return None;
        };
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
        let real = Kubernetes::start_with(&binaries, true, server).await.unwrap();
        let kubeconfig = real.kubeconfig().to_owned();
        let admin = Admin(connect(kube::config::Kubeconfig::read_from(&kubeconfig).expect("kubeconfig")).await);
        Some(Self {
            kubeconfig,
            folder: tempfile::tempdir().unwrap(),
            admin,
            up: None,
            _real: Some(real),
            _served: None,
        })
    }

    async fn install(self) -> Self {
        let cluster = self;
        // On a shared cluster, the namespace of an earlier test may still be terminating.
        let home = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "tenure-system" } });
        let left = cluster.admin.find(&home).await;
        if left.is_some_and(|left| left["metadata"]["deletionTimestamp"].is_string()) {
            cluster.admin.wait_until_gone(&home).await;
        }
        let installed = cluster.run(&["install", "--without-deployment"]);
        assert!(installed.status.success(), "{}", describe(&installed));
        // The test would wait for a Lease of an earlier test's controllers.
        let lease = lease();
        if cluster.admin.find(&lease).await.is_some() {
            cluster.admin.delete(&lease).await;
        }
        cluster
    }

    /// Runs the program to its end, as the administrator of this cluster.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        tenure(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .output()
            .expect("run tenure")
    }

    /// Runs the program, and expects this exit code and these words in its output.
    pub(crate) fn check(&self, arguments: &[&str], code: i32, words: &[&str]) -> String {
        expect(&self.run(arguments), arguments, code, words)
    }

    /// Runs the program as another user, and expects this exit code and these words.
    pub(crate) fn check_as(&self, user: &str, arguments: &[&str], code: i32, words: &[&str]) -> String {
        let path = self.write_kubeconfig_as(user, &[]);
        let output = tenure(arguments).env("KUBECONFIG", &path).output().expect("run tenure");
        expect(&output, arguments, code, words)
    }

    /// Writes a kubeconfig for another user with these groups.
    pub(crate) fn write_kubeconfig_as(&self, user: &str, groups: &[&str]) -> PathBuf {
        let mut kubeconfig = kube::config::Kubeconfig::read_from(&self.kubeconfig).expect("kubeconfig");
        for named in &mut kubeconfig.auth_infos {
            if let Some(info) = &mut named.auth_info {
                info.impersonate = Some(user.to_owned());
                let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
                info.impersonate_groups = Some(groups).filter(|groups| !groups.is_empty());
            }
        }
        let path = self.data(&format!("kubeconfig-of-{}", user.replace(':', "-")));
        std::fs::write(&path, serde_json::to_vec(&kubeconfig).expect("JSON")).expect("a kubeconfig");
        path
    }

    /// Returns a client of another user with these groups.
    pub(crate) async fn become_user(&self, user: &str, groups: &[&str]) -> Admin {
        let kubeconfig = self.write_kubeconfig_as(user, groups);
        Admin(connect(kube::config::Kubeconfig::read_from(kubeconfig).expect("kubeconfig")).await)
    }

    /// Waits until a deleted object is gone, if other tests use this cluster later.
    pub(crate) async fn wait_until_settled(&self, object: &Value) {
        if self.up.is_none() {
            self.admin.wait_until_gone(object).await;
        }
    }

    /// Returns a folder of this test.
    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a token of a ServiceAccount.
    pub(crate) async fn make_token(&self, namespace: &str, name: &str) -> String {
        let api: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(self.admin.0.clone(), namespace);
        let request = serde_json::from_value(json!({"spec": {}})).unwrap();
        let token = api
            .create_token_request(name, &Default::default(), &request)
            .await
            .unwrap();
        token.status.unwrap().token.unwrap()
    }
}

/// Returns the standard output and the standard error of a program.
pub(crate) fn describe(output: &Output) -> String {
    format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Returns an object with only a name.
pub(crate) fn name_object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

/// Returns the name of the leader's Lease.
pub(crate) fn lease() -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "tenure-system", "name": "tenure-controller"}})
}

/// Returns the status of an HTTP server's answer to a probe; `None` without a server.
pub(crate) fn ask_probe(port: u16, path: &str) -> Option<u16> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: probe\r\n\r\n").as_bytes())
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// Returns the flags for webhooks at one port of this machine, and for probes at another.
pub(crate) fn list_webhook_flags(port: u16, health: u16) -> [String; 6] {
    let (listens, probes) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{health}"));
    let is_found = format!("https://{listens}");
    let flags = [
        "--admission-address",
        &listens,
        "--admission-url",
        &is_found,
        "--health-address",
        &probes,
    ];
    flags.map(str::to_owned)
}

/// Waits until a probe gets this status.
pub(crate) async fn wait_for_probe(port: u16, path: &str, status: u16) {
    let started = Instant::now();
    let mut last = None;
    while started.elapsed() < PATIENCE {
        last = ask_probe(port, path);
        if last == Some(status) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} is answered {last:?}, not {status}");
}

/// A running `tenure run`, with its standard error.
pub(crate) struct Controllers {
    pub(crate) child: Child,
    pub(crate) candidate: String,
    logged: std::sync::mpsc::Receiver<String>,
}

impl Controllers {
    pub(crate) fn start(kubeconfig: &Path, data: &Path, more: &[&str]) -> Self {
        let mut command: Command = tenure(&["run", "--data", path(data), "--kubeconfig", path(kubeconfig)]);
        command.args(more);
        Self::spawn(command)
    }

    /// Starts the controllers with a command, and waits for their first line.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start tenure run");
        let errors = BufReader::new(child.stderr.take().expect("piped"));
        let (send, logged) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let Some(Ok(first)) = lines.next() else {
            panic!("tenure run ended: {:?}", logged.iter().collect::<Vec<_>>());
        };
        // `controllers for ADDRESS as CANDIDATE: …`
        let (_, rest) = first.split_once(" as ").unwrap_or_else(|| panic!("{first}"));
        let (candidate, _) = rest.split_once(": ").unwrap_or_else(|| panic!("{first}"));
        let candidate = candidate.to_owned();
        Self {
            child,
            candidate,
            logged,
        }
    }

    /// Waits until the controllers have logged these words.
    pub(crate) fn expect(&self, words: &str) {
        let mut lines = Vec::new();
        while let Ok(line) = self.logged.recv_timeout(PATIENCE) {
            if line.contains(words) {
                return;
            }
            lines.push(line);
        }
        panic!("it did not say {words:?}, but {lines:#?}");
    }

    pub(crate) fn signal(&mut self, signal: nix::sys::signal::Signal) -> Option<i32> {
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

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A client of the administrator.
pub(crate) struct Admin(pub(crate) kube::Client);

impl Admin {
    pub(crate) fn api(&self, object: &Value) -> Api<DynamicObject> {
        let (api_version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.0.clone(), namespace, &resource),
            None => Api::all_with(self.0.clone(), &resource),
        }
    }

    pub(crate) async fn apply(&self, mut object: Value) {
        if object["kind"] == "Namespace" {
            object["metadata"]["labels"][TEST_LABEL] = json!("true");
            // An object of an earlier test may still be terminating in a shared cluster.
            let before = self.find(&object).await.unwrap_or_default();
            if before["metadata"]["deletionTimestamp"].is_string() {
                self.wait_until_gone(&object).await;
            }
        }
        let name = object["metadata"]["name"].as_str().unwrap();
        let parameters = PatchParams::apply("test").force();
        self.api(&object)
            .patch(name, &parameters, &Patch::Apply(&object))
            .await
            .unwrap();
    }

    /// Creates an object; returns the created object or the error.
    pub(crate) async fn create(&self, object: &Value) -> Result<Value, String> {
        let made: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        match self.api(object).create(&PostParams::default(), &made).await {
            Ok(made) => Ok(serde_json::to_value(made).unwrap()),
            Err(kube::Error::Api(status)) => Err(status.message.clone()),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(crate) async fn delete(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.api(object).delete(name, &Default::default()).await.unwrap();
    }

    pub(crate) async fn find(&self, object: &Value) -> Option<Value> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let found = self.api(object).get_opt(name).await.unwrap()?;
        Some(serde_json::to_value(found).unwrap())
    }

    /// Waits until an object is as expected.
    pub(crate) async fn wait_for(&self, object: Value, expected: impl Fn(&Value) -> bool) {
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

    /// Waits until the object is gone.
    pub(crate) async fn wait_until_gone(&self, object: &Value) {
        let started = Instant::now();
        let mut last = None;
        while started.elapsed() < PATIENCE {
            last = self.find(object).await;
            if last.is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("it is there still: {last:#?}");
    }

    pub(crate) async fn wait_for_leader(&self, candidate: &str) {
        self.wait_for(lease(), |lease| lease["spec"]["holderIdentity"] == candidate)
            .await;
    }
}

pub(crate) fn manifest(number: u32) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: greeting\ndata:\n  number: \"{number}\"\n")
}

pub(crate) async fn prepare_shop(admin: &Admin, git: &GitServer) -> Repository {
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

pub(crate) async fn wait_for_greeting(admin: &Admin, number: u32) {
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

fn expect(output: &Output, arguments: &[&str], code: i32, words: &[&str]) -> String {
    let text = describe(output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{arguments:?} does not print {word:?}: {text}");
    }
    text
}
