//! Reads plain manifests without a kustomization, with the same reader as the build.

use std::sync::Arc;

use go_yaml::json::resource_value;
use go_yaml::read::Lines;
use serde_json::Value;

use crate::collection::HIDDEN_REASON;
use crate::error::Error;
use crate::load::Loader;
use crate::options::{Limits, LoadRestrictor};
use crate::output::BuiltResource;
use crate::touched::Register;
use crate::tree::MapTree;

/// Reads all objects of a text of YAML or JSON documents; lists are taken apart. `path` names the text in errors and origins.
///
/// ```
/// let text = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n---\n# nothing\n";
/// let objects = kustomize::read_manifests("a.yaml", text, &kustomize::Limits::default())?;
/// assert_eq!(objects.len(), 1);
/// # Ok::<(), kustomize::Error>(())
/// ```
///
/// # Errors
/// If the text isn't YAML, a document is no Kubernetes object, or a limit is passed.
pub fn read_manifests(path: &str, text: &str, limits: &Limits) -> Result<Vec<BuiltResource>, Error> {
    let tree = MapTree::new();
    let loader = Loader::new(&tree, LoadRestrictor::RootOnly, *limits);
    let resources = loader.read_resources(path, text, Lines::After(0))?;
    let register = Arc::new(Register {
        files: loader.into_sources(),
        steps: Vec::new(),
    });
    resources
        .into_iter()
        .map(|resource| {
            let object = resource_value(&resource.node).map_err(|problem| Error::Object {
                path: path.to_owned(),
                line: problem.line,
                message: if resource.is_confidential() {
                    HIDDEN_REASON.to_owned()
                } else {
                    problem.message
                },
            })?;
            Ok(BuiltResource::new(object, resource, Arc::clone(&register)))
        })
        .collect()
}

/// Writes a JSON value as one YAML document, as kustomize and kubectl write objects.
#[must_use]
pub fn to_yaml(value: &Value) -> String {
    go_yaml::emit::write_document(value)
}
