//! `tenure build DIR`: what `kustomize build` prints, with the flags of its users. Owns which folder is the tree and where the result
//! goes; refuses to fetch, to run anything, and to read outside the tree.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use kustomize::{Budget, Error, LoadRestrictor, Options, Reorder};

pub(super) mod disk;
mod refused;

use crate::failure::Failure;
use crate::{output, quantity};

/// Switches the label on for people who set it once and for all.
const MANAGED_BY: &str = "KUSTOMIZE_ENABLE_MANAGEDBY_LABEL";

/// Build a kustomization, as `kustomize build` does.
#[derive(Debug, Args)]
pub(crate) struct Build {
    /// Folder with a kustomization [default: the current one].
    #[arg(value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Write to a file instead of standard output, or a file for each object into a folder that exists; `-` is standard output.
    #[arg(short, long, value_name = "FILE|DIR")]
    output: Option<PathBuf>,
    /// Where files that a kustomization names may be: in or below its own folder, or (LoadRestrictionsNone) anywhere.
    #[arg(long, value_name = "RESTRICTION", default_value = "LoadRestrictionsRootOnly")]
    load_restrictor: String,
    /// Add the label app.kubernetes.io/managed-by (deprecated: `managedByLabel` in the kustomization's buildMetadata).
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_managedby_label: Option<bool>,
    /// `legacy` or `none` (deprecated: `sortOptions` in the kustomization).
    #[arg(long, value_name = "ORDER")]
    reorder: Option<String>,
    /// Accepted and without effect: it says as whom functions run, and none are run.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    as_current_user: Option<bool>,
    /// What the build may make all together, like 512MiB; 0 for as much as it likes.
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = quantity::parse_bytes)]
    rendering_bytes: u64,
    /// How many steps the build may take, of some five nanoseconds each; 0 for as many as it likes.
    #[arg(long, value_name = "STEPS", default_value_t = kustomize::Budget::default().steps)]
    rendering_steps: u64,
    #[command(flatten)]
    refused: refused::Refused,
}

/// One object, written.
struct Written {
    name: kustomize::FileName,
    text: Box<str>,
}

impl Build {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let folder = match self.folders.as_slice() {
            [] => Path::new("."),
            [only] => only,
            _ => return Err(Failure::usage("specify one path to kustomization.yaml")),
        };
        let load_restrictor = match self.load_restrictor.as_str() {
            "LoadRestrictionsRootOnly" | "" => LoadRestrictor::RootOnly,
            "LoadRestrictionsNone" => LoadRestrictor::None,
            other => {
                return Err(illegal(
                    "load-restrictor",
                    other,
                    "LoadRestrictionsRootOnly LoadRestrictionsNone",
                ));
            }
        };
        let options = Options {
            load_restrictor,
            managed_by_label: self.managed_by_label(),
            reorder: self.order()?,
            budget: self.budget(),
            ..Options::default()
        };
        self.refused.check()?;
        let folder = existing(folder)?;
        let root = match load_restrictor {
            LoadRestrictor::RootOnly => root_of(&folder),
            LoadRestrictor::None => Path::new("/").to_owned(),
        };
        let inside = folder.strip_prefix(&root).unwrap_or(Path::new("")).to_string_lossy();
        let tree = disk::Disk::new(root.clone());
        let mut objects = Vec::new();
        let warnings = kustomize::build_each(&tree, &inside, &options, &mut |resource| {
            objects.push(Written {
                name: resource.file_name(),
                text: resource.to_yaml().into(),
            });
        })
        .map_err(|error| match tree.trouble() {
            Some(trouble) => Failure::environment(format!("{error} ({trouble})")),
            None => {
                let failure = Failure::negative(error.to_string());
                match error {
                    Error::Budget { .. } => failure.hint("--rendering-bytes and --rendering-steps set the budget"),
                    _ => failure,
                }
            }
        })?;
        for warning in &warnings {
            output::print_note(format!("# Warning: {}", tenure_api::text::visible(warning)));
        }
        match self.output.as_deref().filter(|path| *path != Path::new("-")) {
            Some(path) if path.is_dir() => write_each(path, &objects)?,
            Some(path) => std::fs::File::create(path)
                .and_then(|file| write_all(std::io::BufWriter::new(file), &objects))
                .map_err(|error| Failure::environment(format!("{}: {error}", path.display())))?,
            None => output::print_written(|out| write_all(out, &objects)),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn budget(&self) -> Budget {
        let or_none = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        Budget {
            bytes: or_none(self.rendering_bytes),
            steps: or_none(self.rendering_steps),
        }
    }

    fn managed_by_label(&self) -> bool {
        if self.enable_managedby_label.is_some() {
            output::print_note(
                "Flag --enable-managedby-label has been deprecated, use 'managedByLabel' in the 'buildMetadata' field instead.",
            );
        }
        self.enable_managedby_label == Some(true) || std::env::var(MANAGED_BY).is_ok_and(|value| value == "on")
    }

    fn order(&self) -> Result<Reorder, Failure> {
        let Some(order) = self.reorder.as_deref() else {
            return Ok(Reorder::Unspecified);
        };
        output::print_note(
            "Flag --reorder has been deprecated, use the new 'sortOptions' field in kustomization.yaml instead.",
        );
        match order {
            "legacy" => Ok(Reorder::Legacy),
            "none" => Ok(Reorder::None),
            other => Err(illegal("reorder", other, "legacy none")),
        }
    }
}

fn illegal(flag: &str, value: &str, legal: &str) -> Failure {
    Failure::usage(format!("illegal flag value --{flag} {value}; legal values: [{legal}]"))
}

/// The folder to build, links followed.
pub(super) fn existing(folder: &Path) -> Result<PathBuf, Failure> {
    let shown = folder.display();
    if folder.as_os_str().is_empty() {
        return Err(Failure::usage(
            "must build at directory: directory path cannot be empty",
        ));
    }
    let found = folder.canonicalize().map_err(|error| {
        let failure = Failure::usage(format!("must build at directory: '{shown}': {error}"));
        if kustomize::is_remote(&folder.to_string_lossy()) {
            return failure.hint("nothing is fetched during a build: clone the repository and name a folder of it");
        }
        failure
    })?;
    if found.is_dir() {
        return Ok(found);
    }
    Err(
        Failure::usage(format!("must build at directory: '{shown}': file is not directory"))
            .hint("name the folder that holds the kustomization file"),
    )
}

fn write_all(mut out: impl Write, objects: &[Written]) -> std::io::Result<()> {
    for (position, object) in objects.iter().enumerate() {
        if position > 0 {
            out.write_all(b"---\n")?;
        }
        out.write_all(object.text.as_bytes())?;
    }
    out.flush()
}

/// Writes a file for each object; their names begin with the namespace when there are several.
fn write_each(folder: &Path, objects: &[Written]) -> Result<(), Failure> {
    let first = objects.iter().find_map(|object| object.name.namespace.as_ref());
    let several = objects
        .iter()
        .any(|object| object.name.namespace.is_some() && object.name.namespace.as_ref() != first);
    for object in objects {
        let name = match &object.name.namespace {
            Some(namespace) if several => format!("{namespace}_{}", object.name.name),
            _ => object.name.name.clone(),
        };
        if name.contains('/') {
            return Err(Failure::negative(format!(
                "'{name}' can't be the name of a file: an object's name or namespace has a slash"
            )));
        }
        let path = folder.join(name);
        std::fs::write(&path, object.text.as_bytes())
            .map_err(|error| Failure::environment(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// The largest file that is searched for folders that a kustomization leads to.
const LARGEST_KUSTOMIZATION: u64 = 8 << 20;

/// The repository that the folder is in; the folder's own ancestor without one.
///
/// A base may lie beside the folder (`../../base`), so more than the folder has to be read; the repository is what a
/// reconciler would see.
pub(super) fn root_of(folder: &Path) -> PathBuf {
    folder
        .ancestors()
        .find(|ancestor| ancestor.join(".git").exists())
        .map_or_else(|| reach(folder), Path::to_path_buf)
}

/// The text of a file. A link may lead to a device or a pipe, which has no end, or makes its reader wait.
fn read_small_file(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let is_small = metadata.is_file() && metadata.len() <= LARGEST_KUSTOMIZATION;
    is_small.then(|| std::fs::read_to_string(path).ok())?
}

/// Outside a repository: as far up as the kustomizations reach that this one leads to, in whichever folders they are.
fn reach(folder: &Path) -> PathBuf {
    let mut root = folder.to_path_buf();
    let mut waiting = vec![folder.to_path_buf()];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(place) = waiting.pop() {
        if !seen.insert(place.clone()) {
            continue;
        }
        for name in ["kustomization.yaml", "kustomization.yml", "Kustomization"] {
            let Some(text) = read_small_file(&place.join(name)) else {
                continue;
            };
            // Any word may name a folder, and a folder below may reach up. An absolute path is never one of a kustomization's.
            for word in text
                .split(|c: char| c.is_whitespace() || "\"',[]{}=".contains(c))
                .filter(|word| !word.is_empty() && !word.starts_with('/'))
            {
                let Ok(target) = place.join(word).canonicalize() else {
                    continue;
                };
                if word.contains("..") {
                    while !target.starts_with(&root) {
                        if !root.pop() {
                            break;
                        }
                    }
                }
                if target.is_dir() {
                    waiting.push(target);
                }
            }
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outside a repository nothing says how far up a build may read, so kustomizations are searched. One may be a link to anything.
    #[test]
    fn a_search_reads_neither_devices_nor_pipes() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let [below, other] = ["app/overlay", "app/base"].map(|name| root.join(name));
        for place in [&below, &other] {
            std::fs::create_dir_all(place).expect("a folder");
        }
        std::os::unix::fs::symlink("/dev/zero", below.join("kustomization.yml")).expect("a link");
        let made = std::process::Command::new("mkfifo")
            .arg(below.join("Kustomization"))
            .status();
        assert!(made.expect("mkfifo").success());
        assert_eq!(reach(&below), below);
        // The control: a file that is none of these.
        std::fs::write(below.join("kustomization.yaml"), "resources: [../base]\n").expect("a file");
        assert_eq!(reach(&below), root.join("app"));
    }
}
