//! Namespaces: the finalizer in their spec, their phase, and the label with their name.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::kind::Kind;
use crate::object::ObjectExt;
use crate::schema::validation::metadata::{self, qualified_name};
use crate::schema::validation::names::NameRule;
use crate::schema::validation::{get_text, list_items, validate_name};
use crate::schema::{FieldError, FieldPath, defaults};
use crate::table::cells;

/// Namespaces.
pub(super) static NAMESPACE: Kind = Kind {
    names: NameRule::Label,
    selectable_fields: &["status.phase"],
    is_answered_when_deleted: true,
    holds_objects: true,
    prepare_create: |_, object| activate_namespace(object),
    prepare_update: |request, live, new| keep_spec(request.subresource, live, new),
    prepare_delete: |object, _| set_terminating(object),
    defaults: |_, object| fill_in(object),
    validate,
    validate_status: |value, _, errors| validate_phase(value, errors),
    warnings: |new, old| warn_of_pod_security(new, old).into_iter().collect(),
    cells: show,
    ..Kind::new("", "Namespace", "namespaces")
};

/// The label that lets selectors name a namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The label of the Pod Security level that a namespace wants enforced.
const POD_SECURITY_LABEL: &str = "pod-security.kubernetes.io/enforce";

/// Warns that the Pod Security label is stored but not enforced, each time it is set or changed.
fn warn_of_pod_security(new: &Value, old: Option<&Value>) -> Option<String> {
    let read = |object: &Value| {
        let labels = object.pointer("/metadata/labels")?.get(POD_SECURITY_LABEL)?;
        labels.as_str().map(str::to_owned)
    };
    let level = read(new)?;
    let is_news = old.and_then(read).as_ref() != Some(&level) && level != "privileged";
    is_news.then(|| {
        format!(
            "metadata.labels[{POD_SECURITY_LABEL}]: this control plane stores the level {level} and does not enforce it"
        )
    })
}

fn activate_namespace(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), json!({"phase": "Active"}));
        let spec = map.entry("spec").or_insert_with(|| json!({}));
        if !spec.is_object() {
            *spec = json!({});
        }
        let finalizers = spec
            .as_object_mut()
            .map(|spec| spec.entry("finalizers").or_insert_with(|| json!([])));
        if let Some(Value::Array(finalizers)) = finalizers
            && !finalizers.contains(&json!("kubernetes"))
        {
            finalizers.push(json!("kubernetes"));
        }
    }
    set_name_label(object);
}

fn keep_spec(subresource: Option<&str>, live: &Value, new: &mut Value) {
    if subresource != Some("finalize")
        && let Some(map) = new.as_object_mut()
    {
        match live.get("spec") {
            Some(spec) => map.insert("spec".to_owned(), spec.clone()),
            None => map.remove("spec"),
        };
    }
    set_name_label(new);
}

fn set_terminating(object: &mut Value) {
    object.remove_meta("deletionGracePeriodSeconds");
    if let Some(map) = object.as_object_mut() {
        let status = map.entry("status").or_insert_with(|| json!({}));
        if let Some(status) = status.as_object_mut() {
            status.insert("phase".to_owned(), json!("Terminating"));
        }
    }
}

fn set_name_label(object: &mut Value) {
    let name = object.name().to_owned();
    if let Some(metadata) = object.metadata_mut() {
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if !labels.is_object() {
            *labels = json!({});
        }
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(NAME_LABEL.to_owned(), Value::from(name));
        }
    }
}

fn fill_in(object: &mut Map<String, Value>) {
    if let Some(metadata) = defaults::object_at(object, "metadata") {
        let name = defaults::get_text(metadata, "name").to_owned();
        if !name.is_empty()
            && let Some(labels) = defaults::object_at(metadata, "labels")
        {
            labels.insert("kubernetes.io/metadata.name".into(), name.into());
        }
    }
    if let Some(status) = defaults::object_at(object, "status") {
        defaults::set(status, "phase", "Active");
    }
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let phase = cells::get_text(object, "/status/phase");
    vec![cells::name_cell(object), phase.into(), cells::format_age(object, now)]
}

/// Checks the finalizers that hold a namespace until it is empty.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&Value::Null);
    let at = FieldPath::new("spec").child("finalizers");
    for (finalizer, _) in list_items(spec, "finalizers", &FieldPath::new("spec")) {
        let name = finalizer.as_str().unwrap_or_default();
        validate_name(qualified_name, name, &at, errors);
        metadata::standard_finalizer(name, &at, errors);
    }
}

/// Checks that a namespace's phase agrees with its deletion.
fn validate_phase(namespace: &Value, errors: &mut Vec<FieldError>) {
    let status = namespace.get("status").unwrap_or(&Value::Null);
    let deleted = namespace
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null());
    let (wanted, when) = if deleted {
        ("Terminating", "not empty")
    } else {
        ("Active", "empty")
    };
    let found = get_text(status, "phase");
    if found != wanted {
        let detail = format!("may only be '{wanted}' if `deletionTimestamp` is {when}");
        errors.push(FieldError::invalid("status.Phase", found, detail));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

    use super::*;

    #[test]
    fn pod_security_labels_cause_a_warning() {
        let namespace = |level: Option<&str>| json!({ "metadata": { "labels": { POD_SECURITY_LABEL: level } } });
        let warn = |new: Option<&str>, old: Option<Option<&str>>| {
            warn_of_pod_security(&namespace(new), old.map(namespace).as_ref()).is_some()
        };
        assert!(warn(Some("baseline"), None));
        assert!(warn(Some("restricted"), Some(Some("baseline"))));
        assert!(!warn(Some("baseline"), Some(Some("baseline"))));
        assert!(!warn(Some("privileged"), None));
        assert!(!warn(None, Some(Some("baseline"))));
    }
}
