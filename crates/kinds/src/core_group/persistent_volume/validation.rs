//! Validation of volumes and of their updates.

use serde_json::Value;

use crate::core_group::persistent_volume_claim::validation::{access_modes, attributes_class};
use crate::core_group::pod::validation::HOST_PATH_KINDS;
use crate::schema::quantity::Quantity;
use crate::schema::validation::{
    get_text, is_empty_field, names, node_selectors, one_of, show_go_struct, validate_immutable, validate_name,
};
use crate::schema::{FieldError, FieldErrorKind, FieldPath, Shown};

static NOTHING: Value = Value::Null;

/// The fields for the source of a volume.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// Checks a volume.
pub(super) fn validate_volume(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    if is_empty_field(spec, "accessModes") {
        errors.push(FieldError::required(path.child("accessModes"), ""));
    }
    access_modes(spec, &path, errors);
    validate_capacity(spec, &path.child("capacity"), errors);
    let policies = ["Delete", "Recycle", "Retain"];
    one_of(spec, "persistentVolumeReclaimPolicy", &policies, false, &path, errors);
    if let Some(affinity) = spec.get("nodeAffinity") {
        let at = path.child("nodeAffinity").child("required");
        match affinity.get("required") {
            Some(selector) => node_selectors::validate_terms(selector, &at, errors),
            None => errors.push(FieldError::required(at, "must specify required node constraints")),
        }
    }
    let mut sources = SOURCES.into_iter().filter(|field| spec.get(*field).is_some());
    match sources.next() {
        Some(field) => validate_source(field, spec, &path, errors),
        None => errors.push(FieldError::required(&path, "must specify a volume type")),
    }
    for field in sources {
        let why = "may not specify more than 1 volume type";
        errors.push(FieldError::forbidden(path.child(field), why));
    }
    let root = spec.pointer("/hostPath/path").and_then(Value::as_str);
    if root.is_some_and(|path| !path.is_empty() && path.chars().all(|letter| letter == '/'))
        && get_text(spec, "persistentVolumeReclaimPolicy") == "Recycle"
    {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden(path.child("persistentVolumeReclaimPolicy"), why));
    }
    let class = get_text(spec, "storageClassName");
    if !class.is_empty() {
        validate_name(
            names::find_subdomain_errors,
            class,
            &path.child("storageClassName"),
            errors,
        );
    }
    one_of(spec, "volumeMode", &["Block", "Filesystem"], false, &path, errors);
    attributes_class(spec, &path, errors);
    if !get_text(spec, "volumeAttributesClassName").is_empty() && spec.get("csi").is_none() {
        let why = "has to be specified when using volumeAttributesClassName";
        errors.push(FieldError::required(path.child("csi"), why));
    }
}

/// Checks that the source, the mode and an existing node affinity of a volume stay unchanged.
pub(super) fn volume_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let part = |object: &Value, field: &str| object.get("spec").and_then(|spec| spec.get(field)).cloned();
    if SOURCES.iter().any(|field| part(value, field) != part(old, field)) {
        let why = "spec.persistentvolumesource is immutable after creation";
        errors.push(FieldError::forbidden("spec.persistentvolumesource", why));
    }
    let (new, old) = (
        value.get("spec").unwrap_or(&NOTHING),
        old.get("spec").unwrap_or(&NOTHING),
    );
    validate_immutable(new, old, "volumeMode", &FieldPath::default(), errors);
    let affinity = |spec: &Value| spec.get("nodeAffinity").filter(|affinity| !affinity.is_null()).cloned();
    if let Some(before) = affinity(old)
        && affinity(new).as_ref() != Some(&before)
    {
        let shown = Shown::Verbatim(affinity(new).map_or_else(|| "null".to_owned(), |new| affinity_in_go(&new)));
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.push(FieldError::new(FieldErrorKind::Invalid, "nodeAffinity", shown, detail));
    }
}

fn validate_capacity(spec: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if is_empty_field(spec, "capacity") {
        errors.push(FieldError::required(at, ""));
    }
    let shown = spec.get("capacity").cloned().unwrap_or_default();
    let amounts = shown.as_object().cloned().unwrap_or_default();
    if amounts.len() != 1 || !amounts.contains_key("storage") {
        errors.push(FieldError::not_supported(at, shown, &["storage"]));
    }
    for (name, amount) in &amounts {
        let Some(Ok(size)) = amount.as_str().map(Quantity::parse) else {
            continue;
        };
        let at = at.key(name);
        if size.is_negative() {
            let number: Value = serde_json::from_str(&size.canonical()).unwrap_or_default();
            errors.push(FieldError::invalid(&at, number, "must be a valid resource quantity"));
        }
        if size.is_negative() || size.canonical() == "0" {
            errors.push(FieldError::invalid(&at, size.canonical(), "must be greater than zero"));
        }
    }
}

fn validate_source(field: &str, spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let value = spec.get(field).unwrap_or(&NOTHING);
    let at = path.child(field);
    let mut required = |fields: &[&str]| {
        for field in fields {
            if get_text(value, field).is_empty() {
                errors.push(FieldError::required(at.child(field), ""));
            }
        }
    };
    match field {
        "hostPath" | "local" => required(&["path"]),
        "nfs" => required(&["server", "path"]),
        "csi" => required(&["driver", "volumeHandle"]),
        _ => {}
    }
    let place = get_text(value, "path");
    match field {
        "hostPath" | "local" if place.split('/').any(|part| part == "..") => {
            errors.push(FieldError::invalid(at.child("path"), place, "must not contain '..'"));
        }
        "nfs" if !place.is_empty() && !place.starts_with('/') => {
            errors.push(FieldError::invalid(at.child("path"), place, "must be an absolute path"));
        }
        "csi" if !get_text(value, "driver").is_empty() => {
            validate_name(
                names::find_subdomain_errors,
                get_text(value, "driver"),
                &at.child("driver"),
                errors,
            );
        }
        _ => {}
    }
    if field == "hostPath" && !HOST_PATH_KINDS.contains(&get_text(value, "type")) {
        errors.push(FieldError::not_supported(
            at.child("type"),
            get_text(value, "type"),
            &HOST_PATH_KINDS,
        ));
    }
    if field == "local" && spec.get("nodeAffinity").is_none() {
        let why = "Local volume requires node affinity";
        errors.push(FieldError::required(path.child("nodeAffinity"), why));
    }
}

/// Returns a volume's affinity as Kubernetes shows its internal type.
fn affinity_in_go(affinity: &Value) -> String {
    if affinity.get("required").is_none_or(Value::is_null) {
        return "{\"Required\":null}".to_owned();
    }
    let requirements = |term: &Value, field: &str| match term.get(field).and_then(Value::as_array) {
        None => "null".to_owned(),
        Some(list) => {
            let shown: Vec<String> = list
                .iter()
                .map(|one| {
                    let [key, operator, values] =
                        ["key", "operator", "values"].map(|field| one.get(field).unwrap_or(&NOTHING));
                    show_go_struct(&[("Key", key), ("Operator", operator), ("Values", values)]).to_string()
                })
                .collect();
            format!("[{}]", shown.join(","))
        }
    };
    let terms = affinity
        .pointer("/required/nodeSelectorTerms")
        .and_then(Value::as_array);
    let terms: Vec<String> = terms
        .into_iter()
        .flatten()
        .map(|term| {
            let (expressions, fields) = (
                requirements(term, "matchExpressions"),
                requirements(term, "matchFields"),
            );
            format!("{{\"MatchExpressions\":{expressions},\"MatchFields\":{fields}}}")
        })
        .collect();
    format!("{{\"Required\":{{\"NodeSelectorTerms\":[{}]}}}}", terms.join(","))
}
