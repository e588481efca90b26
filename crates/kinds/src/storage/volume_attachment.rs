//! The kind VolumeAttachment.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::drivers::{driver_name, too_long};
use crate::kind::Kind;
use crate::schema::validation::{get_text, names, show_go_struct, validate_name};
use crate::schema::{FieldError, FieldPath, Shown};
use crate::table::cells;

/// VolumeAttachments.
pub(super) static VOLUME_ATTACHMENT: Kind = Kind {
    is_answered_when_deleted: true,
    needs_resource_version: true,
    initial_status: Some(|| json!({"attached": false})),
    kept_from_status: &["labels", "annotations", "finalizers", "ownerReferences"],
    validate,
    validate_update,
    validate_status: |value, _, errors| attachment_status(value, errors),
    cells: show,
    ..Kind::new("storage.k8s.io", "VolumeAttachment", "volumeattachments")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let attached = object.pointer("/status/attached") == Some(&Value::Bool(true));
    vec![
        cells::name_cell(object),
        cells::get_text(object, "/spec/attacher").into(),
        cells::get_text(object, "/spec/source/persistentVolumeName").into(),
        cells::get_text(object, "/spec/nodeName").into(),
        attached.into(),
        cells::format_age(object, now),
    ]
}

static NOTHING: Value = Value::Null;

/// The maximum size of the metadata of an attached volume. `FAILURE` is the maximum for an attachment error.
const ATTACHED: usize = 256 * 1024;

const FAILURE: usize = 1024;

fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    validate_attachment(spec, errors);
    attachment_status(value, errors);
    if let Some(volume) = spec.pointer("/source/persistentVolumeName").and_then(Value::as_str) {
        let at = FieldPath::new("spec.source.persistentVolumeName");
        validate_name(names::find_subdomain_errors, volume, &at, errors);
    }
}

fn validate_attachment(spec: &Value, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("spec");
    driver_name(get_text(spec, "attacher"), &at.child("attacher"), errors);
    let source = spec.get("source").unwrap_or(&NOTHING);
    let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let inline = source.get("inlineVolumeSpec").is_some_and(|inline| !inline.is_null());
    match (source.get("persistentVolumeName").and_then(Value::as_str), inline) {
        (None, false) => errors.push(FieldError::required(at.child("source"), one)),
        (Some(_), true) => errors.push(FieldError::forbidden(at.child("source"), one)),
        (Some(""), false) => {
            let why = "must specify non empty persistentVolumeName";
            errors.push(FieldError::required(
                at.child("source").child("persistentVolumeName"),
                why,
            ));
        }
        _ => {}
    }
    validate_name(
        names::find_subdomain_errors,
        get_text(spec, "nodeName"),
        &at.child("nodeName"),
        errors,
    );
}

/// Checks the status of an attached volume.
fn attachment_status(value: &Value, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("status");
    let status = value.get("status").unwrap_or(&NOTHING);
    let attachment_metadata = status.get("attachmentMetadata").and_then(Value::as_object);
    let size: usize = attachment_metadata
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > ATTACHED {
        errors.push(too_long(&at.child("attachmentMetadata"), ATTACHED));
    }
    for field in ["attachError", "detachError"] {
        let Some(error) = status.get(field) else { continue };
        let at = at.child(field);
        if get_text(error, "message").len() > FAILURE {
            // The real server names the other limit here.
            errors.push(too_long(&at.child("message"), ATTACHED));
        }
        let code = error.get("errorCode").and_then(Value::as_i64);
        if let Some(code) = code.filter(|code| *code < 0) {
            let why = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(at.child("errorCode"), code, why));
        }
    }
}

fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (spec, before) = (
        value.get("spec").unwrap_or(&NOTHING),
        old.get("spec").unwrap_or(&NOTHING),
    );
    if spec == before {
        return;
    }
    let source = spec.get("source").unwrap_or(&NOTHING);
    let part = |of: &Value, field: &str| of.get(field).cloned().unwrap_or_default();
    let shown = show_go_struct(&[
        ("PersistentVolumeName", &part(source, "persistentVolumeName")),
        ("InlineVolumeSpec", &part(source, "inlineVolumeSpec")),
    ]);
    let text = |field: &str| json!(get_text(spec, field)).to_string();
    let shown = format!(
        "{{\"Attacher\":{},\"Source\":{shown},\"NodeName\":{}}}",
        text("attacher"),
        text("nodeName")
    );
    errors.push(FieldError::invalid(
        "spec",
        Shown::Verbatim(shown),
        "field is immutable",
    ));
}
