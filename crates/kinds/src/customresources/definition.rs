//! Validation of CustomResourceDefinitions, in the words of the real server.

use serde_json::Value;

use super::{conversion_rules, get_text, list_versions, names, rule_checks, schema_rules, structural_rules};
use crate::schema::validation::names as name_rules;
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;

/// Returns the errors in a new definition. The caller checks general metadata.
pub fn validate_definition(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = definition.get("spec").unwrap_or(&NOTHING);
    let name = definition
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let wanted = format!(
        "{}.{}",
        spec.pointer("/names/plural")
            .and_then(Value::as_str)
            .unwrap_or_default(),
        get_text(spec, "group")
    );
    if name != wanted {
        errors.push(FieldError::invalid(
            "metadata.name",
            name,
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    self::validate_spec(spec, None, &mut errors);
    stored_versions(definition, &mut errors);
    validate_approval(definition, None, &mut errors);
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(true)) {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, detail));
    }
    errors
}

/// Returns the errors in a definition that replaces `old`.
pub fn validate_definition_update(definition: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = definition.get("spec").unwrap_or(&NOTHING);
    let before = old.get("spec").unwrap_or(&NOTHING);
    self::validate_spec(spec, Some(old), &mut errors);
    let mut fixed = vec!["group", "names/plural"];
    if names::is_established(old) {
        fixed.extend(["scope", "names/kind"]);
    }
    for field in fixed {
        let pointer = format!("/{field}");
        let (now, then) = (spec.pointer(&pointer), before.pointer(&pointer));
        if now != then {
            let path = format!("spec.{}", field.replace('/', "."));
            errors.push(FieldError::invalid(
                path,
                now.cloned().unwrap_or_default(),
                "field is immutable",
            ));
        }
    }
    stored_versions(definition, &mut errors);
    validate_approval(definition, Some(old), &mut errors);
    errors
}

/// Checks whether all versions have the same value in a field. Errors in such a field are reported where version one of the API
/// kept it: above the versions.
fn is_hoisted(spec: &Value, field: &str) -> bool {
    let list = spec
        .get("versions")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut values = list
        .iter()
        .map(|version| version.get(field).filter(|value| !is_empty(value)));
    let Some(first) = values.next() else { return false };
    first.is_some() && values.all(|value| value == first)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn validate_spec(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec");
    let group = get_text(spec, "group");
    let complaints = name_rules::find_subdomain_errors(group);
    if group.is_empty() {
        errors.push(FieldError::required(path.child("group"), ""));
    } else if !complaints.is_empty() {
        errors.push(FieldError::invalid(path.child("group"), group, complaints.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            path.child("group"),
            group,
            "should be a domain with at least one dot",
        ));
    }
    match get_text(spec, "scope") {
        "Cluster" | "Namespaced" => {}
        "" => errors.push(FieldError::required(path.child("scope"), "")),
        other => errors.push(FieldError::not_supported(
            path.child("scope"),
            other,
            &["Cluster", "Namespaced"],
        )),
    }
    let schemas = versions_of(spec).filter_map(|version| version.pointer("/schema/openAPIV3Schema"));
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(true)) && schemas.into_iter().any(has_default) {
        let detail = "must be false in order to use defaults in the schema";
        errors.push(FieldError::invalid(path.child("preserveUnknownFields"), true, detail));
    }
    version_list(spec, &path, errors);
    self::validate_names(spec.get("names").unwrap_or(&NOTHING), &path.child("names"), errors);
    conversion_rules::check(spec, old, errors);
}

fn versions_of(spec: &Value) -> impl Iterator<Item = &Value> {
    spec.get("versions").and_then(Value::as_array).into_iter().flatten()
}

/// Returns whether a schema, or one inside it, has a default.
fn has_default(schema: &Value) -> bool {
    let inner = |field: &str| {
        let map = schema.get(field).and_then(Value::as_object).into_iter().flatten();
        map.map(|(_, inner)| inner)
    };
    schema.get("default").is_some_and(|default| !default.is_null())
        || inner("properties").any(has_default)
        || ["items", "additionalProperties"]
            .iter()
            .filter_map(|field| schema.get(field))
            .any(has_default)
}

fn version_list(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let list = spec
        .get("versions")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let shared = |field: &str| is_hoisted(spec, field);
    let (schemas, subresources, columns) = (
        shared("schema"),
        shared("subresources"),
        shared("additionalPrinterColumns"),
    );
    let at_versions = path.child("versions");
    for (index, version) in list.iter().enumerate() {
        let at = at_versions.index(index);
        let schema = version
            .pointer("/schema/openAPIV3Schema")
            .filter(|schema| schema.is_object());
        let has_status = version.pointer("/subresources/status").is_some();
        match schema {
            None => errors.push(FieldError::required(at.child("schema").child("openAPIV3Schema"), "")),
            Some(schema) if !schemas => self::validate_schema(schema, has_status, &at.child("schema"), errors),
            Some(schema) if index == 0 => {
                // If a version has a status, one error counts for all versions.
                let has_status = list
                    .iter()
                    .any(|version| version.pointer("/subresources/status").is_some());
                self::validate_schema(schema, has_status, &path.child("validation"), errors);
            }
            Some(_) => {}
        }
        let name = get_text(version, "name");
        let complaints = label_1035(name);
        if !complaints.is_empty() {
            errors.push(FieldError::invalid(at.child("name"), name, complaints.clone()));
            if index == 0 {
                errors.push(FieldError::invalid(path.child("version"), name, complaints));
            }
        }
        if version.get("deprecationWarning").is_some() {
            validate_deprecation(version, &at, errors);
        }
        let base = if subresources { path } else { &at };
        if !subresources || index == 0 {
            self::validate_subresources(version, &base.child("subresources"), errors);
        }
        let base = if columns { path } else { &at };
        if !columns || index == 0 {
            self::validate_columns(version, &base.child("additionalPrinterColumns"), errors);
        }
        let (base, whole) = if shared("selectableFields") {
            (path, index == 0)
        } else {
            (&at, true)
        };
        if whole {
            validate_selectable_fields(version, schema, &base.child("selectableFields"), errors);
        }
    }
    let shown = || {
        let parts: Vec<String> = list.iter().map(shown_version).collect();
        crate::schema::Shown::Verbatim(format!("[{}]", parts.join(",")))
    };
    let mut seen: Vec<&str> = list.iter().map(|version| get_text(version, "name")).collect();
    seen.sort_unstable();
    let count = seen.len();
    seen.dedup();
    if seen.len() != count {
        errors.push(FieldError::invalid(
            &at_versions,
            shown(),
            "must contain unique version names",
        ));
    }
    let storage = list
        .iter()
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)))
        .count();
    if storage != 1 {
        errors.push(FieldError::invalid(
            &at_versions,
            shown(),
            "must have exactly one version marked as storage version",
        ));
    }
}

/// Shows a version as the real server's internal type prints it, without the hoisted fields.
fn shown_version(version: &Value) -> String {
    let flag = |field: &str| version.get(field) == Some(&Value::Bool(true));
    let warning = version.get("deprecationWarning").cloned().unwrap_or_default();
    format!(
        "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{warning},\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
        version.get("name").cloned().unwrap_or_default(),
        flag("served"),
        flag("storage"),
        flag("deprecated"),
    )
}

fn validate_schema(schema: &Value, has_status: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let at = path.child("openAPIV3Schema");
    if has_status {
        schema_rules::root_with_status(schema, &at, errors);
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden(
            at.child("nullable"),
            "nullable cannot be true at the root",
        ));
    }
    let mut sound = false;
    if schema_rules::is_parsable(schema) {
        let before = errors.len();
        structural_rules::check(schema, &at, errors);
        if errors.len() == before {
            schema_rules::validate_defaults(schema, &at, errors);
        }
        sound = errors.len() == before;
    }
    schema_rules::check(schema, &at, errors);
    // Only a sound structure gives values types.
    if sound {
        rule_checks::check(schema, &at, errors);
    }
}

/// Returns the error in an RFC 1035 label; empty if it is one.
fn label_1035(name: &str) -> String {
    let mut complaints = Vec::new();
    if name.len() > 63 {
        complaints.push("must be no more than 63 characters".to_owned());
    }
    let starts = name.starts_with(|first: char| first.is_ascii_lowercase());
    if !starts || !name_rules::find_label_errors(name).is_empty() {
        complaints.push("a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')".to_owned());
    }
    complaints.join(",")
}

fn validate_names(names: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in ["plural", "singular", "kind", "listKind"] {
        let name = get_text(names, field);
        let complaint = label_1035(&name.to_lowercase());
        if name.is_empty() {
            errors.push(FieldError::required(path.child(field), ""));
        } else if field.ends_with("ind") && !complaint.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {complaint}");
            errors.push(FieldError::invalid(path.child(field), name, detail));
        } else if !field.ends_with("ind") && !label_1035(name).is_empty() {
            errors.push(FieldError::invalid(path.child(field), name, label_1035(name)));
        }
    }
    for field in ["shortNames", "categories"] {
        for (index, name) in names
            .get(field)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let name = name.as_str().unwrap_or_default();
            let complaint = label_1035(name);
            if !complaint.is_empty() {
                errors.push(FieldError::invalid(path.child(field).index(index), name, complaint));
            }
        }
    }
    let kind = get_text(names, "kind");
    if !kind.is_empty() && kind == get_text(names, "listKind") {
        errors.push(FieldError::invalid(
            path.child("listKind"),
            kind,
            "kind and listKind may not be the same",
        ));
    }
}

fn validate_deprecation(version: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let warning = get_text(version, "deprecationWarning");
    let mut complain = |words: &str| errors.push(FieldError::invalid(at.child("deprecationWarning"), warning, words));
    if version.get("deprecated") != Some(&Value::Bool(true)) {
        complain("can only be set for deprecated versions");
    }
    if warning.is_empty() {
        complain("must not be empty");
    }
    if warning.len() > 256 {
        complain("must be <= 256 characters long");
    }
    if warning.chars().any(char::is_control) {
        complain("must only contain printable UTF-8 characters; non-printable character found");
    }
}

fn simple_path(path: &str) -> Option<&'static str> {
    if path.starts_with('.') {
        None
    } else {
        Some("must be a simple json path starting with .")
    }
}

fn validate_subresources(version: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(scale) = version.pointer("/subresources/scale") else {
        return;
    };
    for (field, prefix) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let at = path.child("scale").child(field);
        let value = get_text(scale, field);
        if value.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else if let Some(complaint) = simple_path(value) {
            errors.push(FieldError::invalid(at, value, complaint));
        } else if !value.starts_with(prefix) {
            let detail = format!("should be a json path under {}", prefix.trim_end_matches('.'));
            errors.push(FieldError::invalid(at, value, detail));
        }
    }
    let selector = get_text(scale, "labelSelectorPath");
    let at = path.child("scale").child("labelSelectorPath");
    if let Some(complaint) = simple_path(selector).filter(|_| !selector.is_empty()) {
        errors.push(FieldError::invalid(at, selector, complaint));
    } else if !selector.is_empty() && !selector.starts_with(".spec.") && !selector.starts_with(".status.") {
        errors.push(FieldError::invalid(
            at,
            selector,
            "should be a json path under either .spec or .status",
        ));
    }
}

fn validate_columns(version: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = [
        "byte",
        "date",
        "date-time",
        "double",
        "float",
        "int32",
        "int64",
        "password",
    ];
    for (index, column) in version
        .get("additionalPrinterColumns")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let at = path.index(index);
        if get_text(column, "name").is_empty() {
            errors.push(FieldError::required(at.child("name"), ""));
        }
        let kind = get_text(column, "type");
        let detail = format!("must be one of {}", TYPES.join(","));
        if kind.is_empty() {
            errors.push(FieldError::required(at.child("type"), detail));
        } else if !TYPES.contains(&kind) {
            errors.push(FieldError::invalid(at.child("type"), kind, detail));
        }
        let format = get_text(column, "format");
        if !format.is_empty() && !FORMATS.contains(&format) {
            errors.push(FieldError::invalid(
                at.child("format"),
                format,
                format!("must be one of {}", FORMATS.join(",")),
            ));
        }
        let json_path = get_text(column, "jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(at.child("JSONPath"), ""));
        } else if let Some(complaint) = simple_path(json_path) {
            errors.push(FieldError::invalid(at.child("JSONPath"), json_path, complaint));
        }
    }
}

fn validate_selectable_fields(version: &Value, schema: Option<&Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (index, field) in version
        .get("selectableFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let at = path.index(index).child("jsonPath");
        let json_path = get_text(field, "jsonPath");
        let Some(rest) = json_path.strip_prefix('.') else {
            let detail = format!("is an invalid path: expected [ or . but got: {json_path}");
            errors.push(FieldError::invalid(at, json_path, detail));
            continue;
        };
        let mut found = schema;
        for name in rest.split('.') {
            found = found.and_then(|schema| schema.get("properties")?.get(name));
        }
        match found.map(|schema| get_text(schema, "type")) {
            None => errors.push(FieldError::invalid(at, json_path, "is an invalid path: does not refer to a valid field")),
            Some("string" | "integer" | "boolean") => {}
            Some(_) => errors.push(FieldError::invalid(at, json_path, "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.")),
        }
    }
}

fn stored_versions(definition: &Value, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("status").child("storedVersions");
    let stored = definition
        .pointer("/status/storedVersions")
        .and_then(Value::as_array)
        .filter(|stored| !stored.is_empty());
    let Some(stored) = stored else {
        errors.push(FieldError::invalid(
            at,
            Value::Null,
            "must have at least one stored version",
        ));
        return;
    };
    let known: Vec<&str> = stored.iter().filter_map(Value::as_str).collect();
    let mut present = Vec::new();
    for version in list_versions(definition) {
        let name = get_text(version, "name");
        present.push(name);
        if version.get("storage") == Some(&Value::Bool(true)) && !known.contains(&name) {
            errors.push(FieldError::invalid(
                &at,
                stored.clone(),
                format!("must have the storage version {name}"),
            ));
        }
    }
    for (index, name) in known.iter().enumerate().filter(|(_, name)| !present.contains(name)) {
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        );
        errors.push(FieldError::invalid(at.index(index), *name, detail));
    }
}

/// Checks that a definition in a group of the Kubernetes community has the annotation with a link to its approval.
fn validate_approval(definition: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    let group = definition
        .pointer("/spec/group")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|name| group == *name || group.ends_with(&format!(".{name}")));
    if !protected {
        return;
    }
    let annotation = |object: &Value| {
        let found = object
            .pointer("/metadata/annotations")
            .and_then(|all| all.get(ANNOTATION))
            .and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    let given = annotation(definition);
    if old.is_some_and(|old| annotation(old) == given) {
        return;
    }
    let at = FieldPath::new("metadata").child("annotations").key(ANNOTATION);
    let link = "see https://github.com/kubernetes/enhancements/pull/1111";
    if given.is_empty() {
        errors.push(FieldError::required(
            at,
            format!("protected groups must have approval annotation \"{ANNOTATION}\", {link}"),
        ));
    } else if !given.starts_with("unapproved")
        && !given
            .split_once("://")
            .is_some_and(|(scheme, host)| !scheme.is_empty() && !host.is_empty())
    {
        let detail = format!(
            "protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a reason starting with \"unapproved\", {link}"
        );
        errors.push(FieldError::invalid(at, given, detail));
    }
}
