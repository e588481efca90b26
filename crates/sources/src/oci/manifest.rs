//! Reads manifests of artifacts, and lists of manifests. Pure.
//!
//! A document that could be read as both is refused, and so is everything before schema version 2.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::reference::Digest;

/// The media type of a list of referrers.
pub(super) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
/// The annotation with the predicate type of a bundle's statement.
const PREDICATE: &str = "dev.sigstore.bundle.predicateType";

/// The media types that a request accepts.
pub(super) const MANIFEST_TYPES: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// The longest annotation that goes into a status, and the longest sum of all annotations, in bytes.
const ANNOTATION_BYTES: usize = 1 << 10;
const ANNOTATIONS_BYTES: usize = 4 << 10;

/// A manifest document of a registry: one artifact's manifest, or a list of manifests.
#[derive(Debug)]
pub(super) enum Manifest {
    /// The manifest of an artifact.
    Image(Image),
    /// A list of manifests for several platforms: the digest of the selected one.
    Index(Digest),
}

/// The manifest of an artifact.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) layers: Vec<Layer>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// A manifest's description of a layer: media type, digest and size.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    pub(super) annotations: BTreeMap<String, String>,
}

/// A manifest that refers to another one.
#[derive(Debug)]
pub(super) struct Referrer {
    pub(super) digest: Digest,
    pub(super) artifact_type: String,
    /// The predicate type that it declares.
    pub(super) predicate: Option<String>,
}

/// A manifest or a list of manifests, before it is checked.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawManifest {
    schema_version: u64,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
    annotations: Option<BTreeMap<String, String>>,
}

/// A reference to a blob or a manifest (an OCI content descriptor).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    artifact_type: String,
    digest: String,
    size: u64,
    annotations: Option<BTreeMap<String, String>>,
    platform: Option<Platform>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Platform {
    architecture: String,
    os: String,
}

/// Reads a manifest. From a list, selects the manifest for `linux/amd64`, as Flux does; a manifest without a platform counts as such.
///
/// # Errors
/// The problem of the manifest.
pub(super) fn read_manifest(bytes: &[u8]) -> Result<Manifest, String> {
    let raw: RawManifest =
        serde_json::from_slice(bytes).map_err(|error| format!("its manifest has an unknown form: {error}"))?;
    if raw.schema_version != 2 {
        return Err(format!(
            "its manifest is of schema version {}, not 2",
            raw.schema_version
        ));
    }
    match (raw.layers, raw.manifests) {
        (Some(_), Some(_)) => Err("its manifest has layers and manifests, and so could be read in two ways".to_owned()),
        (Some(layers), None) => Ok(Manifest::Image(Image {
            layers: layers.into_iter().map(read_layer).collect::<Result<_, _>>()?,
            annotations: raw.annotations.unwrap_or_default(),
        })),
        (None, Some(manifests)) => {
            let taken = manifests.into_iter().find(|descriptor| {
                let platform = descriptor.platform.as_ref();
                platform.is_none_or(|platform| platform.os == "linux" && platform.architecture == "amd64")
            });
            let taken = taken.ok_or("it is a list of manifests without one for linux/amd64")?;
            Ok(Manifest::Index(read_digest(&taken.digest)?))
        }
        (None, None) => Err("its manifest has no layers".to_owned()),
    }
}

/// Reads a list of referrers. Entries with an unknown kind of digest are left out.
///
/// # Errors
/// The problem of the list.
pub(super) fn read_referrers(bytes: &[u8]) -> Result<Vec<Referrer>, String> {
    let raw: RawManifest =
        serde_json::from_slice(bytes).map_err(|error| format!("its list of referrers can't be read: {error}"))?;
    let listed = raw.manifests.ok_or("its list of referrers has no manifests")?;
    let referrers = listed.into_iter().filter_map(|mut descriptor| {
        Some(Referrer {
            digest: Digest::parse(&descriptor.digest)?,
            artifact_type: descriptor.artifact_type,
            predicate: descriptor
                .annotations
                .as_mut()
                .and_then(|known| known.remove(PREDICATE)),
        })
    });
    Ok(referrers.collect())
}

fn read_layer(descriptor: Descriptor) -> Result<Layer, String> {
    Ok(Layer {
        digest: read_digest(&descriptor.digest)?,
        media_type: descriptor.media_type,
        size: descriptor.size,
        annotations: descriptor.annotations.unwrap_or_default(),
    })
}

fn read_digest(text: &str) -> Result<Digest, String> {
    Digest::parse(text).ok_or_else(|| "its manifest names a digest that is not sha256".to_owned())
}

impl Image {
    /// Selects a layer: the first of a media type, or the first of all.
    ///
    /// # Errors
    /// The missing layer.
    pub(super) fn select_layer(&self, media_type: Option<&str>) -> Result<&Layer, String> {
        if self.layers.is_empty() {
            return Err("no layers found in artifact".to_owned());
        }
        let mut layers = self.layers.iter();
        match media_type {
            Some(wanted) => layers
                .find(|layer| layer.media_type == wanted)
                .ok_or_else(|| format!("failed to find layer with media type '{wanted}' in artifact")),
            None => layers.next().ok_or_else(|| "no layers found in artifact".to_owned()),
        }
    }

    /// Lists the annotations that may go into a status: the short ones without control characters, as many as fit.
    pub(super) fn list_metadata(&self) -> BTreeMap<String, String> {
        let mut bytes = 0;
        let is_shown = |(key, value): &(&String, &String)| {
            let length = key.len() + value.len();
            let is_plain = !key.chars().chain(value.chars()).any(char::is_control);
            if length > ANNOTATION_BYTES || !is_plain || bytes + length > ANNOTATIONS_BYTES {
                return false;
            }
            bytes += length;
            true
        };
        // The standard annotations about the origin come first: users ask for them most.
        let (known, other): (Vec<_>, Vec<_>) = self
            .annotations
            .iter()
            .partition(|(key, _)| key.starts_with("org.opencontainers.image."));
        let shown = known.into_iter().chain(other).filter(is_shown);
        shown.map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn digest(letter: &str) -> String {
        format!("sha256:{}", letter.repeat(64))
    }

    fn read(manifest: &Value) -> Result<Manifest, String> {
        read_manifest(manifest.to_string().as_bytes())
    }

    #[test]
    fn manifests_and_indexes_are_distinguished() {
        let layer =
            |letter: &str, media_type: &str| json!({ "mediaType": media_type, "digest": digest(letter), "size": 1 });
        let image = json!({ "schemaVersion": 2, "layers": [layer("a", "x"), layer("b", "y"), layer("c", "y")] });
        let Ok(Manifest::Image(image)) = read(&image) else {
            unreachable!("an image")
        };
        let select = |media_type| image.select_layer(media_type).map(|layer| layer.digest.to_string());
        assert_eq!(select(None), Ok(digest("a")));
        assert_eq!(select(Some("y")), Ok(digest("b")));
        assert_eq!(
            select(Some("z")),
            Err("failed to find layer with media type 'z' in artifact".to_owned())
        );
        let one = |letter: &str, architecture: &str| json!({ "digest": digest(letter), "size": 1, "platform": { "os": "linux", "architecture": architecture } });
        let index = json!({ "schemaVersion": 2, "manifests": [one("a", "arm64"), one("b", "amd64")] });
        assert!(matches!(read(&index), Ok(Manifest::Index(taken)) if taken.as_str() == digest("b")));
        for (manifest, problem) in [
            (
                json!({ "schemaVersion": 2, "layers": [], "manifests": [] }),
                "in two ways",
            ),
            (json!({ "schemaVersion": 1, "layers": [] }), "schema version 1"),
            (json!({ "schemaVersion": 2 }), "no layers"),
            (
                json!({ "schemaVersion": 2, "manifests": [one("a", "arm64")] }),
                "linux/amd64",
            ),
            (
                json!({ "schemaVersion": 2, "layers": [{ "digest": "md5:1", "size": 1 }] }),
                "not sha256",
            ),
            (json!([]), "unknown form"),
        ] {
            assert!(read(&manifest).unwrap_err().contains(problem), "{manifest}");
        }
    }

    #[test]
    fn annotations_in_status_are_bounded() {
        let mut annotations = serde_json::Map::new();
        for number in 0..1000 {
            annotations.insert(format!("a{number}"), json!("x".repeat(100)));
        }
        annotations.insert("a-long".to_owned(), json!("x".repeat(2000)));
        annotations.insert("a-lines".to_owned(), json!("a\nb"));
        annotations.insert("org.opencontainers.image.revision".to_owned(), json!("main@sha1:1"));
        let Ok(Manifest::Image(image)) = read(&json!({ "schemaVersion": 2, "layers": [], "annotations": annotations }))
        else {
            unreachable!("an image")
        };
        let shown = image.list_metadata();
        assert_eq!(
            shown.get("org.opencontainers.image.revision").map(String::as_str),
            Some("main@sha1:1")
        );
        assert!(
            shown.len() > 10
                && shown.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() <= ANNOTATIONS_BYTES
        );
        assert!(!shown.contains_key("a-long") && !shown.contains_key("a-lines"));
    }
}
