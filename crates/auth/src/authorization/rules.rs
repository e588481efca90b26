//! One RBAC rule: parsing, matching, and its form in messages. A value that is not a list of strings counts as empty,
//! since validation has checked the object before.

use serde_json::{Map, Value, json};

use super::{Attributes, quote_list};

/// A `rbac.authorization.k8s.io/v1` PolicyRule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRule {
    /// The verbs, or `*`.
    pub verbs: Vec<String>,
    /// The API groups of `resources`, or `*`.
    pub api_groups: Vec<String>,
    /// Resources, `resource/subresource`, `*/subresource` or `*`.
    pub resources: Vec<String>,
    /// The only names to which the rule applies; empty for all.
    pub resource_names: Vec<String>,
    /// Paths, which may end in `*`.
    pub non_resource_urls: Vec<String>,
}

impl PolicyRule {
    /// Reads the rule in `value`.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        let list = |key: &str| {
            value
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        Self {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// Returns the rules of a Role or ClusterRole.
    #[must_use]
    pub fn of_role(role: &Value) -> Vec<Self> {
        role.get("rules")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(Self::from_value)
            .collect()
    }

    /// Returns the number of strings in the rule.
    pub(super) fn count_strings(&self) -> usize {
        let lists = [
            &self.verbs,
            &self.api_groups,
            &self.resources,
            &self.resource_names,
            &self.non_resource_urls,
        ];
        lists.into_iter().map(Vec::len).sum()
    }

    /// Returns the rule as the API writes it: empty lists left out, except for the verbs.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut out = Map::new();
        for (key, items) in [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ] {
            if !items.is_empty() {
                out.insert(key.to_owned(), json!(items));
            }
        }
        out.insert("verbs".to_owned(), json!(self.verbs));
        Value::Object(out)
    }

    /// Checks whether the rule allows the request in `attributes`; `combined` is their resource with its subresource.
    pub(super) fn allows(&self, attributes: &Attributes, combined: &str) -> bool {
        if !has_item_or_wildcard(&self.verbs, &attributes.verb) {
            return false;
        }
        match &attributes.path {
            Some(path) => self.non_resource_urls.iter().any(|pattern| path_matches(pattern, path)),
            None => {
                has_item_or_wildcard(&self.api_groups, &attributes.group)
                    && self.resource_matches(combined, &attributes.subresource)
                    && (self.resource_names.is_empty() || self.resource_names.contains(&attributes.name))
            }
        }
    }

    fn resource_matches(&self, combined: &str, subresource: &str) -> bool {
        self.resources.iter().any(|resource| {
            resource == "*"
                || resource == combined
                || (!subresource.is_empty() && resource.strip_prefix("*/") == Some(subresource))
        })
    }

    /// Returns the rule in one line, as escalation errors list it.
    #[must_use]
    pub fn format_compact(&self) -> String {
        let parts: Vec<String> = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ]
        .into_iter()
        .filter(|(_, items)| !items.is_empty())
        .map(|(name, items)| format!("{name}:{}", quote_list(items)))
        .collect();
        format!("{{{}}}", parts.join(", "))
    }
}

fn has_item_or_wildcard(items: &[String], wanted: &str) -> bool {
    items.iter().any(|item| item == "*" || item == wanted)
}

/// Checks whether the path pattern of a rule covers `path`: equal, or up to the pattern's final `*`.
pub(super) fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}
