//! Measures the program from outside, as its users meet it: whole processes, over the network, with the memory and
//! CPU that the operating system counted. Refuses to be a test: nothing here passes or fails.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

mod control_plane;
mod process;
mod reconcile;
mod report;

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Ready time, idle memory, creates a second.
    ControlPlane,
    /// Kustomizations from cold, resync, commit to applied, drift.
    Reconcile,
}

/// Measures `tenure` and prints a Markdown table.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench")]
struct Arguments {
    /// What to measure; all when none is named.
    suites: Vec<Suite>,
    /// The program to measure.
    #[arg(long, value_name = "FILE", default_value = "target/release/tenure")]
    program: PathBuf,
    /// Kubeconfig of a real kube-apiserver on this machine, measured in the same run. It gets ConfigMaps in `default`.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// How many Kustomizations, one pass each.
    #[arg(long, value_delimiter = ',', default_value = "100,500")]
    kustomizations: Vec<usize>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    let arguments = Arguments::parse();
    let all = arguments.suites.is_empty();
    let mut report = report::Report::default();
    if all || arguments.suites.contains(&Suite::ControlPlane) {
        control_plane::measure(&arguments.program, arguments.against.as_deref(), &mut report).await?;
    }
    if all || arguments.suites.contains(&Suite::Reconcile) {
        for count in &arguments.kustomizations {
            reconcile::measure(&arguments.program, *count, &mut report).await?;
        }
    }
    print(&report.markdown());
    Ok(())
}

fn print(text: &str) {
    use std::io::Write;
    let _reader_gone = write!(std::io::stdout().lock(), "{text}");
}
