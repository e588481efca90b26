//! The project's automation: one subcommand a file. Owns nothing of the product; refuses to be a build step
//! (a plain `cargo build` and `cargo test` need none of it).

use clap::{Parser, Subcommand};

mod baseline;
mod bench;
mod cargo;
mod dist;
mod generate;
mod kustomize;
mod long;
mod record_kubernetes;
mod scenarios;
mod suites;
mod tests;
mod tidy;
mod timings;
mod two_worlds;

/// Automation of the project.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write the files that are generated from the types: all below `deploy`.
    Generate {
        /// Write nothing; fail when a file is not as it would be generated.
        #[arg(long)]
        check: bool,
    },
    /// Record the answers of the real kustomize (on PATH) into the kustomize crate's corpus.
    Baseline {
        /// Only cases whose name contains this.
        only: Option<String>,
    },
    /// Build every kustomization below a folder with the real kustomize (on PATH) and with ours, and compare byte for byte.
    CompareKustomize(kustomize::Compare),
    /// Build trees that are made up by chance with the real kustomize (on PATH) and with ours, and compare byte for byte.
    FuzzKustomize(kustomize::Fuzz),
    /// Check what no compiler checks: layers, module docs, the map, sizes, forbidden words.
    Tidy,
    /// Measure the program from outside; `cargo xtask bench --help` says what.
    #[command(disable_help_flag = true)]
    Bench {
        /// Handed to the bench as they are.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Ask the embedded control plane and a real kube-apiserver the same things; `cargo xtask differential --help` says how.
    #[command(disable_help_flag = true)]
    Differential {
        /// Handed to the comparison as they are.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run all tests, some programs at once: what `cargo test --workspace` does, sooner.
    Tests {
        /// Say how long each program took, and which tests are the slowest.
        #[arg(long)]
        timings: bool,
    },
    /// Run the scenarios against a real Kubernetes: one that is started from the binaries in `TENURE_KUBERNETES_BIN`, or any other.
    Scenarios {
        /// The kubeconfig of a cluster whose namespace `default` has the label `tenure.dev/disposable=true`.
        #[arg(long)]
        kubeconfig: Option<std::path::PathBuf>,
        /// Run the controllers as a process, `tenure run`, wherever a scenario doesn't look into them: their own scenarios only.
        #[arg(long)]
        process: bool,
        /// The same, with lanes as `tenure run --lanes` says. Of Pods the suite is the kubelet.
        #[arg(long, value_name = "WHERE")]
        lanes: Option<String>,
        /// Say how long each part took, and which scenarios are the slowest.
        #[arg(long)]
        timings: bool,
        /// Only scenarios whose name contains one of these.
        only: Vec<String>,
    },
    /// Run what takes hours: every kill and seed, all scenarios wherever lanes run, thousands of stories and trees.
    Long(long::Long),
    /// Play stories of a tenant alone and beside a hostile tenant, and compare both worlds.
    TwoWorlds(two_worlds::TwoWorlds),
    /// Write what is handed to others into a folder: the program as one static file, checksums, what it is made of, manual, completions.
    Dist(dist::Dist),
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
        Task::Baseline { only } => baseline::run(only.as_deref()),
        Task::CompareKustomize(compare) => compare.run(),
        Task::FuzzKustomize(fuzz) => fuzz.run(),
        Task::Tidy => tidy::run(),
        Task::Bench { arguments } => bench::run(&arguments),
        Task::Differential { arguments } => cargo::run_beside_tests("tenure-differential", "trials", &arguments),
        Task::Tests { timings } => tests::run(timings),
        Task::Scenarios {
            kubeconfig,
            process,
            lanes,
            timings,
            only,
        } => scenarios::run(kubeconfig.as_deref(), process, lanes.as_deref(), timings, &only),
        Task::Long(long) => long.run(),
        Task::TwoWorlds(two_worlds) => two_worlds.run(),
        Task::Dist(dist) => dist.run(),
        Task::RecordKubernetes { dump, go_modules, out } => record_kubernetes::run(&dump, &go_modules, &out),
    }
}
