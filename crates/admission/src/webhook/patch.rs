//! Writes the difference between two objects as the smallest JSON patch (RFC 6902).

use serde_json::{Value, json};

/// Returns the operations that change `old` into `new`.
pub(super) fn write_patch(old: &Value, new: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    compare(old, new, "", &mut operations);
    operations
}

/// Adds the operations that change `old` into `new` at a path.
fn compare(old: &Value, new: &Value, path: &str, operations: &mut Vec<Value>) {
    if old == new {
        return;
    }
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                operations.push(json!({ "op": "remove", "path": join(path, key) }));
            }
            for (key, value) in after {
                match before.get(key) {
                    Some(before) => compare(before, value, &join(path, key), operations),
                    None => operations.push(json!({ "op": "add", "path": join(path, key), "value": value })),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) if after.starts_with(before) => {
            for added in after.iter().skip(before.len()) {
                operations.push(json!({ "op": "add", "path": format!("{path}/-"), "value": added }));
            }
        }
        _ => operations.push(json!({ "op": "replace", "path": path, "value": new })),
    }
}

fn join(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use tenure_admission_rules::Change;

    use super::*;

    fn check(old: Value, changes: &[Change], expected: Value) {
        let mut new = old.clone();
        for change in changes {
            change.make(&mut new);
        }
        assert_eq!(Value::Array(write_patch(&old, &new)), expected);
    }

    #[test]
    fn changes_become_a_patch() {
        let label = || Change::Label {
            key: "capsule.clastix.io/tenant",
            value: "blue".to_owned(),
        };
        check(json!({"metadata": {}}), &[], json!([]));
        check(
            json!({"metadata": {"name": "a"}}),
            &[label()],
            json!([{"op": "add", "path": "/metadata/labels", "value": {"capsule.clastix.io/tenant": "blue"}}]),
        );
        check(
            json!({"metadata": {"labels": {"a": "b"}}}),
            &[label()],
            json!([{"op": "add", "path": "/metadata/labels/capsule.clastix.io~1tenant", "value": "blue"}]),
        );
        check(
            json!({"metadata": {"labels": null}}),
            &[label()],
            json!([{"op": "replace", "path": "/metadata/labels", "value": {"capsule.clastix.io/tenant": "blue"}}]),
        );
        check(
            json!({"spec": {"serviceAccountName": ""}}),
            &[Change::SpecField {
                key: "serviceAccountName",
                value: json!("x"),
            }],
            json!([{"op": "replace", "path": "/spec/serviceAccountName", "value": "x"}]),
        );
    }
}
