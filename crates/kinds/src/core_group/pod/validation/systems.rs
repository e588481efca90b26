//! Volumes of storage systems that are named in the Pod itself. Most of these systems are no longer supported.

use serde_json::Value;

use super::{get_number, named_field, validate_required};
use crate::schema::validation::{get_text, is_empty_field, names, one_of};
use crate::schema::{FieldError, FieldPath};

/// Checks the volume source of this kind inside the volume at `at`.
pub(super) fn validate_source(kind: &str, value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    // The real server calls one of them by another name.
    let inner = at.child(if kind == "gcePersistentDisk" {
        "persistentDisk"
    } else {
        kind
    });
    let mut need = |fields: &[&str]| {
        for field in fields {
            if is_empty_field(value, field) {
                errors.push(FieldError::required(inner.child(field), ""));
            }
        }
    };
    match kind {
        "gitRepo" => {
            need(&["repository"]);
            super::volumes::descending_path(get_text(value, "directory"), &inner.child("directory"), errors);
        }
        "gcePersistentDisk" => {
            need(&["pdName"]);
            validate_partition(value, &inner, errors);
        }
        "awsElasticBlockStore" => {
            need(&["volumeID"]);
            validate_partition(value, &inner, errors);
        }
        "nfs" => {
            need(&["server", "path"]);
            if !get_text(value, "path").starts_with('/') {
                let detail = "must be an absolute path";
                errors.push(FieldError::invalid(
                    inner.child("path"),
                    get_text(value, "path"),
                    detail,
                ));
            }
        }
        "iscsi" => validate_iscsi(value, &inner, errors),
        "glusterfs" => need(&["endpoints", "path"]),
        "flocker" => validate_flocker(value, &inner, errors),
        "rbd" => need(&["monitors", "image"]),
        "cinder" => {
            need(&["volumeID"]);
            validate_secret(value, &inner, errors);
        }
        "cephfs" => need(&["monitors"]),
        "quobyte" => validate_quobyte(value, &inner, errors),
        "fc" => fibre_channel(value, &inner, errors),
        "flexVolume" => validate_flex_volume(value, &inner, errors),
        "azureFile" => need(&["secretName", "shareName"]),
        "azureDisk" => azure_disk(value, &inner, errors),
        "vsphereVolume" => need(&["volumePath"]),
        "photonPersistentDisk" => need(&["pdID"]),
        "portworxVolume" => need(&["volumeID"]),
        "scaleIO" => need(&["gateway", "system", "volumeName"]),
        "storageos" => {
            need(&["volumeName"]);
            named_field(value, "volumeName", names::find_label_errors, &inner, errors);
            named_field(value, "volumeNamespace", names::find_label_errors, &inner, errors);
            validate_secret(value, &inner, errors);
        }
        _ => {}
    }
}

fn validate_secret(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(secret) = value.get("secretRef") {
        validate_required(secret, "name", &at.child("secretRef"), errors);
    }
}

fn validate_partition(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let partition = get_number(value, "partition");
    if !(0..=255).contains(&partition) {
        // The value 0 is allowed nevertheless.
        let detail = "must be between 1 and 255, inclusive";
        errors.push(FieldError::invalid(at.child("partition"), partition, detail));
    }
}

fn logical_unit(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let unit = get_number(value, "lun");
    if !(0..=255).contains(&unit) {
        let detail = "must be between 0 and 255, inclusive";
        errors.push(FieldError::invalid(at.child("lun"), unit, detail));
    }
}

/// Returns the error in the name of an iSCSI party.
fn find_iscsi_name_error(name: &str) -> Option<&'static str> {
    let Some(kind) = ["iqn", "eui", "naa"].into_iter().find(|kind| name.starts_with(kind)) else {
        return Some("must be valid format starting with iqn, eui, or naa");
    };
    let mut rest = name.strip_prefix(kind).unwrap_or_default().chars();
    let separator = rest.next();
    let rest = rest.as_str();
    let sound = match kind {
        "iqn" => separator == Some('.') && is_qualified(rest),
        "eui" => separator.is_some() && rest.len() == 16 && is_alphanumeric(rest),
        _ => separator.is_some() && rest.len() == 32 && is_alphanumeric(rest),
    };
    (!sound).then_some("must be valid format")
}

fn is_alphanumeric(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Checks for a year and month, a reversed domain, and a name behind a colon.
fn is_qualified(text: &str) -> bool {
    let dated = |date: &str| {
        let date: Vec<u8> = date.bytes().collect();
        let digit =
            |(index, byte): (usize, &u8)| (index == 4) == (*byte == b'-') && (index == 4 || byte.is_ascii_digit());
        date.len() == 7 && date.iter().enumerate().all(digit)
    };
    let parts = text
        .split_once('.')
        .and_then(|(date, rest)| Some((date, rest.split_once(':')?)));
    let Some((date, (domain, name))) = parts else {
        return false;
    };
    let in_domain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let in_name = |letter: char| !letter.is_ascii_whitespace() && !",;*&$|".contains(letter);
    dated(date) && !domain.is_empty() && domain.bytes().all(in_domain) && !name.is_empty() && name.chars().all(in_name)
}

fn validate_iscsi(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    validate_required(value, "targetPortal", at, errors);
    validate_required(value, "iqn", at, errors);
    let target = get_text(value, "iqn");
    if !target.is_empty()
        && let Some(detail) = find_iscsi_name_error(target)
    {
        errors.push(FieldError::invalid(at.child("iqn"), target, detail));
    }
    logical_unit(value, at, errors);
    let authenticated = ["chapAuthDiscovery", "chapAuthSession"]
        .iter()
        .any(|field| value.get(*field) == Some(&Value::Bool(true)));
    if authenticated && value.get("secretRef").is_none() {
        errors.push(FieldError::required(at.child("secretRef"), ""));
    }
    if let Some(initiator) = value.get("initiatorName").and_then(Value::as_str)
        && let Some(detail) = find_iscsi_name_error(initiator)
    {
        errors.push(FieldError::invalid(at.child("initiatorname"), initiator, detail));
    }
}

fn validate_flocker(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let name = get_text(value, "datasetName");
    match (name.is_empty(), get_text(value, "datasetUUID").is_empty()) {
        (true, true) => errors.push(FieldError::required(
            at,
            "one of datasetName and datasetUUID is required",
        )),
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            errors.push(FieldError::invalid(at, "resource", detail));
        }
        _ => {}
    }
    if name.contains('/') {
        errors.push(FieldError::invalid(
            at.child("datasetName"),
            name,
            "must not contain '/'",
        ));
    }
}

fn validate_quobyte(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let pairs = "must be a host:port pair or multiple pairs separated by commas";
    let registry = get_text(value, "registry");
    if registry.is_empty() {
        errors.push(FieldError::required(at.child("registry"), pairs));
    } else if get_text(value, "tenant").len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(FieldError::required(at.child("tenant"), detail));
    } else {
        for pair in registry.split(',') {
            let host = pair.rsplit_once(':').map(|(host, _)| host);
            let bracketed = |host: &str| host.starts_with('[') && host.ends_with(']');
            if host.is_none_or(|host| host.contains(':') && !bracketed(host)) {
                errors.push(FieldError::invalid(at.child("registry"), registry, pairs));
            }
        }
    }
    validate_required(value, "volume", at, errors);
}

fn fibre_channel(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let (targets, names) = (!is_empty_field(value, "targetWWNs"), !is_empty_field(value, "wwids"));
    let at_targets = at.child("targetWWNs");
    if !targets && !names {
        let detail = "must specify either targetWWNs or wwids, but not both";
        errors.push(FieldError::required(&at_targets, detail));
    }
    if targets && names {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        let shown = value.get("targetWWNs").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&at_targets, shown, detail));
    }
    if targets {
        if value.get("lun").is_none() {
            let detail = "lun is required if targetWWNs is specified";
            errors.push(FieldError::required(at.child("lun"), detail));
        }
        logical_unit(value, at, errors);
    }
}

fn validate_flex_volume(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    validate_required(value, "driver", at, errors);
    for (option, _) in value.get("options").and_then(Value::as_object).into_iter().flatten() {
        let namespace = option
            .split_once('/')
            .map_or(option.as_str(), |(namespace, _)| namespace);
        let dotted = format!(".{}", namespace.to_lowercase());
        if [".kubernetes.io", ".k8s.io"].iter().any(|end| dotted.ends_with(end)) {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.push(FieldError::invalid(
                at.child("options").key(option),
                option.as_str(),
                detail,
            ));
        }
    }
}

fn azure_disk(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    validate_required(value, "diskName", at, errors);
    validate_required(value, "diskURI", at, errors);
    let modes = ["None", "ReadOnly", "ReadWrite"];
    one_of(value, "cachingMode", &modes, false, at, errors);
    one_of(value, "kind", &["Dedicated", "Managed", "Shared"], false, at, errors);
    let address = get_text(value, "diskURI");
    let (begins, supported) = match value.get("kind").and_then(Value::as_str) {
        None => return,
        Some("Managed") => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        Some(_) => (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        ),
    };
    if !address.starts_with(begins) {
        errors.push(FieldError::not_supported(at.child("diskURI"), address, &[supported]));
    }
}
