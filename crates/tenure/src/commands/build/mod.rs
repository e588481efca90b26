//! `tenure build DIR`: the output of `kustomize build`, with the same flags. The module chooses the tree and writes the result. A build fetches nothing, runs nothing,
//! and reads nothing outside the tree.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use kustomize::{Budget, Error, LoadRestrictor, Options, Reorder};

pub(super) mod disk;
mod refused_flags;

use crate::failure::Failure;
use crate::{output, quantity};

/// The variable with which users enable the label permanently.
const MANAGED_BY: &str = "KUSTOMIZE_ENABLE_MANAGEDBY_LABEL";

/// Build a kustomization, as `kustomize build` does.
#[derive(Debug, Args)]
pub(crate) struct Build {
    /// Folder with a kustomization [default: the current folder].
    #[arg(value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// File for the output, or an existing folder for one file per object; `-` for standard output, which is the default.
    #[arg(short, long, value_name = "FILE|DIR")]
    output: Option<PathBuf>,
    /// Restriction on the files that a kustomization names: in or below its own folder, or (LoadRestrictionsNone) anywhere.
    #[arg(long, value_name = "RESTRICTION", default_value = "LoadRestrictionsRootOnly")]
    load_restrictor: String,
    /// Add the label app.kubernetes.io/managed-by. Deprecated: use `managedByLabel` in the kustomization's buildMetadata.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_managedby_label: Option<bool>,
    /// Order of the objects, `legacy` or `none`. Deprecated: use `sortOptions` in the kustomization.
    #[arg(long, value_name = "ORDER")]
    reorder: Option<String>,
    /// Accepted without effect: the flag sets the user for functions, and Tenure runs none.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    as_current_user: Option<bool>,
    /// Maximum number of bytes that the build makes in all, such as 512MiB; 0 for no limit.
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = quantity::parse_bytes)]
    rendering_bytes: u64,
    /// Maximum number of steps that the build takes, of some five nanoseconds each; 0 for no limit.
    #[arg(long, value_name = "STEPS", default_value_t = kustomize::Budget::default().steps)]
    rendering_steps: u64,
    #[command(flatten)]
    refused: refused_flags::Refused,
}

/// One object as text.
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
                return Err(refuse_value(
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
        let folder = find_existing(folder)?;
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
            other => Err(refuse_value("reorder", other, "legacy none")),
        }
    }
}

fn refuse_value(flag: &str, value: &str, legal: &str) -> Failure {
    Failure::usage(format!("illegal flag value --{flag} {value}; legal values: [{legal}]"))
}

/// Returns the path of an existing folder, with links resolved.
pub(super) fn find_existing(folder: &Path) -> Result<PathBuf, Failure> {
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

/// Writes a file for each object. File names begin with the namespace if the objects have several namespaces.
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

/// The largest file that is searched for folders of a kustomization.
const LARGEST_KUSTOMIZATION: u64 = 8 << 20;

/// Returns the repository of the folder, or an ancestor of the folder without a repository.
///
/// A base may be beside the folder (`../../base`), so a build has to read more than the folder. A reconciler sees the whole repository.
pub(super) fn root_of(folder: &Path) -> PathBuf {
    folder
        .ancestors()
        .find(|ancestor| ancestor.join(".git").exists())
        .map_or_else(|| find_reach(folder), Path::to_path_buf)
}

/// Reads a small file. A link may lead to a device or a pipe, which is endless or blocks its reader.
fn read_small_file(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let is_small = metadata.is_file() && metadata.len() <= LARGEST_KUSTOMIZATION;
    is_small.then(|| std::fs::read_to_string(path).ok())?
}

/// Outside a repository, returns the topmost folder to which this kustomization leads, directly or through others.
fn find_reach(folder: &Path) -> PathBuf {
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
            // Every word may name a folder, and a folder below may lead up. A kustomization never has absolute paths.
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

    /// Outside a repository, the search through kustomizations decides how far up a build may read. A kustomization may be a link to any file.
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
        assert_eq!(find_reach(&below), below);
        // The control: a regular file.
        std::fs::write(below.join("kustomization.yaml"), "resources: [../base]\n").expect("a file");
        assert_eq!(find_reach(&below), root.join("app"));
    }
}
