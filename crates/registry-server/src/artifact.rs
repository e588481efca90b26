//! Content to push: blobs, manifests, and layers made of files.

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The media type of layers in Flux's artifacts.
const LAYER_TYPE: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";

/// The content of an artifact to push: its layers and annotations.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// Media type and content of each layer.
    pub layers: Vec<(String, Vec<u8>)>,
    /// Annotations of the manifest.
    pub annotations: Value,
}

impl Artifact {
    /// Describes an artifact with one layer of these files, as Flux pushes it.
    #[must_use]
    pub fn from_files(files: &[(&str, &str)]) -> Self {
        Self {
            layers: vec![(LAYER_TYPE.to_owned(), pack_files(files))],
            annotations: json!({
                "org.opencontainers.image.source": "https://git.example/app",
                "org.opencontainers.image.revision": "main@sha1:0123456789012345678901234567890123456789",
            }),
        }
    }

    /// Returns the manifest, and the blobs that it names.
    pub(crate) fn write(&self) -> (Value, Vec<Vec<u8>>) {
        let config = b"{}".to_vec();
        let layers: Vec<Value> = self
            .layers
            .iter()
            .map(|(media_type, layer)| json!({ "mediaType": media_type, "digest": compute_digest(layer), "size": layer.len() }))
            .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": { "mediaType": "application/vnd.cncf.flux.config.v1+json", "digest": compute_digest(&config), "size": config.len() },
            "layers": layers,
            "annotations": self.annotations,
        });
        let blobs = self.layers.iter().map(|(_, layer)| layer.clone());
        (manifest, blobs.chain([config]).collect())
    }
}

/// Returns the digest `sha256:<hex>` of bytes.
#[must_use]
pub fn compute_digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// Packs files as `tar` and `gzip` do.
#[must_use]
pub fn pack_files(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        // Writing into memory does not fail.
        let _ = archive.append_data(&mut header, path, content.as_bytes());
    }
    let written = archive.into_inner().and_then(GzEncoder::finish);
    written.unwrap_or_default()
}

/// Packs entries that no usual tool would write: each with any type, in tar's encoding, any path and any link target.
#[must_use]
pub fn pack_entries(entries: &[(u8, &str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (kind, path, target) in entries {
        let mut header = tar::Header::new_gnu();
        // The usual methods refuse some paths, so the bytes are set directly.
        if let Some(name) = header.as_mut_bytes().get_mut(..path.len().min(100)) {
            name.copy_from_slice(path.as_bytes().get(..name.len()).unwrap_or_default());
        }
        header.set_entry_type(tar::EntryType::new(*kind));
        header.set_mode(0o644);
        header.set_size(0);
        // Writing into memory does not fail.
        let _ = header.set_link_name_literal(target);
        header.set_cksum();
        let _ = archive.append(&header, std::io::empty());
    }
    let written = archive.into_inner().and_then(GzEncoder::finish);
    written.unwrap_or_default()
}
