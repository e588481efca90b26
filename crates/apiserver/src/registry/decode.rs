//! Decoding of a request body into an object of the resource: format, group, version and kind, unknown fields.

use std::collections::HashSet;

use serde_json::{Value, json};
use tenure_checkpoint::checkpoint;
use tenure_kinds::schema::json_type_name;
use tenure_kinds::schema::strict::{MOST_FAULTS, Twice};

use super::{FieldValidation, ObjectExt, Operation};
use crate::formats::{BodyFormat, UNTYPED, describe_untyped, parse};
use crate::http::ApiError;
use crate::kind_properties;

/// Decodes an object of the kind that the resource or subresource accepts.
pub(crate) fn decode_object(op: &Operation, body: &[u8], format: BodyFormat) -> Result<Value, ApiError> {
    let custom = op.resource.is_custom();
    let of_scale = custom && op.subresource.as_deref() == Some("scale");
    // The Scale of a custom kind has no Go type that Kubernetes could name in an error.
    let refused = |error: ApiError| if of_scale { untyped_scale() } else { error };
    let twice = if custom { Twice::Last } else { Twice::Filled };
    let (mut object, repeated) =
        parse(body, format, twice).map_err(|error| refused(refuse_unrecognized(op, body, &error.message)))?;
    if object.is_null() && !custom {
        // A body of null decodes to an empty object of a built-in kind, as in Kubernetes.
        object = json!({});
    }
    if !object.is_object() && !object.is_null() {
        return Err(refused(refuse_unrecognized(op, body, &describe_untyped(&object))));
    }
    for key in ["apiVersion", "kind"] {
        if let Some(value) = object.get(key).filter(|value| !value.is_string() && !value.is_null()) {
            let found = json_type_name(value);
            let detail = format!("json: cannot unmarshal {found} into Go struct field .{key} of type string");
            return Err(refused(refuse_unrecognized(op, body, &format!("{UNTYPED}{detail}"))));
        }
    }
    if custom && !of_scale {
        return decode_custom(op, object, repeated, body);
    }
    check_kind(op, &mut object, body)?;
    check_fields(op, &mut object, repeated).map_err(refused)?;
    Ok(object)
}

/// Decodes a custom resource. The body must contain kind and version, as this server does not guess them.
fn decode_custom(op: &Operation, mut object: Value, repeated: Vec<String>, body: &[u8]) -> Result<Value, ApiError> {
    let resource = &op.resource;
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion").to_owned(), text("kind"));
    if kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body));
        return Err(match op.field_validation {
            FieldValidation::Ignore => ApiError::bad_request(format!(
                "{0} in version {1:?} cannot be handled as a {0}: {why}",
                resource.kind, resource.version
            )),
            _ => refuse_unrecognized(op, body, &why),
        });
    }
    if version.matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {version}");
        return Err(refuse_unrecognized(op, body, &why));
    }
    let wanted = resource.api_version();
    if kind == resource.kind && version == wanted {
        check_fields(op, &mut object, repeated)?;
        return Ok(object);
    }
    // Known fields are read first. Then a wrong version is refused at once, and a wrong kind together with the other
    // faults of the object.
    let mut faults = repeated;
    faults.extend(kind_properties::read_foreign(op, &mut object)?);
    report_unknown_fields(op, &object, faults)?;
    if version == wanted {
        Ok(object)
    } else {
        Err(wrong_version(&version, &wanted))
    }
}

fn untyped_scale() -> ApiError {
    ApiError::bad_request("no kind is registered for the type v1.Scale in scheme \"pkg/runtime/scheme.go:111\"")
}

fn check_kind(op: &Operation, object: &mut Value, body: &[u8]) -> Result<(), ApiError> {
    let resource = &op.resource;
    let (wanted_version, wanted_kind) = resource.taken_by(op.subresource.as_deref());
    let Some(map) = object.as_object_mut() else {
        return Ok(());
    };
    // A typed client may leave out apiVersion and kind, because the URL identifies the kind.
    for (key, wanted) in [("apiVersion", &wanted_version), ("kind", &wanted_kind)] {
        let missing = map.get(key).and_then(Value::as_str).is_none_or(str::is_empty);
        if missing {
            map.insert(key.to_owned(), Value::from(wanted.as_str()));
        }
    }
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version == wanted_version && kind == wanted_kind {
        return Ok(());
    }
    let cannot = |why: String| {
        let short = version.rsplit('/').next().unwrap_or_default();
        Err(ApiError::bad_request(format!(
            "{kind} in version {short:?} cannot be handled as a {wanted_kind}: {why}"
        )))
    };
    if version.matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {version}");
        return Err(refuse_unrecognized(op, body, &why));
    }
    if !kind_properties::is_known(version, kind) && !resource.is_custom() {
        return cannot(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
        ));
    }
    if kind == wanted_kind {
        if !resource.is_custom() {
            // The object is read by its own version, before the check finds another version.
            let unknown = kind_properties::unknown_fields(version, kind, &Value::Object(map.clone()))?;
            match op.field_validation {
                FieldValidation::Strict if !unknown.is_empty() => {
                    return cannot(format!("strict decoding error: {}", unknown.join(", ")));
                }
                FieldValidation::Warn => unknown.iter().for_each(|text| op.warn(text)),
                _ => {}
            }
        }
        return Err(wrong_version(version, &wanted_version));
    }
    if resource.is_custom() {
        return Err(untyped_scale());
    }
    let (short, group) = (
        version.rsplit('/').next().unwrap_or_default(),
        wanted_version.rsplit_once('/').map_or("", |(group, _)| group),
    );
    cannot(format!(
        "converting ({short}.{kind}) to ({}.{wanted_kind}): unknown conversion",
        internal_package(group)
    ))
}

fn wrong_version(version: &str, wanted: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the API version in the data ({version}) does not match the expected API version ({wanted})"
    ))
}

/// Returns the Go package of a group's internal types, which an error message shows.
pub(crate) fn internal_package(group: &str) -> &str {
    if group.is_empty() {
        "core"
    } else {
        group.split('.').next().unwrap_or_default()
    }
}

/// Bytes of a body in an error message.
const SHOWN: usize = 30;

fn refuse_unrecognized(op: &Operation, body: &[u8], detail: &str) -> ApiError {
    // A message never repeats a Secret's body.
    let body = if op.resource.is_confidential() { &[] } else { body };
    let head = body.get(..SHOWN).unwrap_or(body);
    let shown = match head.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(head).into_owned(),
        Some(_) => hex::encode(head),
    };
    let more = if body.len() > SHOWN { " ..." } else { "" };
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {detail} ({shown}{more})",
        op.resource.taken_by(op.subresource.as_deref()).1
    ))
}

/// Checks fields. A value of the wrong type is always an error; unknown and repeated fields are handled as the client
/// wishes.
pub(crate) fn check_fields(op: &Operation, object: &mut Value, repeated: Vec<String>) -> Result<(), ApiError> {
    let resets_owners = !op.resource.is_custom() && object.pointer("/metadata/managedFields") == Some(&json!([]));
    let decoded = kind_properties::read(op, std::mem::take(object))?;
    *object = decoded.value;
    if resets_owners {
        // Decoding drops an empty list. But an empty managedFields resets the field owners, so the list is restored.
        object.set_meta("managedFields", json!([]));
    }
    let mut faults = repeated;
    if !op.resource.is_custom() {
        // A field that the type lacks is skipped as a whole, and duplicates in it are not reported.
        let field = |fault: &str, prefix: &str| Some(fault.strip_prefix(prefix)?.strip_suffix('"')?.to_owned());
        let unknown: HashSet<String> = decoded
            .unknown_fields
            .iter()
            .filter_map(|fault| field(fault, "unknown field \""))
            .collect();
        let skipped = |fault: &str| {
            field(fault, "duplicate field \"").is_some_and(|path| {
                let ends = path.match_indices(['.', '[']).map(|(end, _)| end).chain([path.len()]);
                ends.filter_map(|end| path.get(..end))
                    .any(|above| unknown.contains(above))
            })
        };
        faults.retain(|fault| {
            checkpoint();
            !skipped(fault)
        });
    }
    faults.extend(decoded.unknown_fields);
    report_unknown_fields(op, object, faults)
}

/// Reports unknown or repeated fields, as the client wishes.
pub(super) fn report_unknown_fields(op: &Operation, object: &Value, mut faults: Vec<String>) -> Result<(), ApiError> {
    faults.truncate(MOST_FAULTS);
    if faults.is_empty() {
        return Ok(());
    }
    match op.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => {
            for text in faults {
                op.warn(text);
            }
        }
        FieldValidation::Strict => {
            let resource = &op.resource;
            let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
            let (kind, version) = match resource.is_custom() {
                true => (text("kind"), text("apiVersion").rsplit('/').next().unwrap_or_default()),
                false => (resource.kind.as_str(), resource.version.as_str()),
            };
            return Err(ApiError::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {}: strict decoding error: {}",
                resource.kind,
                faults.join(", ")
            )));
        }
    }
    Ok(())
}
