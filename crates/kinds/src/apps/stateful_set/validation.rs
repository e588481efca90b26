//! Validation of StatefulSets and of their updates.

use serde_json::{Map, Value, json};

use crate::core_group::persistent_volume_claim::validation as claims;
use crate::core_group::pod::owners::{selected_template, shown_strategy, shown_update, validate_non_negative};
use crate::core_group::pod::validation::ExtraVolumes;
use crate::schema::validation::{get_text, list_items, names, non_negative};
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;

/// Checks a StatefulSet. `old` is the object before the update.
pub(super) fn validate(value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = |object| Value::get(object, "spec").unwrap_or(&NOTHING);
    stateful_set(spec(value), old.map(spec), &FieldPath::new("spec"), errors);
}

fn list_ordinal_fields() -> [(&'static str, &'static str, Value); 2] {
    [
        ("Partition", "partition", json!(0)),
        ("MaxUnavailable", "maxUnavailable", Value::Null),
    ]
}

fn stateful_set(spec: &Value, before: Option<&Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let management = get_text(spec, "podManagementPolicy");
    if !matches!(management, "OrderedReady" | "Parallel") {
        errors.push(FieldError::invalid(
            path.child("podManagementPolicy"),
            management,
            "must be 'OrderedReady' or 'Parallel'",
        ));
    }
    let strategy = spec.get("updateStrategy").unwrap_or(&NOTHING);
    let at = path.child("updateStrategy");
    let rolling = strategy.get("rollingUpdate");
    let inner = at.child("rollingUpdate");
    match (get_text(strategy, "type"), rolling) {
        ("OnDelete", Some(rolling)) => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(FieldError::invalid(
                inner,
                shown_update(rolling, &list_ordinal_fields()),
                detail,
            ));
        }
        ("RollingUpdate", Some(rolling)) => non_negative(rolling, "partition", &inner, errors),
        ("OnDelete" | "RollingUpdate", None) => {}
        _ => errors.push(FieldError::invalid(
            at,
            shown_strategy(strategy, &list_ordinal_fields()),
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
    if let Some(policy) = spec.get("persistentVolumeClaimRetentionPolicy") {
        let at = path.child("persistentVolumeClaimRetentionPolicy");
        for field in ["whenDeleted", "whenScaled"] {
            let supported = ["Retain", "Delete"];
            let found = get_text(policy, field);
            if !supported.contains(&found) {
                errors.push(FieldError::not_supported(at.child(field), found, &supported));
            }
        }
    }
    let mut extra = ExtraVolumes::new();
    for (claim, at) in list_items(spec, "volumeClaimTemplates", path) {
        // An immutable field may keep an invalid value that is already stored.
        if before.is_none() {
            claims::validate_claim(claim, &at, errors);
        }
        let name = claim.pointer("/metadata/name").and_then(Value::as_str);
        extra.insert(name.unwrap_or_default().to_owned());
    }
    validate_non_negative(spec, &["replicas", "minReadySeconds"], path, errors);
    if let Some(ordinals) = spec.get("ordinals") {
        non_negative(ordinals, "start", &path.child("ordinals"), errors);
    }
    let service = get_text(spec, "serviceName");
    if !service.is_empty() && before.is_none() {
        for complaint in names::find_label_errors(service) {
            errors.push(FieldError::invalid(path.child("serviceName"), service, complaint));
        }
    }
    // The controller sets the host names of the Pods, so the template's own names are not checked.
    let mut spec = spec.clone();
    if let Some(inner) = spec.pointer_mut("/template/spec").and_then(Value::as_object_mut) {
        inner.remove("subdomain");
        inner.remove("hostname");
    }
    selected_template(&spec, "statefulset", "StatefulSet", &extra, path, errors);
    if before.is_some_and(|before| immutable_fields(&spec) != immutable_fields(before)) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden(path, detail));
    }
}

/// Returns the immutable fields of a StatefulSet.
fn immutable_fields(spec: &Value) -> Map<String, Value> {
    let changeable = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let mut spec = spec.as_object().cloned().unwrap_or_default();
    spec.retain(|field, _| !changeable.contains(&field.as_str()));
    spec
}
