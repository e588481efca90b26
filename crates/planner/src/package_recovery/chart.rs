//! The chart's version of a Package: the Helm release that the Package names, and the object in the manifest of that release. No error has a part of the manifest, which may
//! contain Secrets.

use kustomize::{Limits, read_manifests};
use serde_json::{Map, Value, json};
use structured_merge::{FieldPath, Managed};
use tenure_admission_rules::CHART_MANAGERS;
use tenure_api::ObjectView;

/// The longest manifest that is read, in bytes.
pub const LONGEST_MANIFEST: usize = 32 << 20;
/// The bounds for one document of a manifest.
const LIMITS: Limits = Limits {
    bytes: LONGEST_MANIFEST,
    documents: 1_000,
    nodes: 1_000_000,
    depth: 1,
    kustomizations: 1,
    resources: 1_000,
};
const RELEASE_NAME: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Metadata of an object that only the API server sets.
const SERVER_METADATA: [&str; 7] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// The name of a Helm release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseName {
    /// Namespace of the release and of its Secrets.
    pub namespace: String,
    /// Name of the release.
    pub name: String,
}

impl std::fmt::Display for ReleaseName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// The reason why a Package's release is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseProblem {
    /// The Package has no annotation of Helm.
    #[error("it has no annotations {RELEASE_NAME} and {RELEASE_NAMESPACE}, which Helm writes")]
    Missing,
    /// Other managers wrote the annotations.
    #[error("its annotation {annotation} is of {}, and not of Helm", owners.join(", "))]
    Foreign {
        /// The annotation.
        annotation: &'static str,
        /// The field managers.
        owners: Vec<String>,
    },
}

/// The reason why the chart's version is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestProblem {
    /// The manifest is longer than [`LONGEST_MANIFEST`].
    #[error("the manifest has more than {} MiB", LONGEST_MANIFEST >> 20)]
    TooLong,
    /// No document is this Package.
    #[error("the manifest does not contain the Package")]
    NotRendered,
    /// Several documents are this Package.
    #[error("the manifest contains the Package more than once")]
    Ambiguous,
    /// Documents that mention the Package can't be read.
    #[error("{0} of the manifest's documents that mention the Package can't be read")]
    Unreadable(usize),
}

/// Returns the release that a Package names. The annotations of other managers than Helm's prove nothing: they could name a release of a stranger.
///
/// # Errors
/// [`ReleaseProblem`].
pub fn find_release(package: &Value) -> Result<ReleaseName, ReleaseProblem> {
    let view = ObjectView::new(package);
    let read = |annotation| view.find_annotation(annotation).filter(|text| !text.is_empty());
    let (Some(name), Some(namespace)) = (read(RELEASE_NAME), read(RELEASE_NAMESPACE)) else {
        return Err(ReleaseProblem::Missing);
    };
    let managed = Managed::of_object(package).unwrap_or_default();
    for annotation in [RELEASE_NAME, RELEASE_NAMESPACE] {
        let path = FieldPath::of_fields(&["metadata", "annotations", annotation]);
        let owners = managed
            .managers
            .iter()
            .filter(|(_, owned)| owned.fields.contains(&path.0));
        let mut owners: Vec<String> = owners.map(|(id, _)| id.manager.clone()).collect();
        owners.dedup();
        if !owners.is_empty() && !owners.iter().any(|owner| CHART_MANAGERS.contains(&owner.as_str())) {
            return Err(ReleaseProblem::Foreign { annotation, owners });
        }
    }
    Ok(ReleaseName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Finds a Package in the manifest of a release, and returns it as Helm applies it, with Helm's own metadata. Other objects of the manifest are not parsed.
///
/// # Errors
/// [`ManifestProblem`].
pub fn find_rendered(manifest: &str, package: &Value, release: &ReleaseName) -> Result<Value, ManifestProblem> {
    if manifest.len() > LONGEST_MANIFEST {
        return Err(ManifestProblem::TooLong);
    }
    let wanted = ObjectView::new(package);
    let (name, api_version) = (wanted.read_text("/metadata/name"), wanted.read_text("/apiVersion"));
    let (mut found, mut unreadable) = (Vec::new(), 0_usize);
    for document in split_documents(manifest) {
        if !document.contains("Package") || !document.contains(name) {
            continue;
        }
        match read_manifests("manifest", document, &LIMITS) {
            Ok(objects) => found.extend(objects.into_iter().map(|built| built.object).filter(|object| {
                let object = ObjectView::new(object);
                object.read_text("/apiVersion") == api_version
                    && object.read_text("/kind") == "Package"
                    && object.read_text("/metadata/name") == name
            })),
            Err(_) => unreadable = unreadable.saturating_add(1),
        }
    }
    match (found.pop(), found.is_empty()) {
        (Some(_), false) => Err(ManifestProblem::Ambiguous),
        (Some(object), true) => Ok(complete(object, release)),
        (None, _) if unreadable > 0 => Err(ManifestProblem::Unreadable(unreadable)),
        (None, _) => Err(ManifestProblem::NotRendered),
    }
}

/// Returns the documents of a text, without reading them.
fn split_documents(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut at = 0_usize;
        for line in text.split_inclusive('\n') {
            let is_separator = line
                .strip_prefix("---")
                .is_some_and(|rest| rest.trim_start().len() < rest.len());
            if (is_separator || line == "---") && at > 0 {
                let (document, next) = text.split_at_checked(at)?;
                rest = Some(next);
                return Some(document);
            }
            at = at.saturating_add(line.len());
        }
        rest = None;
        Some(text)
    })
}

/// Adds the metadata that Helm adds to each object of a release, and leaves out the API server's own.
fn complete(mut object: Value, release: &ReleaseName) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            for field in SERVER_METADATA {
                metadata.remove(field);
            }
            set_texts(metadata, "labels", &[(MANAGED_BY, "Helm")]);
            let names = [(RELEASE_NAME, &*release.name), (RELEASE_NAMESPACE, &*release.namespace)];
            set_texts(metadata, "annotations", &names);
        }
    }
    object
}

fn set_texts(metadata: &mut Map<String, Value>, part: &str, texts: &[(&str, &str)]) {
    let map = metadata.entry(part).or_insert_with(|| json!({}));
    if !map.is_object() {
        *map = json!({});
    }
    if let Some(map) = map.as_object_mut() {
        map.extend(texts.iter().map(|(key, text)| ((*key).to_owned(), Value::from(*text))));
    }
}
