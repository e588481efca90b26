//! The control plane by itself, beside a real kube-apiserver if there is one: ready time, memory, requests per second by verb and number of clients, the latency of
//! events, and a restart with many stored objects.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::try_join_all;
use serde_json::json;

use crate::kubernetes::Kubernetes;
use crate::load::{Connection, Target};
use crate::process::ControlPlane;
use crate::report::{Report, find_percentile, format_megabytes, format_time};
use crate::watching;

/// Passes of each kind of request by each server. The servers alternate, so that other load of the machine affects both.
const ROUNDS: usize = 5;
/// Requests of one pass.
const REQUESTS: usize = 2_000;
/// Lists of one pass.
const LISTS: usize = 100;
/// The shortest time of a pass with repeatable requests: 2,000 of ours end too soon for a precise time.
const AT_LEAST: Duration = Duration::from_secs(1);
/// Rounds of a latency measurement by each server, alternating.
const WATCH_ROUNDS: usize = 3;

/// The kube-apiserver with which the embedded control plane is compared.
pub(crate) enum ComparedServer {
    /// No server.
    Nobody,
    /// A server that runs already.
    Running(PathBuf),
    /// A server that the bench started.
    Started(Kubernetes),
}

impl ComparedServer {
    /// Returns the server that the flags name.
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

    /// Returns the memory of the server and of etcd, if it can be read.
    fn memory(&self) -> anyhow::Result<Option<String>> {
        let Self::Started(kubernetes) = self else {
            return Ok(None);
        };
        let (server, etcd) = kubernetes.memory()?;
        Ok(Some(format!(
            "{} + {}",
            format_megabytes(server),
            format_megabytes(etcd)
        )))
    }
}

/// Measures into `report`, with `stored` ConfigMaps for the restart.
pub(crate) async fn measure(
    program: &Path,
    mut other: ComparedServer,
    stored: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut ready = Vec::new();
    for _ in 0..5 {
        ready.push(ControlPlane::start(program, &[]).await?.ready);
    }
    let other_ready = match &other {
        ComparedServer::Started(kubernetes) => Some(format_time(kubernetes.ready)),
        _ => None,
    };
    report.add(
        "start of the process to ready (ours: median of 5)",
        format_time(find_percentile(&mut ready, 0.5)),
        other_ready,
        "100 ms",
    );

    let mut plane = ControlPlane::start(program, &[]).await?;
    // Long enough for start-up work to settle; only this figure depends on it.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let memory = |plane: &ControlPlane| plane.memory().map(|(now, _)| format_megabytes(now));
    report.add(
        "idle memory, controllers running",
        memory(&plane)?,
        other.memory()?,
        "45 MB",
    );

    let ours = Target::read(&plane.kubeconfig()).await?;
    let theirs = other.target().await?;
    for clients in [1, 16] {
        measure_throughput(&ours, theirs.as_ref(), clients, report).await?;
    }
    report.add("memory after these requests", memory(&plane)?, other.memory()?, "");

    for watchers in [1, 500] {
        measure_latency(&ours, theirs.as_ref(), watchers, report).await?;
    }
    if stored > 0 {
        measure_restart(&mut plane, &mut other, stored, report).await?;
    }
    Ok(())
}

/// Measures the latency of events: the medians of the rounds' p50 and p99.
async fn measure_latency(
    ours: &Target,
    theirs: Option<&Target>,
    watchers: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut sides: Vec<_> = [Some(ours), theirs]
        .into_iter()
        .flatten()
        .map(|target| (target, Vec::new(), Vec::new()))
        .collect();
    for round in 0..WATCH_ROUNDS {
        let namespace = format!("bench-watch-{watchers}-{round}");
        for (target, middles, tails) in &mut sides {
            make_namespace(target, &namespace).await?;
            let mut latencies = watching::measure_latencies(target, &namespace, watchers).await?;
            middles.push(find_percentile(&mut latencies, 0.5));
            tails.push(find_percentile(&mut latencies, 0.99));
        }
    }
    let mut shown = sides.into_iter().map(|(_, mut middles, mut tails)| {
        format!(
            "{}, {}",
            format_time(find_percentile(&mut middles, 0.5)),
            format_time(find_percentile(&mut tails, 0.5))
        )
    });
    report.add(
        format!(
            "write sent to event read, {watchers} watcher{} (p50, p99)",
            write_plural(watchers)
        ),
        shown.next().unwrap_or_default(),
        shown.next(),
        "p99 5 ms",
    );
    Ok(())
}

/// Measures requests per second by verb: the medians of the rounds.
async fn measure_throughput(
    ours: &Target,
    theirs: Option<&Target>,
    clients: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let namespace = format!("bench-{clients}-{}", std::process::id());
    let mut sides = Vec::new();
    for target in [Some(ours), theirs].into_iter().flatten() {
        make_namespace(target, &namespace).await?;
        sides.push((target.connections(clients).await?, Vec::new()));
    }
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    for work in Work::ALL {
        for round in 0..ROUNDS {
            for (connections, rates) in &mut sides {
                rates.push(work.rate(connections, &path, round).await?);
            }
        }
        let mut medians = sides.iter_mut().map(|(_, rates)| find_median(std::mem::take(rates)));
        let ours = medians.next().unwrap_or_default();
        report.add(
            format!("{}, {clients} client{}", work.title(), write_plural(clients)),
            format!("{ours:.0}/s"),
            medians
                .next()
                .map(|theirs| format!("{theirs:.0}/s (ratio {:.1})", ours / theirs)),
            work.bar(),
        );
    }
    Ok(())
}

fn find_median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

fn write_plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// The kind of request that a pass sends repeatedly, in the order of the passes.
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
            Self::List => "lists of 500 objects out of 20,000",
        }
    }

    fn bar(self) -> &'static str {
        match self {
            Self::Create => "ratio 3",
            Self::ApplySame => "ratio 10",
            _ => "",
        }
    }

    /// Checks whether the same request may be repeated with the same effect.
    fn repeats(self) -> bool {
        matches!(self, Self::Get | Self::ApplySame | Self::List)
    }

    /// Makes one request: method, path, form and body.
    fn request(
        self,
        path: &str,
        round: usize,
        client: usize,
        number: usize,
    ) -> (&'static str, String, &'static str, Bytes) {
        const JSON: &str = "application/json";
        const APPLY: &str = "application/apply-patch+yaml";
        let created = format!("created-{round}-{client}-{number}");
        let applied = format!("applied-{round}-{client}-{number}");
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

    /// Measures requests per second, over all clients together.
    async fn rate(self, connections: &[Connection], path: &str, round: usize) -> anyhow::Result<f64> {
        let total = if matches!(self, Self::List) { LISTS } else { REQUESTS };
        let each = total / connections.len();
        let passes = connections.iter().enumerate().map(|(client, connection)| {
            let requests: Vec<_> = (0..each)
                .map(|number| self.request(path, round, client, number))
                .collect();
            (connection.clone(), requests)
        });
        let passes: Vec<_> = passes.collect();
        let started = Instant::now();
        let tasks = passes.into_iter().map(|(connection, requests)| async move {
            let pass = async move {
                let mut sent = 0_usize;
                loop {
                    for (method, path, form, body) in &requests {
                        connection.call(method, path, form, body.clone()).await?;
                    }
                    sent += requests.len();
                    if !self.repeats() || started.elapsed() >= AT_LEAST {
                        return anyhow::Ok(sent);
                    }
                }
            };
            tokio::spawn(pass).await?
        });
        let sent: usize = try_join_all(tasks).await?.into_iter().sum();
        Ok(sent as f64 / started.elapsed().as_secs_f64())
    }
}

/// Makes a ConfigMap of half a kilobyte.
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

/// Stores `stored` ConfigMaps, and restarts with them.
async fn measure_restart(
    plane: &mut ControlPlane,
    other: &mut ComparedServer,
    stored: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    fill_store(&Target::read(&plane.kubeconfig()).await?, stored).await?;
    if let (ComparedServer::Started(_), Some(theirs)) = (&*other, other.target().await?) {
        fill_store(&theirs, stored).await?;
    }
    let memory = |plane: &ControlPlane| plane.memory().map(|(now, _)| format_megabytes(now));
    report.add(
        format!("memory with {stored} ConfigMaps of 0.5 KB, just stored"),
        memory(plane)?,
        other.memory()?,
        "400 MB",
    );
    report.add(
        "files on disk with them",
        format_megabytes(on_disk(&plane.data())?),
        None,
        "",
    );
    let ours = plane.restart().await?;
    let theirs = match other {
        ComparedServer::Started(kubernetes) => Some(format_time(kubernetes.restart().await?)),
        _ => None,
    };
    report.add("restart with them, until ready", format_time(ours), theirs, "3 s");
    tokio::time::sleep(Duration::from_secs(3)).await;
    report.add("memory after that restart", memory(plane)?, other.memory()?, "400 MB");
    Ok(())
}

/// Returns the bytes of the store's files: the tables, and the log before them.
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

async fn fill_store(target: &Target, stored: usize) -> anyhow::Result<()> {
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
