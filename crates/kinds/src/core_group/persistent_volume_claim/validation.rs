//! Validation of claims, of their updates and of their status.

use serde_json::{Value, json};

use crate::schema::quantity::Quantity;
use crate::schema::validation::metadata::{label_selector, qualified_name};
use crate::schema::validation::{get_text, is_empty_field, names, one_of, validate_immutable, validate_name};
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;

/// Checks a claim, or a claim template at `path`.
pub(crate) fn validate_claim(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = path.child("spec");
    if is_empty_field(spec, "accessModes") {
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
    let class = get_text(spec, "storageClassName");
    if !class.is_empty() {
        for complaint in names::find_subdomain_errors(class) {
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

/// Returns the fields that identify the data of a reference.
fn source_key(source: Option<&Value>) -> [&str; 3] {
    ["apiGroup", "kind", "name"].map(|field| source.map(|source| get_text(source, field)).unwrap_or_default())
}

fn data_source(source: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in ["name", "kind"] {
        if get_text(source, field).is_empty() {
            errors.push(FieldError::required(at.child(field), ""));
        }
    }
    let group = get_text(source, "apiGroup");
    if group.is_empty() && get_text(source, "kind") != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid(at, get_text(source, "kind"), why));
    }
    if !group.is_empty() {
        validate_name(names::find_subdomain_errors, group, &at.child("apiGroup"), errors);
    }
}

pub(crate) fn attributes_class(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let class = get_text(spec, "volumeAttributesClassName");
    if !class.is_empty() {
        validate_name(
            names::find_subdomain_errors,
            class,
            &path.child("volumeAttributesClassName"),
            errors,
        );
    }
}

pub(crate) const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(crate) fn access_modes(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
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

/// The annotation that named a class before there was a field for it.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

fn requested_storage(object: &Value) -> Option<Quantity> {
    size(object.pointer("/spec/resources/requests/storage"))
}

fn size(value: Option<&Value>) -> Option<Quantity> {
    value
        .and_then(Value::as_str)
        .and_then(|text| Quantity::parse(text).ok())
}

/// Checks an update of a claim. The spec is immutable, with two exceptions: volume and class may be set later, and a bound claim may change
/// its size and its attributes class.
pub(super) fn claim_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (spec, before) = (
        value.get("spec").unwrap_or(&NOTHING),
        old.get("spec").unwrap_or(&NOTHING),
    );
    let annotation = |object: &Value| {
        let annotations = object.pointer("/metadata/annotations").unwrap_or(&NOTHING);
        annotations.get(CLASS).and_then(Value::as_str).map(str::to_owned)
    };
    let (class_now, class_then) = (spec.get("storageClassName"), before.get("storageClassName"));
    let (noted_now, noted_then) = (annotation(value), annotation(old));
    let named = class_now.and_then(Value::as_str);
    let from_note = noted_then.is_some()
        && class_then.is_none()
        && named == noted_then.as_deref()
        && (noted_now.is_none() || noted_now == noted_then);
    if !from_note && noted_now != noted_then {
        let at = FieldPath::new("metadata").child("annotations").key(CLASS);
        errors.push(FieldError::invalid(
            at,
            noted_now.unwrap_or_default(),
            "field is immutable",
        ));
    }
    let from_nothing =
        named.is_some() && class_then.is_none() && noted_then.as_deref().is_none_or(|noted| Some(noted) == named);
    let bound = value.pointer("/status/phase").and_then(Value::as_str) == Some("Bound");
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(requests) = spec.pointer_mut("/resources/requests").and_then(Value::as_object_mut)
            && bound
        {
            requests.remove("storage");
        }
        if let Some(map) = spec.as_object_mut() {
            if bound {
                map.remove("volumeAttributesClassName");
            }
            // An unbound claim may get its volume, which the volume binder names.
            if is_empty_field(before, "volumeName") {
                map.remove("volumeName");
            }
            if from_note || from_nothing {
                map.remove("storageClassName");
            }
        }
        spec
    };
    if fixed(spec) != fixed(before) {
        let detail =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", detail));
    }
    let (now, then) = (requested_storage(value), requested_storage(old));
    let zero = Quantity::zero();
    if now.unwrap_or(zero) < then.unwrap_or(zero)
        && now.unwrap_or(zero) <= size(old.pointer("/status/capacity/storage")).unwrap_or(zero)
    {
        let at = FieldPath::new("spec")
            .child("resources")
            .child("requests")
            .child("storage");
        errors.push(FieldError::forbidden(at, "field can not be less than status.capacity"));
    }
    validate_immutable(spec, before, "volumeMode", &FieldPath::default(), errors);
    let attributes = spec.get("volumeAttributesClassName");
    if attributes != before.get("volumeAttributesClassName")
        && old.pointer("/status/currentVolumeAttributesClassName").is_some()
        && get_text(spec, "volumeAttributesClassName").is_empty()
    {
        let to = if attributes.is_none() { "nil" } else { "empty string" };
        let detail = format!("update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil");
        let at = FieldPath::new("spec").child("volumeAttributesClassName");
        errors.push(FieldError::forbidden(at, detail));
    }
}

/// Checks the status of a claim's volume.
pub(super) fn claim_status(value: &Value, errors: &mut Vec<FieldError>) {
    if value
        .pointer("/spec")
        .is_none_or(|spec| is_empty_field(spec, "accessModes"))
    {
        errors.push(FieldError::required(FieldPath::new("Spec").child("accessModes"), ""));
    }
    let path = FieldPath::new("status");
    let status = value.get("status").unwrap_or(&NOTHING);
    let entries = |field: &str| status.get(field).and_then(Value::as_object).into_iter().flatten();
    let amount = |name: &str, amount: &Value, at: &FieldPath, errors: &mut Vec<FieldError>| {
        if let Some(amount) = size(Some(amount)).filter(Quantity::is_negative) {
            let shown = Value::from(amount.round_up().canonical().parse::<i64>().unwrap_or_default());
            errors.push(FieldError::invalid(
                at.key(name),
                shown,
                "must be a valid resource quantity",
            ));
        }
    };
    for (name, found) in entries("capacity") {
        amount(name, found, &path.child("capacity"), errors);
    }
    const STATES: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let at = path.child("allocatedResourceStatuses");
    for (name, state) in entries("allocatedResourceStatuses") {
        resource_key(name, &at, errors);
        if !state.as_str().is_some_and(|state| STATES.contains(&state)) {
            errors.push(FieldError::not_supported(&at, name.as_str(), &STATES));
        }
    }
    let at = path.child("allocatedResources");
    for (name, found) in entries("allocatedResources") {
        let count = errors.len();
        resource_key(name, &at, errors);
        if errors.len() == count {
            amount(name, found, &at, errors);
        }
    }
}

/// Checks a resource name of a claim. Of Kubernetes' own resources, only storage is valid.
fn resource_key(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let complaints = qualified_name(name);
    let valid = complaints.is_empty();
    for complaint in complaints {
        errors.push(FieldError::invalid(at, name, complaint));
    }
    let own = !name.contains('/') || name.contains("kubernetes.io/");
    if valid && own && name != "storage" {
        errors.push(FieldError::not_supported(at, name, &["storage"]));
    }
}
