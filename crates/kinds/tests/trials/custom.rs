//! Definitions and custom resources compared with the real server's answers.

use std::sync::Arc;

use serde_json::Value;
use tenure_kinds::built_in;
use tenure_kinds::customresources::{
    CustomSchema, list_warnings, object_warnings, prepare_create, validate_definition,
};
use tenure_kinds::schema::validation::names::NameRule;
use tenure_kinds::schema::validation::object_meta;
use tenure_kinds::schema::{FieldError, FieldPath, ObjectSchema, invalid_status};

use crate::{Case, name_answer, read_lines};

fn text(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Returns the real server's complaints as a sorted list; it walks maps in no order.
fn list_causes(status: &Value) -> Vec<String> {
    let list = status
        .pointer("/details/causes")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let mut shown: Vec<String> = list.iter().map(Value::to_string).collect();
    shown.sort();
    shown.dedup();
    shown
}

fn compare_errors(kind: &str, group: &str, name: &str, errors: &[FieldError], answer: &Value) -> Result<(), String> {
    let refused = answer.get("kind").and_then(Value::as_str) == Some("Status");
    match (errors.is_empty(), refused) {
        (true, false) => Ok(()),
        (true, true) => Err(format!("accepted, want {}", answer.get("message").unwrap())),
        (false, _) => {
            let ours = list_causes(&invalid_status(group, kind, name, errors));
            let theirs = list_causes(answer);
            let missing: Vec<&String> = theirs.iter().filter(|one| !ours.contains(one)).collect();
            let extra: Vec<&String> = ours.iter().filter(|one| !theirs.contains(one)).collect();
            if missing.is_empty() && extra.is_empty() {
                Ok(())
            } else {
                Err(format!("extra {extra:#?}\n  missing {missing:#?}"))
            }
        }
    }
}

fn check_definition(case: &Value) -> Result<(), String> {
    let (object, answer) = (case.get("object").unwrap(), case.get("answer").unwrap());
    let schema = built_in::find_schema("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap();
    let decoded = match schema.decode(object.clone()) {
        Ok(decoded) => decoded,
        Err(error) if text(answer, "/message") == error.to_string() => return Ok(()),
        Err(error) => return Err(format!("{error}, want {}", text(answer, "/message"))),
    };
    let mut value = decoded.value;
    schema.default(&mut value);
    prepare_create(&mut value);
    let mut errors = Vec::new();
    object_meta(&value, NameRule::Subdomain, &FieldPath::new("metadata"), &mut errors);
    errors.extend(validate_definition(&value));
    compare_errors(
        "CustomResourceDefinition",
        "apiextensions.k8s.io",
        &text(object, "/metadata/name"),
        &errors,
        answer,
    )?;
    let theirs: Vec<&str> = case
        .get("warnings")
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let mut ours = decoded.unknown_fields;
    ours.extend(
        list_warnings(&value)
            .into_iter()
            .filter(|warning| !warning.contains("this server")),
    );
    if ours == theirs {
        Ok(())
    } else {
        Err(format!("warnings {ours:?}, want {theirs:?}"))
    }
}

fn check_resource(schema: &CustomSchema, case: &Value) -> Result<(), String> {
    let (object, answer) = (case.get("object").unwrap(), case.get("answer").unwrap());
    let decoded = match schema.decode(object.clone()) {
        Ok(decoded) => decoded,
        Err(error) if text(answer, "/message") == error.to_string() => return Ok(()),
        Err(error) => return Err(format!("{error}, want {}", text(answer, "/message"))),
    };
    let mut value = decoded.value;
    schema.default(&mut value);
    // With a status subresource, the status of a create is dropped before validation.
    value.as_object_mut().unwrap().remove("status");
    let errors = schema.validate(&value);
    compare_errors(
        "Widget",
        "test.tenure.dev",
        &text(object, "/metadata/name"),
        &errors,
        answer,
    )?;
    let theirs: Vec<&str> = case
        .get("warnings")
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let mut ours = decoded.unknown_fields;
    ours.extend(object_warnings(&value, None));
    if ours != theirs {
        return Err(format!("warnings {ours:?}, want {theirs:?}"));
    }
    if errors.is_empty() {
        let (ours, theirs) = (drop_generation(value), drop_generation(answer.clone()));
        if ours != theirs {
            return Err(format!("object {ours}\n  want   {theirs}"));
        }
    }
    Ok(())
}

fn drop_generation(mut value: Value) -> Value {
    let metadata = value.pointer_mut("/metadata").and_then(Value::as_object_mut).unwrap();
    metadata.remove("generation");
    value
}

/// Returns the recorded definitions; of some the real server shows a whole schema of its internal type.
pub(crate) fn definitions() -> Vec<Case> {
    let recorded = read_lines(include_str!("../recorded/definitions.jsonl")).into_iter();
    let cases = recorded.filter(|(_, case)| !text(case, "/answer/message").contains("\"ID\":\"\",\"Schema\":\"\""));
    cases
        .map(|(line, case)| {
            Case::new(name_answer(line, &case), move || {
                check_definition(&case)
                    .map_err(|problem| format!("{}\n  {problem}", case.pointer("/object/spec").unwrap()))
            })
        })
        .collect()
}

/// Returns the recorded custom resources with their lines, and the schema that they are under.
fn read_resources() -> (Arc<CustomSchema>, Vec<(usize, Value)>) {
    let mut recorded = read_lines(include_str!("../recorded/custom_resources.jsonl"));
    let (_, definition) = recorded.remove(0);
    let schema = CustomSchema::new(&definition["definition"], "v1").unwrap();
    (Arc::new(schema), recorded)
}

/// Checks that custom resources get the real server's treatment.
pub(crate) fn resources() -> Vec<Case> {
    let (schema, recorded) = read_resources();
    recorded
        .into_iter()
        .map(|(line, case)| {
            let schema = schema.clone();
            Case::new(name_answer(line, &case), move || {
                check_resource(&schema, &case).map_err(|problem| format!("{}\n  {problem}", case["object"]))
            })
        })
        .collect()
}

/// Old errors may stay: the resources were created under a schema that accepted everything, and then the schema became strict.
pub(crate) fn updates() -> Vec<Case> {
    let (schema, _) = read_resources();
    let recorded = read_lines(include_str!("../recorded/custom_updates.jsonl")).into_iter();
    recorded
        .map(|(line, case)| {
            let schema = schema.clone();
            Case::new(name_answer(line, &case), move || {
                let (live, object) = (&case["live"], &case["object"]);
                let mut new = schema.decode(object.clone()).unwrap().value;
                schema.default(&mut new);
                let errors = schema.validate_update(&new, live);
                let name = text(object, "/metadata/name");
                compare_errors("Widget", "test.tenure.dev", &name, &errors, &case["answer"])
                    .map_err(|problem| format!("{}\n  {problem}", object["spec"]))
            })
        })
        .collect()
}
