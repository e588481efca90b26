//! The reconciled objects: the repository's files, a source, and Kustomizations of four objects each, with waits for their statuses. Their form is the same on every
//! control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::PATIENCE;

/// Flux's annotation that requests a reconciliation.
const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Makes the repository: one folder per Kustomization, built on a base with all objects.
pub(super) fn make_files(count: usize) -> BTreeMap<String, String> {
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

/// Makes a Kustomization of the GitRepository with this interval.
pub(super) fn make_kustomization(index: usize, interval: Duration) -> Value {
    kustomization_of("GitRepository", index, interval)
}

/// Makes a Kustomization of a source of this kind.
pub(super) fn kustomization_of(source: &str, index: usize, interval: Duration) -> Value {
    json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": format!("app-{index}"), "namespace": "bench"},
           "spec": {"interval": format!("{}s", interval.as_secs()), "prune": true, "wait": true, "path": format!("apps/{index}"), "serviceAccountName": "gitops",
                    "sourceRef": {"kind": source, "name": "bench"}}})
}

/// Creates the namespace, the ServiceAccount, and the source, and waits until the source is Ready.
pub(super) async fn prepare_objects(client: &kube::Client, source: &Value) -> anyhow::Result<()> {
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "gitops", "namespace": "bench"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "gitops", "namespace": "bench"},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
               "subjects": [{"kind": "ServiceAccount", "name": "gitops", "namespace": "bench"}]}),
    ];
    for object in objects.iter().chain([source]) {
        create_object(client, object).await?;
    }
    let kind = read_text(source, "/kind");
    let source = make_api(client, "source.toolkit.fluxcd.io", "v1", kind, plural_of(kind)?);
    watch_until(source, 1, is_ready).await
}

fn make_api(client: &kube::Client, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
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

/// Returns the API of the bench's Kustomizations.
pub(super) fn make_kustomization_api(client: &kube::Client) -> Api<DynamicObject> {
    make_api(
        client,
        "kustomize.toolkit.fluxcd.io",
        "v1",
        "Kustomization",
        "kustomizations",
    )
}

/// Returns the API of the bench's Receivers.
pub(super) fn make_receiver_api(client: &kube::Client) -> Api<DynamicObject> {
    make_api(client, "notification.toolkit.fluxcd.io", "v1", "Receiver", "receivers")
}

fn plural_of(kind: &str) -> anyhow::Result<&'static str> {
    Ok(match kind {
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "Secret" => "secrets",
        "Receiver" => "receivers",
        "RoleBinding" => "rolebindings",
        "OCIRepository" => "ocirepositories",
        "GitRepository" => "gitrepositories",
        "Kustomization" => "kustomizations",
        "Tenant" => "tenants",
        other => bail!("no plural for {other}"),
    })
}

/// Creates an object of one of the bench's kinds.
pub(crate) async fn create_object(client: &kube::Client, object: &Value) -> anyhow::Result<()> {
    let kind = read_text(object, "/kind");
    let plural = plural_of(kind)?;
    let base = match read_text(object, "/apiVersion") {
        "v1" => "/api/v1".to_owned(),
        other => format!("/apis/{other}"),
    };
    let path = match read_text(object, "/metadata/namespace") {
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

fn read_text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Checks whether an object is Ready.
pub(crate) fn is_ready(object: &DynamicObject) -> bool {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|condition| read_text(condition, "/type") == "Ready" && read_text(condition, "/status") == "True")
    })
}

/// Waits until this many Kustomizations are Ready.
pub(super) async fn until_ready(client: &kube::Client, count: usize) -> anyhow::Result<()> {
    watch_until(make_kustomization_api(client), count, is_ready).await
}

/// Waits until this many Kustomizations have applied a commit.
pub(super) async fn until_applied(client: &kube::Client, count: usize, commit: &str) -> anyhow::Result<()> {
    let applied = |object: &DynamicObject| {
        let revision = object
            .data
            .pointer("/status/lastAppliedRevision")
            .and_then(Value::as_str);
        is_ready(object) && revision.is_some_and(|revision| revision.ends_with(commit))
    };
    watch_until(make_kustomization_api(client), count, applied).await
}

/// Requests the reconciliation of a Kustomization.
pub(super) async fn ask_for(client: &kube::Client, name: &str, token: &str) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {REQUESTED_AT: token}}}));
    make_kustomization_api(client)
        .patch(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Waits until a Kustomization has handled this request.
pub(super) async fn until_handled(client: &kube::Client, name: &str, token: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let object = make_kustomization_api(client).get(name).await?;
        let handled = object.data.pointer("/status/lastHandledReconcileAt");
        if handled.and_then(Value::as_str) == Some(token) && is_ready(&object) {
            return Ok(());
        }
        // A poll; its interval is the precision of the time.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bail!("{name} is not reconciled after {PATIENCE:?}")
}

/// Waits until there are exactly this many objects and all satisfy a condition. The cost of each event doesn't depend on their number, because the measured program
/// shares the processors.
pub(crate) async fn watch_until(
    api: Api<DynamicObject>,
    count: usize,
    satisfies: impl Fn(&DynamicObject) -> bool,
) -> anyhow::Result<()> {
    use kube::runtime::watcher::{self, Event};
    let mut satisfied = BTreeSet::new();
    let mut waiting = BTreeMap::new();
    let watching = async {
        let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
        while let Some(event) = events.next().await {
            if let Event::Apply(object) | Event::InitApply(object) = event? {
                let name = object.metadata.name.clone().unwrap_or_default();
                if satisfies(&object) {
                    waiting.remove(&name);
                    satisfied.insert(name);
                } else {
                    satisfied.remove(&name);
                    waiting.insert(name, object);
                }
            }
            if waiting.is_empty() && satisfied.len() == count {
                return Ok(());
            }
        }
        bail!("the watch ended")
    };
    let answer = tokio::time::timeout(PATIENCE, watching).await;
    answer.unwrap_or_else(|_| {
        let conditions: Vec<_> = waiting
            .values()
            .take(3)
            .map(|object| object.data.pointer("/status/conditions").map(Value::to_string))
            .map(Option::unwrap_or_default)
            .collect();
        bail!(
            "{} of {count} are there after {PATIENCE:?}; {} others are waited for, which say {conditions:?}",
            satisfied.len(),
            waiting.len()
        )
    })
}

/// Counts the requests that the server has answered so far, except its own and its controller manager's.
pub(crate) async fn count_requests(client: &kube::Client) -> anyhow::Result<u64> {
    let text = client
        .request_text(http::Request::get("/metrics").body(Vec::new())?)
        .await?;
    let counts = text
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{") && !is_of_the_server(line));
    // Prometheus writes large counts as 1.234e+06, so they are no integers.
    let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(counts.sum::<f64>() as u64)
}

/// Checks whether a request is of no GitOps controller.
fn is_of_the_server(line: &str) -> bool {
    let resources = [
        "replicasets",
        "ipaddresses",
        "leases",
        "flowschemas",
        "prioritylevelconfigurations",
    ];
    let is_its_own = |resource: &&str| line.contains(&format!("resource=\"{resource}\""));
    let is_rolled_out = line.contains("resource=\"deployments\"") && line.contains("subresource=\"status\"");
    resources.iter().any(is_its_own) || is_rolled_out || line.contains("subresource=\"/readyz\"")
}
