//! The controllers of `tenure run`, and Flux's own, on a real kube-apiserver: one after the other, each on a new server, with the same repository and the same
//! Kustomizations. The bench never stops a server that it did not start.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use kube::api::{Api, Patch, PatchParams};
use serde_json::Value;
use tenure_git_server::{GitServer, Options};

use super::Scope;
use super::objects::{
    ask_for, count_requests, create_object, make_files, make_kustomization, prepare_objects, until_applied,
    until_handled, until_ready,
};
use super::store::git_repository;
use tenure_test_ports::reserve_port;

use crate::kubernetes::Kubernetes;
use crate::process::{self, cpu_of, memory_of, own_memory_of, wait_for_ready};
use crate::report::{Report, format_megabytes, format_time};

/// The interval of objects, so that nothing is reconciled again during the measurement.
const INTERVAL: Duration = Duration::from_secs(3600);

/// The idle time before memory at rest is read.
const REST: Duration = Duration::from_secs(15);

/// The value of a reconciliation request while no controller runs.
const MEANWHILE: &str = "while nobody ran";

/// The longest time for controllers to end after the request.
const GRACE: Duration = Duration::from_secs(5);

/// The paths of the programs that the comparison starts.
pub(crate) struct Programs<'a> {
    /// Tenure.
    pub(crate) program: &'a Path,
    /// The folder with kube-apiserver, kube-controller-manager and etcd.
    pub(crate) kubernetes: &'a Path,
    /// The folder with Flux's controllers and, in `crds`, their definitions; without it, only Tenure is measured.
    pub(crate) flux: Option<&'a Path>,
}

/// The side that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side<'a> {
    Flux(&'a Path),
    Tenure,
}

/// The times, processor times, request counts and memory of one side's controllers.
struct Figures {
    cold: Duration,
    controllers: Duration,
    server: Duration,
    requests: u64,
    peak: u64,
    commit: Duration,
    restart: Duration,
    /// The time until a Kustomization is reconciled that was requested while no controller ran.
    at_work: Duration,
    restarted: u64,
    /// The part of it that is not pages of files.
    own: u64,
}

/// Measures `count` Kustomizations of four objects with each side; `tuned` are further arguments of Flux's kustomize-controller.
pub(crate) async fn measure(
    programs: &Programs<'_>,
    tuned: &[String],
    count: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let ours = measure_side(programs, Side::Tenure, tuned, count)
        .await
        .context("tenure run")?;
    let theirs = match programs.flux {
        Some(flux) => match measure_side(programs, Side::Flux(flux), tuned, count).await {
            Ok(figures) => Some(figures),
            // Tenure's figures are kept even if Flux fails.
            Err(error) => {
                let what = format!("{count} through kube-apiserver: Flux came to no end");
                report.add(what, String::new(), Some(format!("{error:#}")), "");
                None
            }
        },
        None => None,
    };
    let mut add = |what: &str, value: &dyn Fn(&Figures) -> String, part: Option<f64>, bar| {
        let theirs = theirs.as_ref().zip(part);
        report.add(
            format!("{count} through kube-apiserver: {what}"),
            value(&ours),
            theirs.map(|(theirs, part)| format!("{} (part {part:.2})", value(theirs))),
            bar,
        );
    };
    let part = |value: &dyn Fn(&Figures) -> f64| {
        let theirs = theirs.as_ref()?;
        Some(value(&ours) / value(theirs).max(f64::EPSILON))
    };
    let seconds = |value: Duration| value.as_secs_f64();
    add(
        "from cold to Ready",
        &|side| format_time(side.cold),
        part(&|side| seconds(side.cold)),
        "part 0.2",
    );
    add(
        "CPU of the controllers",
        &|side| format_time(side.controllers),
        part(&|side| seconds(side.controllers)),
        "part 0.1",
    );
    add(
        "CPU of the server and etcd",
        &|side| format_time(side.server),
        part(&|side| seconds(side.server)),
        "part 0.33",
    );
    let each = |side: &Figures| side.requests as f64 / count.max(1) as f64;
    add(
        "requests each, watches and all",
        &|side| format!("{:.1}", each(side)),
        part(&|side| each(side)),
        "16",
    );
    add(
        "peak memory of the controllers",
        &|side| format_megabytes(side.peak),
        part(&|side| side.peak as f64),
        "",
    );
    add(
        "a commit that changes all, until all have it",
        &|side| format_time(side.commit),
        part(&|side| seconds(side.commit)),
        "",
    );
    add(
        "restarted controllers, until they say that they are ready",
        &|side| format_time(side.restart),
        part(&|side| seconds(side.restart)),
        "",
    );
    add(
        "restarted controllers, until one Kustomization that was asked for meanwhile is reconciled",
        &|side| format_time(side.at_work),
        part(&|side| seconds(side.at_work)),
        "1 s",
    );
    add(
        &format!("their memory {} s later", REST.as_secs()),
        &|side| {
            format!(
                "{}, {} of it without pages of the program",
                format_megabytes(side.restarted),
                format_megabytes(side.own)
            )
        },
        part(&|side| side.restarted as f64),
        "60 MB",
    );
    Ok(())
}

async fn measure_side(
    programs: &Programs<'_>,
    side: Side<'_>,
    tuned: &[String],
    count: usize,
) -> anyhow::Result<Figures> {
    let folder = tempfile::tempdir()?;
    let git = GitServer::start(folder.path().join("git"), Options::default()).await?;
    let repository = git.create("bench").await?;
    repository.commit(make_files(count), "the beginning").await?;
    let mut kubernetes = Kubernetes::start(programs.kubernetes).await?;
    kubernetes.start_manager().await?;
    let client = process::make_client(&kubernetes.kubeconfig()).await?;
    let place = Place {
        programs,
        side,
        tuned,
        kubeconfig: kubernetes.kubeconfig(),
        data: folder.path().to_owned(),
        source: format!("http://{}", git.http_address()),
    };
    place.install(&client).await?;
    let mut controllers = place.start().await?;
    prepare_objects(&client, &git_repository(&git.http_url("bench"), super::ASKED)).await?;

    let before = (controllers.cpu()?, kubernetes.cpu()?, count_requests(&client).await?);
    let started = Instant::now();
    for index in 0..count {
        create_object(&client, &make_kustomization(index, INTERVAL)).await?;
    }
    until_ready(&client, count).await?;
    let cold = started.elapsed();
    let after = (controllers.cpu()?, kubernetes.cpu()?, count_requests(&client).await?);
    let peak = controllers.memory()?.1;

    let last = repository.commit([Scope::All.edit("v1")], "another tag").await?;
    let committed = Instant::now();
    until_applied(&client, count, &last).await?;
    let commit = committed.elapsed();

    controllers.stop_processes();
    let last = format!("app-{}", count.saturating_sub(1));
    ask_for(&client, &last, MEANWHILE).await?;
    let restarted = Instant::now();
    let controllers = place.start().await?;
    let restart = restarted.elapsed();
    until_handled(&client, &last, MEANWHILE).await?;
    let at_work = restarted.elapsed();
    tokio::time::sleep(REST).await;
    Ok(Figures {
        cold,
        controllers: after.0.saturating_sub(before.0),
        server: after.1.saturating_sub(before.1),
        // The bench itself creates the Kustomizations.
        requests: after.2.saturating_sub(before.2).saturating_sub(count as u64),
        peak,
        commit,
        restart,
        at_work,
        restarted: controllers.memory()?.0,
        own: controllers.own_memory()?,
    })
}

/// The programs, the folder, the kubeconfig and the source with which one side's controllers are started.
struct Place<'a> {
    programs: &'a Programs<'a>,
    side: Side<'a>,
    tuned: &'a [String],
    kubeconfig: PathBuf,
    data: PathBuf,
    source: String,
}

impl Place<'_> {
    /// Installs the objects that the controllers need before their start.
    async fn install(&self, client: &kube::Client) -> anyhow::Result<()> {
        match self.side {
            Side::Flux(flux) => apply_definitions(client, &flux.join("crds")).await,
            Side::Tenure => process::install(self.programs.program, &self.kubeconfig, &[]),
        }
    }

    /// Starts the controllers, and waits until all are ready.
    async fn start(&self) -> anyhow::Result<Controllers> {
        let mut controllers = Controllers { children: Vec::new() };
        let mut probes = Vec::new();
        match self.side {
            Side::Flux(flux) => {
                let store = format!("127.0.0.1:{}", reserve_port());
                let storage = self.data.join("artifacts");
                std::fs::create_dir_all(&storage)?;
                let storage = [
                    format!("--storage-path={}", storage.display()),
                    format!("--storage-addr={store}"),
                    format!("--storage-adv-addr={store}"),
                ];
                for (name, arguments) in [
                    ("source-controller", storage.as_slice()),
                    ("kustomize-controller", self.tuned),
                ] {
                    let probe = format!("127.0.0.1:{}", reserve_port());
                    let mut command = Command::new(flux.join(name));
                    command
                        .args([
                            "--enable-leader-election=false",
                            "--events-addr=",
                            "--metrics-addr=0",
                            "--health-addr",
                        ])
                        .arg(&probe)
                        .args(arguments)
                        .env("KUBECONFIG", &self.kubeconfig)
                        .env("RUNTIME_NAMESPACE", "default");
                    controllers.start(command)?;
                    probes.push(probe);
                }
            }
            Side::Tenure => {
                let probe = format!("127.0.0.1:{}", reserve_port());
                let mut command = Command::new(self.programs.program);
                command
                    .args(["run", "--kubeconfig"])
                    .arg(&self.kubeconfig)
                    .arg("--data")
                    .arg(self.data.join("run"));
                command.args(["--allow-source", &self.source, "--health-address", &probe]);
                controllers.start(command)?;
                probes.push(probe);
            }
        }
        for probe in &probes {
            wait_for_ready(probe).await?;
        }
        Ok(controllers)
    }
}

/// The processes of one side.
struct Controllers {
    children: Vec<Child>,
}

impl Controllers {
    fn start(&mut self, mut command: Command) -> anyhow::Result<()> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        self.children.push(child);
        Ok(())
    }

    fn cpu(&self) -> anyhow::Result<Duration> {
        self.children.iter().map(|child| cpu_of(child.id())).sum()
    }

    /// Returns the resident and peak memory of all processes together.
    fn memory(&self) -> anyhow::Result<(u64, u64)> {
        let mut sum = (0, 0);
        for child in &self.children {
            let (now, peak) = memory_of(child.id())?;
            sum = (sum.0 + now, sum.1 + peak);
        }
        Ok(sum)
    }

    /// Returns the resident memory of all processes together, without pages of files.
    fn own_memory(&self) -> anyhow::Result<u64> {
        self.children.iter().map(|child| own_memory_of(child.id())).sum()
    }

    /// Asks all processes to end, as for a restart, and doesn't wait long: kustomize-controller takes up to ten minutes.
    fn stop_processes(&mut self) {
        for child in &self.children {
            let _already_gone = Command::new("kill").arg(child.id().to_string()).status();
        }
        let asked = Instant::now();
        for mut child in self.children.drain(..) {
            while asked.elapsed() < GRACE && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _already_gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.stop_processes();
    }
}

/// Applies all definitions in a folder of YAML files.
async fn apply_definitions(client: &kube::Client, folder: &Path) -> anyhow::Result<()> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let file = entry?.path();
        let text = std::fs::read_to_string(&file)?;
        let definition = read_definition(&text).with_context(|| file.display().to_string())?;
        let name = definition.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.with_context(|| format!("{}: no name", file.display()))?;
        api.patch(name, &PatchParams::apply("bench").force(), &Patch::Apply(&definition))
            .await?;
    }
    Ok(())
}

/// Reads the object in a file with one document.
fn read_definition(text: &str) -> anyhow::Result<Value> {
    let source = go_yaml::read::Source {
        file: 0,
        lines: go_yaml::read::Lines::After(0),
        maximum_nodes: 1_000_000,
        scanner: go_yaml::scalar::Dialect::V2,
    };
    let document = go_yaml::read::first_document(text, source).map_err(|error| anyhow!("{error:?}"))?;
    let document = document.context("nothing in it")?;
    go_yaml::json::inner_value(&document).map_err(|error| anyhow!("{error:?}"))
}
