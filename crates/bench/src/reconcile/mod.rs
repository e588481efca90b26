//! Reconciling: many Kustomizations from cold, an unchanged resync, a commit until it is applied, drift until it is corrected. Every Kustomization waits for health, acts
//! as a ServiceAccount, and applies four objects.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::process::ControlPlane;
use crate::report::{Report, find_percentile, format_megabytes, format_time};

use self::objects::{
    count_requests, create_object, kustomization_of, make_files, make_kustomization_api, prepare_objects,
    until_applied, until_ready,
};
use self::store::{Kind, Store};

pub(crate) mod beside;
mod large;
pub(crate) mod objects;
mod pushed;
pub(crate) mod store;

/// Long enough for the slowest machine; reaching it is an error, not a figure.
const PATIENCE: Duration = Duration::from_secs(600);

/// Edits whose correction is timed.
const DRIFTS: usize = 50;

/// Commits that are timed.
const COMMITS: usize = 10;

/// How often a source is fetched.
const ASKED: Duration = Duration::from_secs(1);

/// The interval of resyncs.
const RESYNC: Duration = Duration::from_secs(10);

/// With more Kustomizations than this, only their start is measured, without any resync.
const MANY: usize = 5_000;

/// Measures these numbers of Kustomizations, one pass for each number and kind of source, then a push to a Receiver, and one large Kustomization. With `only`, measures
/// the parts with this text in their names.
pub(crate) async fn measure(
    program: &Path,
    counts: &[usize],
    sources: &[Kind],
    only: Option<&str>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let wanted = |name: &str| only.is_none_or(|only| name.contains(only));
    for count in counts {
        for kind in sources {
            if wanted(&format!("{count} kustomizations")) {
                measure_many(program, *count, *kind, report).await?;
            }
        }
    }
    if wanted("push") {
        pushed::measure(program, report).await?;
    }
    if wanted("large") {
        large::measure(program, report).await?;
    }
    Ok(())
}

/// Measures `count` Kustomizations of four objects, with one source.
async fn measure_many(program: &Path, count: usize, kind: Kind, report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut store = Store::start(kind, folder.path()).await?;
    store.publish(make_files(count)).await?;
    let source = kind.source();
    // One process, whose memory and CPU can be read. `lanes` measures lanes as processes.
    let arguments = ["--lanes", "task", "--allow-source", &store.address()].map(str::to_owned);
    let plane = ControlPlane::start(program, &arguments).await?;
    let client = plane.client.clone();
    prepare_objects(&client, &store.source(ASKED)).await?;

    let cpu_before = plane.cpu()?;
    let requests_before = count_requests(&client).await?;
    let started = Instant::now();
    let interval = if count > MANY { 2 * PATIENCE } else { RESYNC };
    for index in 0..count {
        create_object(&client, &kustomization_of(source, index, interval)).await?;
    }
    until_ready(&client, count).await?;
    let wall = started.elapsed();
    let cpu = plane.cpu()?.saturating_sub(cpu_before);
    let bar = match count {
        100 => "3 s",
        1000 => "6 s",
        10_000 => "60 s",
        _ => "",
    };
    report.add(
        format!("{count} Kustomizations of 4 objects and one {source}, from cold to Ready"),
        format_time(wall),
        None,
        bar,
    );
    report.add(
        format!("{count} Kustomizations of one {source}: CPU of the whole control plane"),
        format!("{:.2} s", cpu.as_secs_f64()),
        None,
        "",
    );
    report.add(
        format!("{count} Kustomizations of one {source}: peak memory"),
        format_megabytes(plane.memory()?.1),
        None,
        match count {
            1000 => "150 MB",
            10_000 => "1 GB",
            _ => "",
        },
    );

    // The bench itself creates the Kustomizations.
    let requests = count_requests(&client)
        .await?
        .saturating_sub(requests_before)
        .saturating_sub(count as u64);
    report.add(
        format!("{count} Kustomizations of one {source}: requests each, watches and all"),
        format!("{:.1}", requests as f64 / count.max(1) as f64),
        None,
        "12",
    );
    if count > MANY {
        return Ok(());
    }

    let cpu_before = plane.cpu()?;
    let writes = measure_resync(&client).await?;
    let cpu = plane.cpu()?.saturating_sub(cpu_before);
    report.add(
        format!("{count} Kustomizations of one {source}: CPU of one of two such resyncs, with all else in its time"),
        format_time(cpu / 2),
        None,
        if count == 1000 { "2 s" } else { "" },
    );
    report.add(
        format!(
            "{count} Kustomizations of one {source}: writes in {} s of unchanged resyncs, one each {} s",
            2 * RESYNC.as_secs(),
            RESYNC.as_secs()
        ),
        writes.to_string(),
        None,
        "0",
    );

    for (what, scope) in [("all", Scope::All), ("one", Scope::One)] {
        let mut seen = measure_commits(&client, &mut store, count, scope).await?;
        for (until, samples, bar) in [
            ("it is applied", &mut seen.first, if count == 300 { "1 s" } else { "" }),
            ("all have that revision", &mut seen.all, ""),
        ] {
            report.add(
                format!(
                    "a commit that changes {what} of {count} Kustomizations of one {source} until {until}, source asked every 1 s (p50, p99 of {COMMITS})"
                ),
                format!(
                    "{}, {}",
                    format_time(find_percentile(samples, 0.5)),
                    format_time(find_percentile(samples, 0.99))
                ),
                None,
                if what == "one" { bar } else { "" },
            );
        }
    }
    // All Kustomizations are idle now. With other work in the queue, the result would be the wait in the queue.
    let mut drifts = measure_drifts(&client).await?;
    report.add(
        format!("drift put back, {count} Kustomizations of one {source} (p50, p99 of {DRIFTS})"),
        format!(
            "{}, {}",
            format_time(find_percentile(&mut drifts, 0.5)),
            format_time(find_percentile(&mut drifts, 0.99))
        ),
        None,
        "1 s",
    );
    Ok(())
}

/// Counts all writes during two resyncs, by the revision of the store.
async fn measure_resync(client: &kube::Client) -> anyhow::Result<u64> {
    let before = read_revision(client).await?;
    // The wait is the measurement: the writes in this time are counted.
    tokio::time::sleep(2 * RESYNC).await;
    Ok(read_revision(client).await?.saturating_sub(before))
}

async fn read_revision(client: &kube::Client) -> anyhow::Result<u64> {
    let list = make_kustomization_api(client)
        .list(&ListParams::default().limit(1))
        .await?;
    list.metadata
        .resource_version
        .context("no resourceVersion")?
        .parse()
        .context("resourceVersion")
}

/// The part of the repository that a commit changes.
#[derive(Clone, Copy)]
enum Scope {
    /// The base of all Kustomizations.
    All,
    /// The folder of one Kustomization.
    One,
}

impl Scope {
    /// Returns the changed file and its text: another tag of the image.
    fn edit(self, tag: &str) -> (String, String) {
        let (file, mut text) = match self {
            Self::All => ("base/kustomization.yaml", "resources:\n  - all.yaml\n".to_owned()),
            Self::One => (
                "apps/0/kustomization.yaml",
                make_files(1).remove("apps/0/kustomization.yaml").unwrap_or_default(),
            ),
        };
        text.push_str(&format!("images:\n  - name: registry.example/app\n    newTag: {tag}\n"));
        (file.to_owned(), text)
    }
}

/// The times after each commit.
#[derive(Default)]
struct Seen {
    /// Until the Deployment of the first Kustomization was changed.
    first: Vec<Duration>,
    /// Until all Kustomizations reported the revision as applied.
    all: Vec<Duration>,
}

/// Makes commits, each after everything is at rest.
async fn measure_commits(client: &kube::Client, store: &mut Store, count: usize, scope: Scope) -> anyhow::Result<Seen> {
    let mut seen = Seen::default();
    for number in 1..=COMMITS {
        let tag = match scope {
            Scope::All => format!("v{number}"),
            Scope::One => format!("w{number}"),
        };
        let last = store.publish([scope.edit(&tag)]).await?;
        let started = Instant::now();
        let wanted = format!("registry.example/app:{tag}");
        deployment_until(client, |deployment| read_image(deployment) == Some(wanted.as_str())).await?;
        seen.first.push(started.elapsed());
        until_applied(client, count, &last).await?;
        seen.all.push(started.elapsed());
    }
    Ok(seen)
}

/// Returns the store's revision. It is opaque to clients, but this server is Tenure's own.
fn number_of(resource_version: &Option<String>) -> u64 {
    resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

fn read_image(deployment: &Deployment) -> Option<&str> {
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

async fn measure_drifts(client: &kube::Client) -> anyhow::Result<Vec<Duration>> {
    let api: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client.clone(), "bench");
    let mut samples = Vec::new();
    for number in 0..DRIFTS {
        // Another object each time: repeated edits of one object look like a fight of two writers, which is slowed down on purpose.
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
