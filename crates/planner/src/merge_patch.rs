//! The smallest merge patch (RFC 7386) that turns one value into another. The caller decides the new value.

use serde_json::{Map, Value};

/// Returns the merge patch from `old` to `new`. Returns nothing if the values are equal. Lists are replaced as a whole.
#[must_use]
pub fn find_difference(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Some(from), Some(to)) = (old.as_object(), new.as_object()) else {
        return Some(new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in to {
        if let Some(change) = find_difference(from.get(key).unwrap_or(&Value::Null), value) {
            patch.insert(key.clone(), change);
        }
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::find_difference;

    #[test]
    fn a_difference_is_a_merge_patch() {
        let check = |old: Value, new: Value, expected: Option<Value>| {
            assert_eq!(find_difference(&old, &new), expected, "{old} to {new}");
        };
        check(json!({ "a": 1 }), json!({ "a": 1 }), None);
        check(json!(null), json!({ "a": 1 }), Some(json!({ "a": 1 })));
        check(json!({ "a": 1, "b": 2 }), json!({ "a": 1 }), Some(json!({ "b": null })));
        check(json!({ "a": [1, 2] }), json!({ "a": [1] }), Some(json!({ "a": [1] })));
        check(
            json!({ "a": { "b": 1, "c": 2 } }),
            json!({ "a": { "b": 1, "c": 3 } }),
            Some(json!({ "a": { "c": 3 } })),
        );
    }
}
