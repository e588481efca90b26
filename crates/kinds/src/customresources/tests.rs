//! Names, large lists and rules about whole objects. The real server's answers to definitions and resources are in `tests/trials`.

use serde_json::Value;

use super::{CustomSchema, list_warnings};
use crate::schema::{FieldError, ObjectSchema};

fn text(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
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
    assert_eq!(list_warnings(&definition), Vec::<String>::new());
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
    // An established definition stays established.
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

/// If each item were compared with every other item, these tests would take minutes.
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
    // The key finds the old item: its old errors may stay, and a transition rule compares the new value with it.
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
    // A schema can allow a single object by its name.
    let single = schema(
        serde_json::json!({"type": "object", "properties": {"metadata": {"type": "object",
        "properties": {"name": {"type": "string", "enum": ["only"]}}}}}),
    );
    assert_eq!(fields(single.validate(&object)).first().unwrap(), "metadata.name");
}

#[test]
fn reordered_large_set_keeps_tolerated_errors() {
    let definition = serde_json::json!({"spec": {
        "group": "test.tenure.dev", "names": {"kind": "Widget"},
        "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
            "type": "object", "properties": {"names": {
                "type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set",
                "x-kubernetes-validations": [{"rule": "self.size() < 2", "message": "at most one"}],
            }},
        }}}}}],
    }});
    let schema = CustomSchema::new(&definition, "v1").unwrap();
    let widget = |names: Vec<String>| {
        serde_json::json!({
            "apiVersion": "test.tenure.dev/v1", "kind": "Widget", "metadata": {"name": "w", "resourceVersion": "1"},
            "spec": {"names": names},
        })
    };
    // Compared item by item with item, this many would take minutes.
    let names = |from: usize| (from..from + 100_000).map(|number| format!("n{number}"));
    let before = widget(names(0).collect());
    let tolerated = |after: &Value| -> Vec<bool> {
        let errors = schema.validate_update(after, &before);
        let of_rule = errors.iter().filter(|error| error.detail.contains("at most one"));
        of_rule.map(|error| error.tolerated).collect()
    };
    assert_eq!(tolerated(&widget(names(0).rev().collect())), [true]);
    assert_eq!(tolerated(&widget(names(1).collect())), [false]);
}
