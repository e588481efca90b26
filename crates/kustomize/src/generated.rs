//! The kustomization of a directory without one: every manifest in and below the directory, as Flux generates it.

use std::borrow::Cow;

use go_yaml::emit;
use go_yaml::read::Lines;

use crate::accumulate::is_file;
use crate::error::Error;
use crate::kustomization::FILE_NAMES;
use crate::load::Loader;
use crate::options::{Limits, LoadRestrictor};
use crate::tree::{Entry, FileTree, clean_path};

/// Writes the kustomization of a directory that has none.
///
/// Every `*.yaml` and `*.yml` file in the directory and below is a resource, in path order. A directory below with a kustomization of its
/// own is one resource, and its files are not listed. As in Flux, a file without a Kubernetes object is an error. For a directory with a
/// kustomization, the function returns its text.
///
/// ```
/// use kustomize::{MapTree, generate};
///
/// let mut tree = MapTree::new();
/// tree.insert("apps/web.yaml", "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: web\n");
/// assert!(generate(&tree, "apps")?.ends_with("resources:\n- web.yaml\n"));
/// # Ok::<(), kustomize::Error>(())
/// ```
///
/// # Errors
/// If the directory is missing, or a file isn't a manifest.
pub fn generate(tree: &dyn FileTree, directory: &str) -> Result<String, Error> {
    let directory = clean_path(directory);
    for name in FILE_NAMES {
        let path = join_path(&directory, name);
        if let Some(Entry::File(bytes)) = tree.entry(&path) {
            return Loader::decode_text(&path, bytes).map(Cow::into_owned);
        }
    }
    generate_kustomization(tree, &directory)
}

/// Returns the text for a directory that is known to have no kustomization.
pub(crate) fn generate_kustomization(tree: &dyn FileTree, directory: &str) -> Result<String, Error> {
    if !matches!(tree.entry(directory), Some(Entry::Directory)) {
        return Err(Error::NotADirectory {
            directory: directory.to_owned(),
        });
    }
    let loader = Loader::new(tree, LoadRestrictor::RootOnly, Limits::default());
    let _passing = crate::meter::in_passing();
    let mut resources = Vec::new();
    collect_files(tree, &loader, directory, "", 0, &mut resources)?;
    let value = serde_json::json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
    });
    Ok(emit::write_document(&value))
}

fn collect_files(
    tree: &dyn FileTree,
    loader: &Loader<'_>,
    root: &str,
    inside: &str,
    depth: usize,
    resources: &mut Vec<String>,
) -> Result<(), Error> {
    let directory = join_path(root, inside);
    if depth > loader.limits.depth {
        return Err(Error::Limit {
            path: directory,
            what: "the depth of directories".to_owned(),
            limit: loader.limits.depth,
        });
    }
    let mut names = tree.list(&directory);
    names.sort();
    for name in names {
        let relative = join_path(inside, &name);
        let path = join_path(root, &relative);
        match tree.entry(&path) {
            Some(Entry::Directory) => {
                if FILE_NAMES
                    .iter()
                    .any(|file| is_file(tree.entry(&join_path(&path, file))))
                {
                    resources.push(relative);
                } else {
                    collect_files(tree, loader, root, &relative, depth + 1, resources)?;
                }
            }
            Some(Entry::File(bytes)) if has_manifest_name(&name) => {
                // Reading it now names the file that is no manifest, where the build would only name the generated list.
                loader.read_resources(&path, &Loader::decode_text(&path, bytes)?, Lines::After(0))?;
                resources.push(relative);
            }
            _ => {}
        }
    }
    Ok(())
}

fn has_manifest_name(name: &str) -> bool {
    std::path::Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn join_path(directory: &str, name: &str) -> String {
    match (directory.is_empty(), name.is_empty()) {
        (true, _) => name.to_owned(),
        (_, true) => directory.to_owned(),
        _ => format!("{directory}/{name}"),
    }
}
