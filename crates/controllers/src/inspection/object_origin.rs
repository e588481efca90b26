//! Rebuilds the applied objects of a Kustomization, to find where an object and each of its fields was written.
//!
//! Nothing is stored for this: the objects are rendered again, from the artifact that was applied and in the same way. So an answer exists only while
//! that artifact is stored. The caller has the artifact's files, or may read the folder of the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kustomize::BuiltResource;
use tenure_api::{Kustomization, ObjectId, ObjectMeta};
use tenure_planner::{Overlay, RenderInputs};
use tenure_sources::{Limits, StorageError, Tree};

use crate::artifacts::storage::{ArtifactRecords, ArtifactStorage, make_source_key};
use crate::context::lane_settings::LANE_FOLDERS;
use crate::rendering::renderer;

/// Why the origin is unknown.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// The Kustomization has applied nothing yet, or names a source that has no files here.
    #[error("Kustomization {0} has applied nothing from an artifact that is stored here")]
    NothingApplied(String),
    /// The source has fetched another revision since.
    #[error("{applied} was applied, but {stored} is stored now: ask again after it is applied")]
    MovedOn {
        /// The revision that was applied.
        applied: String,
        /// The revision that is stored.
        stored: String,
    },
    /// The artifact can't be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The applied files no longer build, or build no such object.
    #[error("{0}")]
    NotBuilt(String),
}

/// Returns the folders that may have artifacts: the controllers' own, and those of lanes' processes.
fn list_stores(artifacts: &Path) -> Vec<PathBuf> {
    let lanes = std::fs::read_dir(artifacts.join(LANE_FOLDERS));
    let lanes = lanes.into_iter().flatten().flatten().map(|entry| entry.path());
    std::iter::once(artifacts.to_path_buf()).chain(lanes).collect()
}

/// The objects of a Kustomization, rendered again: as the Kustomization applied them, or as it would apply them. Each knows where its fields were
/// written.
#[derive(Debug)]
pub struct RebuiltObjects {
    /// The Kustomization: namespace and name.
    kustomization: String,
    resources: Vec<BuiltResource>,
    /// Sources of variables that were not read here.
    unread: Vec<String>,
}

impl RebuiltObjects {
    /// Wraps objects that were rendered with the values of all variables.
    pub(crate) fn of_preview(kustomization: String, resources: Vec<BuiltResource>) -> Self {
        Self {
            kustomization,
            resources,
            unread: Vec::new(),
        }
    }

    /// Returns one of the objects. [`BuiltResource::locate`] then returns where each field was written.
    #[must_use]
    pub fn find(&self, object: &ObjectId) -> Option<&BuiltResource> {
        self.resources.iter().find(|resource| is_built(resource, object))
    }

    /// Returns one of the objects, without the others.
    ///
    /// # Errors
    /// [`OriginError::NotBuilt`] if it is not among them.
    pub fn take_object(self, object: &ObjectId) -> Result<BuiltResource, OriginError> {
        let Self {
            kustomization,
            resources,
            unread,
        } = self;
        let found = resources.into_iter().find(|resource| is_built(resource, object));
        found.ok_or_else(|| {
            let unknown = if unread.is_empty() {
                String::new()
            } else {
                let from = unread.join(", ");
                format!(", but the variables of {from} (spec.postBuild.substituteFrom) are unknown")
            };
            OriginError::NotBuilt(format!(
                "{} is not among the objects that {kustomization} applied{unknown}",
                object.subject()
            ))
        })
    }
}

fn is_built(resource: &BuiltResource, object: &ObjectId) -> bool {
    ObjectId::from_object(&resource.object).is_ok_and(|found| {
        // A namespace that the file does not name may have been set by the apply.
        found == *object
            || (found.namespace.is_empty()
                && ObjectId {
                    namespace: object.namespace.clone(),
                    ..found
                } == *object)
    })
}

/// Builds the object as the Kustomization applied it: one of the objects of [`build_applied`], in the same way.
///
/// # Errors
/// [`OriginError`].
pub fn build_object(
    artifacts: &Path,
    applied: (&Kustomization, &ObjectMeta),
    object: &ObjectId,
) -> Result<BuiltResource, OriginError> {
    build_applied(artifacts, applied)?.take_object(object)
}

/// Renders again the objects that the Kustomization applied, from the same artifact of its source. `artifacts` is the folder of
/// [`crate::Config::artifacts`], which the controllers may be using. The function reads and renders, so it blocks.
///
/// # Errors
/// [`OriginError`].
pub fn build_applied(
    artifacts: &Path,
    (kustomization, source): (&Kustomization, &ObjectMeta),
) -> Result<RebuiltObjects, OriginError> {
    let source = make_source_key(&kustomization.spec.source_ref.kind, source)?;
    let (artifact_storage, record) = list_stores(artifacts)
        .into_iter()
        .find_map(|folder| {
            let artifact_storage = Arc::new(ArtifactStorage::open_read_only(&folder, Limits::default()));
            let record = ArtifactRecords::new(Arc::clone(&artifact_storage)).record(&source)?;
            Some((artifact_storage, record))
        })
        .ok_or_else(|| OriginError::NothingApplied(name_kustomization(kustomization)))?;
    check_applied(kustomization, &record.facts.revision)?;
    let tree = artifact_storage
        .store
        .load(&source, &record.facts.digest, &artifact_storage.limits)?;
    render_applied(kustomization, &tree)
}

/// Checks that the Kustomization applied the stored revision of its source.
///
/// # Errors
/// [`OriginError::NothingApplied`] or [`OriginError::MovedOn`].
pub fn check_applied(kustomization: &Kustomization, stored: &str) -> Result<(), OriginError> {
    let status = kustomization.status.as_ref();
    let applied = status.and_then(|status| status.last_applied_revision.as_deref());
    match applied {
        Some(applied) if applied == stored => Ok(()),
        Some(applied) => Err(OriginError::MovedOn {
            applied: applied.to_owned(),
            stored: stored.to_owned(),
        }),
        None => Err(OriginError::NothingApplied(name_kustomization(kustomization))),
    }
}

/// Renders the files of the artifact that the Kustomization applied, in the same way. [`check_applied`] says whether an artifact is the applied one. The function
/// computes for long, so it blocks.
///
/// # Errors
/// [`OriginError::NotBuilt`].
pub fn render_applied(kustomization: &Kustomization, tree: &Tree) -> Result<RebuiltObjects, OriginError> {
    let path = kustomization.spec.path.as_deref().unwrap_or_default();
    let path = path.trim_start_matches("./");
    let overlay = Overlay::from_spec(&kustomization.spec).map_err(OriginError::NotBuilt)?;
    let post_build = kustomization.spec.post_build.as_ref();
    let inputs = post_build.map(RenderInputs::inline).unwrap_or_default();
    let build = |inputs: &RenderInputs| {
        renderer::build_tree(
            &renderer::TreeFiles(tree),
            path,
            (&overlay, inputs),
            renderer::RunLimits::default(),
        )
        .map(|(built, _)| built)
    };
    let from = post_build.map_or(&[][..], |post_build| post_build.substitute_from.as_slice());
    let built = match build(&inputs) {
        // The variables' values are not read here. The build is retried without them, and finds objects as they are written.
        Err(_) if !from.is_empty() => build(&RenderInputs::default()),
        built => built,
    };
    let built = built.map_err(|unbuilt| OriginError::NotBuilt(unbuilt.message))?;
    Ok(RebuiltObjects {
        kustomization: name_kustomization(kustomization),
        resources: built.resources,
        unread: from.iter().map(|from| format!("{}/{}", from.kind, from.name)).collect(),
    })
}

fn name_kustomization(kustomization: &Kustomization) -> String {
    let namespace = kustomization.metadata.namespace.as_deref().unwrap_or_default();
    let name = kustomization.metadata.name.as_deref().unwrap_or_default();
    format!("{namespace}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_applied_revision_is_the_origin() {
        let mut text = serde_json::json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"interval": "1h", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "web"}}
        });
        let check = |text: &serde_json::Value, stored: &str| {
            let kustomization: Kustomization = serde_json::from_value(text.clone()).expect("a Kustomization");
            check_applied(&kustomization, stored).map_err(|error| error.to_string())
        };
        let refused = check(&text, "main@sha1:1").expect_err("nothing is applied");
        assert!(refused.contains("shop/web has applied nothing"), "{refused}");
        text["status"] = serde_json::json!({"lastAppliedRevision": "main@sha1:1"});
        assert_eq!(check(&text, "main@sha1:1"), Ok(()));
        let refused = check(&text, "main@sha1:2").expect_err("another revision");
        assert!(
            refused.contains("main@sha1:1 was applied, but main@sha1:2 is stored now"),
            "{refused}"
        );
    }
}
