//! Converts a field's path from the API server's form into its place in an object.

use std::fmt::Write as _;

use serde_json::Value;

/// Finds the JSON pointer of a field that an answer names, as `spec.containers[0].image`, `.spec.containers[name="app"].image` or `metadata.labels[app]`; as far as the
/// object has it.
pub(super) fn find_pointer(object: &Value, field: &str) -> String {
    let mut pointer = String::new();
    let mut at = object;
    let mut rest = field;
    loop {
        rest = rest.trim_start_matches('.');
        let (step, next, after) =
            if let Some((inner, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                let Some((step, next)) = find_element(at, inner) else {
                    break;
                };
                (step, next, after)
            } else {
                // Keys can have dots: the longest existing key counts.
                let ends = |name: &str| {
                    let after = rest.strip_prefix(name);
                    after.is_some_and(|after| after.is_empty() || after.starts_with(['.', '[']))
                };
                let names = at.as_object().into_iter().flat_map(serde_json::Map::keys);
                let Some(name) = names.filter(|name| ends(name)).max_by_key(|name| name.len()) else {
                    break;
                };
                let Some(next) = at.get(name) else { break };
                (name.clone(), next, rest.get(name.len()..).unwrap_or_default())
            };
        let _written = write!(pointer, "/{}", step.replace('~', "~0").replace('/', "~1"));
        (at, rest) = (next, after);
    }
    pointer
}

/// Finds an element of a list by its number or its keys, or a field by a key in brackets.
fn find_element<'v>(at: &'v Value, inner: &str) -> Option<(String, &'v Value)> {
    match at {
        Value::Array(items) => {
            let position = match inner.parse::<usize>() {
                Ok(position) => position,
                Err(_) => {
                    let keys: Vec<(&str, &str)> = inner.split(',').filter_map(|key| key.split_once('=')).collect();
                    let is_meant = |item: &Value| {
                        !keys.is_empty()
                            && keys.iter().all(|(key, value)| match item.get(key) {
                                Some(Value::String(text)) => text == value.trim_matches('"'),
                                // A number or a truth value, as JSON has it.
                                Some(other) => serde_json::from_str::<Value>(value).is_ok_and(|value| value == *other),
                                None => false,
                            })
                    };
                    items.iter().position(is_meant)?
                }
            };
            Some((position.to_string(), items.get(position)?))
        }
        Value::Object(fields) => {
            let name = inner.trim_matches('"');
            Some((name.to_owned(), fields.get(name)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_path_resolves_to_deepest_existing_value() {
        let object = json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "ports": [{"port": 1}]}]},
            "metadata": {"labels": {"x/y": "z", "a.b": "c"}}});
        for (field, pointer) in [
            ("spec.containers[1].ports[0].port", "/spec/containers/1/ports/0/port"),
            (
                ".spec.containers[name=\"b\"].ports[port=1]",
                "/spec/containers/1/ports/0",
            ),
            ("spec.containers[0].image", "/spec/containers/0"),
            ("spec.containers[7]", "/spec/containers"),
            ("spec.containers[name=\"c\"].image", "/spec/containers"),
            ("metadata.labels[x/y]", "/metadata/labels/x~1y"),
            (".metadata.labels.a.b", "/metadata/labels/a.b"),
            ("nothing", ""),
            ("[[[", ""),
            ("spec.containers[", "/spec/containers"),
            ("", ""),
        ] {
            assert_eq!(find_pointer(&object, field), pointer, "{field}");
        }
    }
}
