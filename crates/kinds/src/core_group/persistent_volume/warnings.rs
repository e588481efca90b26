//! Warnings for the writer of a volume.

use serde_json::Value;

use crate::core_group::pod::warnings::node_term;
use crate::schema::FieldPath;
use crate::schema::validation::{get_text, list_items};

static NOTHING: Value = Value::Null;

/// Returns warnings about a PersistentVolume.
pub(super) fn list_warnings(volume: &Value) -> Vec<String> {
    let spec = volume.get("spec").unwrap_or(&NOTHING);
    let annotations = volume.pointer("/metadata/annotations").unwrap_or(&NOTHING);
    let mut found = Vec::new();
    for (key, since, field) in [
        ("volume.beta.kubernetes.io/storage-class", "v1.8", "storageClassName"),
        ("volume.beta.kubernetes.io/mount-options", "v1.31", "mountOptions"),
    ] {
        if annotations.get(key).is_some() {
            found.push(format!(
                "metadata.annotations[{key}]: deprecated since {since}; use \"{field}\" attribute instead"
            ));
        }
    }
    if get_text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        found.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
    }
    let required = spec.pointer("/nodeAffinity/required").unwrap_or(&NOTHING);
    let at = FieldPath::new("spec").child("nodeAffinity").child("required");
    for (term, at) in list_items(required, "nodeSelectorTerms", &at) {
        node_term(term, false, &at, &mut found);
    }
    for (field, deprecated, gone) in [
        ("cephfs", "v1.28", "v1.31"),
        ("photonPersistentDisk", "v1.11", "v1.16"),
        ("scaleIO", "v1.16", "v1.22"),
        ("storageos", "v1.22", "v1.25"),
        ("glusterfs", "v1.25", "v1.26"),
        ("rbd", "v1.28", "v1.31"),
    ] {
        if spec.get(field).is_some_and(|source| !source.is_null()) {
            // Kubernetes uses this spelling here.
            let shown = if field == "storageos" { "storageOS" } else { field };
            found.push(format!(
                "spec.{shown}: deprecated in {deprecated}, non-functional in {gone}+"
            ));
        }
    }
    found
}
