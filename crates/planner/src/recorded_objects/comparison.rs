//! The comparison of a live object with its plan. Numbers of one value are equal, however they are written: an API server stores `1.0` as `1`.

use serde_json::{Number, Value};
use tenure_api::ObjectView;
use tenure_api::package::PACKAGE_CONTROLLER;

/// Finds the first place at which two values differ, as a path from a name.
pub(crate) fn find_difference(live: &Value, wanted: &Value, name: &str) -> Option<String> {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            let child = |key: &str| format!("{name}.{}", tenure_api::text::visible_line(key));
            let missing = wanted.keys().chain(live.keys());
            let mut missing = missing.filter(|key| !(live.contains_key(*key) && wanted.contains_key(*key)));
            let differs = wanted
                .iter()
                .filter_map(|(key, value)| Some((key, live.get(key)?, value)))
                .find_map(|(key, live, wanted)| find_difference(live, wanted, &child(key)));
            differs.or_else(|| missing.next().map(|key| child(key)))
        }
        (Value::Array(live), Value::Array(wanted)) if live.len() == wanted.len() => live
            .iter()
            .zip(wanted)
            .enumerate()
            .find_map(|(index, (live, wanted))| find_difference(live, wanted, &format!("{name}[{index}]"))),
        (Value::Number(live), Value::Number(wanted)) => (!are_equal(live, wanted)).then(|| name.to_owned()),
        (live, wanted) => (live != wanted).then(|| name.to_owned()),
    }
}

/// Whole numbers below this bound are exact as floating-point numbers.
const EXACT: f64 = 9_007_199_254_740_992.0;

fn are_equal(one: &Number, other: &Number) -> bool {
    if one == other {
        return true;
    }
    let is_small = |number: f64| number.abs() < EXACT;
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other && is_small(one),
        _ => false,
    }
}

/// Lists the other field managers of an object, as names for a message. The client chooses such a name itself.
pub(crate) fn list_added_managers(live: &Value) -> Vec<String> {
    let entries = ObjectView::new(live).list_views("/metadata/managedFields");
    let entries = entries.filter(|entry| entry.find_text("/subresource").unwrap_or_default().is_empty());
    let mut names: Vec<String> = entries
        .map(|entry| tenure_api::text::visible_line(entry.read_text("/manager")).into_owned())
        .filter(|name| name != PACKAGE_CONTROLLER)
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn difference_has_the_path_of_its_place() {
        let check = |live: Value, wanted: Value, expected: Option<&str>| {
            assert_eq!(
                find_difference(&live, &wanted, "spec").as_deref(),
                expected,
                "{live} {wanted}"
            );
        };
        check(json!({ "a": 1 }), json!({ "a": 1.0 }), None);
        check(
            json!({ "a": { "b": [1, 2] } }),
            json!({ "a": { "b": [1, 3] } }),
            Some("spec.a.b[1]"),
        );
        check(json!({ "a": [1] }), json!({ "a": [1, 2] }), Some("spec.a"));
        check(json!({ "a": 1, "b": 2 }), json!({ "a": 1 }), Some("spec.b"));
        check(json!({ "a": 1 }), json!({ "a": 1, "b": null }), Some("spec.b"));
        check(json!({ "a": null }), json!({}), Some("spec.a"));
        check(
            json!(9_007_199_254_740_993_i64),
            json!(9_007_199_254_740_992.0),
            Some("spec"),
        );
    }
}
