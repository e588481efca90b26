//! The usual volumes of a Pod: files from the cluster, from the node, and claims.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::environment::{FILE_FIELDS, field_of_pod, resource_of_container};
use super::{ExtraVolumes, Pod, get_number, named_field, validate_required};
use crate::core_group::persistent_volume_claim::validation as storage;
use crate::schema::quantity::Quantity;
use crate::schema::validation::metadata::{validate_annotations, validate_labels};
use crate::schema::validation::{get_text, list_items, names, one_of};
use crate::schema::{FieldError, FieldPath};

/// The kinds of volumes, and the name of each in the error for a volume with several kinds. The first kind in this
/// order is the valid one.
const KINDS: [(&str, &str); 30] = [
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// The volumes of a Pod without errors, by name. Only these can be mounted.
pub(super) type Sound<'a> = BTreeMap<String, &'a Value>;

/// Returns the volumes for which the owner of a template creates claims.
pub(super) fn make_claim_volumes(extra: &ExtraVolumes) -> Vec<Value> {
    extra
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
        .collect()
}

/// Checks the volumes, those of a template's owner first, and returns the sound ones.
pub(super) fn validate_volumes<'a>(
    pod: &Pod<'a>,
    claimed: &'a [Value],
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) -> Sound<'a> {
    let names: BTreeSet<&str> = claimed.iter().map(|claim| get_text(claim, "name")).collect();
    let is_claimed = |volume: &Value| names.contains(get_text(volume, "name"));
    let own = list_items(pod.spec, "volumes", path).map(|(volume, _)| volume);
    let all: Vec<&Value> = claimed.iter().chain(own.filter(|volume| !is_claimed(volume))).collect();
    // The names of the claims that will be created for the Pod's volumes.
    let made: BTreeSet<String> = all
        .iter()
        .filter(|volume| volume.get("ephemeral").is_some())
        .filter_map(|volume| {
            Some(format!(
                "{}-{}",
                pod.name.filter(|name| !name.is_empty())?,
                get_text(volume, "name")
            ))
        })
        .collect();
    let mut sound = Sound::new();
    for (index, volume) in all.into_iter().enumerate() {
        let at = path.child("volumes").index(index);
        let before = errors.len();
        validate_source(pod, volume, &at, errors);
        validate_required(volume, "name", &at, errors);
        named_field(volume, "name", names::find_label_errors, &at, errors);
        let name = get_text(volume, "name");
        if sound.contains_key(name) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        }
        if errors.len() == before {
            sound.insert(name.to_owned(), volume);
        }
        if let Some(claim) = volume.get("persistentVolumeClaim")
            && made.contains(get_text(claim, "claimName"))
        {
            errors.push(FieldError::invalid(
                at.child("persistentVolumeClaim").child("claimName"),
                get_text(claim, "claimName"),
                "must not reference a PVC that gets created for an ephemeral volume",
            ));
        }
    }
    sound
}

fn validate_source(pod: &Pod<'_>, volume: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut given = KINDS
        .iter()
        .filter_map(|(kind, called)| Some((*kind, *called, volume.get(*kind)?)));
    let Some((kind, _, first)) = given.next() else {
        errors.push(FieldError::required(at, "must specify a volume type"));
        return;
    };
    let inner = at.child(kind);
    match kind {
        "emptyDir" => {
            let limit = first.get("sizeLimit").and_then(Value::as_str).map(Quantity::parse);
            if let Some(Ok(limit)) = limit
                && limit.is_negative()
            {
                errors.push(FieldError::forbidden(
                    inner.child("sizeLimit"),
                    "SizeLimit field must be a valid resource quantity",
                ));
            }
        }
        "hostPath" => host_path(first, &inner, errors),
        "secret" => validate_files(first, "secretName", &inner, errors),
        "configMap" => validate_files(first, "name", &inner, errors),
        "downwardAPI" => {
            validate_mode(first, "defaultMode", &inner, errors);
            for (file, _) in list_items(first, "items", &inner) {
                // The real server's error does not name the file.
                downward_file(file, &inner, errors);
            }
        }
        "projected" => {
            validate_mode(first, "defaultMode", &inner, errors);
            validate_projections(first, &inner, errors);
        }
        "persistentVolumeClaim" => validate_required(first, "claimName", &inner, errors),
        "csi" => {
            driver_name(get_text(first, "driver"), &inner.child("driver"), errors);
            if let Some(secret) = first.get("nodePublishSecretRef") {
                validate_required(secret, "name", &inner.child("nodePublishSecretRef"), errors);
                named_field(secret, "name", names::find_subdomain_errors, &inner, errors);
            }
        }
        "ephemeral" => validate_ephemeral(pod, get_text(volume, "name"), first, at, errors),
        "image" => {
            if pod.name.is_some() {
                validate_required(first, "reference", &inner, errors);
            }
            let policies = ["Always", "IfNotPresent", "Never"];
            one_of(first, "pullPolicy", &policies, true, &inner, errors);
        }
        _ => super::systems::validate_source(kind, first, at, errors),
    }
    if kind == "iscsi" && first.get("initiatorName").is_some() {
        let name = get_text(volume, "name");
        if name.len() + 1 + get_text(first, "targetPortal").len() > 64 {
            let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
            errors.push(FieldError::invalid(at.child("name"), name, detail));
        }
    }
    for (_, called, _) in given {
        errors.push(FieldError::forbidden(
            at.child(called),
            "may not specify more than 1 volume type",
        ));
    }
}

/// The kinds of files that a host path may require.
pub(crate) const HOST_PATH_KINDS: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];

fn host_path(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let path = get_text(value, "path");
    if path.is_empty() {
        errors.push(FieldError::required(at.child("path"), ""));
        return;
    }
    no_steps_back(path, &at.child("path"), errors);
    one_of(value, "type", &HOST_PATH_KINDS, false, at, errors);
}

fn validate_ephemeral(pod: &Pod<'_>, name: &str, value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let inner = at.child("ephemeral").child("volumeClaimTemplate");
    match value.get("volumeClaimTemplate") {
        None => errors.push(FieldError::required(inner, "")),
        Some(template) => {
            let metadata = template.get("metadata").and_then(Value::as_object);
            let at_metadata = inner.child("metadata");
            for (field, value) in metadata.into_iter().flatten() {
                match (field.as_str(), value) {
                    ("annotations", Value::Object(map)) => validate_annotations(map, &at_metadata.child(field), errors),
                    ("labels", Value::Object(map)) => validate_labels(map, &at_metadata.child(field), errors),
                    _ => {}
                }
            }
            let others = metadata.into_iter().flat_map(serde_json::Map::keys);
            for field in others.filter(|field| !matches!(field.as_str(), "annotations" | "labels")) {
                errors.push(FieldError::forbidden(at_metadata.child(field), "cannot be set"));
            }
            storage::validate_claim(template, &inner, errors);
        }
    }
    if let Some(pod) = pod.name
        && !pod.is_empty()
        && !name.is_empty()
    {
        let claim = format!("{pod}-{name}");
        for complaint in names::find_subdomain_errors(&claim) {
            let detail = format!("PVC name {claim:?}: {complaint}");
            errors.push(FieldError::invalid(at.child("name"), name, detail));
        }
    }
}

/// Checks the name of a CSI driver.
fn driver_name(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(at, ""));
        return;
    }
    if name.len() > 63 {
        errors.push(super::too_long(at, 63));
    }
    for complaint in names::find_subdomain_errors(&name.to_lowercase()) {
        errors.push(FieldError::invalid(at, name, complaint));
    }
}

/// Checks a Secret or ConfigMap whose keys become files.
fn validate_files(value: &Value, name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    validate_required(value, name, at, errors);
    validate_mode(value, "defaultMode", at, errors);
    for (item, at) in list_items(value, "items", at) {
        key_to_path(item, &at, errors);
    }
}

fn key_to_path(item: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    validate_required(item, "key", at, errors);
    validate_required(item, "path", at, errors);
    local_path(get_text(item, "path"), &at.child("path"), errors);
    validate_mode(item, "mode", at, errors);
}

fn validate_mode(value: &Value, field: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(mode) = value.get(field).and_then(Value::as_i64)
        && !(0..=0o777).contains(&mode)
    {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(FieldError::invalid(at.child(field), mode, detail));
    }
}

fn downward_file(file: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    validate_required(file, "path", at, errors);
    local_path(get_text(file, "path"), &at.child("path"), errors);
    match (file.get("fieldRef"), file.get("resourceFieldRef")) {
        (Some(field), resource) => {
            field_of_pod(field, &FILE_FIELDS, &at.child("fieldRef"), errors);
            if resource.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(at, "resource", detail));
            }
        }
        (None, Some(resource)) => resource_of_container(resource, true, &at.child("resourceFieldRef"), errors),
        (None, None) => errors.push(FieldError::required(
            at,
            "one of fieldRef and resourceFieldRef is required",
        )),
    }
    validate_mode(file, "mode", at, errors);
}

fn validate_projections(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut paths = BTreeSet::new();
    // The value in the error for a duplicate path differs from kind to kind.
    let mut take = |path: &str, shown: &str, errors: &mut Vec<FieldError>| {
        if !paths.insert(path.to_owned()) {
            errors.push(FieldError::invalid(at, shown, "conflicting duplicate paths"));
        }
    };
    for (source, at_source) in list_items(value, "sources", at) {
        for kind in ["secret", "configMap"] {
            let Some(found) = source.get(kind) else { continue };
            let inner = at_source.child(kind);
            validate_required(found, "name", &inner, errors);
            for (item, at_item) in list_items(found, "items", &inner) {
                key_to_path(item, &at_item, errors);
                if !get_text(item, "path").is_empty() {
                    take(get_text(item, "path"), get_text(found, "name"), errors);
                }
            }
        }
        if let Some(found) = source.get("downwardAPI") {
            let inner = at_source.child("downwardAPI");
            for (file, _) in list_items(found, "items", &inner) {
                downward_file(file, &inner, errors);
                let path = get_text(file, "path");
                if !path.is_empty() {
                    take(path, path, errors);
                }
            }
        }
        if let Some(token) = source.get("serviceAccountToken") {
            service_account_token(token, at, &at_source.child("serviceAccountToken"), errors);
        }
        if source.as_object().is_some_and(|source| source.len() > 1) {
            errors.push(FieldError::forbidden(
                at_source,
                "may not specify more than 1 volume type per source",
            ));
        }
    }
}

/// Checks a token source. Errors in the path name the volume; errors in the duration name the source.
fn service_account_token(token: &Value, at_volume: &FieldPath, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let seconds = get_number(token, "expirationSeconds");
    if seconds < 600 {
        let detail = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid(at.child("expirationSeconds"), seconds, detail));
    }
    if seconds > 1 << 32 {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(at.child("expirationSeconds"), seconds, detail));
    }
    validate_required(token, "path", at_volume, errors);
    local_path(get_text(token, "path"), &at_volume.child("path"), errors);
}

/// Checks that a path does not leave its start through `..`.
pub(super) fn no_steps_back(path: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if path.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(at, path, "must not contain '..'"));
    }
}

/// Checks that a path is relative and does not leave its start.
pub(super) fn descending_path(path: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if path.starts_with('/') {
        errors.push(FieldError::invalid(at, path, "must be a relative path"));
    }
    no_steps_back(path, at, errors);
}

/// Like `descending_path`, and also refuses names that begin with `..`, which belong to the kubelet.
fn local_path(path: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    descending_path(path, at, errors);
    if path.starts_with("..") && !path.starts_with("../") {
        errors.push(FieldError::invalid(at, path, "must not start with '..'"));
    }
}
