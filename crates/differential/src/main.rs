//! `cargo xtask differential`: runs random or recorded stories on the embedded server and on a real one.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Parser;
use serde_json::json;
use tenure_differential::{
    Faults, Finding, Outcome, Plan, Real, Report, Servers, Story, compare_servers, read_stories, run,
};
use tenure_testkit::KubernetesBinaries;
use tenure_testkit::exchange::Step;

/// Compare the embedded control plane with a real kube-apiserver.
#[derive(Parser)]
struct Arguments {
    /// Number of random stories.
    #[arg(long, default_value_t = 1000)]
    sequences: u64,
    /// The seed of the first story.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use only this kind; repeatable.
    #[arg(long = "kind")]
    kinds: Vec<String>,
    /// How many requests are meant to be refused.
    #[arg(long, value_enum, default_value_t = Faults::Many)]
    faults: Faults,
    /// Number of stories at the same time.
    #[arg(long, default_value_t = 8)]
    parallel: usize,
    /// Kubeconfig of a real server that runs already, without controllers, for this comparison only.
    #[arg(long)]
    kubernetes: Option<PathBuf>,
    /// Folder with kube-apiserver, kube-controller-manager and etcd; default: TENURE_KUBERNETES_BIN.
    #[arg(long)]
    bin: Option<PathBuf>,
    /// File with recorded stories to run instead of random ones.
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Write the real server's answers into that file.
    #[arg(long, requires = "replay")]
    record: bool,
    /// File for the shortest story of each difference, one per line; existing lines stay.
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
        Some(path) => run_stories(&servers, path, arguments.record).await?,
        None => {
            let plan = Plan {
                sequences: arguments.sequences,
                seed: arguments.seed,
                kinds: arguments.kinds,
                faults: arguments.faults,
                parallel: arguments.parallel,
            };
            let report = compare_servers(&servers, &plan).await?;
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

/// Runs recorded stories, and returns whether one differs.
async fn run_stories(servers: &Servers, path: &Path, record: bool) -> anyhow::Result<bool> {
    let stories = read_stories(&std::fs::read_to_string(path)?)?;
    let mut differs = 0;
    let mut recorded = String::new();
    for story in &stories {
        let outcome = run(servers, &story.steps).await?;
        if outcome.difference.is_some() {
            differs += 1;
            let mut stdout = std::io::stdout().lock();
            writeln!(stdout, "\n## {}", story.title)?;
            print_story(&mut stdout, &outcome)?;
        }
        recorded.push_str(&write_line(&story.title, outcome.recorded)?);
    }
    if record {
        std::fs::write(path, recorded)?;
    }
    writeln!(
        std::io::stdout().lock(),
        "\n{} recorded stories, {differs} differ",
        stories.len()
    )?;
    Ok(differs > 0)
}

fn write_line(title: &str, steps: Vec<Step>) -> anyhow::Result<String> {
    let story = Story {
        title: title.to_owned(),
        steps,
    };
    Ok(format!("{}\n", serde_json::to_string(&story)?))
}

fn print_report(report: &Report, out: Option<&Path>) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let mut findings: Vec<(&String, &Finding)> = report.findings.iter().collect();
    findings.sort_by_key(|(_, finding)| std::cmp::Reverse(finding.count));
    let mut file = match out {
        Some(path) => Some(std::fs::OpenOptions::new().create(true).append(true).open(path)?),
        None => None,
    };
    for (signature, finding) in findings {
        writeln!(
            stdout,
            "\n## {signature}: {} times, first with seed {}",
            finding.count, finding.seed
        )?;
        print_story(&mut stdout, &finding.shortest)?;
        if let Some(file) = &mut file {
            file.write_all(write_line(signature, finding.shortest.recorded.clone())?.as_bytes())?;
        }
    }
    let differing: usize = report.findings.values().map(|finding| finding.count).sum();
    writeln!(
        stdout,
        "\n{} stories, {} requests ({} accepted; no answer of the real server {} times), {differing} stories differ in {} ways",
        report.stories,
        report.requests,
        report.accepted,
        report.unanswered,
        report.findings.len(),
    )?;
    Ok(())
}

/// Prints a story in short, and the difference at its end.
fn print_story(out: &mut impl std::io::Write, outcome: &Outcome) -> anyhow::Result<()> {
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
