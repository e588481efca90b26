//! The control plane by itself, beside a real kube-apiserver where there is one: ready time, memory, requests a
//! second by verb and number of clients, the way of an event, and a restart with much stored.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::try_join_all;
use serde_json::json;

use crate::kubernetes::Kubernetes;
use crate::load::{Connection, Target};
use crate::process::ControlPlane;
use crate::report::{Report, megabytes, percentile, time};
use crate::watching;

/// Requests of one pass.
const REQUESTS: usize = 2_000;
/// Lists of one pass; each has as many objects as a pass creates.
const LISTS: usize = 100;

/// The server that ours is measured beside.
pub(crate) enum Other {
    /// None.
    Nobody,
    /// One that somebody else started.
    Running(PathBuf),
    /// One of the bench's own.
    Started(Kubernetes),
}

impl Other {
    /// The one that the flags name.
    pub(crate) async fn start(kubeconfig: Option<&Path>, programs: Option<&Path>) -> anyhow::Result<Self> {
        Ok(match (kubeconfig, programs) {
            (Some(kubeconfig), _) => Self::Running(kubeconfig.to_owned()),
            (None, Some(programs)) => Self::Started(Kubernetes::start(programs).await?),
            (None, None) => Self::Nobody,
        })
    }

    async fn target(&self) -> anyhow::Result<Option<Target>> {
        Ok(match self {
            Self::Nobody => None,
            Self::Running(kubeconfig) => Some(Target::read(kubeconfig).await?),
            Self::Started(kubernetes) => Some(Target::read(&kubernetes.kubeconfig()).await?),
        })
    }

    /// Memory of the server and of etcd, if they can be seen.
    fn memory(&self) -> anyhow::Result<Option<String>> {
        let Self::Started(kubernetes) = self else {
            return Ok(None);
        };
        let (server, etcd) = kubernetes.memory()?;
        Ok(Some(format!("{} + {}", megabytes(server), megabytes(etcd))))
    }
}

/// Measures into `report`, with `stored` ConfigMaps for the restart.
pub(crate) async fn measure(
    program: &Path,
    mut other: Other,
    stored: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut ready = Vec::new();
    for _ in 0..5 {
        ready.push(ControlPlane::start(program, &[]).await?.ready);
    }
    let other_ready = match &other {
        Other::Started(kubernetes) => Some(time(kubernetes.ready)),
        _ => None,
    };
    report.add(
        "start of the process to ready (ours: median of 5)",
        time(percentile(&mut ready, 0.5)),
        other_ready,
        "100 ms",
    );

    let mut plane = ControlPlane::start(program, &[]).await?;
    // Long enough for start-up work to settle; nothing depends on it but the figure.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let memory = |plane: &ControlPlane| plane.memory().map(|(now, _)| megabytes(now));
    report.add(
        "idle memory, controllers running",
        memory(&plane)?,
        other.memory()?,
        "40 MB",
    );

    let ours = Target::read(&plane.kubeconfig()).await?;
    let theirs = other.target().await?;
    for clients in [1, 16] {
        throughput(&ours, theirs.as_ref(), clients, report).await?;
    }
    report.add("memory after these requests", memory(&plane)?, other.memory()?, "");

    for watchers in [1, 500] {
        let namespace = format!("bench-watch-{watchers}");
        let mut shown = Vec::new();
        for target in [Some(&ours), theirs.as_ref()].into_iter().flatten() {
            make_namespace(target, &namespace).await?;
            let mut latencies = watching::latencies(target, &namespace, watchers).await?;
            shown.push(format!(
                "{}, {}",
                time(percentile(&mut latencies, 0.5)),
                time(percentile(&mut latencies, 0.99))
            ));
        }
        let mut shown = shown.into_iter();
        report.add(
            format!(
                "write sent to event read, {watchers} watcher{} (p50, p99)",
                plural(watchers)
            ),
            shown.next().unwrap_or_default(),
            shown.next(),
            "p99 5 ms",
        );
    }
    if stored > 0 {
        restart(&mut plane, &mut other, stored, report).await?;
    }
    Ok(())
}

/// Requests a second by verb.
async fn throughput(ours: &Target, theirs: Option<&Target>, clients: usize, report: &mut Report) -> anyhow::Result<()> {
    let namespace = format!("bench-{clients}-{}", std::process::id());
    let mut sides = Vec::new();
    for target in [Some(ours), theirs].into_iter().flatten() {
        make_namespace(target, &namespace).await?;
        sides.push(target.connections(clients).await?);
    }
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    for work in Work::ALL {
        let mut rates = Vec::new();
        for connections in &sides {
            rates.push(work.rate(connections, &path).await?);
        }
        let ours = rates.first().copied().unwrap_or_default();
        report.add(
            format!("{}, {clients} client{}", work.title(), plural(clients)),
            format!("{ours:.0}/s"),
            rates
                .get(1)
                .map(|theirs| format!("{theirs:.0}/s (ratio {:.1})", ours / theirs)),
            work.bar(),
        );
    }
    Ok(())
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// What a pass does, in the order in which the passes follow each other.
#[derive(Debug, Clone, Copy)]
enum Work {
    Create,
    Get,
    ApplyNew,
    ApplySame,
    ApplyChanging,
    List,
}

impl Work {
    const ALL: [Self; 6] = [
        Self::Create,
        Self::Get,
        Self::ApplyNew,
        Self::ApplySame,
        Self::ApplyChanging,
        Self::List,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Create => "durable creates, ConfigMaps of 0.5 KB",
            Self::Get => "gets",
            Self::ApplyNew => "applies of new objects",
            Self::ApplySame => "applies that change nothing",
            Self::ApplyChanging => "applies that change one field",
            Self::List => "lists of 500 objects out of 4,000",
        }
    }

    fn bar(self) -> &'static str {
        match self {
            Self::Create => "ratio 3",
            Self::ApplySame => "ratio 10",
            _ => "",
        }
    }

    /// One request: method, path, form and body.
    fn request(self, path: &str, client: usize, number: usize) -> (&'static str, String, &'static str, Bytes) {
        const JSON: &str = "application/json";
        const APPLY: &str = "application/apply-patch+yaml";
        let created = format!("created-{client}-{number}");
        let applied = format!("applied-{client}-{number}");
        let apply = |text: &str| {
            let url = format!("{path}/{applied}?fieldManager=bench&force=true");
            ("PATCH", url, APPLY, config_map(&applied, text))
        };
        match self {
            Self::Create => ("POST", path.to_owned(), JSON, config_map(&created, "x")),
            Self::Get => ("GET", format!("{path}/{created}"), "", Bytes::new()),
            Self::ApplyNew | Self::ApplySame => apply("x"),
            Self::ApplyChanging => apply("y"),
            Self::List => ("GET", format!("{path}?limit=500"), "", Bytes::new()),
        }
    }

    /// Requests a second, over all clients together.
    async fn rate(self, connections: &[Connection], path: &str) -> anyhow::Result<f64> {
        let total = if matches!(self, Self::List) { LISTS } else { REQUESTS };
        let each = total / connections.len();
        let passes = connections.iter().enumerate().map(|(client, connection)| {
            let requests: Vec<_> = (0..each).map(|number| self.request(path, client, number)).collect();
            let connection = connection.clone();
            async move {
                for (method, path, form, body) in requests {
                    connection.call(method, &path, form, body).await?;
                }
                anyhow::Ok(())
            }
        });
        let passes: Vec<_> = passes.collect();
        let started = Instant::now();
        try_join_all(
            passes
                .into_iter()
                .map(tokio::spawn)
                .map(|task| async move { task.await? }),
        )
        .await?;
        Ok((each * connections.len()) as f64 / started.elapsed().as_secs_f64())
    }
}

/// A ConfigMap of half a kilobyte.
fn config_map(name: &str, text: &str) -> Bytes {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text.repeat(400)}});
    Bytes::from(object.to_string())
}

async fn make_namespace(target: &Target, name: &str) -> anyhow::Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let body = Bytes::from(object.to_string());
    let connection = target.connect().await?;
    connection
        .call("POST", "/api/v1/namespaces", "application/json", body)
        .await?;
    Ok(())
}

/// Stores `stored` ConfigMaps, and starts anew with them.
async fn restart(
    plane: &mut ControlPlane,
    other: &mut Other,
    stored: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    fill(&Target::read(&plane.kubeconfig()).await?, stored).await?;
    if let (Other::Started(_), Some(theirs)) = (&*other, other.target().await?) {
        fill(&theirs, stored).await?;
    }
    let memory = |plane: &ControlPlane| plane.memory().map(|(now, _)| megabytes(now));
    report.add(
        format!("memory with {stored} ConfigMaps of 0.5 KB, just stored"),
        memory(plane)?,
        other.memory()?,
        "400 MB",
    );
    report.add("files on disk with them", megabytes(on_disk(&plane.data())?), None, "");
    let ours = plane.restart().await?;
    let theirs = match other {
        Other::Started(kubernetes) => Some(time(kubernetes.restart().await?)),
        _ => None,
    };
    report.add("restart with them, until ready", time(ours), theirs, "3 s");
    tokio::time::sleep(Duration::from_secs(3)).await;
    report.add("memory after that restart", memory(plane)?, other.memory()?, "400 MB");
    Ok(())
}

/// Bytes in the store's files: the tables, and the log before them.
fn on_disk(data: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(data)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("objects") {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

async fn fill(target: &Target, stored: usize) -> anyhow::Result<()> {
    const CLIENTS: usize = 16;
    make_namespace(target, "bench-stored").await?;
    let path = "/api/v1/namespaces/bench-stored/configmaps";
    let connections = target.connections(CLIENTS).await?;
    try_join_all(
        connections
            .into_iter()
            .enumerate()
            .map(|(client, connection)| async move {
                for number in (client..stored).step_by(CLIENTS) {
                    let body = config_map(&format!("stored-{number}"), "z");
                    connection.call("POST", path, "application/json", body).await?;
                }
                anyhow::Ok(())
            }),
    )
    .await?;
    Ok(())
}
