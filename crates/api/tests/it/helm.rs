//! The definitions of helm-controller's kinds have the fields of the real ones: path, type, and bounds.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use tenure_api::crds::{crds, helm_crds};

/// Recorded from the definitions of helm-controller and source-controller.
const RECORDED: &str = include_str!("../data/helm-fields.txt");
/// The bounds that are compared.
const BOUNDS: [&str; 6] = [
    "enum",
    "minLength",
    "maxLength",
    "default",
    "pattern",
    "x-kubernetes-preserve-unknown-fields",
];

/// Fields that differ: a status has the types that Tenure's kinds share, which require less, and values are a map.
const DIFFERENT: [&str; 5] = [
    "status.artifact.digest",
    "status.conditions[].message",
    "status.inventory.entries",
    "status.inventory.entries[].adopted",
    "spec.values",
];

/// Lists the fields of a schema as the record does.
fn list_fields(schema: &Value, path: &str, is_required: bool, fields: &mut BTreeSet<String>) {
    let kind = schema["type"].as_str().unwrap_or("any");
    let bounds = BOUNDS
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), schema.get(key)?.clone())));
    let bounds: Map<String, Value> = bounds.collect();
    fields.insert(write_field(path, kind, is_required, bounds));
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let required = schema["required"].as_array().into_iter().flatten();
        let is_required = required.into_iter().any(|required| required == name);
        list_fields(property, &format!("{path}.{name}"), is_required, fields);
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", ".*")] {
        if let Some(inner) = schema.get(key).filter(|inner| inner.is_object()) {
            list_fields(inner, &format!("{path}{suffix}"), false, fields);
        }
    }
}

fn write_field(path: &str, kind: &str, is_required: bool, bounds: Map<String, Value>) -> String {
    let required = if is_required { " required" } else { "" };
    let bounds = match bounds.is_empty() {
        true => String::new(),
        false => format!(" {}", Value::Object(bounds)),
    };
    format!("{path} {kind}{required}{bounds}")
}

fn read_recorded() -> BTreeSet<String> {
    let lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let (field, bounds) = line
            .split_once(" {")
            .map_or((line, None), |(field, rest)| (field, Some(rest)));
        let bounds = bounds.map_or_else(Map::new, |rest| serde_json::from_str(&format!("{{{rest}")).unwrap());
        let mut words = field.split(' ');
        let (path, kind) = (words.next().unwrap(), words.next().unwrap());
        write_field(path, kind, words.next().is_some(), bounds)
    };
    lines.map(read).collect()
}

#[test]
fn helm_kinds_have_the_fields_of_their_controllers() {
    let mut own = BTreeSet::new();
    for crd in [crds().unwrap(), helm_crds().unwrap()].concat() {
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        if !kind.starts_with("Helm") {
            continue;
        }
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            list_fields(&schema[part], &format!("{kind}.{part}"), false, &mut own);
        }
    }
    let recorded = read_recorded();
    let is_unexpected = |field: &&String| {
        let path = field.split(' ').next().and_then(|path| path.split_once('.'));
        !path.is_some_and(|(_, path)| DIFFERENT.contains(&path))
    };
    let missing: Vec<&String> = recorded.difference(&own).filter(is_unexpected).collect();
    let added: Vec<&String> = own.difference(&recorded).filter(is_unexpected).collect();
    assert!(
        missing.is_empty() && added.is_empty(),
        "missing: {missing:#?}\nadded: {added:#?}"
    );
}
