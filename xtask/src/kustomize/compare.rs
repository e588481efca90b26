//! `cargo xtask compare-kustomize DIR`: builds every kustomization below a folder with the real kustomize and with ours. Each folder directly below DIR is a tree of its
//! own, like a repository.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use kustomize::LoadRestrictor;

use super::oracle::{self, Scratch, Verdict};

/// Build every kustomization below a folder with both, and compare byte for byte.
#[derive(clap::Args)]
pub(crate) struct Compare {
    /// Folder of trees: each folder in it is one, like a checkout.
    directory: PathBuf,
    /// Write each disagreement into a file of this folder.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Let kustomizations read files outside of their directory, as `--load-restrictor LoadRestrictionsNone` does.
    #[arg(long)]
    unrestricted: bool,
    /// Also print the errors of trees that both refuse.
    #[arg(long)]
    refusals: bool,
}

/// A kustomization and its result.
pub(super) struct Outcome {
    /// The tree and the directory in it.
    pub(super) place: String,
    /// Whether both agree.
    pub(super) verdict: Verdict,
}

impl Compare {
    /// Compares, prints a table, and fails after a disagreement.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let restrictor = if self.unrestricted {
            LoadRestrictor::None
        } else {
            LoadRestrictor::RootOnly
        };
        let outcomes = compare_folder(&self.directory, restrictor)?;
        let mut screen = std::io::stdout().lock();
        if let Some(out) = &self.out {
            std::fs::create_dir_all(out)?;
        }
        let mut table: BTreeMap<&str, usize> = BTreeMap::new();
        for Outcome { place, verdict } in &outcomes {
            *table.entry(verdict.title()).or_default() += 1;
            if verdict.is_disagreement() {
                writeln!(screen, "{place}: {}", verdict.class())?;
                if let Some(out) = &self.out {
                    std::fs::write(out.join(place.replace('/', "_")), format!("{place}: {verdict}\n"))?;
                }
            } else if self.refusals && matches!(verdict, Verdict::BothRefuse(..)) {
                writeln!(screen, "{place}: {verdict}")?;
            }
        }
        for (title, count) in &table {
            writeln!(screen, "{count:6}  {title}")?;
        }
        writeln!(screen, "{:6}  kustomizations", outcomes.len())?;
        let wrong = outcomes
            .iter()
            .filter(|outcome| outcome.verdict.is_disagreement())
            .count();
        anyhow::ensure!(wrong == 0, "{wrong} disagreements");
        Ok(())
    }
}

/// Compares everything below a folder.
pub(super) fn compare_folder(directory: &Path, restrictor: LoadRestrictor) -> anyhow::Result<Vec<Outcome>> {
    oracle::check_kustomize_exists()?;
    let directory = directory.canonicalize()?;
    let mut outcomes = Vec::new();
    let mut trees: Vec<PathBuf> = std::fs::read_dir(&directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    trees.retain(|path| path.is_dir());
    trees.sort();
    for (number, root) in trees.iter().enumerate() {
        let mut found = Vec::new();
        find_kustomizations(root, "", &mut found)?;
        if found.is_empty() {
            continue;
        }
        let name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
        outcomes.extend(one_tree(&name, number, root, &found, restrictor)?);
    }
    Ok(outcomes)
}

fn one_tree(
    name: &str,
    number: usize,
    root: &Path,
    found: &[String],
    restrictor: LoadRestrictor,
) -> anyhow::Result<Vec<Outcome>> {
    let tree = oracle::read_tree(root)?;
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(found.len());
    std::thread::scope(|scope| {
        let work = |thread: usize| -> anyhow::Result<()> {
            let scratch = Scratch::new(&format!("compare-{number}-{thread}"))?;
            while let Some((index, inside)) = {
                let index = next.fetch_add(1, Ordering::Relaxed);
                found.get(index).map(|inside| (index, inside))
            } {
                let verdict = oracle::compare_tree(&tree, inside, root, restrictor, scratch.path())?;
                let place = format!("{name}/{inside}");
                if let Ok(mut outcomes) = outcomes.lock() {
                    outcomes.insert(index, Outcome { place, verdict });
                }
            }
            Ok(())
        };
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        for handle in handles {
            match handle.join() {
                Ok(result) => result?,
                Err(_) => anyhow::bail!("{name}: a panic while comparing"),
            }
        }
        anyhow::Ok(())
    })?;
    Ok(outcomes
        .into_inner()
        .map_err(|_| anyhow::anyhow!("{name}: a panic"))?
        .into_values()
        .collect())
}

/// Lists all directories with a kustomization, relative to the root.
fn find_kustomizations(root: &Path, inside: &str, found: &mut Vec<String>) -> anyhow::Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(root.join(inside))?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut has_one = false;
    for entry in entries {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if entry.file_type()?.is_dir() {
            let path = if inside.is_empty() {
                name
            } else {
                format!("{inside}/{name}")
            };
            find_kustomizations(root, &path, found)?;
        } else {
            has_one |= ["kustomization.yaml", "kustomization.yml", "Kustomization"].contains(&name.as_str());
        }
    }
    if has_one {
        found.push(inside.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn real_repositories_build_to_the_same_bytes() {
        let mut errors = std::io::stderr();
        let Some(directory) = std::env::var_os("TENURE_REAL_REPOS") else {
            writeln!(
                errors,
                "skipped: TENURE_REAL_REPOS names no folder with real kustomize trees"
            )
            .unwrap();
            return;
        };
        if oracle::check_kustomize_exists().is_err() {
            writeln!(errors, "skipped: there is no kustomize on PATH").unwrap();
            return;
        }
        let outcomes = compare_folder(Path::new(&directory), LoadRestrictor::RootOnly).unwrap();
        assert!(outcomes.iter().any(|outcome| matches!(outcome.verdict, Verdict::Same)));
        let wrong: Vec<String> = outcomes
            .iter()
            .filter(|outcome| outcome.verdict.is_disagreement())
            .map(|outcome| format!("{}: {}", outcome.place, outcome.verdict))
            .collect();
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    }
}
