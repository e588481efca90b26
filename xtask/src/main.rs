//! The project's automation: one subcommand per file. A plain `cargo build` and `cargo test` need none of it.

use clap::{Parser, Subcommand};

mod baseline;
mod bench;
mod cargo;
mod dist;
mod docs;
mod fuzz;
mod generate;
mod kustomize;
mod long;
mod picture;
mod record_kubernetes;
mod release;
mod scenarios;
mod suites;
mod tests;
mod tidy;
mod timings;
mod two_worlds;
#[cfg(test)]
mod workflows;

/// The tasks by occasion, printed below the list of all tasks.
const DAILY: &str = "\
While you change code:
  cargo test -p CRATE                 the tests of one crate
  cargo xtask scenarios NAME          scenarios on a real kube-apiserver
Before a commit:
  cargo fmt --all
  cargo clippy --workspace --all-targets --locked -- -D warnings
  cargo xtask generate                if a kind, a right or a flag changed
  cargo xtask tests                   all tests
  cargo xtask tidy                    what no compiler checks
  cargo xtask docs                    the book and its links; needs mdbook
Before a pull request:
  .ci/run                             all that CI does
Before a release:
  cargo xtask release --dry-run       everything of a release, on this machine
CONTRIBUTING.md explains them.";

/// Automation of the project.
#[derive(Parser)]
#[command(name = "cargo xtask", after_help = DAILY, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write the files that are generated from the types: all below `deploy`, and a page for each kind.
    Generate {
        /// Write nothing; fail if a file is not up to date.
        #[arg(long)]
        check: bool,
    },
    /// Build `docs` as a book into `target/book`, and check its links and anchors. mdbook is found in `PATH`, or in the folder that `TENURE_MDBOOK` names.
    Docs(docs::Docs),
    /// Record the answers of the real kustomize (on PATH) into the kustomize crate's corpus.
    Baseline {
        /// Only cases whose name contains this.
        only: Option<String>,
    },
    /// Build every kustomization below a folder with the real kustomize (on PATH) and with ours, and compare byte for byte.
    CompareKustomize(kustomize::Compare),
    /// Build random trees with the real kustomize (on PATH) and with ours, and compare byte for byte.
    FuzzKustomize(kustomize::Fuzz),
    /// Run fuzz targets with cargo-fuzz, each for a number of seconds.
    Fuzz(fuzz::Fuzz),
    /// Check what no compiler checks: layers, module docs, the map, sizes, forbidden words, plain sentences.
    Tidy {
        /// Check nothing; list the sentences that have to be read twice, in these files and folders (relative to the root), or in all.
        #[arg(long, value_name = "PATH", num_args = 0..)]
        plain: Option<Vec<String>>,
    },
    /// List the messages that the program can print to a user, each with its file and line.
    Messages {
        /// Only messages in these files and folders, relative to the root.
        #[arg(value_name = "PATH")]
        below: Vec<String>,
    },
    /// Measure the program from outside; see `cargo xtask bench --help`.
    #[command(disable_help_flag = true)]
    Bench {
        /// Arguments for the bench.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Send the same requests to the embedded control plane and to a real kube-apiserver; see `cargo xtask differential --help`.
    #[command(disable_help_flag = true)]
    Differential {
        /// Arguments for the comparison.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the demo, and draw its terminal for README into `docs/pictures/demo.svg`.
    Picture,
    /// Run all tests, some programs at once: the same as `cargo test --workspace`, in less time.
    Tests {
        /// Print the time of each program, and the slowest tests.
        #[arg(long)]
        timings: bool,
    },
    /// Run the scenarios on a real Kubernetes: on one that is started from the binaries in `TENURE_KUBERNETES_BIN`, or on any other.
    Scenarios {
        /// The kubeconfig of a cluster whose namespace `default` has the label `tenure.dev/disposable=true`.
        #[arg(long)]
        kubeconfig: Option<std::path::PathBuf>,
        /// Run the controllers as a process, `tenure run`, in scenarios that don't look into them. Applies to the controllers' own scenarios only.
        #[arg(long)]
        process: bool,
        /// Like --process, with lanes as in `tenure run --lanes`. For lanes in Pods, the suite is the kubelet.
        #[arg(long, value_name = "WHERE")]
        lanes: Option<String>,
        /// Print the time of each part, and the slowest scenarios.
        #[arg(long)]
        timings: bool,
        /// No scenario whose package and name begin with this, such as `controllers::alerts`. May be given several times.
        #[arg(long, value_name = "PACKAGE::NAME")]
        without: Vec<String>,
        /// Only scenarios whose name contains one of these.
        only: Vec<String>,
    },
    /// Run long tests: every kill and seed, all scenarios with all places of lanes, thousands of stories and trees.
    Long(long::Long),
    /// Run stories of a tenant alone and beside a hostile tenant, and compare both worlds.
    TwoWorlds(two_worlds::TwoWorlds),
    /// Write the files of a release into a folder: the program as one static file, checksums, its components, manual, completions.
    Dist(dist::Dist),
    /// Make everything that a release has: archives, the image and the chart for registries, lists of components, files for package managers, notes. `--dry-run` tries it on this machine.
    Release(Box<release::Release>),
    /// Install a release beside a control plane. `release --dry-run` runs it.
    #[command(hide = true)]
    ReleaseTrial(release::trial::ReleaseTrial),
    /// Make the API server's data from a recording of a real kube-apiserver and the Go modules of the same release.
    RecordKubernetes {
        /// Folder with `openapi/` and `tables/`.
        dump: std::path::PathBuf,
        /// Folder with the modules `api`, `apimachinery`, `apiextensions-apiserver` and `kube-aggregator`.
        go_modules: std::path::PathBuf,
        /// Where the data goes.
        #[arg(default_value = "crates/kinds/data")]
        out: std::path::PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Generate { check } => generate::run(check),
        Task::Docs(docs) => docs.run(),
        Task::Baseline { only } => baseline::run(only.as_deref()),
        Task::CompareKustomize(compare) => compare.run(),
        Task::FuzzKustomize(fuzz) => fuzz.run(),
        Task::Fuzz(fuzz) => fuzz.run(),
        Task::Tidy { plain: None } => tidy::run(),
        Task::Tidy { plain: Some(below) } => tidy::list_plain(&below),
        Task::Messages { below } => tidy::list_messages(&below),
        Task::Bench { arguments } => bench::run(&arguments),
        Task::Differential { arguments } => cargo::run_beside_tests("tenure-differential", "trials", &arguments),
        Task::Picture => picture::run(),
        Task::Tests { timings } => tests::run(timings),
        Task::Scenarios {
            kubeconfig,
            process,
            lanes,
            timings,
            without,
            only,
        } => scenarios::run(
            kubeconfig.as_deref(),
            (process, lanes.as_deref()),
            timings,
            &scenarios::Choice { only, without },
        ),
        Task::Long(long) => long.run(),
        Task::TwoWorlds(two_worlds) => two_worlds.run(),
        Task::Dist(dist) => dist.run(),
        Task::Release(release) => release.run(),
        Task::ReleaseTrial(trial) => trial.run(),
        Task::RecordKubernetes { dump, go_modules, out } => record_kubernetes::run(&dump, &go_modules, &out),
    }
}
