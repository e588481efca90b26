//! `cargo xtask differential`: random stories, or recorded ones, told to the embedded server and to a real one.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Parser;
use serde_json::json;
use tenure_differential::{Faults, Finding, Outcome, Plan, Real, Report, Servers, compare, run};
use tenure_testkit::KubernetesBinaries;
use tenure_testkit::exchange::Step;

/// Compare the embedded control plane with a real kube-apiserver.
#[derive(Parser)]
struct Arguments {
    /// How many random stories.
    #[arg(long, default_value_t = 1000)]
    sequences: u64,
    /// The seed of the first story.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this kind; may be given several times.
    #[arg(long = "kind")]
    kinds: Vec<String>,
    /// How much of what is sent is meant to be refused.
    #[arg(long, value_enum, default_value_t = Faults::Many)]
    faults: Faults,
    /// How many stories at once.
    #[arg(long, default_value_t = 8)]
    parallel: usize,
    /// The kubeconfig of a real server that runs already, without controllers, and of which nothing else is expected.
    #[arg(long)]
    kubernetes: Option<PathBuf>,
    /// The folder with kube-apiserver, kube-controller-manager and etcd; else TENURE_KUBERNETES_BIN.
    #[arg(long)]
    bin: Option<PathBuf>,
    /// A recorded story to tell instead of random ones.
    #[arg(long)]
    replay: Option<PathBuf>,
    /// A folder for the shortest story of each difference, in the form of the recorded exchanges.
    #[arg(long)]
    out: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let real = match (&arguments.kubernetes, &arguments.bin) {
        (Some(path), _) => Real::Kubeconfig(path.clone()),
        (None, Some(folder)) => Real::Binaries(KubernetesBinaries::in_folder(folder)?),
        (None, None) => Real::Binaries(KubernetesBinaries::find()?.context(
            "which real server? --kubernetes KUBECONFIG, --bin DIR or TENURE_KUBERNETES_BIN; e2e/kubernetes/README.md says how to get one",
        )?),
    };
    let servers = Servers::start(&real).await?;
    let differs = match &arguments.replay {
        Some(path) => {
            let steps: Vec<Step> = serde_json::from_slice(&std::fs::read(path)?)?;
            let outcome = run(&servers, &steps).await?;
            print(&mut std::io::stdout().lock(), &outcome)?;
            outcome.difference.is_some()
        }
        None => {
            let plan = Plan {
                sequences: arguments.sequences,
                seed: arguments.seed,
                kinds: arguments.kinds,
                faults: arguments.faults,
                parallel: arguments.parallel,
            };
            let report = compare(&servers, &plan).await?;
            print_report(&report, arguments.out.as_deref())?;
            !report.findings.is_empty()
        }
    };
    servers.close().await;
    if differs {
        bail!("the two servers differ");
    }
    Ok(())
}

fn print_report(report: &Report, out: Option<&std::path::Path>) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let mut findings: Vec<(&String, &Finding)> = report.findings.iter().collect();
    findings.sort_by_key(|(_, finding)| std::cmp::Reverse(finding.count));
    for (number, (signature, finding)) in findings.iter().enumerate() {
        writeln!(
            stdout,
            "\n## {signature}: {} times, first with seed {}",
            finding.count, finding.seed
        )?;
        print(&mut stdout, &finding.shortest)?;
        if let Some(folder) = out {
            std::fs::create_dir_all(folder)?;
            let story = serde_json::to_string_pretty(&finding.shortest.recorded)?;
            std::fs::write(folder.join(format!("{number}.json")), story)?;
        }
    }
    writeln!(
        stdout,
        "\n{} stories, {} requests ({} accepted), {} stories differ in {} ways",
        report.stories,
        report.requests,
        report.accepted,
        findings.iter().map(|(_, finding)| finding.count).sum::<usize>(),
        findings.len(),
    )?;
    Ok(())
}

/// A story in short, and what differs at its end.
fn print(out: &mut impl std::io::Write, outcome: &Outcome) -> anyhow::Result<()> {
    for step in &outcome.recorded {
        let body = match &step.edit {
            Some(edit) => json!({"edit": edit}),
            None => step.body.clone(),
        };
        let status = step.want.get("status").cloned().unwrap_or_default();
        let kind = step.headers.get("content-type").map(String::as_str).unwrap_or_default();
        writeln!(out, "  {} {} {kind} {body} -> {status}", step.method, step.path)?;
    }
    for (path, want, got) in outcome.difference.iter().flat_map(|difference| &difference.found) {
        writeln!(out, "    {path}\n      real     {want}\n      embedded {got}")?;
    }
    Ok(())
}
