//! `tenure build` beside `kustomize build` in one run: whole processes that alternate, the median of several runs, and peak memory from the operating system. Only equal
//! results are compared: both must print the same bytes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kustomize::{MapTree, Options};

use crate::report::{find_percentile, format_megabytes, format_time};
use crate::single::{self, Cost};

mod trees;

/// A run of the real tool that takes longer is repeated less often.
const SLOW: Duration = Duration::from_secs(2);

/// The programs and inputs of a comparison.
pub(crate) struct Contest<'a> {
    /// The program.
    pub(crate) program: &'a Path,
    /// The real kustomize.
    pub(crate) against: &'a Path,
    /// A folder of real repositories.
    pub(crate) repositories: Option<&'a Path>,
    /// How often each build is run.
    pub(crate) runs: usize,
}

/// The cost of both programs in one folder.
struct Round {
    ours: Cost,
    theirs: Cost,
}

/// A line of the table.
#[derive(Default)]
struct Line {
    what: String,
    ours: Duration,
    theirs: Duration,
    our_memory: u64,
    their_memory: u64,
}

/// Measures everything, and returns Markdown.
pub(crate) fn measure(contest: &Contest<'_>) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let generated = [
        ("one", "one file with one Deployment", trees::one_file()),
        (
            "overlays",
            "50 overlays of one base, in one build",
            trees::make_overlays(50),
        ),
        (
            "objects",
            "2,000 objects with a prefix, labels, an image and 200 patches",
            trees::make_objects(2000, 200),
        ),
        (
            "definitions",
            "30 MB of CustomResourceDefinitions in one file",
            trees::make_definitions(30 << 20),
        ),
    ];
    let mut lines = Vec::new();
    for (name, what, tree) in generated {
        let place = folder.path().join(name);
        trees::write_tree(&tree, &place)?;
        drop(tree);
        let round = contest
            .measure_round(&place)?
            .with_context(|| format!("{name} doesn't build"))?;
        lines.push(Line::summarize(what.to_owned(), &[round]));
    }
    match contest.repositories {
        Some(repositories) => lines.push(contest.real(repositories)?),
        None => eprint("skipped: TENURE_REAL_REPOS names no folder\n"),
    }
    let mut text = write_table(&lines);
    text.push_str(&contest.growth(folder.path())?);
    text.push_str(&library()?);
    Ok(text)
}

impl Contest<'_> {
    /// Builds one folder with both programs in turns; `None` if neither can build it.
    fn measure_round(&self, folder: &Path) -> anyhow::Result<Option<Round>> {
        let ours = single::build_output(self.program, folder)?;
        let theirs = single::build_output(self.against, folder)?;
        match (&ours, &theirs) {
            (None, None) => return Ok(None),
            (Some(ours), Some(theirs)) if ours == theirs => {}
            _ => bail!("{}: the two don't say the same", folder.display()),
        }
        drop((ours, theirs));
        let (mut our_costs, mut their_costs) = (Vec::new(), Vec::new());
        for run in 0..self.runs {
            our_costs.push(single::measure_cost(self.program, folder)?);
            if run < 3 || their_costs.iter().all(|cost: &Cost| cost.time < SLOW) {
                their_costs.push(single::measure_cost(self.against, folder)?);
            }
        }
        Ok(Some(Round {
            ours: find_median(&our_costs),
            theirs: find_median(&their_costs),
        }))
    }

    /// Builds every kustomization of real repositories. Times are added up; memory is that of the largest.
    fn real(&self, repositories: &Path) -> anyhow::Result<Line> {
        let mut folders = Vec::new();
        find_kustomizations(&repositories.canonicalize()?, &mut folders)?;
        let mut rounds = Vec::new();
        for folder in folders {
            rounds.extend(self.measure_round(&folder)?);
        }
        Ok(Line::summarize(
            format!("real repositories, {} kustomizations one after the other", rounds.len()),
            &rounds,
        ))
    }

    /// Builds the same kind of tree with more and more objects.
    fn growth(&self, folder: &Path) -> anyhow::Result<String> {
        let mut text = "\n| objects, 200 patches | Tenure | of that, each object | peak memory | kustomize, one run |\n|---|---|---|---|---|\n".to_owned();
        for count in [1000, 2000, 4000, 8000] {
            let place = folder.join(count.to_string());
            trees::write_tree(&trees::make_objects(count, 200), &place)?;
            let costs = (0..self.runs)
                .map(|_| single::measure_cost(self.program, &place))
                .collect::<anyhow::Result<Vec<_>>>()?;
            let ours = find_median(&costs);
            let theirs = if count <= 4000 {
                format_time(single::measure_cost(self.against, &place)?.time)
            } else {
                "not run".to_owned()
            };
            let each = ours.time.as_secs_f64() * 1e6 / count as f64;
            let _ = writeln!(
                text,
                "| {count} | {} | {each:.1} µs | {} | {theirs} |",
                format_time(ours.time),
                format_megabytes(ours.memory)
            );
        }
        Ok(text)
    }
}

impl Line {
    fn summarize(what: String, rounds: &[Round]) -> Self {
        let largest = |of: fn(&Round) -> u64| rounds.iter().map(of).max().unwrap_or(0);
        Line {
            what,
            ours: rounds.iter().map(|round| round.ours.time).sum(),
            theirs: rounds.iter().map(|round| round.theirs.time).sum(),
            our_memory: largest(|round| round.ours.memory),
            their_memory: largest(|round| round.theirs.memory),
        }
    }
}

fn write_table(lines: &[Line]) -> String {
    let mut text = "| tree | Tenure | kustomize, same run | times as fast | peak memory | kustomize | part of it |\n|---|---|---|---|---|---|---|\n".to_owned();
    let total = Line {
        what: "**all**".to_owned(),
        ours: lines.iter().map(|line| line.ours).sum(),
        theirs: lines.iter().map(|line| line.theirs).sum(),
        our_memory: lines.iter().map(|line| line.our_memory).max().unwrap_or(0),
        their_memory: lines.iter().map(|line| line.their_memory).max().unwrap_or(0),
    };
    for line in lines.iter().chain([&total]) {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} | {} | {} | {:.2} |",
            line.what,
            format_time(line.ours),
            format_time(line.theirs),
            line.theirs.as_secs_f64() / line.ours.as_secs_f64(),
            format_megabytes(line.our_memory),
            format_megabytes(line.their_memory),
            line.our_memory as f64 / line.their_memory as f64,
        );
    }
    text
}

fn find_median(costs: &[Cost]) -> Cost {
    let mut times: Vec<Duration> = costs.iter().map(|cost| cost.time).collect();
    let mut memory: Vec<u64> = costs.iter().map(|cost| cost.memory).collect();
    memory.sort_unstable();
    Cost {
        time: find_percentile(&mut times, 0.5),
        memory: memory.get(memory.len() / 2).copied().unwrap_or(0),
    }
}

/// Lists all folders with a kustomization, in order.
fn find_kustomizations(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if path.is_dir() && !path.is_symlink() {
            find_kustomizations(&path, found)?;
        } else if matches!(name, "kustomization.yaml" | "kustomization.yml" | "Kustomization") {
            found.push(folder.to_path_buf());
        }
    }
    Ok(())
}

/// Measures the library by itself, in this process: without start and disk.
fn library() -> anyhow::Result<String> {
    let mut text =
        "\n| the library by itself, files in memory | a build, with its YAML | each object |\n|---|---|---|\n"
            .to_owned();
    for (what, tree, builds) in [
        ("one file with one Deployment", trees::one_file(), 2001),
        ("50 overlays of one base", trees::make_overlays(50), 51),
        ("2,000 objects, 200 patches", trees::make_objects(2000, 200), 11),
    ] {
        let mut files = MapTree::new();
        for (path, content) in tree {
            files.insert(&path, content);
        }
        let (mut times, mut objects) = (Vec::new(), 0_u32);
        for _ in 0..builds {
            objects = 0;
            let mut bytes = 0;
            let started = Instant::now();
            kustomize::build_each(&files, "", &Options::default(), &mut |resource| {
                objects += 1;
                bytes += resource.to_yaml().len();
            })?;
            times.push(started.elapsed());
            std::hint::black_box(bytes);
        }
        let build = find_percentile(&mut times, 0.5);
        let each = build.as_secs_f64() * 1e6 / f64::from(objects);
        let _ = writeln!(text, "| {what} | {:.3} ms | {each:.1} µs |", build.as_secs_f64() * 1e3);
    }
    Ok(text)
}

fn eprint(text: &str) {
    use std::io::Write as _;
    let _reader_gone = write!(std::io::stderr().lock(), "{text}");
}
