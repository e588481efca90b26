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

/// Where every item is compared with every other, these take minutes.
#[test]
fn large_lists_are_compared_by_their_keys() {
    const MANY: usize = 30_000;
    let items = serde_json::json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}, "size": {"type": "integer", "maximum": 5}},
            "x-kubernetes-validations": [{"rule": "self.size >= oldSelf.size"}]}});
    let names = serde_json::json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let schema = serde_json::json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"items": items, "names": names}}}});
    let definition = serde_json::json!({"spec": {"names": {"kind": "Thing"}, "versions": [
        {"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
    let schema = CustomSchema::new(&definition, "v1").unwrap();
    let object = |size: i64| {
        let items: Vec<Value> = (0..MANY)
            .map(|index| serde_json::json!({"name": index.to_string(), "size": size}))
            .collect();
        let names: Vec<String> = (0..MANY).map(|index| index.to_string()).collect();
        serde_json::json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"},
            "spec": {"items": items, "names": names}})
    };
    let faults = |errors: Vec<FieldError>| -> Vec<String> { errors.iter().map(|error| error.field.clone()).collect() };
    assert_eq!(faults(schema.validate(&object(1))), Vec::<String>::new());
    let mut twice = object(1);
    let list = |object: &mut Value, name: &str, item: Value| {
        let list = object
            .pointer_mut(&format!("/spec/{name}"))
            .and_then(Value::as_array_mut);
        list.unwrap().push(item);
    };
    list(&mut twice, "items", serde_json::json!({"name": "7", "size": 1}));
    list(&mut twice, "names", serde_json::json!("7"));
    let found = faults(schema.validate(&twice));
    assert_eq!(found, [format!("spec.items[{MANY}]"), format!("spec.names[{MANY}]")]);
    // An old item is found by its key: what was wrong with it may stay, and what may not shrink is known.
    let mut old = object(9);
    let new = {
        old["metadata"]["resourceVersion"] = "1".into();
        old.clone()
    };
    old.pointer_mut("/spec/items")
        .and_then(Value::as_array_mut)
        .unwrap()
        .reverse();
    assert_eq!(faults(schema.validate_update(&new, &old)), Vec::<String>::new());
}

#[test]
fn a_schema_speaks_of_the_whole_object() {
    let schema = |root: Value| {
        let definition = serde_json::json!({"spec": {
            "group": "test.tenure.dev", "names": {"kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": root}}],
        }});
        CustomSchema::new(&definition, "v1").unwrap()
    };
    let object = serde_json::json!({
        "apiVersion": "test.tenure.dev/v1", "kind": "Widget", "metadata": {"name": "widget", "resourceVersion": "1"}, "spec": {},
    });
    let required =
        schema(serde_json::json!({"type": "object", "required": ["apiVersion", "kind", "metadata", "spec"]}));
    assert_eq!(required.validate(&object), []);
    assert_eq!(required.validate_update(&object, &object), []);
    let several =
        serde_json::json!({"type": "object", "anyOf": [{"required": ["metadata", "spec"]}], "minProperties": 4});
    assert_eq!(schema(several).validate(&object), []);
    let missing = schema(serde_json::json!({"type": "object", "required": ["metadata", "status"]}));
    let fields = |errors: Vec<FieldError>| errors.into_iter().map(|error| error.field).collect::<Vec<_>>();
    assert_eq!(fields(missing.validate(&object)).first().unwrap(), "status");
    // A kind of which there may be but one says so by its name.
    let single = schema(
        serde_json::json!({"type": "object", "properties": {"metadata": {"type": "object",
        "properties": {"name": {"type": "string", "enum": ["only"]}}}}}),
    );
    assert_eq!(fields(single.validate(&object)).first().unwrap(), "metadata.name");
}
