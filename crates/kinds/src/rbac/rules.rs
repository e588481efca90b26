//! The rules of both kinds of roles.

use serde_json::Value;

use crate::schema::validation::metadata::label_selector;
use crate::schema::validation::{is_empty_field, list_items};
use crate::schema::{FieldError, FieldPath};

/// Checks the rules of a role.
pub(super) fn validate(value: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    for (rule, at) in list_items(value, "rules", &FieldPath::default()) {
        if is_empty_field(rule, "verbs") {
            errors.push(FieldError::required(
                at.child("verbs"),
                "verbs must contain at least one value",
            ));
        }
        let urls = rule.get("nonResourceURLs").cloned().unwrap_or_default();
        if !is_empty_field(rule, "nonResourceURLs") {
            let at = at.child("nonResourceURLs");
            if namespaced {
                errors.push(FieldError::invalid(
                    &at,
                    urls.clone(),
                    "namespaced rules cannot apply to non-resource URLs",
                ));
            }
            if ["apiGroups", "resources", "resourceNames"]
                .iter()
                .any(|field| !is_empty_field(rule, field))
            {
                errors.push(FieldError::invalid(
                    &at,
                    urls,
                    "rules cannot apply to both regular resources and non-resource URLs",
                ));
            }
            continue;
        }
        if is_empty_field(rule, "apiGroups") {
            errors.push(FieldError::required(
                at.child("apiGroups"),
                "resource rules must supply at least one api group",
            ));
        }
        if is_empty_field(rule, "resources") {
            errors.push(FieldError::required(
                at.child("resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
    if let Some(aggregation) = value.get("aggregationRule").filter(|_| !namespaced) {
        let path = FieldPath::new("aggregationRule");
        if is_empty_field(aggregation, "clusterRoleSelectors") {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.push(FieldError::required(path.child("clusterRoleSelectors"), detail));
        }
        for (selector, at) in list_items(aggregation, "clusterRoleSelectors", &path) {
            let before = errors.len();
            label_selector(selector, &at, errors);
            if errors.len() > before {
                errors.push(FieldError::invalid(at, Value::Null, "invalid label selector."));
            }
        }
    }
}
