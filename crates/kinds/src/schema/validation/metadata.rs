//! Metadata: names, labels, annotations, owners, finalizers, and their immutable parts.

use std::collections::HashSet;
use std::sync::LazyLock;

use serde_json::{Map, Value};
use tenure_checkpoint::checkpoint;

use super::names::{self, NameRule};
use super::{get_text, internal_list, is_empty_field, list_items, show_go_struct, validate_immutable};
use crate::schema::{FieldError, FieldErrorKind, FieldPath};

/// The limit for an object's annotations together, keys and values.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Checks the metadata of a new object.
pub fn object_meta(value: &Value, rule: NameRule, path: &FieldPath, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    let metadata = value.get("metadata").unwrap_or(&NOTHING);
    let generate = get_text(metadata, "generateName");
    if !generate.is_empty() {
        for complaint in rule.check(generate, true) {
            errors.push(FieldError::invalid(path.child("generateName"), generate, complaint));
        }
    }
    let name = get_text(metadata, "name");
    if name.is_empty() {
        errors.push(FieldError::required(
            path.child("name"),
            "name or generateName is required",
        ));
    } else {
        for complaint in rule.check(name, false) {
            errors.push(FieldError::invalid(path.child("name"), name, complaint));
        }
    }
    non_specific(metadata, path, errors);
}

fn non_specific(metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64)
        && generation < 0
    {
        errors.push(FieldError::invalid(
            path.child("generation"),
            generation,
            "must be greater than or equal to 0",
        ));
    }
    if let Some(Value::Object(map)) = metadata.get("labels") {
        validate_labels(map, &path.child("labels"), errors);
    }
    if let Some(Value::Object(map)) = metadata.get("annotations") {
        validate_annotations(map, &path.child("annotations"), errors);
    }
    owner_references(metadata, path, errors);
    for (finalizer, _) in list_items(metadata, "finalizers", path) {
        let name = finalizer.as_str().unwrap_or_default();
        let path = path.child("finalizers");
        for complaint in qualified_name(name) {
            errors.push(FieldError::invalid(&path, name, complaint));
        }
    }
    let both = ["orphan", "foregroundDeletion"];
    if let Some(Value::Array(list)) = metadata.get("finalizers")
        && both
            .iter()
            .all(|one| list.iter().any(|item| item.as_str() == Some(one)))
    {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(
            path.child("finalizers"),
            Value::Array(list.clone()),
            detail,
        ));
    }
}

/// The finalizer of every CustomResourceDefinition. It keeps the definition until all of its objects are deleted.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Checks finalizers of built-in kinds: Kubernetes must know each one, or it must have a domain.
pub(crate) fn standard_finalizers(value: &Value, errors: &mut Vec<FieldError>) {
    let metadata = value.get("metadata").unwrap_or(&Value::Null);
    for (finalizer, at) in list_items(metadata, "finalizers", &FieldPath::new("metadata")) {
        standard_finalizer(finalizer.as_str().unwrap_or_default(), &at, errors);
    }
}

/// Checks that a finalizer is one of Kubernetes' or has a domain.
pub(crate) fn standard_finalizer(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let known = ["kubernetes", "orphan", "foregroundDeletion", CLEANUP_FINALIZER];
    if !name.contains('/') && !known.contains(&name) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.push(FieldError::invalid(at, name, detail));
    }
}

/// Checks labels.
pub fn validate_labels(map: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (key, value) in map {
        for complaint in qualified_name(key) {
            errors.push(FieldError::invalid(path, key.as_str(), complaint));
        }
        let value = value.as_str().unwrap_or_default();
        for complaint in label_value(value) {
            errors.push(FieldError::invalid(path, value, complaint));
        }
    }
}

/// Checks annotations.
pub fn validate_annotations(map: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in map {
        // Keys may be in upper case here; anything else is as for labels.
        for complaint in qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(path, key.as_str(), complaint));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        let detail = format!("may not be more than {ANNOTATIONS_LIMIT} bytes");
        errors.push(FieldError::new(FieldErrorKind::TooLong, path, "", detail));
    }
}

fn owner_references(metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut controller: Option<String> = None;
    // The real server's paths have no index here.
    let at = path.child("ownerReferences");
    for (owner, _) in list_items(metadata, "ownerReferences", path) {
        let version = get_text(owner, "apiVersion");
        let kind = get_text(owner, "kind");
        if version.is_empty() || version.rsplit('/').next().is_none_or(str::is_empty) {
            errors.push(FieldError::invalid(
                at.child("apiVersion"),
                version,
                "version must not be empty",
            ));
        }
        for field in ["kind", "name", "uid"] {
            if get_text(owner, field).is_empty() {
                errors.push(FieldError::invalid(at.child(field), "", "must not be empty"));
            }
        }
        if version == "v1" && kind == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(&at, show_go_struct(&owner_fields(owner)), detail));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let name = format!("{kind}/{}", get_text(owner, "name"));
            if let Some(first) = &controller {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                let shown =
                    internal_list(list_items(metadata, "ownerReferences", path).map(|(owner, _)| owner_fields(owner)));
                errors.push(FieldError::invalid(&at, shown, detail));
            } else {
                controller = Some(name);
            }
        }
    }
}

/// Returns the fields of an owner in the order in which Kubernetes shows them.
fn owner_fields(owner: &Value) -> Vec<(&'static str, &Value)> {
    static MISSING: LazyLock<Value> = LazyLock::new(|| Value::from(""));
    let identity = ["apiVersion", "kind", "name", "uid"].map(|field| (field, owner.get(field).unwrap_or(&MISSING)));
    let flags =
        ["controller", "blockOwnerDeletion"].map(|field| (field, owner.get(field).filter(|flag| !flag.is_null())));
    let flags = flags.into_iter().filter_map(|(field, flag)| Some((field, flag?)));
    identity.into_iter().chain(flags).collect()
}

/// Checks the metadata of an object that replaces `old`.
pub fn object_meta_update(value: &Value, old: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    let metadata = value.get("metadata").unwrap_or(&NOTHING);
    let before = old.get("metadata").unwrap_or(&NOTHING);
    if get_text(metadata, "resourceVersion").is_empty() {
        errors.push(FieldError::invalid(
            path.child("resourceVersion"),
            0,
            "must be specified for an update",
        ));
    }
    let generation = |metadata: &Value| metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
    if generation(metadata) < generation(before) {
        errors.push(FieldError::invalid(
            path.child("generation"),
            generation(metadata),
            "must not be decremented",
        ));
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        validate_immutable(metadata, before, field, path, errors);
    }
    if !is_empty_field(before, "deletionTimestamp") {
        let known: HashSet<&Value> = list_finalizers(before).collect();
        let added: Vec<&Value> = list_finalizers(metadata).filter(|one| !known.contains(one)).collect();
        if !added.is_empty() {
            let mut names: Vec<String> = added
                .iter()
                .filter_map(|one| Some(format!("{:?}", one.as_str()?)))
                .collect();
            names.sort();
            names.dedup();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                names.join(", ")
            );
            errors.push(FieldError::forbidden(path.child("finalizers"), detail));
        }
    }
    non_specific(metadata, path, errors);
}

fn list_finalizers(metadata: &Value) -> impl Iterator<Item = &Value> {
    let finalizers = metadata.get("finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().inspect(|_| checkpoint())
}

/// Checks a label selector.
pub fn label_selector(selector: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(Value::Object(map)) = selector.get("matchLabels") {
        validate_labels(map, &path.child("matchLabels"), errors);
    }
    for (expression, at) in list_items(selector, "matchExpressions", path) {
        let values = !is_empty_field(expression, "values");
        match get_text(expression, "operator") {
            "In" | "NotIn" if !values => {
                errors.push(FieldError::required(
                    at.child("values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                ));
            }
            "Exists" | "DoesNotExist" if values => {
                errors.push(FieldError::forbidden(
                    at.child("values"),
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                ));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                at.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        let key = get_text(expression, "key");
        for complaint in qualified_name(key) {
            errors.push(FieldError::invalid(at.child("key"), key, complaint));
        }
        for (value, at) in list_items(expression, "values", &at) {
            let value = value.as_str().unwrap_or_default();
            for complaint in label_value(value) {
                errors.push(FieldError::invalid(&at, value, complaint));
            }
        }
    }
}

fn too_long(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

/// Returns the errors in a label's value.
pub fn label_value(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > 63 {
        complaints.push(too_long(63));
    }
    if !value.is_empty() && !is_name_part(value) {
        complaints.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    complaints
}

/// Returns the errors in a label's key, or in another text of this form.
pub fn qualified_name(name: &str) -> Vec<String> {
    const PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let mut complaints = Vec::new();
    let parts: Vec<&str> = name.split('/').collect();
    let part = match parts.as_slice() {
        [part] => part,
        [prefix, part] => {
            if prefix.is_empty() {
                complaints.push("prefix part must be non-empty".to_owned());
            } else {
                complaints.extend(
                    names::find_subdomain_errors(prefix)
                        .into_iter()
                        .map(|complaint| format!("prefix part {complaint}")),
                );
            }
            part
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                PART
            )];
        }
    };
    if part.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    } else if part.len() > 63 {
        complaints.push(format!("name part {}", too_long(63)));
    }
    if !is_name_part(part) {
        complaints.push(format!("name part {PART}"));
    }
    complaints
}

fn is_name_part(part: &str) -> bool {
    let middle = part
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let edge = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    middle && edge(part.chars().next()) && edge(part.chars().last())
}
