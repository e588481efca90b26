//! Creation and updates compared with the real server: equal objects, equal refusals, equal words.

use serde_json::{Map, Value};

use tenure_kinds::built_in;
use tenure_kinds::schema::{ObjectSchema, invalid_status};

use crate::{Case, name_answer, read_lines};

/// The fields that the real server assigns, or decides outside the schema.
const ASSIGNED: [&str; 5] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "finalizers"];

fn check_creation(case: &Value) -> Result<(), String> {
    let object = case.get("object").cloned().unwrap();
    let answer = case.get("answer").cloned().unwrap();
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let schema = built_in::find_schema(&text("/apiVersion"), &text("/kind")).ok_or("no schema")?;
    let decoded = match schema.decode(object.clone()) {
        Ok(decoded) => decoded,
        Err(error) => {
            return check_same(
                "message",
                &Value::from(error.to_string()),
                answer.get("message").unwrap_or(&Value::Null),
            );
        }
    };
    let unknown: Vec<&Value> = case
        .get("warnings")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .collect();
    let unknown: Vec<&str> = unknown
        .into_iter()
        .filter_map(Value::as_str)
        .filter(|text| text.starts_with("unknown"))
        .collect();
    let mut ours = decoded.unknown_fields.clone();
    let mut theirs = unknown;
    ours.sort();
    theirs.sort_unstable();
    if ours != theirs {
        return Err(format!("unknown fields: {ours:?}, want {theirs:?}"));
    }
    let mut value = decoded.value;
    schema.default(&mut value);
    add_job_selector(&mut value);
    one_address(&mut value);
    let mut errors = schema.validate(&value);
    // A namespace is always there by then.
    errors.retain(|error| error.field != "metadata.namespace");
    if !errors.is_empty() {
        let mut ours = invalid_status(schema.group(), schema.kind(), &text("/metadata/name"), &errors);
        let mut theirs = answer;
        // Maps have no order in Go.
        for status in [&mut ours, &mut theirs] {
            if let Some(Value::Array(causes)) = status.pointer_mut("/details/causes") {
                causes.sort_by_key(Value::to_string);
                causes.dedup();
            }
            if let Some(status) = status.as_object_mut() {
                let many = status
                    .get("message")
                    .and_then(Value::as_str)
                    .is_some_and(|message| message.contains('['));
                if many {
                    status.remove("message");
                }
            }
        }
        return check_same("status", &ours, &theirs);
    }
    if answer.get("kind").and_then(Value::as_str) == Some("Status") {
        return Err(format!(
            "accepted, want: {}",
            answer.get("message").unwrap_or(&Value::Null)
        ));
    }
    check_same("object", &drop_undecided_fields(value), &drop_undecided_fields(answer))
}

/// Sets the list of a Service's addresses to its one address, as a server does before it validates fields.
fn one_address(value: &mut Value) {
    let address = value.pointer("/spec/clusterIP").and_then(Value::as_str);
    if value.get("kind") == Some(&Value::from("Service"))
        && let Some(address) = address.filter(|address| !address.is_empty()).map(str::to_owned)
        && let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert("clusterIPs".to_owned(), Value::from(vec![address]));
    }
}

/// Adds the selector and the labels that the registry gives a Job before validation.
fn add_job_selector(value: &mut Value) {
    if value.get("kind").and_then(Value::as_str) != Some("Job") || value.pointer("/spec/selector").is_some() {
        return;
    }
    let name = value["metadata"]["name"].clone();
    let uid = Value::from("u");
    for (label, text) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        value["spec"]["template"]["metadata"]["labels"][label] = text.clone();
    }
    value["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid.clone();
    value["metadata"]["uid"] = uid;
}

fn check_same(what: &str, ours: &Value, theirs: &Value) -> Result<(), String> {
    let mut found = Vec::new();
    collect_differences(what, ours, theirs, &mut found);
    if found.is_empty() {
        Ok(())
    } else {
        Err(found.join("\n  "))
    }
}

fn collect_differences(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let null = Value::Null;
                collect_differences(
                    &format!("{path}.{key}"),
                    left.get(key).unwrap_or(&null),
                    right.get(key).unwrap_or(&null),
                    found,
                );
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                collect_differences(&format!("{path}[{index}]"), left, right, found);
            }
        }
        (left, right) if left != right => found.push(format!("{path}: {left}, want {right}")),
        _ => {}
    }
}

/// Checks for cases that can't be equal, each with its reason.
fn is_beyond_us(object: &Value) -> bool {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    // The service account and priority plugins add to pods; there is neither here.
    let plugin = kind == "Pod"
        && object.pointer("/spec/containers").is_some()
        && object.pointer("/spec/activeDeadlineSeconds").is_none();
    // A Job's selector holds its uid, which the server gives it.
    let controller = kind == "Job" && object.pointer("/spec/completionMode").is_none();
    // The name is random.
    let generated = object.pointer("/metadata/generateName").is_some();
    // Go stops at the field that comes first in the text, and prints structs in their own order.
    let order = object.pointer("/spec/selector").is_some_and(Value::is_array)
        || object.pointer("/metadata/ownerReferences/1").is_some();
    plugin || controller || generated || order
}

/// Removes nulls, and the fields that the schema does not decide.
fn drop_undecided_fields(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
        if let Some(Value::Object(spec)) = object.get_mut("spec") {
            spec.retain(|key, _| !ASSIGNED.contains(&key.as_str()));
            for port in spec
                .get_mut("ports")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                port.as_object_mut().unwrap().remove("nodePort");
            }
        }
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("generation");
            // Controllers write these fields for protection and records, and no controller runs here.
            metadata.remove("finalizers");
            metadata.remove("annotations");
        }
    }
    without_nulls(value)
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                kept.map(|(key, value)| (key, without_nulls(value)))
                    .collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

fn check_update(case: &Value) -> Result<(), String> {
    let field = |name: &str| case.get(name).cloned().unwrap();
    let (live, object, answer) = (field("live"), field("object"), field("answer"));
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let schema = built_in::find_schema(&text("/apiVersion"), &text("/kind")).ok_or("no schema")?;
    let read = |value: Value| -> Result<Value, String> {
        let mut value = schema.decode(value).map_err(|error| error.to_string())?.value;
        schema.default(&mut value);
        Ok(value)
    };
    let (old, mut new) = (read(live)?, read(object.clone())?);
    // The registry restores these fields of the live object.
    let before = old.get("metadata").cloned().unwrap();
    let metadata = new.get_mut("metadata").and_then(Value::as_object_mut).unwrap();
    for field in ["generation", "creationTimestamp"] {
        match before.get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    let causes = |status: &Value| {
        let found = status
            .pointer("/details/causes")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let mut shown: Vec<String> = found.map(|cause| fixed_width(cause).to_string()).collect();
        shown.sort();
        shown.dedup();
        shown
    };
    one_address(&mut new);
    let errors = schema.validate_update(&new, &old);
    let ours = causes(&invalid_status(
        schema.group(),
        schema.kind(),
        &text("/metadata/name"),
        &errors,
    ));
    let theirs = causes(&answer);
    if ours != theirs {
        return Err(format!("{ours:#?}\n  want {theirs:#?}"));
    }
    Ok(())
}

/// Returns a cause without the value where the real server prints a whole internal struct or a diff.
fn fixed_width(cause: &Value) -> Value {
    let mut cause = cause.clone();
    if let Some(Value::String(message)) = cause.get_mut("message") {
        if let Some(at) = message.find("}: field is immutable") {
            *message = message.get(at + 3..).unwrap().to_owned();
        }
        if let Some(at) = message.find('\n') {
            message.truncate(at);
        }
    }
    cause
}

/// Returns the recorded creations that can be compared.
pub(crate) fn creations() -> Vec<Case> {
    let recorded = read_lines(include_str!("../recorded/create.jsonl")).into_iter();
    let cases = recorded.filter(|(_, case)| !is_beyond_us(&case["object"]));
    cases
        .map(|(line, case)| {
            let name = name_answer(line, &case);
            Case::new(name, move || {
                check_creation(&case).map_err(|problem| format!("{}\n  {problem}", case["object"]))
            })
        })
        .collect()
}

/// Returns the recorded updates that the real server judged by their fields: where the name or the uid is another it stops before.
pub(crate) fn updates() -> Vec<Case> {
    let recorded = read_lines(include_str!("../recorded/update.jsonl")).into_iter();
    let cases = recorded.filter(|(_, case)| case.pointer("/answer/reason").is_none_or(|reason| reason == "Invalid"));
    cases
        .map(|(line, case)| {
            let name = name_answer(line, &case);
            Case::new(name, move || {
                check_update(&case).map_err(|problem| {
                    let metadata = case.pointer("/object/metadata/name").unwrap();
                    let message = case.pointer("/answer/message").unwrap_or(&Value::Null);
                    format!("{metadata} {message}\n  {problem}")
                })
            })
        })
        .collect()
}
