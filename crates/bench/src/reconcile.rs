//! Reconciling: many Kustomizations from cold, an unchanged resync, a commit until it is applied, drift until it is
//! put back. Every Kustomization waits for health, acts as a ServiceAccount, and applies four objects.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options, Repository};

use crate::process::ControlPlane;
use crate::report::{Report, megabytes, percentile, time};

/// Long enough for the slowest machine; reaching it is an error, not a figure.
const PATIENCE: Duration = Duration::from_secs(600);

/// Edits whose way back is measured.
const DRIFTS: usize = 50;

/// Commits whose way is measured.
const COMMITS: usize = 10;

/// How often a resync happens, in seconds.
const RESYNC_SECONDS: u64 = 10;

/// Measures `count` Kustomizations of four objects.
pub(crate) async fn measure(program: &Path, count: usize, report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let git = GitServer::start(folder.path(), Options::default()).await?;
    let repository = git.create("bench").await?;
    repository.commit(files(count), "the beginning").await?;
    let address = format!("http://{}", git.http_address());
    // One process: memory and CPU are read of that. What lanes cost as processes is measured by `lanes`.
    let arguments = ["--lanes", "task", "--allow-source", &address].map(str::to_owned);
    let plane = ControlPlane::start(program, &arguments).await?;
    let client = plane.client.clone();
    prepare(&client, &git.http_url("bench")).await?;

    let cpu_before = plane.cpu()?;
    let started = Instant::now();
    for index in 0..count {
        create(&client, &kustomization(index)).await?;
    }
    until_ready(&client, count).await?;
    let wall = started.elapsed();
    let cpu = plane.cpu()?.saturating_sub(cpu_before);
    let bar = if count == 100 { "3 s" } else { "" };
    report.add(
        format!("{count} Kustomizations of 4 objects, from cold to Ready"),
        time(wall),
        None,
        bar,
    );
    report.add(
        format!("{count} Kustomizations: CPU of the whole control plane"),
        format!("{:.2} s", cpu.as_secs_f64()),
        None,
        "",
    );
    report.add(
        format!("{count} Kustomizations: peak memory"),
        megabytes(plane.memory()?.1),
        None,
        "",
    );

    let writes = resync(&client).await?;
    report.add(
        format!(
            "{count} Kustomizations: writes in {} s of unchanged resyncs, one each {RESYNC_SECONDS} s",
            2 * RESYNC_SECONDS
        ),
        writes.to_string(),
        None,
        "0",
    );

    for (what, scope) in [("all", Scope::All), ("one", Scope::One)] {
        let mut seen = commits(&client, &repository, count, scope).await?;
        for (until, samples) in [
            ("it is applied", &mut seen.first),
            ("all have that revision", &mut seen.all),
        ] {
            report.add(
                format!(
                    "a commit that changes {what} of {count} Kustomizations until {until}, source asked every 1 s (p50, p99 of {COMMITS})"
                ),
                format!(
                    "{}, {}",
                    time(percentile(samples, 0.5)),
                    time(percentile(samples, 0.99))
                ),
                None,
                "",
            );
        }
    }
    // All of them are at rest: a drift behind a queue of other work would measure the queue.
    let mut drifts = drifts(&client).await?;
    report.add(
        format!("drift put back, {count} Kustomizations (p50, p99 of {DRIFTS})"),
        format!(
            "{}, {}",
            time(percentile(&mut drifts, 0.5)),
            time(percentile(&mut drifts, 0.99))
        ),
        None,
        "1 s",
    );
    Ok(())
}

fn files(count: usize) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for index in 0..count {
        files.insert(
            format!("apps/{index}/kustomization.yaml"),
            format!("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: bench\nnamePrefix: app-{index}-\nresources:\n  - ../../base\n"),
        );
    }
    files.insert(
        "base/kustomization.yaml".into(),
        "resources:\n  - all.yaml\nimages:\n  - name: registry.example/app\n    newTag: v0\n".into(),
    );
    files.insert(
        "base/all.yaml".into(),
        "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: app\n---\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata:\n  greeting: hello\n---\n\
         apiVersion: v1\nkind: Service\nmetadata:\n  name: app\nspec:\n  selector:\n    app: app\n  ports:\n    - port: 80\n---\n\
         apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: app\nspec:\n  replicas: 0\n  selector:\n    matchLabels:\n      app: app\n  \
         template:\n    metadata:\n      labels:\n        app: app\n    spec:\n      serviceAccountName: app\n      containers:\n        \
         - name: app\n          image: registry.example/app:v0\n"
            .into(),
    );
    files
}

fn kustomization(index: usize) -> Value {
    json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": format!("app-{index}"), "namespace": "bench"},
           "spec": {"interval": format!("{RESYNC_SECONDS}s"), "prune": true, "wait": true, "path": format!("apps/{index}"), "serviceAccountName": "gitops",
                    "sourceRef": {"kind": "GitRepository", "name": "bench"}}})
}

async fn prepare(client: &kube::Client, url: &str) -> anyhow::Result<()> {
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "gitops", "namespace": "bench"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "gitops", "namespace": "bench"},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
               "subjects": [{"kind": "ServiceAccount", "name": "gitops", "namespace": "bench"}]}),
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"name": "bench", "namespace": "bench"},
               "spec": {"interval": "1s", "url": url, "ref": {"branch": "main"}}}),
    ];
    for object in &objects {
        create(client, object).await?;
    }
    let source = api(
        client,
        "source.toolkit.fluxcd.io",
        "v1",
        "GitRepository",
        "gitrepositories",
    );
    watch_until(source, |objects| objects.values().all(ready) && !objects.is_empty()).await
}

fn api(client: &kube::Client, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let api_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let resource = ApiResource {
        group: group.into(),
        version: version.into(),
        api_version,
        kind: kind.into(),
        plural: plural.into(),
    };
    Api::namespaced_with(client.clone(), "bench", &resource)
}

fn kustomizations(client: &kube::Client) -> Api<DynamicObject> {
    api(
        client,
        "kustomize.toolkit.fluxcd.io",
        "v1",
        "Kustomization",
        "kustomizations",
    )
}

async fn create(client: &kube::Client, object: &Value) -> anyhow::Result<()> {
    let kind = text(object, "/kind");
    let plural = match kind {
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "RoleBinding" => "rolebindings",
        "GitRepository" => "gitrepositories",
        "Kustomization" => "kustomizations",
        other => bail!("no plural for {other}"),
    };
    let base = match text(object, "/apiVersion") {
        "v1" => "/api/v1".to_owned(),
        other => format!("/apis/{other}"),
    };
    let path = match text(object, "/metadata/namespace") {
        "" => format!("{base}/{plural}"),
        namespace => format!("{base}/namespaces/{namespace}/{plural}"),
    };
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(object)?)?;
    client
        .request::<Value>(request)
        .await
        .with_context(|| format!("create {kind}"))?;
    Ok(())
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn ready(object: &DynamicObject) -> bool {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True")
    })
}

async fn until_ready(client: &kube::Client, count: usize) -> anyhow::Result<()> {
    watch_until(kustomizations(client), |objects| {
        objects.len() == count && objects.values().all(ready)
    })
    .await
}

async fn until_applied(client: &kube::Client, count: usize, commit: &str) -> anyhow::Result<()> {
    let applied = |object: &DynamicObject| {
        let revision = object
            .data
            .pointer("/status/lastAppliedRevision")
            .and_then(Value::as_str);
        ready(object) && revision.is_some_and(|revision| revision.ends_with(commit))
    };
    watch_until(kustomizations(client), |objects| {
        objects.len() == count && objects.values().all(applied)
    })
    .await
}

async fn watch_until(
    api: Api<DynamicObject>,
    done: impl Fn(&BTreeMap<String, DynamicObject>) -> bool,
) -> anyhow::Result<()> {
    use kube::runtime::watcher::{self, Event};
    let mut objects = BTreeMap::new();
    let watching = async {
        let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
        while let Some(event) = events.next().await {
            if let Event::Apply(object) | Event::InitApply(object) = event? {
                objects.insert(object.metadata.name.clone().unwrap_or_default(), object);
            }
            if done(&objects) {
                return Ok(());
            }
        }
        bail!("the watch ended")
    };
    let answer = tokio::time::timeout(PATIENCE, watching).await;
    answer.unwrap_or_else(|_| {
        let waiting: Vec<_> = objects
            .values()
            .filter(|object| !ready(object))
            .take(3)
            .map(|object| {
                object
                    .data
                    .pointer("/status/conditions")
                    .map(Value::to_string)
                    .unwrap_or_default()
            })
            .collect();
        bail!("not there after {PATIENCE:?}; waiting for {waiting:?}")
    })
}

/// Writes of any kind while everything is looked at again twice, by the revision that the store hands out.
async fn resync(client: &kube::Client) -> anyhow::Result<u64> {
    let before = revision(client).await?;
    // The measurement itself: how much is written in this time.
    tokio::time::sleep(Duration::from_secs(2 * RESYNC_SECONDS)).await;
    Ok(revision(client).await?.saturating_sub(before))
}

async fn revision(client: &kube::Client) -> anyhow::Result<u64> {
    let list = kustomizations(client).list(&ListParams::default().limit(1)).await?;
    list.metadata
        .resource_version
        .context("no resourceVersion")?
        .parse()
        .context("resourceVersion")
}

/// What a commit changes.
#[derive(Clone, Copy)]
enum Scope {
    /// The folder that all Kustomizations are built on.
    All,
    /// The folder of one of them.
    One,
}

/// How long it took from each commit.
#[derive(Default)]
struct Seen {
    /// Until the Deployment of the first Kustomization was as the commit says.
    first: Vec<Duration>,
    /// Until all Kustomizations said that they have applied the revision.
    all: Vec<Duration>,
}

/// Commits, each when everything is at rest after the one before.
async fn commits(client: &kube::Client, repository: &Repository, count: usize, scope: Scope) -> anyhow::Result<Seen> {
    let mut seen = Seen::default();
    for number in 1..=COMMITS {
        let (file, mut text, tag) = match scope {
            Scope::All => (
                "base/kustomization.yaml",
                "resources:\n  - all.yaml\n".to_owned(),
                format!("v{number}"),
            ),
            Scope::One => (
                "apps/0/kustomization.yaml",
                files(1).remove("apps/0/kustomization.yaml").unwrap_or_default(),
                format!("w{number}"),
            ),
        };
        text.push_str(&format!("images:\n  - name: registry.example/app\n    newTag: {tag}\n"));
        let last = repository.commit([(file, text)], "another tag").await?;
        let started = Instant::now();
        let wanted = format!("registry.example/app:{tag}");
        deployment_until(client, |deployment| image(deployment) == Some(wanted.as_str())).await?;
        seen.first.push(started.elapsed());
        until_applied(client, count, &last).await?;
        seen.all.push(started.elapsed());
    }
    Ok(seen)
}

/// The store's revision. Opaque to clients; here the server is ours.
fn number_of(resource_version: &Option<String>) -> u64 {
    resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

fn image(deployment: &Deployment) -> Option<&str> {
    deployment
        .spec
        .template
        .spec
        .as_ref()?
        .containers
        .first()?
        .image
        .as_deref()
}

async fn drifts(client: &kube::Client) -> anyhow::Result<Vec<Duration>> {
    let api: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client.clone(), "bench");
    let mut samples = Vec::new();
    for number in 0..DRIFTS {
        // Another object each time: editing one again and again is a fight, and fights are slowed down on purpose.
        let name = format!("app-{number}-app");
        let mut changes = std::pin::pin!(kube::runtime::watcher::watch_object(api.clone(), &name));
        let started = Instant::now();
        let patch = json!({"data": {"greeting": "edited"}});
        let parameters = PatchParams {
            field_manager: Some("kubectl-edit".into()),
            ..PatchParams::default()
        };
        let edited = api.patch(&name, &parameters, &Patch::Merge(&patch)).await?;
        let edited = edited.metadata.resource_version;
        let back = async {
            let mut edited_seen = false;
            while let Some(change) = changes.next().await {
                let Some(object) = change? else { bail!("{name} is gone") };
                edited_seen = edited_seen || number_of(&object.metadata.resource_version) >= number_of(&edited);
                let greeting = object
                    .data
                    .as_ref()
                    .and_then(|data| data.get("greeting"))
                    .map(String::as_str);
                if object.metadata.resource_version != edited && edited_seen && greeting == Some("hello") {
                    return Ok(started.elapsed());
                }
            }
            bail!("the watch ended")
        };
        samples.push(tokio::time::timeout(PATIENCE, back).await??);
    }
    Ok(samples)
}

async fn deployment_until(client: &kube::Client, done: impl Fn(&Deployment) -> bool) -> anyhow::Result<()> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), "bench");
    let watching = async {
        let mut changes = std::pin::pin!(kube::runtime::watcher::watch_object(api, "app-0-app"));
        while let Some(change) = changes.next().await {
            if change?.is_some_and(|deployment| done(&deployment)) {
                return Ok(());
            }
        }
        bail!("the watch ended")
    };
    tokio::time::timeout(PATIENCE, watching)
        .await
        .context("not applied in time")?
}
