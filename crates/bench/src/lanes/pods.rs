//! Lanes with Pods of their own, on a real control plane: how one that is killed, stopped or out of memory delays another tenant's commits. Without a node,
//! `tenure_testkit::Kubelet` starts the Pods' processes. Only processes of the one lane are hit.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options, Repository};
use tenure_testkit::{Kubelet, LANE_IMAGE};

use super::faults::Fault;
use super::processes::find_lane_of;
use super::{TURNS, report_durations};
use tenure_test_ports::reserve_port;

use crate::kubernetes::Kubernetes;
use crate::process::{self, wait_for_ready};
use crate::report::Report;

/// Short names, because the system keeps only fifteen bytes of a process's name.
const NEIGHBOUR: &str = "calm";
const STRUCK: &str = "struck";
/// The object in a tenant's repository.
const MADE: &str = "greeting";

/// The longest time for a lane or a commit.
const PATIENCE: Duration = Duration::from_secs(200);
/// How often a condition is polled.
const LOOK: Duration = Duration::from_millis(5);
/// How often the bench looks for a process to hit.
const LOOK_FOR_LANE: Duration = Duration::from_millis(250);
/// The pause between two commits.
const PAUSE: Duration = Duration::from_millis(250);

/// Measures one failure, with this many commits in each turn.
pub(super) async fn measure(
    (program, kubernetes): (&Path, &Path),
    fault: Fault,
    samples: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let scene = Scene::set(program, kubernetes).await?;
    let neighbour = scene.prepare(NEIGHBOUR).await.context(NEIGHBOUR)?;
    let struck = scene.prepare(STRUCK).await.context(STRUCK)?;
    let (mut at_rest, mut beside) = (Vec::new(), Vec::new());
    let (mut number, mut work, mut strikes) = (1, 1, 0);
    for _ in 0..TURNS {
        scene.wait_for_lane(STRUCK).await?;
        for _ in 0..samples {
            number += 1;
            at_rest.push(scene.follow(&neighbour, number).await?);
            tokio::time::sleep(PAUSE).await;
        }
        // Repeats the failure after a new process has started.
        let striking = async {
            let (mut last, mut count) = (None, 0_usize);
            loop {
                let lane = find_lane_of(&scene.hub, &format!("tenant/{STRUCK}"));
                if let Some(lane) = lane.filter(|lane| fault != Fault::AtRest && last != Some(*lane)) {
                    fault.deal(lane);
                    (last, count) = (Some(lane), count + 1);
                }
                if fault == Fault::OutOfMemory {
                    // This work takes memory until none is left.
                    work += 1;
                    let _not_always = struck.commit(work).await;
                    let _not_always = scene.ask(&struck).await;
                }
                scene.struck.set(count);
                tokio::time::sleep(LOOK_FOR_LANE).await;
            }
        };
        let following = async {
            let mut taken = Vec::new();
            for _ in 0..samples {
                number += 1;
                taken.push(scene.follow(&neighbour, number).await?);
                tokio::time::sleep(PAUSE).await;
            }
            anyhow::Ok(taken)
        };
        tokio::select! {
            () = striking => {}
            taken = following => beside.extend(taken?),
        }
        strikes += scene.struck.take();
    }
    report_durations("deployment", (fault, strikes), (&mut at_rest, &mut beside), report);
    Ok(())
}

/// Controllers whose lanes are Pods.
struct Scene {
    git: GitServer,
    client: kube::Client,
    hub: String,
    /// The number of hits in this turn.
    struck: std::cell::Cell<usize>,
    _controllers: OwnedProcess,
    _kubelet: Kubelet,
    _kubernetes: Kubernetes,
    _folder: tempfile::TempDir,
}

/// A tenant with a repository of one ConfigMap.
struct Tenant {
    name: &'static str,
    repository: Repository,
}

impl Scene {
    async fn set(program: &Path, kubernetes: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let git = GitServer::start(folder.path().join("git"), Options::default()).await?;
        let mut kubernetes = Kubernetes::start(kubernetes).await?;
        kubernetes.start_manager().await?;
        process::install(program, &kubernetes.kubeconfig(), &["--lanes", "deployment"])?;
        let client = process::make_client(&kubernetes.kubeconfig()).await?;
        let hub = format!("127.0.0.1:{}", reserve_port());
        let probe = format!("127.0.0.1:{}", reserve_port());
        let mut command = Command::new(program);
        command.args(["run", "--kubeconfig"]).arg(kubernetes.kubeconfig());
        command.arg("--data").arg(folder.path().join("run"));
        command.args([
            "--lanes",
            "deployment",
            "--lane-image",
            LANE_IMAGE,
            "--lane-patience",
            "5",
        ]);
        command.args(["--lane-address", &hub, "--lane-url", &hub, "--health-address", &probe]);
        command.args(["--allow-source", &format!("http://{}", git.http_address())]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let controllers = OwnedProcess(command.spawn()?);
        let administrator = tenure_testkit::Admin::new(client.clone());
        let kubelet = Kubelet::start(&administrator, program, &folder.path().join("pods"));
        wait_for_ready(&probe).await?;
        Ok(Self {
            git,
            client,
            hub,
            struck: std::cell::Cell::new(0),
            _controllers: controllers,
            _kubelet: kubelet,
            _kubernetes: kubernetes,
            _folder: folder,
        })
    }

    /// Creates a tenant, and waits until a lane in a Pod has applied its first commit.
    async fn prepare(&self, name: &'static str) -> anyhow::Result<Tenant> {
        let repository = self.git.create(name).await?;
        let tenant = Tenant { name, repository };
        let owners = json!([{ "kind": "User", "name": format!("{name}-owner") }]);
        let object = json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
            "metadata": { "name": name }, "spec": { "owners": owners } });
        self.apply(&object).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), name);
        let account = format!("{name}-gitops");
        wait_until("the GitOps account", async || Ok(accounts.get_opt(&account).await?)).await?;
        let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": "app", "namespace": name },
            "spec": { "interval": "1h", "timeout": "60s", "url": self.git.http_url(name), "ref": { "branch": "main" } } });
        let kustomization = json!({ "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": { "name": "app", "namespace": name },
            "spec": { "interval": "1h", "retryInterval": "1s", "timeout": "60s", "prune": true, "path": "./", "targetNamespace": name,
                "serviceAccountName": account, "sourceRef": { "kind": "GitRepository", "name": "app" } } });
        tenant.commit(1).await?;
        self.apply(&source).await?;
        self.apply(&kustomization).await?;
        self.until_applied(&tenant, 1).await?;
        self.wait_for_lane(name).await?;
        Ok(tenant)
    }

    async fn apply(&self, object: &Value) -> anyhow::Result<()> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("/apiVersion").split_once('/').context("no group")?;
        let kind = GroupVersionKind::gvk(group, version, text("/kind"));
        let resource = match text("/kind") {
            "GitRepository" => ApiResource::from_gvk_with_plural(&kind, "gitrepositories"),
            _ => ApiResource::from_gvk(&kind),
        };
        let api: Api<DynamicObject> = match text("/metadata/namespace") {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        };
        let parameters = PatchParams::apply("bench").force();
        api.patch(text("/metadata/name"), &parameters, &Patch::Apply(object))
            .await?;
        Ok(())
    }

    /// Requests a fetch of a tenant's source.
    async fn ask(&self, tenant: &Tenant) -> anyhow::Result<()> {
        let kind = GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "GitRepository");
        let resource = ApiResource::from_gvk_with_plural(&kind, "gitrepositories");
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), tenant.name, &resource);
        let now = jiff::Timestamp::now().to_string();
        let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": now } } });
        api.patch("app", &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Measures the time from a push, with a request to fetch it, until it is applied.
    async fn follow(&self, tenant: &Tenant, number: usize) -> anyhow::Result<Duration> {
        tenant.commit(number).await?;
        let asked = Instant::now();
        self.ask(tenant).await?;
        self.until_applied(tenant, number).await?;
        Ok(asked.elapsed())
    }

    async fn until_applied(&self, tenant: &Tenant, number: usize) -> anyhow::Result<()> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), tenant.name);
        let wanted = number.to_string();
        wait_until("the commit", async || {
            let found = api.get_opt(MADE).await?;
            let data = found.and_then(|found| found.data).unwrap_or_default();
            Ok(data.get("number").filter(|number| **number == wanted).cloned())
        })
        .await?;
        Ok(())
    }

    /// Waits for the process of a tenant's lane.
    async fn wait_for_lane(&self, tenant: &str) -> anyhow::Result<Pid> {
        let name = format!("tenant/{tenant}");
        wait_until("the process of a lane", async || Ok(find_lane_of(&self.hub, &name))).await
    }
}

impl Tenant {
    async fn commit(&self, number: usize) -> anyhow::Result<()> {
        let text =
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {MADE}\ndata:\n  number: \"{number}\"\n");
        let message = format!("number {number}");
        self.repository.commit([("app.yaml", text)], &message).await?;
        Ok(())
    }
}

async fn wait_until<T>(what: &str, mut find: impl AsyncFnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = find().await? {
            return Ok(found);
        }
        if began.elapsed() > PATIENCE {
            bail!("{what} did not come in {PATIENCE:?}");
        }
        // A poll; its interval is the precision of the time.
        tokio::time::sleep(LOOK).await;
    }
}

/// A process that ends when this value is dropped.
struct OwnedProcess(Child);

impl Drop for OwnedProcess {
    fn drop(&mut self) {
        let _already_gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}
