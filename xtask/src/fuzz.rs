//! `cargo xtask fuzz`: runs the targets of `fuzz/` and `crates/kustomize/fuzz` with cargo-fuzz, one after another, each for a number of seconds. It reports executions,
//! coverage and the size of each corpus as libFuzzer prints them. An input that breaks a check is kept as a file, and the task fails after the last target.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use clap::Parser;

use crate::{cargo, tidy};

/// The workspaces of targets, below the root.
const OWN: &str = "fuzz";
const KUSTOMIZE: &str = "crates/kustomize/fuzz";
/// Lines of output that are shown after a failure.
const SHOWN: usize = 60;

/// A target: its folder, its name, the longest input in bytes, and its dictionary.
struct Target(&'static str, &'static str, u32, Option<&'static str>);

const TARGETS: [Target; 27] = [
    Target(OWN, "git_pack", 8192, None),
    Target(OWN, "git_pack_model", 2048, None),
    Target(OWN, "git_conversation", 16_384, Some("git.txt")),
    Target(OWN, "git_payload", 8192, Some("git.txt")),
    Target(OWN, "source_texts", 4096, Some("texts.txt")),
    Target(OWN, "tar", 16_384, Some("tar.txt")),
    Target(OWN, "oci_manifest", 8192, Some("json.txt")),
    Target(OWN, "oci_layer", 16_384, Some("tar.txt")),
    Target(OWN, "s3_listing", 8192, Some("xml.txt")),
    Target(OWN, "helm_index", 8192, Some("helm.txt")),
    Target(OWN, "helm_chart", 16_384, Some("tar.txt")),
    Target(OWN, "known_hosts", 4096, Some("ssh.txt")),
    Target(OWN, "openpgp_packets", 4096, None),
    Target(OWN, "openpgp_signature", 4096, None),
    Target(OWN, "openpgp_ring", 8192, None),
    Target(OWN, "ssh_signature", 4096, Some("ssh.txt")),
    Target(OWN, "ssh_keys", 4096, Some("ssh.txt")),
    Target(OWN, "sops_file", 16_384, Some("sops.txt")),
    Target(OWN, "sops_age", 4096, Some("sops.txt")),
    Target(OWN, "sops_openpgp", 4096, None),
    Target(OWN, "sops_keys", 8192, None),
    Target(OWN, "admission_review", 8192, Some("json.txt")),
    Target(OWN, "lane_frames", 4096, Some("json.txt")),
    Target(OWN, "receiver_body", 8192, Some("json.txt")),
    Target(KUSTOMIZE, "yaml", 8192, Some("kustomize.txt")),
    Target(KUSTOMIZE, "tree", 8192, Some("kustomize.txt")),
    Target(KUSTOMIZE, "layers", 8192, Some("kustomize.txt")),
];

/// Run fuzz targets, all or the named ones. Needs cargo-fuzz and a nightly toolchain.
#[derive(Parser, Debug, Clone)]
pub(crate) struct Fuzz {
    /// Names of targets; all when absent.
    targets: Vec<String>,
    /// The time of each target.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// The seed of libFuzzer.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the names of the targets, and run nothing.
    #[arg(long)]
    list: bool,
}

/// The result of a target, as far as libFuzzer has printed it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    executions: Option<u64>,
    /// The time of the run without the build.
    seconds: u64,
    coverage: Option<u64>,
    features: Option<u64>,
    /// Inputs in the corpus, as `inputs/bytes`.
    corpus: Option<String>,
    /// The file with an input that breaks a check.
    found: Option<String>,
}

impl Report {
    /// Reads a line of libFuzzer's output.
    fn read(&mut self, line: &str) {
        let number = |text: Option<&str>| text.and_then(|text| text.parse().ok());
        if let Some(rest) = line.strip_prefix("stat::number_of_executed_units:") {
            self.executions = number(Some(rest.trim()));
        }
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.found = Some(path.trim().to_owned());
        }
        if !line.starts_with('#') {
            return;
        }
        let mut words = line.split_whitespace();
        let executions = number(words.next().and_then(|word| word.strip_prefix('#')));
        self.executions = executions.or(self.executions);
        while let Some(word) = words.next() {
            match word {
                "cov:" => self.coverage = number(words.next()).or(self.coverage),
                "ft:" => self.features = number(words.next()).or(self.features),
                "corp:" => self.corpus = words.next().map(str::to_owned),
                _ => {}
            }
        }
    }

    fn write(&self, name: &str) -> String {
        let show = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        format!(
            "{name:20} {:>12} {:>8} {:>7} {:>9} {:>14}  {}",
            show(self.executions),
            self.seconds,
            show(self.coverage),
            show(self.features),
            self.corpus.as_deref().unwrap_or("-"),
            self.found.as_deref().unwrap_or("nothing"),
        )
    }
}

impl Fuzz {
    /// Runs the targets one after another, and goes on after a find.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let chosen = self.choose()?;
        let mut out = std::io::stdout();
        if self.list {
            for Target(folder, name, ..) in chosen {
                writeln!(out, "{name:20} {folder}/targets/{name}.rs")?;
            }
            return Ok(());
        }
        check_tools()?;
        let mut lines = Vec::new();
        let mut failed = Vec::new();
        for target in chosen {
            let (report, is_good) = self.run_one(target)?;
            let line = report.write(target.1);
            writeln!(out, "{line}")?;
            lines.push(line);
            if !is_good {
                failed.push(target.1);
            }
        }
        let [target, executions, seconds, coverage] = ["target", "executions", "seconds", "edges"];
        writeln!(
            out,
            "\n{target:20} {executions:>12} {seconds:>8} {coverage:>7}  features   inputs/bytes  found"
        )?;
        for line in lines {
            writeln!(out, "{line}")?;
        }
        ensure!(
            failed.is_empty(),
            "{}: make each input a test of the crate, then mend the crate",
            failed.join(", ")
        );
        Ok(())
    }

    fn choose(&self) -> anyhow::Result<Vec<&'static Target>> {
        if let Some(unknown) = self
            .targets
            .iter()
            .find(|name| TARGETS.iter().all(|target| target.1 != **name))
        {
            bail!("no target is called {unknown}: cargo xtask fuzz --list prints the names");
        }
        let is_chosen = |target: &&Target| self.targets.is_empty() || self.targets.iter().any(|name| name == target.1);
        Ok(TARGETS.iter().filter(is_chosen).collect())
    }

    fn run_one(&self, Target(folder, name, longest, dictionary): &Target) -> anyhow::Result<(Report, bool)> {
        let root = tidy::find_root();
        if *folder == KUSTOMIZE && !root.join(folder).join("corpus").join(name).exists() {
            let manifest = format!("{folder}/Cargo.toml");
            cargo::run(
                &["run", "--quiet", "--manifest-path", &manifest, "--example", "seed"],
                &[],
            )?;
        }
        let mut command = make_nightly_command();
        // The crates have no unsafe code, so the address sanitizer would only make them slower. The profile of the targets has debug assertions and overflow checks.
        command.args(["fuzz", "run", "--fuzz-dir", folder, "--sanitizer", "none", name, "--"]);
        command.args([
            format!("-max_total_time={}", self.seconds),
            format!("-seed={}", self.seed),
            format!("-max_len={longest}"),
            "-timeout=20".to_owned(),
            "-rss_limit_mb=2048".to_owned(),
            "-print_final_stats=1".to_owned(),
        ]);
        if let Some(dictionary) = dictionary {
            let path = root.join(folder).join("dictionaries").join(dictionary);
            command.arg(format!("-dict={}", path.display()));
        }
        let mut child = command.stderr(Stdio::piped()).spawn().context("cargo fuzz")?;
        let stderr = child.stderr.take().context("cargo fuzz has no output")?;
        let mut report = Report::default();
        let mut begin = None;
        let mut last = std::collections::VecDeque::new();
        for line in BufReader::new(stderr).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            report.read(&line);
            if begin.is_none() && line.starts_with("INFO: ") {
                begin = Some(Instant::now());
            }
            if last.len() == SHOWN {
                last.pop_front();
            }
            last.push_back(line);
        }
        let is_good = child.wait()?.success();
        report.seconds = begin.map_or(0, |begin| begin.elapsed().as_secs());
        if !is_good {
            let mut out = std::io::stderr();
            for line in last {
                writeln!(out, "{line}")?;
            }
        }
        Ok((report, is_good))
    }
}

/// Makes a command of the nightly toolchain.
fn make_nightly_command() -> Command {
    let mut command = cargo::make_command("cargo");
    command.arg("+nightly");
    command
}

fn check_tools() -> anyhow::Result<()> {
    let works = |argument: &[&str]| {
        let mut command = make_nightly_command();
        command.args(argument).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ensure!(
        works(&["--version"]),
        "there is no nightly toolchain, which libFuzzer needs: rustup toolchain install nightly"
    );
    ensure!(
        works(&["fuzz", "--version"]),
        "there is no cargo-fuzz on PATH: cargo install cargo-fuzz --locked"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_listed_with_a_dictionary_that_exists() {
        for folder in [OWN, KUSTOMIZE] {
            let manifest = std::fs::read_to_string(tidy::find_root().join(folder).join("Cargo.toml")).unwrap();
            let programs = manifest.split("[[bin]]").skip(1);
            let mut names: Vec<&str> = programs.map(|text| text.split('"').nth(1).unwrap()).collect();
            let mut listed: Vec<&str> = TARGETS
                .iter()
                .filter(|target| target.0 == folder)
                .map(|target| target.1)
                .collect();
            names.sort_unstable();
            listed.sort_unstable();
            assert_eq!(names, listed, "{folder}");
        }
        for Target(folder, name, _, dictionary) in &TARGETS {
            let folder = tidy::find_root().join(folder);
            assert!(folder.join("targets").join(format!("{name}.rs")).exists(), "{name}");
            if let Some(dictionary) = dictionary {
                assert!(folder.join("dictionaries").join(dictionary).exists(), "{dictionary}");
            }
        }
    }

    #[test]
    fn the_output_of_libfuzzer_is_read() {
        let mut report = Report::default();
        for line in [
            "INFO: seed corpus: files: 7 min: 1b max: 90b total: 300b rss: 30Mb",
            "#8\tINITED cov: 90 ft: 120 corp: 7/300b exec/s: 0 rss: 31Mb",
            "#1024\tpulse  cov: 100 ft: 170 corp: 20/1Kb lim: 4096 exec/s: 512 rss: 33Mb",
            "artifact_prefix='/a/'; Test unit written to /a/crash-1",
            "stat::number_of_executed_units: 2000",
        ] {
            report.read(line);
        }
        let expected = Report {
            executions: Some(2000),
            seconds: 0,
            coverage: Some(100),
            features: Some(170),
            corpus: Some("20/1Kb".to_owned()),
            found: Some("/a/crash-1".to_owned()),
        };
        assert_eq!(report, expected);
    }
}
