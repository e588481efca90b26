//! Volumes, claims on them, and their classes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::metadata::{label_selector, qualified_name};
use super::pods::HOST_PATH_KINDS;
use super::{empty, immutable, internal, items, named, names, node_selectors, one_of, text};
use crate::schema::quantity::Quantity;
use crate::schema::{FieldError, FieldErrorKind, FieldPath, Shown};

static NOTHING: Value = Value::Null;
const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Where a volume may be from.
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

fn access_modes(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let path = path.child("accessModes");
    let modes = spec.get("accessModes").and_then(Value::as_array).into_iter().flatten();
    let given: Vec<&str> = modes.filter_map(Value::as_str).collect();
    for mode in &given {
        if !ACCESS_MODES.contains(mode) {
            errors.push(FieldError::not_supported(&path, *mode, &ACCESS_MODES));
        }
    }
    if given.contains(&"ReadWriteOncePod") && given.iter().any(|mode| *mode != "ReadWriteOncePod") {
        let why = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(&path, why));
    }
}

/// Checks a volume.
pub(crate) fn volume(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    if empty(spec, "accessModes") {
        errors.push(FieldError::required(path.child("accessModes"), ""));
    }
    access_modes(spec, &path, errors);
    capacity(spec, &path.child("capacity"), errors);
    let policies = ["Delete", "Recycle", "Retain"];
    one_of(spec, "persistentVolumeReclaimPolicy", &policies, false, &path, errors);
    if let Some(affinity) = spec.get("nodeAffinity") {
        let at = path.child("nodeAffinity").child("required");
        match affinity.get("required") {
            Some(selector) => node_selectors::terms(selector, &at, errors),
            None => errors.push(FieldError::required(at, "must specify required node constraints")),
        }
    }
    let mut sources = SOURCES.into_iter().filter(|field| spec.get(*field).is_some());
    match sources.next() {
        Some(field) => source(field, spec, &path, errors),
        None => errors.push(FieldError::required(&path, "must specify a volume type")),
    }
    for field in sources {
        let why = "may not specify more than 1 volume type";
        errors.push(FieldError::forbidden(path.child(field), why));
    }
    let root = spec.pointer("/hostPath/path").and_then(Value::as_str);
    if root.is_some_and(|path| !path.is_empty() && path.chars().all(|letter| letter == '/'))
        && text(spec, "persistentVolumeReclaimPolicy") == "Recycle"
    {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden(path.child("persistentVolumeReclaimPolicy"), why));
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        named(names::subdomain, class, &path.child("storageClassName"), errors);
    }
    one_of(spec, "volumeMode", &["Block", "Filesystem"], false, &path, errors);
    attributes_class(spec, &path, errors);
    if !text(spec, "volumeAttributesClassName").is_empty() && spec.get("csi").is_none() {
        let why = "has to be specified when using volumeAttributesClassName";
        errors.push(FieldError::required(path.child("csi"), why));
    }
}

fn capacity(spec: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if empty(spec, "capacity") {
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

fn source(field: &str, spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let value = spec.get(field).unwrap_or(&NOTHING);
    let at = path.child(field);
    let mut required = |fields: &[&str]| {
        for field in fields {
            if text(value, field).is_empty() {
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
    let place = text(value, "path");
    match field {
        "hostPath" | "local" if place.split('/').any(|part| part == "..") => {
            errors.push(FieldError::invalid(at.child("path"), place, "must not contain '..'"));
        }
        "nfs" if !place.is_empty() && !place.starts_with('/') => {
            errors.push(FieldError::invalid(at.child("path"), place, "must be an absolute path"));
        }
        "csi" if !text(value, "driver").is_empty() => {
            named(names::subdomain, text(value, "driver"), &at.child("driver"), errors);
        }
        _ => {}
    }
    if field == "hostPath" && !HOST_PATH_KINDS.contains(&text(value, "type")) {
        errors.push(FieldError::not_supported(
            at.child("type"),
            text(value, "type"),
            &HOST_PATH_KINDS,
        ));
    }
    if field == "local" && spec.get("nodeAffinity").is_none() {
        let why = "Local volume requires node affinity";
        errors.push(FieldError::required(path.child("nodeAffinity"), why));
    }
}

/// What a volume is made of is fixed, and so is how it is offered.
pub(crate) fn volume_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let part = |object: &Value, field: &str| object.get("spec").and_then(|spec| spec.get(field)).cloned();
    if SOURCES.iter().any(|field| part(value, field) != part(old, field)) {
        let why = "spec.persistentvolumesource is immutable after creation";
        errors.push(FieldError::forbidden("spec.persistentvolumesource", why));
    }
    let (new, old) = (
        value.get("spec").unwrap_or(&NOTHING),
        old.get("spec").unwrap_or(&NOTHING),
    );
    immutable(new, old, "volumeMode", &FieldPath::default(), errors);
    let affinity = |spec: &Value| spec.get("nodeAffinity").filter(|affinity| !affinity.is_null()).cloned();
    if let Some(before) = affinity(old)
        && affinity(new).as_ref() != Some(&before)
    {
        let shown = Shown::Verbatim(affinity(new).map_or_else(|| "null".to_owned(), |new| affinity_in_go(&new)));
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.push(FieldError::new(FieldErrorKind::Invalid, "nodeAffinity", shown, detail));
    }
}

/// A volume's affinity as Kubernetes shows its internal type.
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
                    internal(&[("Key", key), ("Operator", operator), ("Values", values)]).to_string()
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

/// Checks a claim, or a claim template at `path`.
pub(crate) fn claim(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = path.child("spec");
    if empty(spec, "accessModes") {
        errors.push(FieldError::required(
            path.child("accessModes"),
            "at least 1 access mode is required",
        ));
    }
    if let Some(selector) = spec.get("selector") {
        label_selector(selector, &path.child("selector"), errors);
    }
    access_modes(spec, &path, errors);
    let at = path.child("resources").key("storage");
    match spec
        .pointer("/resources/requests/storage")
        .and_then(Value::as_str)
        .map(Quantity::parse)
    {
        Some(Ok(size)) if size.is_negative() || size.canonical() == "0" => {
            errors.push(FieldError::invalid(at, size.canonical(), "must be greater than zero"));
        }
        Some(_) => {}
        None => errors.push(FieldError::required(at, "")),
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        for complaint in names::subdomain(class) {
            errors.push(FieldError::invalid(path.child("storageClassName"), class, complaint));
        }
    }
    one_of(spec, "volumeMode", &["Block", "Filesystem"], false, &path, errors);
    for field in ["dataSource", "dataSourceRef"] {
        if let Some(source) = spec.get(field) {
            data_source(source, &path.child(field), errors);
        }
    }
    if spec
        .get("dataSourceRef")
        .and_then(|other| other.get("namespace"))
        .is_none()
        && spec
            .get("dataSource")
            .is_some_and(|source| source_key(Some(source)) != source_key(spec.get("dataSourceRef")))
    {
        errors.push(FieldError::invalid(&path, json!({}), "must match dataSourceRef"));
    }
    attributes_class(spec, &path, errors);
}

/// What of a reference to data says which data.
fn source_key(source: Option<&Value>) -> [&str; 3] {
    ["apiGroup", "kind", "name"].map(|field| source.map(|source| text(source, field)).unwrap_or_default())
}

fn data_source(source: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in ["name", "kind"] {
        if text(source, field).is_empty() {
            errors.push(FieldError::required(at.child(field), ""));
        }
    }
    let group = text(source, "apiGroup");
    if group.is_empty() && text(source, "kind") != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid(at, text(source, "kind"), why));
    }
    if !group.is_empty() {
        named(names::subdomain, group, &at.child("apiGroup"), errors);
    }
}

fn attributes_class(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let class = text(spec, "volumeAttributesClassName");
    if !class.is_empty() {
        named(
            names::subdomain,
            class,
            &path.child("volumeAttributesClassName"),
            errors,
        );
    }
}

/// Checks a storage class.
pub(crate) fn storage_class(value: &Value, errors: &mut Vec<FieldError>) {
    let provisioner = text(value, "provisioner").to_lowercase();
    let root = FieldPath::default();
    if provisioner.is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    } else {
        named(qualified_name, &provisioner, &root.child("provisioner"), errors);
    }
    let parameters = value.get("parameters").and_then(Value::as_object);
    if parameters.is_some_and(|parameters| parameters.contains_key("")) {
        errors.push(FieldError::invalid("parameters", "", "field can not be empty."));
    }
    one_of(value, "reclaimPolicy", &["Delete", "Retain"], false, &root, errors);
    one_of(
        value,
        "volumeBindingMode",
        &["Immediate", "WaitForFirstConsumer"],
        true,
        &root,
        errors,
    );
    let mut known = BTreeSet::new();
    for (term, at) in items(value, "allowedTopologies", &root) {
        topology(term, &at, errors);
        let wanted: BTreeMap<&str, BTreeSet<&str>> = items(term, "matchLabelExpressions", &at)
            .map(|(expression, _)| {
                let values = expression.get("values").and_then(Value::as_array);
                let values = values.into_iter().flatten().filter_map(Value::as_str);
                (text(expression, "key"), values.collect())
            })
            .collect();
        // What asks for nothing counts as said before.
        if wanted.is_empty() || known.contains(&wanted) {
            errors.push(FieldError::duplicate(at.child("matchLabelExpressions"), ""));
        }
        known.insert(wanted);
    }
}

fn topology(term: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut keys = BTreeSet::new();
    for (expression, at) in items(term, "matchLabelExpressions", at) {
        if empty(expression, "values") {
            errors.push(FieldError::required(at.child("values"), ""));
        }
        let mut known = BTreeSet::new();
        for (value, at) in items(expression, "values", &at) {
            let value = value.as_str().unwrap_or_default();
            if !known.insert(value) {
                errors.push(FieldError::duplicate(at, value));
            }
        }
        let key = text(expression, "key");
        named(qualified_name, key, &at.child("key"), errors);
        if !keys.insert(key) {
            errors.push(FieldError::duplicate(at.child("key"), key));
        }
    }
}

/// A storage class is fixed.
pub(crate) fn storage_class_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        immutable(value, old, field, &FieldPath::default(), errors);
    }
}
