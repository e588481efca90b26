//! The kind PersistentVolumeClaim.

mod admission;
mod usage;
pub(crate) mod validation;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kind::Kind;
use crate::schema::FieldPath;
use crate::table::cells;

/// PersistentVolumeClaims.
pub(super) static PERSISTENT_VOLUME_CLAIM: Kind = Kind {
    is_answered_when_deleted: true,
    initial_status: Some(|| json!({"phase": "Pending"})),
    prepare_create: |_, object| settle_source(object, None),
    prepare_update: |_, live, new| settle_source(new, Some(live)),
    validate: |value, errors| validation::validate_claim(value, &FieldPath::default(), errors),
    validate_update: validation::claim_update,
    validate_status: |value, _, errors| validation::claim_status(value, errors),
    cells: show,
    admission: admission::RULES,
    is_counted_by_plural: true,
    usage: Some(usage::USAGE),
    ..Kind::new("", "PersistentVolumeClaim", "persistentvolumeclaims")
};

fn settle_source(object: &mut Value, live: Option<&Value>) {
    drop_unknown_source(object, live);
    name_source_twice(object);
}

/// Drops a source of another kind than a claim or a snapshot from the older field for a claim's data. The source stays if the newer field
/// is set too, or if the claim had a source before.
fn drop_unknown_source(object: &mut Value, live: Option<&Value>) {
    let is_set = |object: &Value, field: &str| {
        let source = object.get("spec").and_then(|spec| spec.get(field));
        source.is_some_and(|source| !source.is_null())
    };
    let before = |live: &Value| is_set(live, "dataSource") || is_set(live, "dataSourceRef");
    if live.is_some_and(before) || is_set(object, "dataSourceRef") {
        return;
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let text = |source: &Value, field: &str| source.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let known = spec.get("dataSource").is_none_or(|source| {
        matches!(
            (text(source, "apiGroup").as_str(), text(source, "kind").as_str()),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    });
    if !known {
        spec.remove("dataSource");
    }
}

/// Writes the data source of a claim into both of its fields, and a null group for the core group.
fn name_source_twice(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for (from, to) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
        if let Some(source) = spec.get_mut(from).and_then(Value::as_object_mut) {
            source.entry("apiGroup").or_insert(Value::Null);
            let copied = source
                .get("namespace")
                .is_none_or(Value::is_null)
                .then(|| Value::Object(source.clone()));
            if let (Some(copied), false) = (copied, spec.contains_key(to)) {
                spec.insert(to.to_owned(), copied);
            }
        }
    }
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let deleted = !cells::get_text(object, "/metadata/deletionTimestamp").is_empty();
    let volume = cells::get_text(object, "/spec/volumeName");
    let bound = !volume.is_empty();
    vec![
        cells::name_cell(object),
        if deleted {
            "Terminating"
        } else {
            cells::get_text(object, "/status/phase")
        }
        .into(),
        volume.into(),
        if bound {
            cells::non_empty_or(cells::get_text(object, "/status/capacity/storage"), "0")
        } else {
            ""
        }
        .into(),
        if bound {
            cells::access_modes(object, "/status/accessModes")
        } else {
            String::new()
        }
        .into(),
        cells::class_of(object).into(),
        cells::text_or_unset(object, "/spec/volumeAttributesClassName"),
        cells::format_age(object, now),
        cells::text_or_unset(object, "/spec/volumeMode"),
    ]
}

/// Returns the class that a claim names, in the older way or in the newer one.
fn class_of_claim(claim: &Value) -> &str {
    let older = claim.pointer("/metadata/annotations/volume.beta.kubernetes.io~1storage-class");
    older
        .and_then(Value::as_str)
        .or_else(|| claim.pointer("/spec/storageClassName").and_then(Value::as_str))
        .unwrap_or_default()
}
