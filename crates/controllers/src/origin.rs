//! What a Kustomization applied, built again: where an object, and each field of it, was written.
//!
//! Nothing is kept for it: it is rendered from the artifact that it was applied from, in the same way. So an answer is given only while
//! that artifact is the one in the store, and only to who may read the folder that it is in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kustomize::BuiltResource;
use tenure_api::{Kustomization, ObjectId, ObjectMeta};
use tenure_planner::{Overlay, RenderInputs};
use tenure_sources::{Limits, StorageError};

use crate::artifacts::{ArtifactRecords, Depot, make_source_key};
use crate::lane_mode::LANE_FOLDERS;
use crate::render;

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
    /// What was applied does not build any more, or builds no such object.
    #[error("{0}")]
    NotBuilt(String),
}

/// The folders that artifacts may be in: the controllers' own, and those of lanes that are processes.
fn list_stores(artifacts: &Path) -> Vec<PathBuf> {
    let lanes = std::fs::read_dir(artifacts.join(LANE_FOLDERS));
    let lanes = lanes.into_iter().flatten().flatten().map(|entry| entry.path());
    std::iter::once(artifacts.to_path_buf()).chain(lanes).collect()
}

/// What a Kustomization applied, as it was built then.
pub struct Rebuilt {
    /// The Kustomization: namespace and name.
    kustomization: String,
    resources: Vec<BuiltResource>,
    /// Where variables come from that nobody reads here, if it has such.
    unread: Vec<String>,
}

impl Rebuilt {
    /// One of the objects; [`BuiltResource::locate`] then says where each field was written.
    #[must_use]
    pub fn find(&self, object: &ObjectId) -> Option<&BuiltResource> {
        self.resources.iter().find(|resource| is_built(resource, object))
    }
}

fn is_built(resource: &BuiltResource, object: &ObjectId) -> bool {
    ObjectId::of(&resource.object).is_ok_and(|found| {
        // A namespace that the file does not say may still have been given when it was applied.
        found == *object
            || (found.namespace.is_empty()
                && ObjectId {
                    namespace: object.namespace.clone(),
                    ..found
                } == *object)
    })
}

/// The object as it was built when the Kustomization applied it: one of what [`build_applied`] builds, in the same way.
///
/// # Errors
/// [`OriginError`].
pub fn build_object(
    artifacts: &Path,
    applied: (&Kustomization, &ObjectMeta),
    object: &ObjectId,
) -> Result<BuiltResource, OriginError> {
    let Rebuilt {
        kustomization,
        resources,
        unread,
    } = build_applied(artifacts, applied)?;
    let found = resources.into_iter().find(|resource| is_built(resource, object));
    found.ok_or_else(|| {
        let unknown = if unread.is_empty() {
            String::new()
        } else {
            let from = unread.join(", ");
            format!(", as far as that can be told without the variables of {from} (spec.postBuild.substituteFrom)")
        };
        OriginError::NotBuilt(format!(
            "{} is not among what {kustomization} applied{unknown}",
            object.subject()
        ))
    })
}

/// What the Kustomization applied from its source, of which the metadata are given, built again from the same artifact.
/// `artifacts` is the folder of [`crate::Config::artifacts`], which the controllers may be using. It reads and renders, so it blocks.
///
/// # Errors
/// [`OriginError`].
pub fn build_applied(
    artifacts: &Path,
    (kustomization, source): (&Kustomization, &ObjectMeta),
) -> Result<Rebuilt, OriginError> {
    let namespace = kustomization.metadata.namespace.as_deref().unwrap_or_default();
    let name = kustomization.metadata.name.as_deref().unwrap_or_default();
    let nothing = || OriginError::NothingApplied(format!("{namespace}/{name}"));
    let status = kustomization.status.as_ref();
    let applied = status
        .and_then(|status| status.last_applied_revision.clone())
        .ok_or_else(nothing)?;
    let source = make_source_key(&kustomization.spec.source_ref.kind, source)?;
    let (depot, record) = list_stores(artifacts)
        .into_iter()
        .find_map(|folder| {
            let depot = Arc::new(Depot::look_into(&folder, Limits::default()));
            let record = ArtifactRecords::new(Arc::clone(&depot)).record(&source)?;
            Some((depot, record))
        })
        .ok_or_else(nothing)?;
    if record.facts.revision != applied {
        return Err(OriginError::MovedOn {
            applied,
            stored: record.facts.revision,
        });
    }
    let tree = depot.store.load(&source, &record.facts.digest, &depot.limits)?;
    let path = kustomization.spec.path.as_deref().unwrap_or_default();
    let path = path.trim_start_matches("./");
    let overlay = Overlay::of(&kustomization.spec).map_err(OriginError::NotBuilt)?;
    let post_build = kustomization.spec.post_build.as_ref();
    let inputs = post_build.map(RenderInputs::inline).unwrap_or_default();
    let build = |inputs: &RenderInputs| {
        render::build_tree(
            &render::Files(&tree),
            path,
            (&overlay, inputs),
            render::Bounds::default(),
        )
        .map(|(built, _)| built)
    };
    let from = post_build.map_or(&[][..], |post_build| post_build.substitute_from.as_slice());
    let built = match build(&inputs) {
        // What it was applied with is read by nobody here: then it is looked for as it is written.
        Err(_) if !from.is_empty() => build(&RenderInputs::default()),
        built => built,
    };
    let built = built.map_err(|unbuilt| OriginError::NotBuilt(unbuilt.message))?;
    Ok(Rebuilt {
        kustomization: format!("{namespace}/{name}"),
        resources: built.resources,
        unread: from.iter().map(|from| format!("{}/{}", from.kind, from.name)).collect(),
    })
}
