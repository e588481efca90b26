//! Which functions a small `tenure build` and the start of `tenure up` run, as a script for the linker that puts them together. Owns
//! how they are found: by valgrind, in a release build, whose map says what library each is from. Refuses names that change
//! with every compiler.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::{cargo, tidy};

const SCRIPT: &str = "crates/tenure/start.ld";
const HEADER: &str = "\
/* What small builds and an idle control plane run, by library, to lie together in the program: made by `cargo xtask start-order`.
   A function that isn't there any more does no harm; a new one costs memory until this is made again. */
SECTIONS
{
  .text.start :
  {
";
const FOOTER: &str = "  }\n}\nINSERT BEFORE .text;\n";
/// How long a control plane is watched once it is ready.
const SETTLING: Duration = Duration::from_secs(15);
/// How long its lines are, where names allow it.
const WIDTH: usize = 140;

/// Flags of `cargo xtask start-order`.
#[derive(clap::Args)]
pub(crate) struct StartOrder {
    /// Folders with a kustomization each, the smallest first: what the first one needs comes first.
    #[arg(required = true)]
    folders: Vec<PathBuf>,
}

impl StartOrder {
    /// Builds the program, watches it build the folders, and writes the script.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let map = tidy::root().join("target/start.map");
        let argument = format!("link-arg=-Wl,-Map={}", map.display());
        let words = [
            "rustc",
            "--release",
            "--package",
            "tenure",
            "--bin",
            "tenure",
            "--",
            "-C",
        ];
        cargo::run(&words, &[argument])?;
        let map = std::fs::read_to_string(&map)?;
        let mut written = BTreeSet::new();
        let mut text = HEADER.to_owned();
        let mut runs = Vec::new();
        for folder in &self.folders {
            runs.push(build(folder)?);
        }
        runs.push(control_plane()?);
        for run in &runs {
            let mut patterns = patterns(&map, run);
            if patterns.is_empty() {
                bail!("the linker's map names none of the functions that were run");
            }
            for (file, sections) in &mut patterns {
                sections.retain(|section| written.insert((file.clone(), section.clone())));
            }
            write(&patterns, &mut text);
        }
        text.push_str(FOOTER);
        std::fs::write(tidy::root().join(SCRIPT), text)?;
        Ok(())
    }
}

/// The release program under valgrind, which writes what it ran to [`profile`] when it ends.
fn watched() -> Command {
    let mut valgrind = cargo::command("valgrind");
    valgrind
        .args(["--tool=callgrind", "--demangle=no", "--quiet"])
        .arg(format!("--callgrind-out-file={}", profile().display()))
        .arg(tidy::root().join("target/release/tenure"));
    valgrind
}

fn profile() -> PathBuf {
    tidy::root().join("target/start.callgrind")
}

/// The functions that building a folder runs, by the names that the linker knows.
fn build(folder: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut valgrind = watched();
    valgrind
        .arg("build")
        .arg(folder.canonicalize().with_context(|| folder.display().to_string())?)
        .stdout(Stdio::null());
    cargo::finish(valgrind)?;
    functions()
}

/// The functions that a control plane runs until it has nothing more to do.
fn control_plane() -> anyhow::Result<BTreeSet<String>> {
    let data = tidy::root().join("target/start-data");
    if data.exists() {
        std::fs::remove_dir_all(&data)?;
    }
    let mut valgrind = watched();
    valgrind.args(["up", "--port=0", "--data"]).arg(&data);
    let mut plane = valgrind.stdout(Stdio::piped()).spawn().context("valgrind")?;
    let mut lines = BufReader::new(plane.stdout.take().context("no output")?).lines();
    if !lines.next().transpose()?.is_some_and(|line| line.starts_with("ready")) {
        bail!("the control plane did not start");
    }
    // Its controllers write what they have to; under valgrind that takes a few seconds.
    std::thread::sleep(SETTLING);
    let mut interrupt = cargo::command("kill");
    interrupt.args(["-INT", &plane.id().to_string()]);
    cargo::finish(interrupt)?;
    plane.wait()?;
    std::fs::remove_dir_all(&data)?;
    functions()
}

/// The functions that were run last.
fn functions() -> anyhow::Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(profile())?;
    // "fn=(7) name" at first, "fn=(7)" from then on.
    let name = |line: &str| {
        let rest = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn="))?;
        // A function that calls itself has a number after its name.
        let name = rest.split_once(") ")?.1;
        Some(name.split_once('\'').map_or(name, |(name, _)| name).to_owned())
    };
    Ok(text.lines().filter_map(name).collect())
}

/// Patterns of sections, by the pattern of the file that they are in.
fn patterns(map: &str, run: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut patterns: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in map.lines() {
        let Some((file, section)) = line
            .trim_end()
            .rsplit_once(":(")
            .filter(|(_, section)| section.ends_with(')'))
        else {
            continue;
        };
        let section = section.trim_end_matches(')');
        let Some(name) = section
            .strip_prefix(".text.unlikely.")
            .or_else(|| section.strip_prefix(".text."))
        else {
            continue;
        };
        if let Some(file) = file.rsplit('/').next().and_then(file_pattern)
            && run.contains(name)
        {
            patterns.entry(file).or_default().insert(section_pattern(section));
        }
    }
    patterns
}

/// The pattern for a library, or for the program's own objects; nothing for what isn't Rust.
fn file_pattern(file: &str) -> Option<String> {
    if let Some((library, _)) = file.split_once(".rlib") {
        let (name, _hash) = library.rsplit_once('-')?;
        return Some(format!("*{name}-*.rlib:*"));
    }
    let name = file.split('.').next()?;
    let (program, _hash) = name.rsplit_once('-')?;
    file.ends_with(".rcgu.o").then(|| format!("*{program}-*.rcgu.o"))
}

/// A section's name without what changes with the compiler (the hash at its end or, in names of the newer kind, behind each `Cs`), and
/// without signs that mean something to a linker.
fn section_pattern(section: &str) -> String {
    let mut pattern = String::new();
    let mut rest = match section.rfind("17h") {
        Some(hash) if section.contains("._ZN") => section.get(..hash + 3).unwrap_or(section),
        _ => section,
    };
    let has_hash = rest.len() < section.len();
    while let Some((before, after)) = rest.split_once("Cs").filter(|_| section.contains("._R")) {
        let hash = after.bytes().take_while(u8::is_ascii_alphanumeric).count();
        pattern.push_str(before);
        pattern.push_str(if hash > 5 { "Cs*" } else { "Cs" });
        rest = after.get(if hash > 5 { hash } else { 0 }..).unwrap_or("");
    }
    pattern.push_str(rest);
    pattern.push_str(if has_hash { "*" } else { "" });
    let is_plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '*');
    pattern
        .chars()
        .map(|character| if is_plain(character) { character } else { '?' })
        .collect()
}

fn write(patterns: &BTreeMap<String, BTreeSet<String>>, text: &mut String) {
    for (file, sections) in patterns.iter().filter(|(_, sections)| !sections.is_empty()) {
        text.push_str(&format!("    {file}("));
        let mut column = usize::MAX;
        for section in sections {
            if column.saturating_add(section.len()) > WIDTH {
                text.push_str("\n     ");
                column = 5;
            }
            text.push(' ');
            text.push_str(section);
            column += section.len() + 1;
        }
        text.push_str(")\n");
    }
}
