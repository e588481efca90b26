//! A label selector of Kubernetes: `matchLabels` and `matchExpressions`, which must all match.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Selection by labels. An empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct LabelSelector {
    /// Labels that must exist, with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements for labels. All of them must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
}

/// Requirement for a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct LabelRequirement {
    /// Key of the label.
    pub key: String,
    /// Relation between the label's value and `values`: `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[schemars(extend("enum" = ["In", "NotIn", "Exists", "DoesNotExist"]))]
    pub operator: String,
    /// Values for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Checks whether the selector is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Checks whether the selector matches only objects that have a label with one of its listed
    /// values.
    #[must_use]
    pub fn lists_values(&self, key: &str) -> bool {
        let mut expressions = self.match_expressions.iter();
        self.match_labels.contains_key(key)
            || expressions.any(|requirement| requirement.key == key && requirement.operator == "In")
    }

    /// Checks whether the selector matches these labels. An unknown operator matches nothing.
    pub fn selects<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| label(key) == Some(value.as_str()))
            && self
                .match_expressions
                .iter()
                .all(|requirement| requirement.holds(label(&requirement.key)))
    }
}

impl LabelRequirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let is_listed = value.is_some_and(|value| self.values.iter().any(|listed| listed == value));
        match self.operator.as_str() {
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selector_matches_if_all_requirements_hold() {
        let cases = [
            (json!({}), true),
            (json!({ "matchLabels": { "a": "1" } }), true),
            (json!({ "matchLabels": { "a": "1", "b": "2" } }), false),
            (
                json!({ "matchExpressions": [{ "key": "a", "operator": "In", "values": ["0", "1"] }] }),
                true,
            ),
            (
                json!({ "matchExpressions": [{ "key": "a", "operator": "NotIn", "values": ["1"] }] }),
                false,
            ),
            (
                json!({ "matchExpressions": [{ "key": "b", "operator": "NotIn", "values": ["1"] }] }),
                true,
            ),
            (
                json!({ "matchExpressions": [{ "key": "b", "operator": "Exists" }] }),
                false,
            ),
            (
                json!({ "matchExpressions": [{ "key": "b", "operator": "DoesNotExist" }] }),
                true,
            ),
            (
                json!({ "matchLabels": { "a": "1" }, "matchExpressions": [{ "key": "a", "operator": "Like" }] }),
                false,
            ),
        ];
        for (selector, expected) in cases {
            let read: LabelSelector = serde_json::from_value(selector.clone()).expect("a selector");
            let found = read.selects(|key| (key == "a").then_some("1"));
            assert_eq!(found, expected, "{selector}");
        }
    }
}
