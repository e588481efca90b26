//! Hides confidential values in a stored object and in its wanted state. The result shows which parts change, without their values.
//!
//! The module decides which parts of a Secret, and of an object with values of a Secret, are hidden. A hidden value differs from another one only by its place.

use serde_json::Value;
use tenure_api::ObjectView;

/// The texts for a hidden value: unchanged, before and after a change.
const HIDDEN: &str = "(hidden)";
const HIDDEN_BEFORE: &str = "(hidden, before)";
const HIDDEN_AFTER: &str = "(hidden, after)";
/// kubectl keeps a copy of the whole object here.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Hides the confidential parts of the stored object and of the wanted one. These are the values of a Secret, and everything in an object with values of a Secret
/// (`is_confidential`). The result shows which parts change, and nothing of their values.
pub(crate) fn redact_values(mut before: Option<&mut Value>, mut after: Option<&mut Value>, is_confidential: bool) {
    let is_secret = [&before, &after].into_iter().flatten().any(|object| {
        let view = ObjectView::new(object);
        view.read_text("/kind") == "Secret" && view.read_text("/apiVersion") == "v1"
    });
    let fields: Vec<String> = if is_confidential {
        let names = |object: &&mut Value| {
            object
                .as_object()
                .into_iter()
                .flat_map(|map| map.keys().cloned())
                .collect::<Vec<_>>()
        };
        let all = [&before, &after].into_iter().flatten().flat_map(names);
        all.filter(|name| !["apiVersion", "kind"].contains(&name.as_str()))
            .collect()
    } else if is_secret {
        ["data", "stringData", "metadata"].map(str::to_owned).to_vec()
    } else {
        return;
    };
    for field in fields {
        let part = |object: &mut Option<&mut Value>| {
            let part = object.as_deref_mut()?.get_mut(&field)?;
            Some(std::mem::take(part))
        };
        let (mut old, mut new) = (part(&mut before), part(&mut after));
        match (field.as_str(), is_confidential) {
            ("metadata", _) => mask_metadata(old.as_mut(), new.as_mut(), is_confidential),
            _ => hide_values(old.as_mut(), new.as_mut()),
        }
        put_back(before.as_deref_mut(), &field, old);
        put_back(after.as_deref_mut(), &field, new);
    }
}

/// Puts a field back into an object from which it was taken to hide its values.
fn put_back(object: Option<&mut Value>, field: &str, part: Option<Value>) {
    if let (Some(object), Some(part)) = (object.and_then(Value::as_object_mut), part) {
        object.insert(field.to_owned(), part);
    }
}

/// Hides the values of labels and annotations of a confidential object, since variables with a Secret's values can be in them. Names of objects are visible to
/// everyone.
fn mask_metadata(before: Option<&mut Value>, after: Option<&mut Value>, is_confidential: bool) {
    let (mut before, mut after) = (before, after);
    for field in ["labels", "annotations"] {
        let mut old = before.as_deref_mut().and_then(|metadata| metadata.get_mut(field));
        let mut new = after.as_deref_mut().and_then(|metadata| metadata.get_mut(field));
        if is_confidential {
            hide_values(old, new);
        } else if field == "annotations" {
            let copy = |annotations: &mut Option<&mut Value>| {
                let copy = annotations.as_deref_mut()?.get_mut(LAST_APPLIED)?;
                *copy = Value::from(HIDDEN);
                Some(())
            };
            let _where_there_is_one = (copy(&mut old), copy(&mut new));
        }
    }
}

/// Hides every value, below names that stay.
fn hide_values(before: Option<&mut Value>, after: Option<&mut Value>) {
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            for (name, value) in before.iter_mut() {
                hide_values(Some(value), after.get_mut(name));
            }
            for (_, value) in after.iter_mut().filter(|(name, _)| !before.contains_key(*name)) {
                hide_values(None, Some(value));
            }
        }
        (Some(before), Some(after)) => {
            let is_same = before == after;
            *before = Value::from(if is_same { HIDDEN } else { HIDDEN_BEFORE });
            *after = Value::from(if is_same { HIDDEN } else { HIDDEN_AFTER });
        }
        (Some(Value::Object(only)), None) | (None, Some(Value::Object(only))) => {
            only.values_mut().for_each(|value| hide_values(Some(value), None));
        }
        (Some(only), None) | (None, Some(only)) => *only = Value::from(HIDDEN),
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redact_copies(before: &Value, after: &Value, is_confidential: bool) -> (Value, Value) {
        let (mut before, mut after) = (before.clone(), after.clone());
        redact_values(Some(&mut before), Some(&mut after), is_confidential);
        (before, after)
    }

    #[test]
    fn changed_keys_of_a_secret_are_shown_without_values() {
        let secret = |data: Value| {
            json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                   "metadata": {"name": "s", "labels": {"app": "web"}, "annotations": {LAST_APPLIED: "hunter2"}}, "data": data})
        };
        let before = secret(json!({"same": "hunter2", "changes": "hunter2", "goes": "hunter2"}));
        let after = secret(json!({"same": "hunter2", "changes": "hunter3", "comes": "hunter3"}));
        let (before, after) = redact_copies(&before, &after, false);
        assert_eq!(
            before["data"],
            json!({"same": HIDDEN, "changes": HIDDEN_BEFORE, "goes": HIDDEN})
        );
        assert_eq!(
            after["data"],
            json!({"same": HIDDEN, "changes": HIDDEN_AFTER, "comes": HIDDEN})
        );
        assert_eq!(
            (&after["type"], &after["metadata"]["labels"]["app"]),
            (&json!("Opaque"), &json!("web"))
        );
        assert!(!format!("{before}{after}").contains("hunter"));
    }

    #[test]
    fn copies_of_secret_show_only_names() {
        let object = |value: &str| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "labels": {"l": value}},
                   "spec": {"list": [value], "replicas": 3, "deep": {"value": value}}})
        };
        let (before, after) = redact_copies(&object("hunter2"), &object("hunter3"), true);
        assert!(!format!("{before}{after}").contains("hunter"), "{before} {after}");
        assert_eq!(after["metadata"]["name"], "web");
        assert_eq!(
            (&before["spec"]["replicas"], &after["spec"]["deep"]["value"]),
            (&json!(HIDDEN), &json!(HIDDEN_AFTER))
        );
        let plain = object("shown");
        assert_eq!(redact_copies(&plain, &plain, false), (plain.clone(), plain));
    }
}
