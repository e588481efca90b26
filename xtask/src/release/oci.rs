//! A folder in the OCI image layout: blobs by digest, and an index that names one of them with a tag.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Media types.
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The annotation of a tag in an index.
const TAG: &str = "org.opencontainers.image.ref.name";

/// Blobs, by digest.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    blobs: BTreeMap<String, Vec<u8>>,
}

impl Layout {
    /// Adds a blob and returns its descriptor.
    pub(super) fn add(&mut self, media_type: &str, blob: Vec<u8>) -> Value {
        let digest = make_digest(&blob);
        let descriptor = json!({ "mediaType": media_type, "digest": digest, "size": blob.len() });
        self.blobs.insert(digest, blob);
        descriptor
    }

    /// Adds a document and returns its descriptor.
    pub(super) fn add_json(&mut self, media_type: &str, document: &Value) -> Value {
        self.add(media_type, document.to_string().into_bytes())
    }

    /// Returns a blob.
    #[cfg(test)]
    pub(super) fn read_json(&self, descriptor: &Value) -> Value {
        let blob = self.blobs.get(digest_of(descriptor)).map(Vec::as_slice);
        serde_json::from_slice(blob.unwrap_or_default()).unwrap_or_default()
    }

    /// Writes the folder. The descriptor gets the tag.
    pub(super) fn write(&self, folder: &Path, root: &Value, tag: &str) -> Result<()> {
        let blobs = folder.join("blobs/sha256");
        fs::create_dir_all(&blobs).with_context(|| blobs.display().to_string())?;
        for (digest, blob) in &self.blobs {
            fs::write(blobs.join(digest.trim_start_matches("sha256:")), blob)?;
        }
        let mut root = root.clone();
        if let Some(fields) = root.as_object_mut() {
            fields.insert("annotations".to_owned(), json!({ TAG: tag }));
        }
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [root] });
        fs::write(folder.join("index.json"), index.to_string())?;
        fs::write(
            folder.join("oci-layout"),
            json!({ "imageLayoutVersion": "1.0.0" }).to_string(),
        )?;
        Ok(())
    }
}

/// Returns the digest in a descriptor.
pub(super) fn digest_of(descriptor: &Value) -> &str {
    descriptor.get("digest").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the digest `sha256:<hex>` of bytes.
pub(super) fn make_digest(bytes: &[u8]) -> String {
    format!("sha256:{}", make_checksum(bytes))
}

/// Returns the hex digits of the SHA-256 of bytes.
pub(super) fn make_checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the blobs of a folder, and checks that each has the digest of its name.
pub(super) fn read_blobs(folder: &Path) -> Result<BTreeMap<String, u64>> {
    let mut blobs = BTreeMap::new();
    for entry in fs::read_dir(folder.join("blobs/sha256")).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .to_owned();
        let content = fs::read(&path)?;
        ensure!(
            make_checksum(&content) == name,
            "{}: it has another digest",
            path.display()
        );
        blobs.insert(name, u64::try_from(content.len())?);
    }
    Ok(blobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_names_its_root_and_has_its_blobs() -> Result<()> {
        let mut layout = Layout::default();
        let blob = layout.add("text/plain", b"content".to_vec());
        let root = layout.add_json(MANIFEST, &json!({ "layers": [blob] }));
        let folder = std::env::temp_dir().join(format!("tenure-layout-{}", std::process::id()));
        let written = layout.write(&folder, &root, "1.0");
        let (index, blobs) = (fs::read(folder.join("index.json")), read_blobs(&folder));
        fs::write(folder.join("blobs/sha256/aa"), "other")?;
        let other = read_blobs(&folder);
        fs::remove_dir_all(&folder)?;
        written?;
        let index: Value = serde_json::from_slice(&index?)?;
        assert_eq!(index["manifests"][0]["digest"], root["digest"]);
        assert_eq!(index["manifests"][0]["annotations"][TAG], "1.0");
        assert_eq!(blobs?.len(), 2);
        assert!(other.is_err_and(|error| error.to_string().contains("another digest")));
        Ok(())
    }
}
