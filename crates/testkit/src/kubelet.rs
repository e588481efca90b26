//! A kubelet for the Pods of lanes in a cluster without nodes. It starts the command of a Pod's template as a process
//! of this machine. Mounted volumes are folders, and the API server issues tokens for that Pod as for a projected
//! volume. An ended process is started again, and the process of a deleted Pod is ended. Pods that are not a lane's
//! are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::workload::{LANE_LABEL, PROGRAM};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::{Admin, LOG_FILTER};

/// Interval between checks for Pods.
const LOOK: Duration = Duration::from_millis(100);

/// Runs the Pods of lanes until it is dropped.
#[derive(Debug)]
pub struct Kubelet {
    working: JoinHandle<()>,
}

/// A running Pod, with the process of its container.
struct Running {
    name: String,
    container: Container,
    child: Child,
    folder: PathBuf,
}

/// The command, environment and volumes of a Pod's process.
struct Container {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Kubelet {
    /// Starts the kubelet, with this program in place of the image's. `folder` holds the volumes: one folder for each
    /// account, which stays as long as its Pod is the same. The containers' logs are also there, with the log filter
    /// of a canary. If `TENURE_TEST_LANE_LOG` is set, it is the filter, and the logs go to this process' standard
    /// error.
    #[must_use]
    pub fn start(admin: &Admin, program: &Path, folder: &Path) -> Self {
        let (client, program, folder) = (admin.client(), program.to_owned(), folder.to_owned());
        let working = tokio::spawn(async move {
            let mut pods: BTreeMap<String, Running> = BTreeMap::new();
            loop {
                if let Err(error) = update_pods(&client, (&program, &folder), &mut pods).await {
                    // The API server may be ending, or the object may be deleted just now.
                    tracing::debug!(%error, "the test's kubelet");
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        Self { working }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.working.abort();
    }
}

/// Deletes the Deployments and Pods of lanes at the start of a test: the test that created them has ended.
pub(crate) async fn remove_lane_pods(admin: &Admin) -> anyhow::Result<()> {
    let deployments = list(&admin.client(), "/apis/apps/v1", "deployments").await?;
    for deployment in deployments {
        let name = ObjectView::new(&deployment).read_text("/metadata/name");
        admin
            .delete(("apps/v1", "Deployment"), (PLATFORM_NAMESPACE, name))
            .await?;
    }
    Ok(())
}

async fn list(client: &kube::Client, api: &str, resource: &str) -> anyhow::Result<Vec<Value>> {
    let path = format!("{api}/namespaces/{PLATFORM_NAMESPACE}/{resource}?labelSelector={LANE_LABEL}");
    let request = http::Request::get(path).body(Vec::new())?;
    let listed: Value = client.request(request).await?;
    Ok(ObjectView::new(&listed).list("/items").to_vec())
}

/// Starts and ends processes so that they match the Pods of lanes in the cluster.
async fn update_pods(
    client: &kube::Client,
    (program, folder): (&Path, &Path),
    pods: &mut BTreeMap<String, Running>,
) -> anyhow::Result<()> {
    let seen = list(client, "/api/v1", "pods").await?;
    let mut there = BTreeSet::new();
    for pod in &seen {
        let view = ObjectView::new(pod);
        if view.is_being_deleted() {
            continue;
        }
        let uid = view.read_text("/metadata/uid").to_owned();
        there.insert(uid.clone());
        match pods.get_mut(&uid) {
            None => {
                let running = run(client, (program, folder), pod).await?;
                pods.insert(uid, running);
            }
            Some(running) => {
                if running.child.try_wait()?.is_some() {
                    running.child = spawn_container(program, &running.container, &running.folder)?;
                }
                mount_authority(client, pod, &running.folder).await?;
            }
        }
    }
    let gone: Vec<String> = pods.keys().filter(|uid| !there.contains(*uid)).cloned().collect();
    for uid in gone {
        if let Some(mut running) = pods.remove(&uid) {
            tracing::debug!(running.name, "the test's kubelet ends a Pod");
            if let Some(id) = running.child.id() {
                let _it_may_have_ended = std::process::Command::new("kill")
                    .args(["-TERM", &id.to_string()])
                    .status();
            }
            let _killed_by_drop = tokio::time::timeout(Duration::from_secs(20), running.child.wait()).await;
        }
    }
    Ok(())
}

/// Returns the folder of a volume, by its name.
fn volume_folder(folder: &Path, volume: &str) -> PathBuf {
    folder.join(volume)
}

async fn run(client: &kube::Client, (program, folder): (&Path, &Path), pod: &Value) -> anyhow::Result<Running> {
    let view = ObjectView::new(pod);
    let folder = folder.join(view.read_text("/spec/serviceAccountName"));
    let (marker, uid) = (folder.join("uid"), view.read_text("/metadata/uid"));
    if std::fs::read_to_string(&marker).ok().as_deref() != Some(uid) {
        let _not_there = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(&marker, uid)?;
    }
    for volume in view.list("/spec/volumes") {
        let name = ObjectView::new(volume).read_text("/name");
        std::fs::create_dir_all(volume_folder(&folder, name))?;
        for source in ObjectView::new(volume).list("/projected/sources") {
            let token = request_token(client, pod, source).await?;
            let path = ObjectView::new(source).read_text("/serviceAccountToken/path");
            std::fs::write(volume_folder(&folder, name).join(path), token)?;
        }
    }
    if !mount_authority(client, pod, &folder).await? {
        // As a kubelet does, the Pod's start waits until the ConfigMap exists.
        bail!("the ConfigMap is not there yet");
    }
    let [container] = view.list("/spec/containers") else {
        bail!("a lane's Pod has one container");
    };
    let container = read_container(container, &folder)?;
    Ok(Running {
        name: view.read_text("/metadata/name").to_owned(),
        child: spawn_container(program, &container, &folder)?,
        container,
        folder,
    })
}

/// Reads the process of a container, with folders of this machine in place of the mounts.
fn read_container(container: &Value, folder: &Path) -> anyhow::Result<Container> {
    let view = ObjectView::new(container);
    let command = view.list("/command");
    if command != [json!(PROGRAM)] {
        bail!("a lane's container runs {PROGRAM}, and not {command:?}");
    }
    let mut arguments = Vec::new();
    for argument in view.list("/args") {
        let mut argument = argument.as_str().context("an argument")?.to_owned();
        for mount in view.list("/volumeMounts") {
            let mount = ObjectView::new(mount);
            let place = volume_folder(folder, mount.read_text("/name"));
            argument = argument.replace(mount.read_text("/mountPath"), &place.display().to_string());
        }
        if argument.starts_with("--health-address=") {
            // In a cluster each Pod has its own address. Here the processes share one address, so each gets a free
            // port.
            "--health-address=127.0.0.1:0".clone_into(&mut argument);
        }
        arguments.push(argument);
    }
    let environment = view.list("/env").iter().map(|variable| {
        let variable = ObjectView::new(variable);
        (
            variable.read_text("/name").to_owned(),
            variable.read_text("/value").to_owned(),
        )
    });
    Ok(Container {
        arguments,
        environment: environment.collect(),
    })
}

fn spawn_container(program: &Path, container: &Container, folder: &Path) -> std::io::Result<Child> {
    let (filter, log) = match std::env::var("TENURE_TEST_LANE_LOG") {
        Ok(filter) => (filter, Stdio::inherit()),
        Err(_) => {
            let log = std::fs::File::options()
                .create(true)
                .append(true)
                .open(folder.join("log"))?;
            (LOG_FILTER.to_owned(), log.into())
        }
    };
    Command::new(program)
        .args(&container.arguments)
        .env_clear()
        .envs(container.environment.iter().cloned())
        .env("TENURE_LOG", filter)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
}

/// Writes the current content of the ConfigMap that a Pod mounts. Returns whether the ConfigMap exists.
async fn mount_authority(client: &kube::Client, pod: &Value, folder: &Path) -> anyhow::Result<bool> {
    for volume in ObjectView::new(pod).list("/spec/volumes") {
        let volume = ObjectView::new(volume);
        let name = volume.read_text("/configMap/name");
        if name.is_empty() {
            continue;
        }
        let path = format!("/api/v1/namespaces/{PLATFORM_NAMESPACE}/configmaps/{name}");
        let request = http::Request::get(path).body(Vec::new())?;
        let found: Value = match client.request(request).await {
            Ok(found) => found,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let data = ObjectView::new(&found).find("/data").and_then(Value::as_object);
        for (key, value) in data.into_iter().flatten() {
            let path = volume_folder(folder, volume.read_text("/name")).join(key);
            let text = value.as_str().unwrap_or_default();
            if std::fs::read_to_string(&path).ok().as_deref() != Some(text) {
                std::fs::write(path, text)?;
            }
        }
    }
    Ok(true)
}

/// Requests a token as a kubelet does: bound to the Pod.
async fn request_token(client: &kube::Client, pod: &Value, source: &Value) -> anyhow::Result<String> {
    let (pod, source) = (ObjectView::new(pod), ObjectView::new(source));
    let mut spec = json!({
        "expirationSeconds": source.find("/serviceAccountToken/expirationSeconds"),
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod",
            "name": pod.read_text("/metadata/name"), "uid": pod.read_text("/metadata/uid")}
    });
    if let (Some(audience), Some(spec)) = (source.find("/serviceAccountToken/audience"), spec.as_object_mut()) {
        spec.insert("audiences".to_owned(), json!([audience]));
    }
    let account = pod.read_text("/spec/serviceAccountName");
    let path = format!("/api/v1/namespaces/{PLATFORM_NAMESPACE}/serviceaccounts/{account}/token");
    let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(wanted.to_string().into_bytes())?;
    let granted: Value = client.request(request).await?;
    let token = ObjectView::new(&granted).read_text("/status/token").to_owned();
    if token.is_empty() {
        bail!("a TokenRequest was answered without a token");
    }
    Ok(token)
}
