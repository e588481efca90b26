//! `cargo xtask fuzz-kustomize`: makes up trees, builds each with the real kustomize and with ours, and compares byte for byte. A tree with different results is made
//! small and printed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use kustomize::{LoadRestrictor, MapTree};

use super::oracle::{self, Scratch, Verdict};
use super::shrink::shrink_tree;
use super::trees::{self, Tree};

/// Build random trees with both, and compare byte for byte.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Fuzz {
    /// Number of trees.
    #[arg(long, default_value_t = 500)]
    trees: usize,
    /// The same seed gives the same trees.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this tree of the seed.
    #[arg(long)]
    only: Option<u64>,
    /// Keep each small tree with a disagreement in a folder of this folder.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Number of smaller trees to try for each disagreement.
    #[arg(long, default_value_t = 400)]
    shrink: usize,
    /// Also print the errors of trees that both refuse.
    #[arg(long)]
    refusals: bool,
}

/// A random tree for which the two builds disagree, with the kind of disagreement.
struct Finding {
    number: u64,
    tree: Tree,
    verdict: Verdict,
}

/// The results of all trees.
#[derive(Default)]
struct Tally {
    same: usize,
    refused: BTreeMap<String, Vec<u64>>,
    findings: Vec<Finding>,
}

impl Fuzz {
    /// Runs, reports, and fails after a disagreement.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        oracle::check_kustomize_exists()?;
        let tally = self.all()?;
        let mut screen = std::io::stdout().lock();
        for finding in &tally.findings {
            writeln!(
                screen,
                "== tree {} of seed {}: {}",
                finding.number, self.seed, finding.verdict
            )?;
            for (path, text) in &finding.tree.files {
                writeln!(screen, "-- {path}\n{text}")?;
            }
            if let Some(keep) = &self.keep {
                let folder = keep.join(format!("{}-{}", self.seed, finding.number));
                write_tree(&finding.tree, &folder)?;
                std::fs::write(folder.join("verdict.txt"), format!("{}\n", finding.verdict))?;
            }
        }
        if self.refusals {
            for (why, numbers) in &tally.refused {
                let first = numbers.first().copied().unwrap_or_default();
                writeln!(screen, "{:6}  {why} (tree {first})", numbers.len())?;
            }
        }
        let refused: usize = tally.refused.values().map(Vec::len).sum();
        writeln!(
            screen,
            "{} trees of seed {}: {} the same, {refused} refused by both, {} disagreements",
            self.count(),
            self.seed,
            tally.same,
            tally.findings.len()
        )?;
        anyhow::ensure!(tally.findings.is_empty(), "{} disagreements", tally.findings.len());
        Ok(())
    }

    fn count(&self) -> usize {
        if self.only.is_some() { 1 } else { self.trees }
    }

    fn all(&self) -> anyhow::Result<Tally> {
        let next = AtomicUsize::new(0);
        let tally = Mutex::new(Tally::default());
        let threads = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(self.count());
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads)
                .map(|thread| {
                    let (next, tally) = (&next, &tally);
                    scope.spawn(move || self.some(thread, next, tally))
                })
                .collect();
            for handle in handles {
                match handle.join() {
                    Ok(result) => result?,
                    Err(_) => anyhow::bail!("a panic while comparing"),
                }
            }
            anyhow::Ok(())
        })?;
        let mut tally = tally
            .into_inner()
            .map_err(|_| anyhow::anyhow!("a panic while comparing"))?;
        tally.findings.sort_by_key(|finding| finding.number);
        Ok(tally)
    }

    fn some(&self, thread: usize, next: &AtomicUsize, tally: &Mutex<Tally>) -> anyhow::Result<()> {
        let scratch = Scratch::new(&format!("fuzz-{}-{thread}", self.seed))?;
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= self.count() {
                return Ok(());
            }
            let number = self.only.unwrap_or(u64::try_from(index)?);
            let tree = trees::make_tree(self.seed, number);
            let verdict = run_one(&tree, scratch.path())?;
            let finding = if verdict.is_disagreement() {
                let class = verdict.class();
                let shows = |tree: &Tree| run_one(tree, scratch.path()).is_ok_and(|verdict| verdict.class() == class);
                let tree = shrink_tree(&tree, self.shrink, shows);
                let verdict = run_one(&tree, scratch.path())?;
                Some(Finding { number, tree, verdict })
            } else {
                None
            };
            let Ok(mut tally) = tally.lock() else {
                anyhow::bail!("a panic while comparing");
            };
            match (finding, verdict) {
                (Some(finding), _) => tally.findings.push(finding),
                (None, Verdict::BothRefuse(ours, real)) => {
                    let last = |text: &str| {
                        text.rsplit(": ")
                            .next()
                            .unwrap_or("")
                            .chars()
                            .take(60)
                            .collect::<String>()
                    };
                    let why = format!("{} | {}", last(&ours), last(&real));
                    tally.refused.entry(why).or_default().push(number);
                }
                (None, verdict @ Verdict::HashOfOtherKind) => {
                    tally.refused.entry(verdict.class()).or_default().push(number);
                }
                _ => tally.same += 1,
            }
        }
    }
}

fn run_one(tree: &Tree, scratch: &Path) -> anyhow::Result<Verdict> {
    let folder = scratch.join("tree");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    write_tree(tree, &folder)?;
    let mut map = MapTree::new();
    for (path, text) in &tree.files {
        map.insert(path, text.as_bytes());
    }
    oracle::compare_tree(&map, &tree.build, &folder, LoadRestrictor::RootOnly, scratch)
}

fn write_tree(tree: &Tree, folder: &Path) -> anyhow::Result<()> {
    for (path, text) in &tree.files {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_trees() {
        for number in 0..20 {
            assert_eq!(trees::make_tree(7, number).files, trees::make_tree(7, number).files);
        }
    }

    /// Number of trees that the test builds.
    const TREES: usize = 150;

    #[test]
    fn made_up_trees_build_to_the_same_bytes() {
        if oracle::check_kustomize_exists().is_err() {
            writeln!(std::io::stderr(), "skipped: there is no kustomize on PATH").unwrap();
            return;
        }
        let fuzz = Fuzz {
            trees: TREES,
            seed: 20_260,
            only: None,
            keep: None,
            shrink: 200,
            refusals: false,
        };
        let tally = fuzz.all().unwrap();
        let findings: Vec<String> = tally
            .findings
            .iter()
            .map(|finding| {
                format!(
                    "tree {}: {}\n{:#?}",
                    finding.number, finding.verdict, finding.tree.files
                )
            })
            .collect();
        assert!(
            findings.is_empty(),
            "{} disagreements:\n{}",
            findings.len(),
            findings.join("\n")
        );
        assert!(
            tally.same > TREES / 2,
            "only {} of {TREES} trees could be built",
            tally.same
        );
    }
}
