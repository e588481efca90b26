//! ConfigMaps, Secrets, claims, storage classes and leases.

use base64::Engine as _;
use serde_json::Value;

use super::metadata::label_selector;
use super::{empty, immutable, names, one_of, text};
use crate::schema::quantity::Quantity;
use crate::schema::{FieldError, FieldErrorKind, FieldPath};

/// All values of a ConfigMap or Secret together, in bytes.
const DATA_LIMIT: usize = 1024 * 1024;

/// Checks the data of a ConfigMap or Secret.
pub(super) fn data(kind: &str, value: &Value, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    let plain = kind == "ConfigMap";
    for field in ["data", "binaryData"] {
        let Some(Value::Object(map)) = value.get(field) else {
            continue;
        };
        let path = FieldPath::new(field);
        for (key, content) in map {
            for complaint in names::data_key(key) {
                errors.push(FieldError::invalid(path.key(key), key.as_str(), complaint));
            }
            if field == "data" && value.get("binaryData").is_some_and(|binary| binary.get(key).is_some()) {
                errors.push(FieldError::invalid(
                    path.key(key),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                ));
            }
            let length = content.as_str().map_or(0, str::len);
            size += if plain && field == "data" {
                length
            } else {
                length / 4 * 3
            };
        }
    }
    if size > DATA_LIMIT {
        let field = if plain { "" } else { "data" };
        errors.push(FieldError::new(
            FieldErrorKind::TooLong,
            field,
            "",
            format!("may not be more than {DATA_LIMIT} bytes"),
        ));
    }
    if !plain {
        secret(value, errors);
    }
}

fn secret(value: &Value, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    let data = value.get("data").unwrap_or(&NOTHING);
    let path = FieldPath::new("data");
    let mut require = |keys: &[&str]| {
        for key in keys {
            if data.get(*key).is_none() {
                errors.push(FieldError::required(path.key(key), ""));
            }
        }
    };
    match text(value, "type") {
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
        "kubernetes.io/dockercfg" => docker(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => docker(data, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if data.get("username").is_none() && data.get("password").is_none() => {
            require(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" if text(data, "ssh-privatekey").is_empty() => {
            errors.push(FieldError::required(path.key("ssh-privatekey"), ""));
        }
        "kubernetes.io/service-account-token" => {
            const ANNOTATION: &str = "kubernetes.io/service-account.name";
            let annotations = value.pointer("/metadata/annotations").unwrap_or(&NOTHING);
            if text(annotations, ANNOTATION).is_empty() {
                errors.push(FieldError::required(
                    FieldPath::new("metadata").child("annotations").key(ANNOTATION),
                    "",
                ));
            }
        }
        _ => {}
    }
}

fn docker(data: &Value, key: &str, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("data").key(key);
    let Some(content) = data.get(key).and_then(Value::as_str) else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(content)
        .unwrap_or_default();
    let problem = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_)) => return,
        _ if bytes.is_empty() => "unexpected end of JSON input",
        _ => "must be a JSON object",
    };
    errors.push(FieldError::invalid(path, "<secret contents redacted>", problem));
}

/// What may not change: an immutable object's data, a Secret's type.
pub(super) fn immutable_data(kind: &str, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if kind == "Secret" {
        immutable(value, old, "type", &FieldPath::default(), errors);
    }
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if value.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden("immutable", detail));
    }
    for field in ["data", "binaryData"] {
        let content = |object: &Value| object.get(field).filter(|_| !empty(object, field)).cloned();
        if content(value) != content(old) {
            errors.push(FieldError::forbidden(field, detail));
        }
    }
}

/// Checks a claim, or a claim template at `path`.
pub(super) fn claim(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = path.child("spec");
    let modes = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    if empty(spec, "accessModes") {
        errors.push(FieldError::required(
            path.child("accessModes"),
            "at least 1 access mode is required",
        ));
    }
    if let Some(selector) = spec.get("selector") {
        label_selector(selector, &path.child("selector"), errors);
    }
    let given: Vec<&str> = spec
        .get("accessModes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for mode in &given {
        if !modes.contains(mode) {
            errors.push(FieldError::not_supported(path.child("accessModes"), *mode, &modes));
        }
    }
    if given.contains(&"ReadWriteOncePod") && given.iter().any(|mode| *mode != "ReadWriteOncePod") {
        errors.push(FieldError::forbidden(
            path.child("accessModes"),
            "may not use ReadWriteOncePod with other access modes",
        ));
    }
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
}

/// A claim's spec is fixed but for its requested size and class of attributes.
pub(super) fn claim_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let fixed = |object: &Value| {
        let mut spec = object.get("spec").cloned().unwrap_or_default();
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("volumeAttributesClassName");
            spec.remove("resources");
            // Naming the volume is the binder's right.
            if empty(old.get("spec").unwrap_or(&Value::Null), "volumeName") {
                spec.remove("volumeName");
            }
        }
        spec
    };
    if fixed(value) != fixed(old) {
        let detail =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", detail));
    }
}

/// Checks a storage class.
pub(super) fn storage_class(value: &Value, errors: &mut Vec<FieldError>) {
    if text(value, "provisioner").is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    }
    let root = FieldPath::default();
    one_of(value, "reclaimPolicy", &["Delete", "Retain"], false, &root, errors);
    one_of(
        value,
        "volumeBindingMode",
        &["Immediate", "WaitForFirstConsumer"],
        true,
        &root,
        errors,
    );
}

/// A storage class is fixed.
pub(super) fn storage_class_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        immutable(value, old, field, &FieldPath::default(), errors);
    }
}

/// Checks a lease.
pub(super) fn lease(value: &Value, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    if let Some(duration) = spec.get("leaseDurationSeconds").and_then(Value::as_i64)
        && duration <= 0
    {
        errors.push(FieldError::invalid(
            path.child("leaseDurationSeconds"),
            duration,
            "must be greater than 0",
        ));
    }
    super::non_negative(spec, "leaseTransitions", &path, errors);
    if !text(spec, "preferredHolder").is_empty() && text(spec, "strategy").is_empty() {
        errors.push(FieldError::forbidden(
            path.child("preferredHolder"),
            "may only be specified if `strategy` is defined",
        ));
    }
}
