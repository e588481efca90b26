//! Rules of RBAC: the verbs, the resources and the names that a rule allows.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use crate::object::{list_texts, read_text};

/// One rule of a Role or a ClusterRole.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// Verbs.
    pub verbs: Vec<String>,
    /// API groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// Resources, with subresources as in `pods/exec`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Names of objects. All if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths that belong to no resource.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// A request that RBAC allows or denies: a verb on a resource, or on one object by name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestedRight<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    /// The resource, with its subresource.
    pub(crate) resource: &'a str,
    /// The name. Empty if no name is known.
    pub(crate) name: &'a str,
}

impl Rule {
    pub(crate) fn read(rule: &Value) -> Self {
        Self {
            verbs: list_texts(rule, "/verbs"),
            api_groups: list_texts(rule, "/apiGroups"),
            resources: list_texts(rule, "/resources"),
            resource_names: list_texts(rule, "/resourceNames"),
            non_resource_urls: list_texts(rule, "/nonResourceURLs"),
        }
    }

    /// Checks whether the rule allows a verb on at least one object of a resource.
    pub(crate) fn covers(&self, verb: &str, group: &str, resource: &str) -> bool {
        self.has_verb(verb) && self.has_group(group) && self.has_resource(resource)
    }

    /// Checks whether the rule allows a request.
    pub(crate) fn allows(&self, asked: &RequestedRight<'_>) -> bool {
        self.covers(asked.verb, asked.group, asked.resource) && self.has_name(asked.name)
    }

    fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == "*" || known == verb)
    }

    fn has_group(&self, group: &str) -> bool {
        self.api_groups.iter().any(|known| known == "*" || known == group)
    }

    fn has_resource(&self, resource: &str) -> bool {
        let subresource = resource.split_once('/').map(|(_, subresource)| subresource);
        self.resources.iter().any(|known| {
            known == "*" || known == resource || (subresource.is_some() && known.strip_prefix("*/") == subresource)
        })
    }

    fn has_name(&self, name: &str) -> bool {
        self.resource_names.is_empty() || self.resource_names.iter().any(|known| known == name)
    }

    /// Checks whether the rule allows a verb on a resource for all these names, as the escalation
    /// check of RBAC does. No names stand for all objects.
    fn contains(&self, verb: &str, group: &str, resource: &str, names: &[String]) -> bool {
        self.covers(verb, group, resource)
            && (self.resource_names.is_empty() || (!names.is_empty() && names.iter().all(|name| self.has_name(name))))
    }
}

/// Checks whether rules together allow everything that a rule allows. Names are not split over several
/// rules.
pub(crate) fn covers_rule(held: &[&Rule], wanted: &Rule) -> bool {
    wanted.verbs.iter().all(|verb| {
        wanted.api_groups.iter().all(|group| {
            wanted.resources.iter().all(|resource| {
                held.iter()
                    .any(|rule| rule.contains(verb, group, resource, &wanted.resource_names))
            })
        })
    }) && wanted
        .non_resource_urls
        .iter()
        .all(|url| held.iter().any(|rule| rule.non_resource_urls.contains(url)))
}

/// The object names to which a rule is limited (`resourceNames`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Every name.
    All,
    /// These names.
    Some(BTreeSet<String>),
}

impl Names {
    pub(crate) fn read(rule: &Rule) -> Self {
        if rule.resource_names.is_empty() {
            Self::All
        } else {
            Self::Some(rule.resource_names.iter().cloned().collect())
        }
    }

    pub(crate) fn add(&mut self, rule: &Rule) {
        match self {
            Self::All => {}
            Self::Some(_) if rule.resource_names.is_empty() => *self = Self::All,
            Self::Some(names) => names.extend(rule.resource_names.iter().cloned()),
        }
    }

    pub(crate) fn includes_name(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) => names.contains(name),
        }
    }
}

/// Checks whether one of the selectors aggregates a ClusterRole with these labels.
pub(crate) fn is_aggregated(selectors: &[Value], labels: &Value) -> bool {
    selectors.iter().any(|selector| matches_labels(selector, labels))
}

/// Checks whether a label selector matches labels.
pub(crate) fn matches_labels(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let equal = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .is_none_or(|wanted| {
            wanted
                .iter()
                .all(|(key, value)| value.as_str().is_some() && label(key) == value.as_str())
        });
    let expressions = selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    equal
        && expressions.iter().all(|expression| {
            let found = label(read_text(expression, "/key"));
            let values = list_texts(expression, "/values");
            let is_listed = found.is_some_and(|found| values.iter().any(|value| value == found));
            match read_text(expression, "/operator") {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wildcards_match_subresources() {
        let rule = |resource: &str| Rule {
            verbs: vec!["get".to_owned()],
            api_groups: vec![String::new()],
            resources: vec![resource.to_owned()],
            ..Rule::default()
        };
        for (resource, asked, allowed) in [
            ("*", "pods/exec", true),
            ("*/exec", "pods/exec", true),
            ("*/exec", "pods", false),
            ("pods", "pods/exec", false),
            ("pods/exec", "pods/exec", true),
        ] {
            assert_eq!(rule(resource).covers("get", "", asked), allowed, "{resource} {asked}");
        }
    }

    #[test]
    fn a_named_rule_contains_only_its_names() {
        let all = || vec!["*".to_owned()];
        let held = Rule {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            resource_names: vec!["a".to_owned()],
            ..Rule::default()
        };
        let wanted = |names: &[&str]| Rule {
            verbs: vec!["get".to_owned()],
            api_groups: vec![String::new()],
            resources: vec!["secrets".to_owned()],
            resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Rule::default()
        };
        assert!(covers_rule(&[&held], &wanted(&["a"])));
        assert!(!covers_rule(&[&held], &wanted(&["a", "b"])));
        assert!(!covers_rule(&[&held], &wanted(&[])));
    }

    #[test]
    fn selectors_match_as_in_kubernetes() {
        let labels = json!({"a": "1"});
        for (selector, matches) in [
            (json!({}), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
                false,
            ),
            (json!({"matchExpressions": [{"key": "b", "operator": "Exists"}]}), false),
            (
                json!({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}),
                true,
            ),
        ] {
            assert_eq!(matches_labels(&selector, &labels), matches, "{selector}");
        }
    }
}
