//! Rendering: kustomize over an artifact's files, on a thread of its own and within a time. Owns the bounds; what is
//! built is kustomize's. Nothing is fetched while rendering, and nothing outside the artifact is read.

use std::sync::Arc;
use std::time::Duration;

use kustomize::{Build, FileTree, ImageOverride, Options, Overrides, PatchOverride, PatchTarget};
use tenure_api::selector::Selector;
use tenure_planner::kustomization::{RenderFailure, Rendered};
use tenure_planner::plan::RenderRequest;
use tenure_planner::{Object, Origin, Overlay, RenderedObject};
use tenure_sources::{SourceKey, StorageError, Tree};
use tokio::sync::Semaphore;

use crate::artifacts::Artifacts;

/// Renders what a plan asks for. A failure is part of the answer: it becomes a status.
pub(crate) async fn render(
    artifacts: &Artifacts,
    source: &SourceKey,
    request: &RenderRequest,
    permits: &Arc<Semaphore>,
    timeout: Duration,
) -> Rendered {
    let outcome = objects(artifacts, source, request, permits, timeout).await;
    Rendered {
        artifact_digest: request.artifact_digest.clone(),
        path: request.path.clone(),
        overlay: request.overlay.clone(),
        outcome,
    }
}

async fn objects(
    artifacts: &Artifacts,
    source: &SourceKey,
    request: &RenderRequest,
    permits: &Arc<Semaphore>,
    timeout: Duration,
) -> Result<Vec<RenderedObject>, RenderFailure> {
    let tree = artifacts
        .tree(source, &request.artifact_digest)
        .await
        .map_err(|error| RenderFailure {
            artifact_missing: matches!(
                error,
                StorageError::Missing { .. } | StorageError::DigestMismatch { .. }
            ),
            message: error.to_string(),
        })?;
    let failure = |message: String| RenderFailure {
        message,
        artifact_missing: false,
    };
    let late = || {
        failure(format!(
            "rendering {} took longer than {} s",
            request.path,
            timeout.as_secs()
        ))
    };
    let permit = tokio::time::timeout(timeout, Arc::clone(permits).acquire_owned()).await;
    let permit = permit.map_err(|_| {
        failure(format!(
            "rendering {} had to wait longer than {} s for others of the same tenant",
            request.path,
            timeout.as_secs()
        ))
    })?;
    let (path, overlay) = (request.path.clone(), request.overlay.clone());
    let rendering = tokio::task::spawn_blocking(move || {
        let outcome = build(&tree, &path, &overlay).map(rendered);
        // Held until here, also when nobody waits for the outcome any more.
        drop(permit);
        outcome
    });
    match tokio::time::timeout(timeout, rendering).await {
        Err(_) => Err(late()),
        Ok(Err(problem)) => Err(failure(format!("rendering {} ended early: {problem}", request.path))),
        Ok(Ok(outcome)) => outcome.map_err(failure),
    }
}

/// Renders a folder of a tree, as kustomize-controller would: a folder without a kustomization file is built as if one named every
/// YAML file below it.
///
/// # Errors
/// A message with file and line where there is one.
pub(crate) fn build(tree: &Tree, path: &str, overlay: &Overlay) -> Result<Build, String> {
    let folder = path.trim_matches('/');
    let folder = if folder == "." { "" } else { folder };
    let files = Files(tree);
    match files.entry(folder) {
        Some(kustomize::Entry::Directory) => {}
        Some(_) => return Err(format!("kustomization path {path:?} is not a folder of the source")),
        None => return Err(format!("kustomization path not found: {path:?} is not in the source")),
    }
    kustomize::build(&files, folder, &options(overlay)).map_err(|error| error.to_string())
}

fn rendered(built: Build) -> Vec<RenderedObject> {
    let resources = built.resources.into_iter();
    resources
        .map(|resource| RenderedObject {
            object: Object(resource.object),
            origin: Origin {
                path: resource.origin.location.path,
                line: resource.origin.location.line,
            },
        })
        .collect()
}

fn options(overlay: &Overlay) -> Options {
    let common = overlay.common_metadata.clone().unwrap_or_default();
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let target = |selector: &Selector| PatchTarget {
        group: text(&selector.group),
        version: text(&selector.version),
        kind: text(&selector.kind),
        name: text(&selector.name),
        namespace: text(&selector.namespace),
        label_selector: text(&selector.label_selector),
        annotation_selector: text(&selector.annotation_selector),
    };
    let patches = overlay.patches.iter().map(|patch| PatchOverride {
        patch: patch.patch.clone(),
        target: patch.target.as_ref().map(target),
    });
    let images = overlay.images.iter().map(|image| ImageOverride {
        name: image.name.clone(),
        new_name: text(&image.new_name),
        new_tag: text(&image.new_tag),
        digest: text(&image.digest),
    });
    Options {
        generate_missing: true,
        overrides: Overrides {
            namespace: overlay.target_namespace.clone(),
            name_prefix: overlay.name_prefix.clone(),
            name_suffix: overlay.name_suffix.clone(),
            patches: patches.collect(),
            images: images.collect(),
            components: overlay.components.clone(),
            ignore_missing_components: overlay.ignore_missing_components,
            build_metadata: overlay.build_metadata.clone(),
            labels: common.labels.unwrap_or_default(),
            annotations: common.annotations.unwrap_or_default(),
        },
        ..Options::default()
    }
}

/// An artifact's files, as kustomize reads them.
struct Files<'a>(&'a Tree);

impl FileTree for Files<'_> {
    fn entry(&self, path: &str) -> Option<kustomize::Entry<'_>> {
        if path.is_empty() {
            return Some(kustomize::Entry::Directory);
        }
        match self.0.entry(path)? {
            tenure_sources::Entry::File(content) => Some(kustomize::Entry::File(content)),
            tenure_sources::Entry::Directory => Some(kustomize::Entry::Directory),
            tenure_sources::Entry::Link(target) => Some(kustomize::Entry::Link(target)),
        }
    }

    fn list(&self, directory: &str) -> Vec<String> {
        self.0.list(directory).into_iter().map(Into::into).collect()
    }
}
