//! The cost of lanes at the start: the time until everything is reconciled, the memory of idle lanes, and a tenant's first commit, which has to start its lane.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options};

use super::Mode;
use super::processes::{list_lanes, proportional_memory};
use crate::load::{Connection, Target};
use crate::process::ControlPlane;
use crate::report::{Report, find_percentile, format_time};
use crate::stage::{PATIENCE, apply_object, kustomization_path, make_tenant, merge_object, source_path};

/// Numbers of tenants, each with a lane.
const TENANTS: [usize; 3] = [1, 10, 50];
/// The number of first commits that are timed.
const FIRST: usize = 20;
/// The idle time before memory is read.
const REST: Duration = Duration::from_secs(5);
/// The value with which all reconciliations are requested.
const ASKED: &str = "after-the-start";

pub(super) async fn measure(program: &Path, only: Option<&str>, report: &mut Report) -> anyhow::Result<()> {
    for mode in Mode::BOTH {
        for tenants in TENANTS {
            let name = format!("{}, start with {tenants} tenants", mode.flag());
            if only.is_none_or(|only| name.contains(only)) {
                measure_start(program, mode, tenants, report).await.context(name)?;
            }
        }
        let name = format!("{}, first commit", mode.flag());
        if only.is_none_or(|only| name.contains(only)) {
            measure_first_commits(program, mode, report).await.context(name)?;
        }
    }
    Ok(())
}

/// A control plane with many tenants, which all apply the same repository.
struct Town {
    plane: ControlPlane,
    git: GitServer,
    _folder: tempfile::TempDir,
}

impl Town {
    async fn start(program: &Path, mode: Mode) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let git = GitServer::start(folder.path(), Options::default()).await?;
        let repository = git.create("app").await?;
        let app = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata:\n  from: git\n";
        repository.commit([("app.yaml", app)], "the beginning").await?;
        let address = format!("http://{}", git.http_address());
        let arguments = ["--lanes", mode.flag(), "--allow-source", &address].map(str::to_owned);
        Ok(Self {
            plane: ControlPlane::start(program, &arguments).await?,
            git,
            _folder: folder,
        })
    }

    async fn connect(&self) -> anyhow::Result<Connection> {
        Target::read(&self.plane.kubeconfig()).await?.connect().await
    }

    /// Creates the source and the Kustomization of an existing tenant.
    async fn move_in(&self, admin: &Connection, tenant: &str) -> anyhow::Result<()> {
        let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "app", "namespace": tenant},
            "spec": {"interval": "1h", "timeout": "60s", "url": self.git.http_url("app"), "ref": {"branch": "main"}}});
        apply_object(admin, &source_path(tenant, "app"), &source).await?;
        let kustomization = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "app", "namespace": tenant},
            "spec": {"interval": "1h", "prune": true, "path": "./", "targetNamespace": tenant,
                "serviceAccountName": format!("{tenant}-gitops"), "sourceRef": {"kind": "GitRepository", "name": "app"}}});
        apply_object(admin, &kustomization_path(tenant, "app"), &kustomization).await
    }
}

/// Waits until this many Kustomizations satisfy a condition.
async fn wait_for(admin: &Connection, count: usize, is_wanted: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
    let path = "/apis/kustomize.toolkit.fluxcd.io/v1/kustomizations?watch=true";
    let following = async {
        let mut body = admin.send("GET", path, "", Bytes::new()).await?;
        let (mut seen, mut line) = (BTreeSet::new(), Vec::new());
        while seen.len() < count {
            let frame = body.frame().await.context("the watch ended")??;
            let Ok(data) = frame.into_data() else { continue };
            for part in data.split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(part);
                if line.ends_with(b"\n") {
                    let event: Value = serde_json::from_slice(&line)?;
                    line.clear();
                    let object = event.pointer("/object").unwrap_or(&Value::Null);
                    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
                    if is_wanted(object) {
                        seen.insert(namespace.unwrap_or_default().to_owned());
                    }
                }
            }
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE * 2, following)
        .await
        .context("not all Kustomizations came to it")?
}

fn is_ready(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        let field = |name: &str| condition.get(name).and_then(Value::as_str);
        field("type") == Some("Ready") && field("status") == Some("True")
    })
}

async fn measure_start(program: &Path, mode: Mode, tenants: usize, report: &mut Report) -> anyhow::Result<()> {
    let mut town = Town::start(program, mode).await?;
    let names: Vec<String> = (0..tenants).map(|number| format!("tenant-{number}")).collect();
    let admin = town.connect().await?;
    for name in &names {
        make_tenant(&admin, name).await?;
        town.move_in(&admin, name).await?;
    }
    wait_for(&admin, tenants, is_ready).await?;
    let ready = town.plane.restart().await?;
    let began = Instant::now();
    let admin = town.connect().await?;
    for name in &names {
        let patch = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": ASKED}}});
        merge_object(&admin, &kustomization_path(name, "app"), &patch).await?;
    }
    wait_for(&admin, tenants, |object| {
        object.pointer("/status/lastHandledReconcileAt").and_then(Value::as_str) == Some(ASKED) && is_ready(object)
    })
    .await?;
    let reconciled = ready + began.elapsed();
    tokio::time::sleep(REST).await;
    let hub = town.plane.process_id();
    let lanes = list_lanes(hub);
    let all: u64 = lanes
        .iter()
        .map(|(_, lane)| proportional_memory(lane.as_raw().unsigned_abs()))
        .sum();
    let each = all.checked_div(lanes.len() as u64).unwrap_or_default();
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1_048_576.0);
    report.add(
        format!(
            "lanes as {}, {tenants} tenants: start to ready, to all reconciled once more",
            mode.flag()
        ),
        format!("{}, {}", format_time(ready), format_time(reconciled)),
        None,
        "",
    );
    report.add(
        format!(
            "lanes as {}, {tenants} tenants: idle memory (Pss), the hub + {} lanes, each",
            mode.flag(),
            lanes.len()
        ),
        format!(
            "{} + {}, {}",
            megabytes(proportional_memory(hub)),
            megabytes(all),
            megabytes(each)
        ),
        None,
        "12 MB each",
    );
    Ok(())
}

async fn measure_first_commits(program: &Path, mode: Mode, report: &mut Report) -> anyhow::Result<()> {
    let town = Town::start(program, mode).await?;
    let admin = town.connect().await?;
    let mut times = Vec::new();
    for number in 0..FIRST {
        let name = format!("tenant-{number}");
        make_tenant(&admin, &name).await?;
        let began = Instant::now();
        town.move_in(&admin, &name).await?;
        wait_for(&admin, number + 1, is_ready).await?;
        times.push(began.elapsed());
    }
    report.add(
        format!("lanes as {}: a tenant's source and Kustomization made to applied for the first time, p50 and the longest of {FIRST}", mode.flag()),
        format!("{}, {}", format_time(find_percentile(&mut times, 0.5)), format_time(find_percentile(&mut times, 1.0))),
        None,
        "",
    );
    Ok(())
}
