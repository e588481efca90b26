//! Definitions and custom resources compared with the real server's answers.

use serde_json::Value;

use super::{CustomSchema, object_warnings, prepare_create, validate_definition, warnings};
use crate::schema::validation::names::NameRule;
use crate::schema::validation::object_meta;
use crate::schema::{BuiltinSchemas, FieldError, FieldPath, ObjectSchema, invalid_status};

fn text(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn lines(recorded: &str) -> Vec<Value> {
    recorded
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The real server's complaints as a sorted list; it walks maps in no order.
fn causes(status: &Value) -> Vec<String> {
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

fn compare(kind: &str, group: &str, name: &str, errors: &[FieldError], answer: &Value) -> Result<(), String> {
    let refused = answer.get("kind").and_then(Value::as_str) == Some("Status");
    match (errors.is_empty(), refused) {
        (true, false) => Ok(()),
        (true, true) => Err(format!("accepted, want {}", answer.get("message").unwrap())),
        (false, _) => {
            let ours = causes(&invalid_status(group, kind, name, errors));
            let theirs = causes(answer);
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
    let schema = BuiltinSchemas::shared()
        .kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        .unwrap();
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
    compare(
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
        warnings(&value)
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
    // A status subresource: a create's status is dropped before it is looked at.
    value.as_object_mut().unwrap().remove("status");
    let errors = schema.validate(&value);
    compare(
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
        let (ours, theirs) = (normal(value), normal(answer.clone()));
        if ours != theirs {
            return Err(format!("object {ours}\n  want   {theirs}"));
        }
    }
    Ok(())
}

fn normal(mut value: Value) -> Value {
    let metadata = value.pointer_mut("/metadata").and_then(Value::as_object_mut).unwrap();
    metadata.remove("generation");
    value
}

fn report(wrong: &[String], all: usize) {
    assert!(
        wrong.is_empty(),
        "{} of {all} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn definitions_are_judged_as_the_real_server_does() {
    let cases = lines(include_str!("../../tests/recorded/definitions.jsonl"));
    let mut wrong = Vec::new();
    for case in &cases {
        // The real server shows a whole schema of its internal type here.
        if text(case, "/answer/message").contains("\"ID\":\"\",\"Schema\":\"\"") {
            continue;
        }
        if let Err(problem) = check_definition(case) {
            wrong.push(format!("{}\n  {problem}", case.pointer("/object/spec").unwrap()));
        }
    }
    report(&wrong, cases.len());
}

#[test]
fn custom_resources_are_treated_as_the_real_server_does() {
    let cases = lines(include_str!("../../tests/recorded/custom_resources.jsonl"));
    let (definition, cases) = cases.split_first().unwrap();
    let schema = CustomSchema::new(definition.get("definition").unwrap(), "v1").unwrap();
    let mut wrong = Vec::new();
    for case in cases {
        if let Err(problem) = check_resource(&schema, case) {
            wrong.push(format!("{}\n  {problem}", case.get("object").unwrap()));
        }
    }
    report(&wrong, cases.len());
}

/// The resources were made under a schema that took anything; then it became the strict one.
#[test]
fn what_was_bad_before_may_stay() {
    let recorded = include_str!("../../tests/recorded/custom_resources.jsonl");
    let definition: Value = serde_json::from_str(recorded.lines().next().unwrap()).unwrap();
    let schema = CustomSchema::new(definition.get("definition").unwrap(), "v1").unwrap();
    let cases = lines(include_str!("../../tests/recorded/custom_updates.jsonl"));
    let mut wrong = Vec::new();
    for case in &cases {
        let (live, object) = (case.get("live").unwrap(), case.get("object").unwrap());
        let mut new = schema.decode(object.clone()).unwrap().value;
        schema.default(&mut new);
        let errors = schema.validate_update(&new, live);
        let name = text(object, "/metadata/name");
        if let Err(problem) = compare("Widget", "test.tenure.dev", &name, &errors, case.get("answer").unwrap()) {
            wrong.push(format!("{}\n  {problem}", object.get("spec").unwrap()));
        }
    }
    report(&wrong, cases.len());
}

#[test]
fn names_are_accepted_once() {
    let mut definition = serde_json::json!({
        "metadata": {"name": "widgets.test.tenure.dev"},
        "spec": {
            "group": "test.tenure.dev", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "conversion": {"strategy": "Webhook"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-validations": [{"rule": "self.a > 1"}],
            }}}],
        },
    });
    let conditions = |definition: &Value| -> Vec<String> {
        let list = definition
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        list.iter()
            .map(|condition| format!("{}={}", text(condition, "/type"), text(condition, "/status")))
            .collect()
    };
    let other = serde_json::json!({
        "metadata": {"name": "others.test.tenure.dev"}, "spec": {"group": "test.tenure.dev"},
        "status": {"acceptedNames": {"plural": "others", "kind": "Widget", "shortNames": ["w"]}},
    });
    let now = "2026-01-01T00:00:00Z";
    assert_eq!(warnings(&definition), Vec::<String>::new());
    let accepted = super::accept_names(&definition, [], now).unwrap();
    assert_eq!(conditions(&accepted), ["NamesAccepted=True", "Established=True"]);
    // Nothing changes twice.
    assert_eq!(super::accept_names(&accepted, [], "2027-01-01T00:00:00Z"), None);
    // A kind that another definition holds is not given away.
    let refused = super::accept_names(&definition, [&other], now).unwrap();
    assert_eq!(
        conditions(&refused).get(..2).unwrap(),
        ["NamesAccepted=False", "Established=False"]
    );
    assert_eq!(
        text(&refused, "/status/conditions/0/message"),
        "\"Widget\" is already in use"
    );
    assert_eq!(text(&refused, "/status/acceptedNames/plural"), "widgets");
    // What is established stays so.
    definition = accepted;
    definition
        .pointer_mut("/spec/names")
        .and_then(Value::as_object_mut)
        .unwrap()
        .insert("shortNames".into(), serde_json::json!(["w"]));
    let still = super::accept_names(&definition, [&other], now).unwrap();
    assert!(super::is_established(&still));
    assert_eq!(text(&still, "/status/conditions/0/reason"), "ShortNamesConflict");
}
