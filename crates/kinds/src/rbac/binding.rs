//! What both kinds of bindings have in common.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::schema::defaults;
use crate::table::cells;

/// The group of the role that is bound.
pub(super) fn fill_in(object: &mut Map<String, Value>) {
    if let Some(reference) = defaults::object_at(object, "roleRef") {
        defaults::set(reference, "apiGroup", "rbac.authorization.k8s.io");
    }
}

pub(super) fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let role = format!(
        "{}/{}",
        cells::text(object, "/roleRef/kind"),
        cells::text(object, "/roleRef/name")
    );
    let subjects = |kind: &str| {
        let found = cells::list(object, "/subjects")
            .iter()
            .filter(|subject| cells::text(subject, "/kind") == kind);
        let names: Vec<String> = found
            .map(|subject| match (kind, cells::text(subject, "/namespace")) {
                ("ServiceAccount", namespace) => format!("{namespace}/{}", cells::text(subject, "/name")),
                _ => cells::text(subject, "/name").to_owned(),
            })
            .collect();
        Value::from(names.join(", "))
    };
    let name = cells::text(object, "/metadata/name").into();
    vec![
        name,
        role.into(),
        cells::age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}
