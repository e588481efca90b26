//! Field selectors: `a=b,c!=d`. All terms about one field are one rule, so that an evaluation takes one step for each
//! field that the kind can be selected by.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use tenure_checkpoint::checkpoint;

use crate::http::ApiError;

/// The terms of a field selector, merged by field.
#[derive(Debug, Clone, Default)]
pub(super) struct FieldSelector {
    rules: BTreeMap<String, FieldRule>,
}

/// The values that a field must have or must not have, from all terms about it.
#[derive(Debug, Clone, Default)]
struct FieldRule {
    /// The value of the first term that demands one.
    wanted: Option<String>,
    /// Whether another term demands another value.
    is_contradictory: bool,
    denied: HashSet<String>,
}

impl FieldRule {
    fn add(&mut self, equal: bool, value: &str) {
        match &self.wanted {
            _ if !equal => {
                self.denied.insert(value.to_owned());
            }
            Some(wanted) => self.is_contradictory |= wanted != value,
            None => self.wanted = Some(value.to_owned()),
        }
    }

    fn accepts(&self, value: &str) -> bool {
        !self.is_contradictory
            && self.wanted.as_ref().is_none_or(|wanted| wanted == value)
            && !self.denied.contains(value)
    }
}

impl FieldSelector {
    /// Reads a selector; an empty one has no terms. `check` refuses a field by which objects can't be selected.
    pub(super) fn parse(text: &str, check: impl Fn(&str) -> Result<(), ApiError>) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for term in text.split(',').map(str::trim).filter(|term| !term.is_empty()) {
            checkpoint();
            let (key, equal, value) = if let Some((key, value)) = term.split_once("!=") {
                (key, false, value)
            } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (key, true, value)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{term}'"
                )));
            };
            terms.push((key, equal, value));
        }
        // The syntax of all terms is checked before the first field.
        let mut rules: BTreeMap<String, FieldRule> = BTreeMap::new();
        for (key, equal, value) in terms {
            checkpoint();
            if let Some(rule) = rules.get_mut(key) {
                rule.add(equal, value);
                continue;
            }
            check(key)?;
            rules.entry(key.to_owned()).or_default().add(equal, value);
        }
        Ok(Self { rules })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the value that a field must have, if a term demands one.
    pub(super) fn only_value(&self, field: &str) -> Option<&str> {
        self.rules.get(field)?.wanted.as_deref()
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        self.rules
            .iter()
            .all(|(field, rule)| rule.accepts(&field_value(object, field)))
    }
}

/// Returns the text of a field as selectors compare it; empty if the field is missing.
fn field_value(object: &Value, field: &str) -> String {
    let mut current = object;
    // An Event's source is an object, and selectors compare its component.
    let path = match field {
        "source" if current.get("source").is_some_and(Value::is_object) => "source.component",
        "status.successful" => "status.succeeded",
        other => other,
    };
    for part in path.split('.') {
        match current.get(part) {
            Some(next) => current = next,
            None => {
                return match field {
                    "spec.unschedulable" | "spec.hostNetwork" => "false".to_owned(),
                    "status.replicas" | "status.successful" => "0".to_owned(),
                    _ => String::new(),
                };
            }
        }
    }
    match current {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> FieldSelector {
        FieldSelector::parse(text, |_| Ok(())).unwrap()
    }

    #[test]
    fn terms_about_one_field_hold_together() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}});
        for (text, want) in [
            ("", true),
            ("metadata.name=a", true),
            ("metadata.name==a,metadata.name=a", true),
            ("metadata.name=a,metadata.name=b", false),
            ("metadata.name!=b,metadata.name!=c", true),
            ("metadata.name!=b,metadata.name!=a", false),
            ("metadata.name=a,spec.nodeName!=n", false),
            ("spec.missing=", true),
        ] {
            assert_eq!(read(text).matches(&object), want, "{text}");
        }
    }

    #[test]
    fn five_thousand_terms_about_a_field_are_one_rule() {
        let text: Vec<String> = (0..5_000).map(|index| format!("metadata.name!=v{index}")).collect();
        let selector = read(&text.join(","));
        assert_eq!(selector.rules.len(), 1);
        assert!(selector.matches(&json!({"metadata": {"name": "a"}})));
        assert!(!selector.matches(&json!({"metadata": {"name": "v4999"}})));
    }
}
