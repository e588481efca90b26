//! Environment variables and the sources of their values; the Pod fields that a container may read.

use serde_json::{Map, Value};

use super::{named_field, validate_name, validate_required};
use crate::schema::quantity::Quantity;
use crate::schema::validation::metadata::qualified_name;
use crate::schema::validation::{get_text, list_items, names};
use crate::schema::{FieldError, FieldPath};

/// The Pod fields that a variable may contain.
const ENVIRONMENT_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The Pod fields that a file may contain.
pub(super) const FILE_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// The Pod fields that a reference may name. The environment and files each allow some of them.
const NAMED_FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const RESOURCE_FIELDS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Returns the errors in a variable's name.
fn variable_name(name: &str) -> Vec<String> {
    if name.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// Checks `env` and `envFrom` of a container.
pub(super) fn validate_environment(container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for (variable, at) in list_items(container, "env", at) {
        validate_required(variable, "name", &at, errors);
        named_field(variable, "name", variable_name, &at, errors);
        if let Some(from) = variable.get("valueFrom") {
            validate_source(from, get_text(variable, "value"), &at.child("valueFrom"), errors);
        }
    }
    for (from, at_item) in list_items(container, "envFrom", at) {
        named_field(from, "prefix", variable_name, &at_item, errors);
        let mut sources = 0;
        for source in ["configMapRef", "secretRef"] {
            if let Some(reference) = from.get(source) {
                sources += 1;
                let at = at_item.child(source);
                validate_required(reference, "name", &at, errors);
                // A name may end in `-` here, as if something followed.
                let name = get_text(reference, "name");
                if !name.is_empty() {
                    validate_name(
                        |name| names::NameRule::Subdomain.check(name, true),
                        name,
                        &at.child("name"),
                        errors,
                    );
                }
            }
        }
        let detail = match sources {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.push(FieldError::invalid(at.child("envFrom"), "", detail));
    }
}

fn validate_source(from: &Value, value: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(field) = from.get("fieldRef") {
        field_of_pod(field, &ENVIRONMENT_FIELDS, &at.child("fieldRef"), errors);
    }
    if let Some(field) = from.get("resourceFieldRef") {
        resource_of_container(field, false, &at.child("resourceFieldRef"), errors);
    }
    for source in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = from.get(source) {
            let at = at.child(source);
            validate_name(
                names::find_subdomain_errors,
                get_text(reference, "name"),
                &at.child("name"),
                errors,
            );
            validate_required(reference, "key", &at, errors);
            named_field(reference, "key", names::data_key, &at, errors);
        }
    }
    if let Some(reference) = from.get("fileKeyRef") {
        let at = at.child("fileKeyRef");
        validate_required(reference, "key", &at, errors);
        named_field(reference, "key", variable_name, &at, errors);
        validate_required(reference, "volumeName", &at, errors);
        named_field(reference, "volumeName", names::find_label_errors, &at, errors);
        validate_required(reference, "path", &at, errors);
        super::volumes::no_steps_back(get_text(reference, "path"), &at.child("path"), errors);
    }
    let detail = match from.as_object().map_or(0, Map::len) {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if !value.is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(FieldError::invalid(at, "", detail));
}

/// Returns a field's path and the key in brackets behind it, `metadata.labels['key']`.
fn split_subscript(path: &str) -> Option<(&str, &str)> {
    let (field, key) = path.strip_suffix("']")?.split_once("['")?;
    (!field.is_empty()).then_some((field, key))
}

/// Checks which field of the pod is shown.
pub(super) fn field_of_pod(reference: &Value, allowed: &[&str], at: &FieldPath, errors: &mut Vec<FieldError>) {
    let version = get_text(reference, "apiVersion");
    let path = get_text(reference, "fieldPath");
    for (field, value) in [("apiVersion", version), ("fieldPath", path)] {
        if value.is_empty() {
            errors.push(FieldError::required(at.child(field), ""));
            return;
        }
    }
    let field = split_subscript(path);
    let problem = match field {
        _ if version != "v1" => Some(format!("unsupported pod version: {version}")),
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {path}")),
        None if NAMED_FIELDS.contains(&path) || path == "spec.host" => None,
        None => Some(format!("field label not supported: {path}")),
    };
    if let Some(problem) = problem {
        let detail = format!("error converting fieldPath: {problem}");
        errors.push(FieldError::invalid(at.child("fieldPath"), path, detail));
        return;
    }
    match field {
        Some(("metadata.annotations", key)) => validate_name(qualified_name, &key.to_lowercase(), at, errors),
        Some((_, key)) => validate_name(qualified_name, key, at, errors),
        None => {
            let path = if path == "spec.host" { "spec.nodeName" } else { path };
            if !allowed.contains(&path) {
                errors.push(FieldError::not_supported(at.child("fieldPath"), path, allowed));
            }
        }
    }
}

/// Checks a reference to a resource of a container. In a file, the reference must name the container.
pub(super) fn resource_of_container(reference: &Value, in_file: bool, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let resource = get_text(reference, "resource");
    let huge = ["limits.hugepages-", "requests.hugepages-"]
        .iter()
        .any(|prefix| resource.starts_with(prefix));
    if in_file && get_text(reference, "containerName").is_empty() {
        errors.push(FieldError::required(at.child("containerName"), ""));
    } else if resource.is_empty() {
        errors.push(FieldError::required(at.child("resource"), ""));
    } else if !RESOURCE_FIELDS.contains(&resource) && !huge {
        errors.push(FieldError::not_supported(
            at.child("resource"),
            resource,
            &RESOURCE_FIELDS,
        ));
    }
    let divisor = match reference.get("divisor").and_then(Value::as_str).map(Quantity::parse) {
        Some(Ok(divisor)) if !divisor.is_zero() => divisor.canonical(),
        _ => return,
    };
    let sizes = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";
    let (allowed, what) = match resource {
        "limits.cpu" | "requests.cpu" => ("1m, 1", "cpu resource"),
        "limits.memory" | "requests.memory" => (sizes, "memory resource"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (sizes, "local ephemeral storage resource"),
        _ if huge => (sizes, "hugepages resource"),
        _ => return,
    };
    if !allowed.split(", ").any(|one| one == divisor) {
        let listed = if allowed == sizes { sizes } else { "1m and 1" };
        let detail = format!("only divisor's values {listed} are supported with the {what}");
        errors.push(FieldError::invalid(at.child("divisor"), resource, detail));
    }
}

/// Checks that files with values of variables are in an `emptyDir` volume.
pub(super) fn files_in_volumes(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (container, at) in super::all_containers(spec, path) {
        for (variable, at) in list_items(container, "env", &at) {
            let Some(reference) = variable.pointer("/valueFrom/fileKeyRef") else {
                continue;
            };
            let name = get_text(reference, "volumeName");
            let at = at.child("valueFrom").child("fileKeyRef").child("volumeName");
            // Of two volumes with one name, the last one counts.
            let volume = list_items(spec, "volumes", path)
                .map(|(volume, _)| volume)
                .filter(|volume| get_text(volume, "name") == name)
                .last();
            match volume {
                None => errors.push(super::not_found(&at, name)),
                Some(volume) if volume.get("emptyDir").is_none() => errors.push(FieldError::invalid(
                    at,
                    name,
                    "referenced volume must be of type emptyDir",
                )),
                Some(_) => {}
            }
        }
    }
}
