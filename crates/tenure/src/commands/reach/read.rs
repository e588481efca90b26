//! Reads objects from a cluster, with the rights of the caller, or from files.

use std::path::{Path, PathBuf};

use kubernetes_reach::{Coverage, ReadKind, SOURCES, Target, name_source};
use kustomize::Limits;
use serde_json::{Value, json};
use tenure_api::text::visible_line;

use super::super::build::{disk, find_existing, root_of};
use crate::failure::Failure;
use crate::paged_reads::{self, ReadRefusal};
use crate::{output, resources};

/// The largest number of objects of a kind.
const MOST: usize = 200_000;
/// The largest number of files of a folder, and the largest size of each.
const MOST_FILES: usize = 20_000;
const LARGEST_FILE: u64 = 256 << 20;
/// The largest number of YAML nodes in a file.
const MOST_NODES: usize = 100_000_000;
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Reads all objects about rights from a cluster.
pub(crate) async fn read_cluster(client: &kube::Client) -> Result<(Vec<Value>, Coverage), Failure> {
    let served = resources::list_served(client).await?;
    let mut objects = Vec::new();
    let mut coverage = Coverage {
        guard: find_guard(client).await?,
        ..Coverage::default()
    };
    for source in SOURCES {
        // An unserved kind has no objects.
        let Some(resource) = served
            .iter()
            .find(|resource| resource.group == source.group && resource.plural == source.resource)
        else {
            continue;
        };
        let accept = if source.metadata_only {
            METADATA
        } else {
            "application/json"
        };
        let show = |object: Value| objects.push(name_kind(object, source, &resource.version));
        match paged_reads::visit_objects(client, &resource.path(None), (accept, MOST), show).await {
            Ok(true) | Err(ReadRefusal::Absent) => {}
            Ok(false) => {
                output::print_note(format!(
                    "{}: more than {MOST}, the rest is not read",
                    name_source(source)
                ));
                coverage.unread.insert(name_source(source));
            }
            Err(refusal) => {
                output::print_note(format!(
                    "{}: {}",
                    name_source(source),
                    visible_line(&refusal.to_string())
                ));
                coverage.unread.insert(name_source(source));
            }
        }
    }
    Ok((objects, coverage))
}

/// Finds the guard of the embedded control plane. The guard has no object, so the server's version reveals it.
async fn find_guard(client: &kube::Client) -> Result<Option<String>, Failure> {
    let version = client.apiserver_version().await?;
    let is_embedded = version.git_version.contains("tenure");
    Ok(is_embedded.then(|| "the guard of the embedded control plane".to_owned()))
}

/// Adds the kind to an object of a list, which lacks it.
fn name_kind(mut object: Value, source: &ReadKind, version: &str) -> Value {
    let api_version = match source.group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    };
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), json!(api_version));
        fields.insert("kind".to_owned(), json!(source.kind));
        if source.metadata_only {
            fields.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "metadata"));
        }
    }
    object
}

/// Reads the objects of a file or a folder. A folder with a kustomization is built; else all its YAML and JSON files are read.
pub(super) fn read_manifests(path: &Path) -> Result<Vec<Value>, Failure> {
    let broken = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
    let metadata = std::fs::metadata(path).map_err(|error| broken(&error))?;
    if metadata.is_file() {
        return read_file(path);
    }
    let is_kustomization = ["kustomization.yaml", "kustomization.yml", "Kustomization"]
        .iter()
        .any(|name| path.join(name).is_file());
    if is_kustomization {
        let folder = find_existing(path)?;
        let root = root_of(&folder);
        let inside = folder
            .strip_prefix(&root)
            .unwrap_or(Path::new(""))
            .to_string_lossy()
            .into_owned();
        let tree = disk::Disk::new(root);
        let mut objects = Vec::new();
        kustomize::build_each(&tree, &inside, &kustomize::Options::default(), &mut |resource| {
            objects.push(without_values(resource.to_json()));
        })
        .map_err(|error| broken(&error))?;
        return Ok(objects);
    }
    let mut objects = Vec::new();
    for file in list_files(path)? {
        objects.extend(read_file(&file)?);
    }
    Ok(objects)
}

fn read_file(path: &Path) -> Result<Vec<Value>, Failure> {
    let broken = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| broken(&error))?.len();
    if size > LARGEST_FILE {
        return Err(broken(&format!("it is larger than {} MiB", LARGEST_FILE >> 20)));
    }
    let text = std::fs::read_to_string(path).map_err(|error| broken(&error))?;
    let limits = Limits {
        bytes: usize::try_from(LARGEST_FILE).unwrap_or(usize::MAX),
        documents: MOST,
        nodes: MOST_NODES,
        resources: MOST,
        ..Limits::default()
    };
    let objects = kustomize::read_manifests(&path.to_string_lossy(), &text, &limits).map_err(|error| broken(&error))?;
    Ok(objects.iter().map(|object| without_values(object.to_json())).collect())
}

/// Removes the values of a Secret.
fn without_values(mut object: Value) -> Value {
    if object.get("kind").and_then(Value::as_str) == Some("Secret")
        && let Some(fields) = object.as_object_mut()
    {
        fields.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "type"));
    }
    object
}

/// Lists the YAML and JSON files below a folder. Links are not followed.
fn list_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let broken = |error: std::io::Error| Failure::usage(format!("{}: {error}", folder.display()));
        for entry in std::fs::read_dir(&folder).map_err(broken)? {
            let entry = entry.map_err(broken)?;
            let kind = entry.file_type().map_err(broken)?;
            let path = entry.path();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file()
                && path
                    .extension()
                    .is_some_and(|end| end == "yaml" || end == "yml" || end == "json")
            {
                files.push(path);
            }
            if files.len() > MOST_FILES || folders.len() > MOST_FILES {
                return Err(Failure::usage(format!(
                    "{}: it has more than {MOST_FILES} files",
                    folder.display()
                )));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Reads KIND/NAMESPACE/NAME or KIND/NAME, without a cluster. The kind is a resource or a kind, with its group after a dot if it isn't well known.
pub(super) fn read_target(text: &str) -> Result<Target, Failure> {
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        [kind, name] => (*kind, "", *name),
        [kind, namespace, name] => (*kind, *namespace, *name),
        _ => {
            return Err(Failure::usage(format!("{text:?} is no object")).hint(
                "write KIND/NAMESPACE/NAME, such as secrets/shop/token, or KIND/NAME, such as namespaces/kube-system",
            ));
        }
    };
    let (kind, group) = kind
        .split_once('.')
        .map_or((kind, None), |(kind, group)| (kind, Some(group)));
    let kind = kind.to_ascii_lowercase();
    let known = SOURCES.iter().find(|source| {
        (source.resource == kind || source.kind.eq_ignore_ascii_case(&kind))
            && group.is_none_or(|group| group == source.group)
    });
    let (group, resource) = match (known, group) {
        (Some(source), _) => (source.group.to_owned(), source.resource.to_owned()),
        (None, Some(group)) => (group.to_owned(), kind),
        (None, None) => (String::new(), kind),
    };
    // Rights on a Namespace may come from bindings inside of it.
    let namespace = if resource == "namespaces" { name } else { namespace };
    Ok(Target {
        group,
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_people_type_them() {
        for (text, wanted) in [
            ("Secret/a/b", (" secrets", "a", "b")),
            ("secrets/a/b", (" secrets", "a", "b")),
            ("namespace/a", (" namespaces", "a", "a")),
            ("deployments.apps/a/b", ("apps deployments", "a", "b")),
            ("widgets.example.org/b", ("example.org widgets", "", "b")),
        ] {
            let target = read_target(text).expect(text);
            let found = format!("{} {}", target.group, target.resource);
            assert_eq!(
                (found.as_str(), target.namespace.as_str(), target.name.as_str()),
                wanted,
                "{text}"
            );
        }
        assert!(read_target("secrets").is_err());
    }

    #[test]
    fn a_secret_has_no_values() {
        let read = without_values(
            json!({"kind": "Secret", "data": {"a": "b"}, "stringData": {"c": "d"}, "type": "x", "metadata": {"name": "n"}}),
        );
        assert_eq!(read, json!({"kind": "Secret", "type": "x", "metadata": {"name": "n"}}));
    }
}
