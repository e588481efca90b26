//! The overlay of a Kustomization over the root kustomization of its folder, before the build. The module decides which fields of the spec belong to it, and their
//! valid values; kustomize applies it (`kustomize::Overrides`). Components must be local and relative, as in Flux: a rendering fetches nothing.

use kustomize::PatchTarget;
use serde::{Deserialize, Serialize};
use tenure_api::KustomizationSpec;
use tenure_api::kustomization::CommonMetadata;
use tenure_api::selector::{Image, Patch, Selector};

/// The fields of a Kustomization that change the build of its folder. Scalars overwrite the folder's kustomization, lists are appended, and images are merged by
/// name. Common metadata is set on the built objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overlay {
    /// Namespace set on every namespaced object.
    pub target_namespace: Option<String>,
    /// The prefix of every object's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_prefix: Option<String>,
    /// The suffix of every object's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_suffix: Option<String>,
    /// Patches that are appended to those of the folder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,
    /// Images that are merged into those of the folder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Components that are appended to those of the folder; paths relative to the folder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
    /// Whether components without an existing folder are left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_missing_components: bool,
    /// The annotations that kustomize leaves on built objects; an empty list changes nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub build_metadata: Vec<String>,
    /// Labels and annotations of every object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
}

impl Overlay {
    /// Reads the overlay of a spec.
    ///
    /// # Errors
    /// A message that names the field: a component that is not a local, relative path, or an image without a name.
    pub fn from_spec(spec: &KustomizationSpec) -> Result<Self, String> {
        for (index, component) in spec.components.iter().enumerate() {
            if !is_local_and_relative(component) {
                return Err(format!(
                    "spec.components[{index}]: {component:?} must be a local and relative path: a component comes from the same source"
                ));
            }
        }
        if let Some(index) = spec.images.iter().position(|image| image.name.is_empty()) {
            return Err(format!(
                "spec.images[{index}].name is empty: name the image as the files have it, without its tag"
            ));
        }
        Ok(Self {
            target_namespace: spec.target_namespace.clone(),
            name_prefix: spec.name_prefix.clone(),
            name_suffix: spec.name_suffix.clone(),
            patches: spec.patches.clone(),
            images: spec.images.clone(),
            components: spec.components.clone(),
            ignore_missing_components: spec.ignore_missing_components,
            build_metadata: spec.build_metadata.clone(),
            common_metadata: spec.common_metadata.clone(),
        })
    }
}

/// Checks whether a path is neither absolute nor, by its beginning, an address as kustomize knows them.
fn is_local_and_relative(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let remote = ["git::", "gh:", "git@", "github.com:", "github.com/"];
    !path.is_empty()
        && !path.starts_with('/')
        && !lower.contains("://")
        && !remote.iter().any(|start| lower.starts_with(start))
}

/// Converts a selector of a spec into kustomize's form.
#[must_use]
pub fn make_patch_target(selector: &Selector) -> PatchTarget {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    PatchTarget {
        group: text(&selector.group),
        version: text(&selector.version),
        kind: text(&selector.kind),
        name: text(&selector.name),
        namespace: text(&selector.namespace),
        label_selector: text(&selector.label_selector),
        annotation_selector: text(&selector.annotation_selector),
    }
}
