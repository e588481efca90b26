//! Measures the program from outside, as its users meet it: whole processes, over the network, with the memory and CPU that the operating system counted. The bench is no
//! test: no figure passes or fails.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};

mod access;
mod control_plane;
mod crash;
mod hostile;
mod kubernetes;
mod lanes;
mod load;
mod process;
mod reconcile;
mod rendering;
mod report;
mod single;
mod stage;
mod tenancy;
mod turns;
mod watching;

/// The parts of the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Ready time, memory, requests a second, watch latency, restart.
    ControlPlane,
    /// Kustomizations from cold, resync, commit to applied, drift; a push that reaches a Receiver; one large Kustomization.
    Reconcile,
    /// `tenure run` on a kube-apiserver, and with --flux Flux's controllers on another; not part of "all". Needs --kubernetes.
    Beside,
    /// `tenure build` beside `kustomize build`.
    Kustomize,
    /// `kill -9` under write load; not part of "all".
    Crash,
    /// The cost of a hostile tenant's loads for two others; not part of "all".
    Hostile,
    /// How a lane that is killed, stopped, out of memory or busy delays another tenant, and what lanes cost at the start; not part of "all".
    Lanes,
    /// Credentials at a Git host: created, checked again, replaced; not part of "all".
    Access,
    /// Decisions about writes; Tenants and their namespaces from nothing, and the cost of creating and deleting namespaces beside many; not part of "all".
    Tenancy,
}

/// Measures `tenure` and prints a Markdown table.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench")]
struct Arguments {
    /// Parts to measure; default: all.
    suites: Vec<Suite>,
    /// The program to measure.
    #[arg(long, value_name = "FILE", default_value = "target/release/tenure")]
    program: PathBuf,
    /// Kubeconfig of a real kube-apiserver on this machine, measured in the same run. It gets a namespace `bench`. Its memory and its restart are not measured:
    /// --kubernetes does that.
    #[arg(long, value_name = "FILE", conflicts_with = "kubernetes")]
    against: Option<PathBuf>,
    /// Folder with the programs `kube-apiserver` and `etcd`, which the bench starts, measures in the same run, and ends.
    #[arg(long, value_name = "DIR")]
    kubernetes: Option<PathBuf>,
    /// In `access`: run the controllers in a process of their own, `tenure run`, and report its memory and processor time.
    #[arg(long)]
    apart: bool,
    /// Number of stored ConfigMaps for the restart; 0 skips it.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    stored: usize,
    /// Number of kills in `crash`.
    #[arg(long, value_name = "COUNT", default_value_t = 300)]
    times: usize,
    /// Numbers of Kustomizations, one pass each.
    #[arg(long, value_delimiter = ',', default_value = "100,500")]
    kustomizations: Vec<usize>,
    /// Kinds of sources in `reconcile`, one pass each.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "git,oci")]
    source: Vec<reconcile::store::Kind>,
    /// Folder with Flux's `source-controller` and `kustomize-controller`, and their definitions in `crds`.
    #[arg(long, value_name = "DIR", env = "TENURE_BESIDE")]
    flux: Option<PathBuf>,
    /// A further argument of Flux's kustomize-controller in `beside`, such as --concurrent=20; repeatable.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    flux_argument: Vec<String>,
    /// The real kustomize.
    #[arg(long, value_name = "FILE", default_value = "kustomize")]
    kustomize: PathBuf,
    /// A folder of real repositories; each kustomization in it that builds is measured.
    #[arg(long, value_name = "DIR", env = "TENURE_REAL_REPOS")]
    repositories: Option<PathBuf>,
    /// Number of commits at rest, and of commits under each load, in `hostile` and `lanes`.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    samples: usize,
    /// Only loads of `hostile`, and parts of `lanes` and of `reconcile` (kustomizations, push, large), whose names contain this.
    #[arg(long, value_name = "TEXT")]
    load: Option<String>,
    /// Numbers of Tenants, one pass each, in `tenancy`.
    #[arg(long, value_delimiter = ',', default_value = "200")]
    tenants: Vec<usize>,
    /// Number of stored Tenants during the checks of writes, in `tenancy`.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    stored_tenants: usize,
    /// Number of reviews of each client of the webhook, and of requests in a pass, in `tenancy`.
    #[arg(long, value_name = "COUNT", default_value_t = 2_000)]
    writes: usize,
    /// Number of projects with credentials, in `access`.
    #[arg(long, value_name = "COUNT", default_value_t = 499)]
    projects: usize,
    /// Number of namespaces with a credential of each project, in `access`.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    namespaces: usize,
    /// Number of builds of each folder by each program.
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    runs: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    if let Some(code) = single::as_parent() {
        return Ok(code);
    }
    tokio::runtime::Runtime::new()?.block_on(measure())?;
    Ok(ExitCode::SUCCESS)
}

async fn measure() -> anyhow::Result<()> {
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    let arguments = Arguments::parse();
    let all = arguments.suites.is_empty();
    let mut report = report::Report::default();
    if all || arguments.suites.contains(&Suite::ControlPlane) {
        let other =
            control_plane::ComparedServer::start(arguments.against.as_deref(), arguments.kubernetes.as_deref()).await?;
        control_plane::measure(&arguments.program, other, arguments.stored, &mut report).await?;
    }
    if all || arguments.suites.contains(&Suite::Reconcile) {
        let only = arguments.load.as_deref();
        reconcile::measure(
            &arguments.program,
            &arguments.kustomizations,
            &arguments.source,
            only,
            &mut report,
        )
        .await?;
    }
    if arguments.suites.contains(&Suite::Beside) {
        let programs = reconcile::beside::Programs {
            program: &arguments.program,
            kubernetes: arguments.kubernetes.as_deref().context("--kubernetes is missing")?,
            flux: arguments.flux.as_deref(),
        };
        for count in &arguments.kustomizations {
            reconcile::beside::measure(&programs, &arguments.flux_argument, *count, &mut report).await?;
        }
    }
    if arguments.suites.contains(&Suite::Crash) {
        crash::measure(&arguments.program, arguments.times, &mut report).await?;
    }
    if arguments.suites.contains(&Suite::Hostile) {
        hostile::measure(
            &arguments.program,
            arguments.samples,
            arguments.load.as_deref(),
            &mut report,
        )
        .await?;
    }
    if arguments.suites.contains(&Suite::Lanes) {
        let only = arguments.load.as_deref();
        let programs = (arguments.program.as_path(), arguments.kubernetes.as_deref());
        lanes::measure(programs, arguments.samples, only, &mut report).await?;
    }
    if arguments.suites.contains(&Suite::Tenancy) {
        let load = tenancy::Load {
            stored: arguments.stored_tenants,
            writes: arguments.writes,
        };
        tenancy::measure(&arguments.program, &arguments.tenants, &load, &mut report).await?;
    }
    if arguments.suites.contains(&Suite::Access) {
        let extent = access::Extent {
            projects: arguments.projects,
            namespaces: arguments.namespaces,
            is_apart: arguments.apart,
        };
        access::measure(&arguments.program, &extent, &mut report).await?;
    }
    if !report.is_empty() {
        print(&report.markdown());
    }
    if all || arguments.suites.contains(&Suite::Kustomize) {
        print(&rendering::measure(&rendering::Contest {
            program: &arguments.program,
            against: &arguments.kustomize,
            repositories: arguments.repositories.as_deref(),
            runs: arguments.runs,
        })?);
    }
    Ok(())
}

fn print(text: &str) {
    use std::io::Write;
    let _reader_gone = write!(std::io::stdout().lock(), "{text}");
}
