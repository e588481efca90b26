//! Tenants and their namespaces: the time until many have theirs, and the cost of creating and deleting some beside many others; and the cost of admission at each
//! admission point. Owners send with their own rights, by impersonation. A namespace counts after the Tenant's status has it.

mod checking;
mod decisions;
mod embedded;
mod stage;
mod webhook;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::process::ControlPlane;
use crate::reconcile::objects::{count_requests, create_object, is_ready, watch_until};
use crate::report::{Report, format_megabytes, format_time};

/// The namespaces of a Tenant, its home namespace included.
const NAMESPACES: i64 = 3;
/// Clients that send at the same time.
const CLIENTS: usize = 16;
/// The namespaces that one owner creates and deletes beside all others.
const MORE: i64 = 50;

/// The stored objects during the checks of writes, and the number of writes.
pub(crate) struct Load {
    /// The number of stored Tenants.
    pub(crate) stored: usize,
    /// The reviews of each client, and the requests of a pass.
    pub(crate) writes: usize,
}

/// Measures decisions, the cost of the admission points, and these numbers of Tenants, one pass each.
pub(crate) async fn measure(program: &Path, counts: &[usize], load: &Load, report: &mut Report) -> anyhow::Result<()> {
    decisions::measure(report)?;
    checking::measure(program, report).await?;
    webhook::measure(load.stored, load.writes, report).await?;
    embedded::measure(load.stored, load.writes, report).await?;
    for count in counts {
        measure_many(program, *count, report).await?;
    }
    Ok(())
}

async fn measure_many(program: &Path, count: usize, report: &mut Report) -> anyhow::Result<()> {
    // One process, whose memory and CPU can be read.
    let plane = ControlPlane::start(program, &["--lanes".to_owned(), "task".to_owned()]).await?;
    let client = plane.client.clone();
    let (cpu_before, requests_before) = (plane.cpu()?, count_requests(&client).await?);
    let started = Instant::now();
    for_each(count, |index| {
        let client = client.clone();
        async move { create_object(&client, &make_tenant(index)).await }
    })
    .await?;
    until_sized(&client, count, 1).await?;
    for_each(count, |index| {
        let client = client.clone();
        async move {
            for number in 1..NAMESPACES {
                make_namespace(&client, index, &format!("tenant-{index}-{number}")).await?;
            }
            Ok(())
        }
    })
    .await?;
    until_sized(&client, count, NAMESPACES).await?;
    let wall = started.elapsed();
    let cpu = plane.cpu()?.saturating_sub(cpu_before);
    let namespaces = count.saturating_mul(usize::try_from(NAMESPACES)?);
    let requests = count_requests(&client).await?.saturating_sub(requests_before);
    let many = format!("{count} Tenants of {NAMESPACES} namespaces");
    report.add(
        format!("{many}, from nothing until all are theirs"),
        format_time(wall),
        None,
        if count == 200 { "20 s" } else { "" },
    );
    report.add(
        format!("{many}: CPU of the whole control plane"),
        format_time(cpu),
        None,
        "",
    );
    report.add(
        format!("{many}: requests for each namespace, watches and owners and all"),
        format!("{:.1}", requests as f64 / namespaces.max(1) as f64),
        None,
        "",
    );

    // Kustomizations that the load could disturb.
    for_each(count, |index| {
        let client = client.clone();
        async move { create_object(&client, &make_kustomization(index)).await }
    })
    .await?;
    let cpu_before = plane.cpu()?;
    let names: Vec<String> = (0..MORE).map(|number| format!("more-{number}")).collect();
    let started = Instant::now();
    for (name, size) in names.iter().zip(NAMESPACES..) {
        make_namespace(&client, 0, name).await?;
        until_size(&client, 0, size.saturating_add(1)).await?;
    }
    for (name, size) in names.iter().zip((NAMESPACES..NAMESPACES.saturating_add(MORE)).rev()) {
        delete_namespace(&client, name).await?;
        until_size(&client, 0, size).await?;
    }
    let each = u32::try_from(MORE)?;
    let (wall, cpu) = (started.elapsed() / each, plane.cpu()?.saturating_sub(cpu_before) / each);
    report.add(
        format!("beside {many}: an owner makes a namespace and deletes it, until its Tenant has said so twice"),
        format_time(wall),
        None,
        "",
    );
    report.add(
        format!("beside {many}: CPU of the whole control plane for that"),
        format_time(cpu),
        None,
        "",
    );
    report.add(
        format!("{many}: peak memory"),
        format_megabytes(plane.memory()?.1),
        None,
        "",
    );
    Ok(())
}

async fn for_each<F: Future<Output = anyhow::Result<()>>>(
    count: usize,
    ask: impl Fn(usize) -> F,
) -> anyhow::Result<()> {
    let asked = futures::stream::iter(0..count).map(ask);
    asked.buffer_unordered(CLIENTS).try_collect().await
}

fn make_tenant(index: usize) -> Value {
    json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": format!("tenant-{index}") },
        "spec": { "owners": [{ "kind": "User", "name": name_owner(index) }] }
    })
}

fn name_owner(index: usize) -> String {
    format!("owner-{index}")
}

/// Makes a Kustomization that waits for a missing source.
fn make_kustomization(index: usize) -> Value {
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": { "name": "waits", "namespace": format!("tenant-{index}") },
        "spec": { "interval": "1h", "prune": true, "path": "./", "sourceRef": { "kind": "GitRepository", "name": "none" } }
    })
}

/// Creates a namespace as an owner that names no Tenant, so that Tenure has to find it.
async fn make_namespace(client: &kube::Client, index: usize, name: &str) -> anyhow::Result<()> {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let request = http::Request::post("/api/v1/namespaces")
        .header("content-type", "application/json")
        .header("impersonate-user", name_owner(index))
        .body(serde_json::to_vec(&object)?)?;
    let made = client.request::<Value>(request).await;
    made.map(drop).with_context(|| format!("namespace {name} by its owner"))
}

async fn delete_namespace(client: &kube::Client, name: &str) -> anyhow::Result<()> {
    let request = http::Request::delete(format!("/api/v1/namespaces/{name}"))
        .header("impersonate-user", name_owner(0))
        .body(Vec::new())?;
    let deleted = client.request::<Value>(request).await;
    deleted
        .map(drop)
        .with_context(|| format!("namespace {name} by its owner"))
}

fn make_tenant_api(client: &kube::Client) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "capsule.clastix.io".into(),
        version: "v1beta2".into(),
        api_version: "capsule.clastix.io/v1beta2".into(),
        kind: "Tenant".into(),
        plural: "tenants".into(),
    };
    Api::all_with(client.clone(), &resource)
}

fn has_size(tenant: &DynamicObject, size: i64) -> bool {
    tenant.data.pointer("/status/size").and_then(Value::as_i64) == Some(size) && is_ready(tenant)
}

/// Waits until this many Tenants are Ready, each with this many namespaces.
async fn until_sized(client: &kube::Client, count: usize, size: i64) -> anyhow::Result<()> {
    watch_until(make_tenant_api(client), count, |tenant| has_size(tenant, size)).await
}

/// Waits until one Tenant has this many namespaces.
async fn until_size(client: &kube::Client, index: usize, size: i64) -> anyhow::Result<()> {
    let name = format!("tenant-{index}");
    let mut changes = std::pin::pin!(kube::runtime::watcher::watch_object(make_tenant_api(client), &name));
    let watching = async {
        while let Some(change) = changes.next().await {
            if change?.is_some_and(|tenant| has_size(&tenant, size)) {
                return Ok(());
            }
        }
        anyhow::bail!("the watch ended")
    };
    tokio::time::timeout(Duration::from_secs(60), watching)
        .await
        .with_context(|| format!("{name} has not come to {size} namespaces"))?
}
