//! `tenure build DIR`: what `kustomize build` prints. Owns the reading of the folder into memory; refuses to fetch, to
//! run anything, and to read outside the folder's repository root.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use kustomize::{LoadRestrictor, MapTree, Options};

use crate::failure::Failure;
use crate::output;

/// Files larger than this are refused while the folder is read.
const LARGEST_FILE: u64 = 64 << 20;

/// Build a kustomization, as `kustomize build` does.
#[derive(Debug, Args)]
pub(crate) struct Build {
    /// Folder with a kustomization.
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Write to a file instead of standard output; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Where files that a kustomization names may be.
    #[arg(long, value_enum, default_value = "LoadRestrictionsRootOnly")]
    load_restrictor: Restrictor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Restrictor {
    /// In or below the folder of the kustomization that names them.
    #[value(name = "LoadRestrictionsRootOnly")]
    RootOnly,
    /// Anywhere below the root of the repository.
    #[value(name = "LoadRestrictionsNone")]
    None,
}

impl Build {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let unreadable = |path: &Path, error: std::io::Error| Failure::usage(format!("{}: {error}", path.display()));
        let folder = self
            .folder
            .canonicalize()
            .map_err(|error| unreadable(&self.folder, error))?;
        let root = root_of(&folder);
        let inside = folder
            .strip_prefix(&root)
            .unwrap_or(Path::new(""))
            .to_string_lossy()
            .into_owned();
        let tree = read(&root).map_err(|(path, error)| unreadable(&path, error))?;
        let load_restrictor = match self.load_restrictor {
            Restrictor::RootOnly => LoadRestrictor::RootOnly,
            Restrictor::None => LoadRestrictor::None,
        };
        let options = Options {
            load_restrictor,
            ..Options::default()
        };
        let built = kustomize::build(&tree, &inside, &options).map_err(|error| Failure::negative(error.to_string()))?;
        for warning in &built.warnings {
            output::note(format!("# Warning: {warning}"));
        }
        let text = built.to_yaml();
        match self.output.as_deref().filter(|path| *path != Path::new("-")) {
            Some(path) => std::fs::write(path, text)
                .map_err(|error| Failure::environment(format!("{}: {error}", path.display())))?,
            None => output::raw(text.as_bytes()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The repository that the folder is in; the folder's own ancestor without one.
///
/// A base may lie beside the folder (`../../base`), so more than the folder has to be read; the repository is what a
/// reconciler would see.
fn root_of(folder: &Path) -> PathBuf {
    folder
        .ancestors()
        .find(|ancestor| ancestor.join(".git").exists())
        .map_or_else(|| reach(folder), Path::to_path_buf)
}

/// Outside a repository: as far up as kustomizations reach by `..`.
fn reach(folder: &Path) -> PathBuf {
    let mut root = folder.to_path_buf();
    let mut waiting = vec![folder.to_path_buf()];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(place) = waiting.pop() {
        if !seen.insert(place.clone()) {
            continue;
        }
        for name in ["kustomization.yaml", "kustomization.yml", "Kustomization"] {
            let Ok(text) = std::fs::read_to_string(place.join(name)) else {
                continue;
            };
            for word in text
                .split(|c: char| c.is_whitespace() || "\"',[]{}=".contains(c))
                .filter(|word| word.contains(".."))
            {
                let Ok(target) = place.join(word).canonicalize() else {
                    continue;
                };
                while !target.starts_with(&root) {
                    if !root.pop() {
                        break;
                    }
                }
                waiting.push(target);
            }
        }
    }
    root
}

/// Everything below the root, in memory.
fn read(root: &Path) -> Result<MapTree, (PathBuf, std::io::Error)> {
    let mut tree = MapTree::new();
    let mut folders = vec![root.to_path_buf()];
    let mut links = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|error| (folder.clone(), error))? {
            let entry = entry.map_err(|error| (folder.clone(), error))?;
            let path = entry.path();
            if entry.file_name() == ".git" {
                continue;
            }
            let metadata = std::fs::symlink_metadata(&path).map_err(|error| (path.clone(), error))?;
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            if metadata.is_symlink() {
                let target = std::fs::read_link(&path).map_err(|error| (path.clone(), error))?;
                links.insert(name, target.to_string_lossy().into_owned());
            } else if metadata.is_dir() {
                folders.push(path);
            } else if metadata.is_file() && metadata.len() <= LARGEST_FILE {
                tree.insert(&name, std::fs::read(&path).map_err(|error| (path.clone(), error))?);
            }
        }
    }
    for (name, target) in links {
        tree.insert_link(&name, &target);
    }
    Ok(tree)
}
