//! Roles and bindings.

use serde_json::{Value, json};

use super::metadata::label_selector;
use super::names::{self, NameRule};
use super::{empty, items, text};
use crate::schema::{FieldError, FieldPath};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Checks a role or binding.
pub(crate) fn object(kind: &str, value: &Value, errors: &mut Vec<FieldError>) {
    match kind {
        "Role" | "ClusterRole" => role(value, kind == "Role", errors),
        "RoleBinding" | "ClusterRoleBinding" => binding(value, kind == "RoleBinding", errors),
        _ => {}
    }
}

fn role(value: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    for (rule, at) in items(value, "rules", &FieldPath::default()) {
        if empty(rule, "verbs") {
            errors.push(FieldError::required(
                at.child("verbs"),
                "verbs must contain at least one value",
            ));
        }
        let urls = rule.get("nonResourceURLs").cloned().unwrap_or_default();
        if !empty(rule, "nonResourceURLs") {
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
                .any(|field| !empty(rule, field))
            {
                errors.push(FieldError::invalid(
                    &at,
                    urls,
                    "rules cannot apply to both regular resources and non-resource URLs",
                ));
            }
            continue;
        }
        if empty(rule, "apiGroups") {
            errors.push(FieldError::required(
                at.child("apiGroups"),
                "resource rules must supply at least one api group",
            ));
        }
        if empty(rule, "resources") {
            errors.push(FieldError::required(
                at.child("resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
    if let Some(aggregation) = value.get("aggregationRule").filter(|_| !namespaced) {
        let path = FieldPath::new("aggregationRule");
        if empty(aggregation, "clusterRoleSelectors") {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.push(FieldError::required(path.child("clusterRoleSelectors"), detail));
        }
        for (selector, at) in items(aggregation, "clusterRoleSelectors", &path) {
            let before = errors.len();
            label_selector(selector, &at, errors);
            if errors.len() > before {
                errors.push(FieldError::invalid(at, Value::Null, "invalid label selector."));
            }
        }
    }
}

fn binding(value: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let reference = value.get("roleRef").cloned().unwrap_or_default();
    let path = FieldPath::new("roleRef");
    let group = text(&reference, "apiGroup");
    if group != GROUP {
        errors.push(FieldError::not_supported(path.child("apiGroup"), group, &[GROUP]));
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    let kind = text(&reference, "kind");
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported(path.child("kind"), kind, kinds));
    }
    let name = text(&reference, "name");
    if name.is_empty() {
        errors.push(FieldError::required(path.child("name"), ""));
    }
    for complaint in NameRule::PathSegment.check(name, false) {
        errors.push(FieldError::invalid(path.child("name"), name, complaint));
    }
    for (subject, at) in items(value, "subjects", &FieldPath::default()) {
        self::subject(subject, namespaced, &at, errors);
    }
}

fn subject(subject: &Value, namespaced: bool, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let name = text(subject, "name");
    if name.is_empty() {
        errors.push(FieldError::required(at.child("name"), ""));
    }
    let group = text(subject, "apiGroup");
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                for complaint in names::subdomain(name) {
                    errors.push(FieldError::invalid(at.child("name"), name, complaint));
                }
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(at.child("apiGroup"), group, &[""]));
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(at.child("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.push(FieldError::not_supported(at.child("apiGroup"), group, &[GROUP]));
            }
        }
        other => errors.push(FieldError::not_supported(
            at.child("kind"),
            other,
            &["ServiceAccount", "User", "Group"],
        )),
    }
}

/// A binding's role can't be exchanged.
pub(crate) fn update(kind: &str, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if !kind.ends_with("Binding") || value.get("roleRef") == old.get("roleRef") {
        return;
    }
    let reference = value.get("roleRef").cloned().unwrap_or_default();
    // The real server prints its internal type, whose fields have Go's names.
    let shown = json!({"APIGroup": text(&reference, "apiGroup"), "Kind": text(&reference, "kind"), "Name": text(&reference, "name")});
    errors.push(FieldError::invalid("roleRef", shown, "cannot change roleRef"));
}
