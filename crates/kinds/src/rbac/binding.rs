//! Code that both kinds of bindings share.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::schema::validation::names::{self, NameRule};
use crate::schema::validation::{get_text, list_items};
use crate::schema::{FieldError, FieldPath, defaults};
use crate::table::cells;

/// Sets the default group of the bound role.
pub(super) fn fill_in(object: &mut Map<String, Value>) {
    if let Some(reference) = defaults::object_at(object, "roleRef") {
        defaults::set(reference, "apiGroup", "rbac.authorization.k8s.io");
    }
}

pub(super) fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let role = format!(
        "{}/{}",
        cells::get_text(object, "/roleRef/kind"),
        cells::get_text(object, "/roleRef/name")
    );
    let subjects = |kind: &str| {
        let found = cells::list_items(object, "/subjects")
            .iter()
            .filter(|subject| cells::get_text(subject, "/kind") == kind);
        let names: Vec<String> = found
            .map(|subject| match (kind, cells::get_text(subject, "/namespace")) {
                ("ServiceAccount", namespace) => format!("{namespace}/{}", cells::get_text(subject, "/name")),
                _ => cells::get_text(subject, "/name").to_owned(),
            })
            .collect();
        Value::from(names.join(", "))
    };
    let name = cells::get_text(object, "/metadata/name").into();
    vec![
        name,
        role.into(),
        cells::format_age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn validate(value: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let reference = value.get("roleRef").cloned().unwrap_or_default();
    let path = FieldPath::new("roleRef");
    let group = get_text(&reference, "apiGroup");
    if group != GROUP {
        errors.push(FieldError::not_supported(path.child("apiGroup"), group, &[GROUP]));
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    let kind = get_text(&reference, "kind");
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported(path.child("kind"), kind, kinds));
    }
    let name = get_text(&reference, "name");
    if name.is_empty() {
        errors.push(FieldError::required(path.child("name"), ""));
    }
    for complaint in NameRule::PathSegment.check(name, false) {
        errors.push(FieldError::invalid(path.child("name"), name, complaint));
    }
    for (subject, at) in list_items(value, "subjects", &FieldPath::default()) {
        self::validate_subject(subject, namespaced, &at, errors);
    }
}

fn validate_subject(subject: &Value, namespaced: bool, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let name = get_text(subject, "name");
    if name.is_empty() {
        errors.push(FieldError::required(at.child("name"), ""));
    }
    let group = get_text(subject, "apiGroup");
    match get_text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                for complaint in names::find_subdomain_errors(name) {
                    errors.push(FieldError::invalid(at.child("name"), name, complaint));
                }
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(at.child("apiGroup"), group, &[""]));
            }
            if !namespaced && get_text(subject, "namespace").is_empty() {
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

/// Checks that the role of a binding stays unchanged.
pub(super) fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if value.get("roleRef") == old.get("roleRef") {
        return;
    }
    let reference = value.get("roleRef").cloned().unwrap_or_default();
    // The real server prints its internal type, whose fields have Go's names.
    let shown = json!({"APIGroup": get_text(&reference, "apiGroup"), "Kind": get_text(&reference, "kind"), "Name": get_text(&reference, "name")});
    errors.push(FieldError::invalid("roleRef", shown, "cannot change roleRef"));
}
