//! Where an applied object, or a field of it, was written: commit, file and line.
//!
//! Nothing is kept for it: what was applied is rendered again from the artifact, which is what it was applied from. So an answer is
//! given only while that artifact is the one in the store, and only to who may read the folder that it is in.

use std::path::Path;

use tenure_api::{Kustomization, ObjectId};
use tenure_sources::{Limits, StorageError};

use crate::artifacts::Artifacts;
use crate::render;
use crate::world::git_source;

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldOrigin {
    /// The source, as `GitRepository/<namespace>/<name>`.
    pub source: String,
    /// The revision that was applied, as `main@sha1:<commit>`.
    pub revision: String,
    /// The file's path in the repository.
    pub path: String,
    /// The line, from 1.
    pub line: u32,
}

/// Why it can't be told.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// The Kustomization has applied nothing yet, or names a source that has no files here.
    #[error("Kustomization {0} has applied nothing from an artifact that is stored here")]
    NothingApplied(String),
    /// The source has fetched another revision since.
    #[error("{applied} was applied, but {stored} is what is stored now: ask again once it is applied")]
    MovedOn {
        /// The revision that was applied.
        applied: String,
        /// The revision that is stored.
        stored: String,
    },
    /// The artifact can't be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Where an object that a Kustomization applied was written, or the field of it at a JSON pointer (empty: the object itself).
/// `artifacts` is the folder of [`crate::Config::artifacts`]. Reads from the disk and renders, so it blocks.
///
/// # Errors
/// [`OriginError`] when there is nothing to render from. `Ok(None)` when what is rendered does not hold the object or the field.
pub fn origin_of(
    artifacts: &Path,
    kustomization: &Kustomization,
    object: &ObjectId,
    field: &str,
) -> Result<Option<FieldOrigin>, OriginError> {
    let namespace = kustomization.metadata.namespace.as_deref().unwrap_or_default();
    let name = kustomization.metadata.name.as_deref().unwrap_or_default();
    let nothing = || OriginError::NothingApplied(format!("{namespace}/{name}"));
    let status = kustomization.status.as_ref();
    let applied = status
        .and_then(|status| status.last_applied_revision.clone())
        .ok_or_else(nothing)?;
    let reference = &kustomization.spec.source_ref;
    let source = git_source(namespace, &reference.name)?;
    let artifacts = Artifacts::look_into(artifacts, Limits::default());
    let record = artifacts.record(&source).ok_or_else(nothing)?;
    if record.stored.revision != applied {
        return Err(OriginError::MovedOn {
            applied,
            stored: record.stored.revision,
        });
    }
    let tree = artifacts
        .store
        .load(&source, &record.stored.digest, &artifacts.limits)?;
    let path = kustomization
        .spec
        .path
        .as_deref()
        .unwrap_or_default()
        .trim_start_matches("./")
        .to_owned();
    let target = kustomization.spec.target_namespace.as_deref();
    Ok(
        render::locate(&tree, &path, target, object, field).map(|location| FieldOrigin {
            source: format!("{}/{namespace}/{}", reference.kind, reference.name),
            revision: applied,
            path: location.path,
            line: location.line,
        }),
    )
}
