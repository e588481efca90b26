//! Field ownership: after every write, and by server-side apply.

use serde_json::{Value, json};
use structured_merge::{Applied, ApplyError, Cause, Timestamp, keep_times_if_otherwise_equal};

use super::create::check_namespace;
use super::update::Computed;
use super::{FieldValidation, ObjectExt, Operation, Outcome, Patch, Registry};
use crate::http::ApiError;
use crate::kind_properties;

impl Registry {
    /// Updates managedFields after a create, an update or a patch.
    pub(crate) fn manage_fields(&self, op: &Operation, live: Option<&Value>, new: Value) -> Value {
        kind_properties::field_manager(op).update(live, new, &op.field_manager, self.write_time())
    }

    pub(super) fn write_time(&self) -> Timestamp {
        Timestamp::from_unix_seconds(self.now().as_second())
    }

    /// Runs a server-side apply: merges the fields that `op.field_manager` wants into the live object, or creates it.
    pub(crate) async fn apply(&self, op: &Operation, name: &str, patch: &Patch) -> Result<Outcome, ApiError> {
        let (config, force) = (&patch.body, patch.force);
        if !config.is_object() && !config.is_null() {
            return Err(ApiError::bad_request("error decoding YAML: the body is no object"));
        }
        let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if version.is_empty() || kind.is_empty() {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            return Err(ApiError::bad_request(format!(
                "invalid object type: {group}/{version}, Kind={kind}"
            )));
        }
        let manager = kind_properties::field_manager(op);
        let sent_uid = config.uid().to_owned();
        self.change_object(op, name, |live| {
            // For a kind that an update can create, an update of the status can also create the object.
            if live.is_none() && op.subresource.is_some() && !op.resource.behavior.is_created_by_update {
                return Err(ApiError::not_found(&op.resource, name));
            }
            let applied = manager
                .apply(live, config, &op.field_manager, force, self.write_time())
                .map_err(make_apply_error)?;
            let (merged, changed) = match applied {
                Applied::Unchanged => {
                    report_repeated_keys(op, &patch.repeated)?;
                    return Ok(Computed::Unchanged);
                }
                Applied::OwnersChanged(live) => (live, false),
                Applied::Changed(merged) => (merged, true),
            };
            let managed = merged
                .metadata()
                .and_then(|metadata| metadata.get("managedFields"))
                .cloned();
            let mut object = if op.resource.is_custom() {
                let mut object = merged;
                kind_properties::repair_metadata(op, &mut object)?;
                object.drop_empty_metadata();
                object
            } else {
                kind_properties::read(op, merged)
                    .map_err(|error| inconvertible_error(op, config, &error))?
                    .value
            };
            report_repeated_keys(op, &patch.repeated)?;
            if changed {
                kind_properties::set_defaults(&op.resource, &mut object);
            }
            (op.resource.behavior.unify)(&mut object);
            if let Some(managed) = managed {
                object.set_meta("managedFields", managed);
            }
            // All identity fields of the object are checked once it is complete.
            if live.is_none() && !sent_uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {sent_uid}, and no existing object was found"
                );
                return Err(ApiError::conflict(&op.resource, name, &why));
            }
            check_namespace(op, &mut object)?;
            super::update::check_name(&object, name)?;
            super::update::check_version(object.resource_version())?;
            let sent = object.wanted_version();
            if let Some(live) = live
                && !sent.is_empty()
                && sent != live.resource_version()
            {
                return Err(ApiError::modified(&op.resource, name));
            }
            if let Some(live) = live {
                object = op.resource.reset_fields(op.subresource.as_deref(), live, object);
                keep_times_if_otherwise_equal(live, &mut object);
            }
            Ok(Computed::New(object))
        })
        .await
    }
}

/// Reports repeated keys of the body: as an error or a warning, as the client wishes.
fn report_repeated_keys(op: &Operation, faults: &[String]) -> Result<(), ApiError> {
    match op.field_validation {
        FieldValidation::Strict if !faults.is_empty() => Err(ApiError::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
            faults.join("\n  ")
        ))),
        FieldValidation::Warn => {
            faults.iter().for_each(|fault| op.warn(fault));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns the error for a value that fits the schema's types and not the kind's own types: a server error in
/// Kubernetes.
fn inconvertible_error(op: &Operation, config: &Value, error: &ApiError) -> ApiError {
    let resource = &op.resource;
    let kind = format!("{}/{}, Kind={}", resource.group, resource.version, resource.kind);
    let prefix = format!(
        "{} in version {:?} cannot be handled as a {}: ",
        resource.kind, resource.version, resource.kind
    );
    let why = error.message.strip_prefix(&prefix).unwrap_or(&error.message);
    let why = if why.starts_with("illegal base64") {
        format!("error decoding from json: {why}")
    } else {
        match (
            why.strip_prefix("json: cannot unmarshal number "),
            why.rsplit_once(" of type "),
        ) {
            (Some(_), Some((_, wanted))) => format!("cannot convert float64 to {wanted}"),
            _ => why.to_owned(),
        }
    };
    let message = format!(
        "failed to convert new object ({}/{}; {kind}) to proper version: unable to convert unstructured object to {kind}: {why}",
        config.namespace(),
        config.name()
    );
    ApiError::new(500, "", message)
}

pub(super) fn make_apply_error(error: ApplyError) -> ApiError {
    let message = error.to_string();
    let code = error.http_status();
    match error {
        ApplyError::Conflicts { causes, .. } => {
            let mut conflict = ApiError::new(code, "Conflict", message);
            let causes: Vec<Value> = causes
                .into_iter()
                .map(|cause| json!({"reason": Cause::TYPE, "message": cause.message, "field": cause.field}))
                .collect();
            conflict.details.insert("causes".to_owned(), Value::from(causes));
            conflict
        }
        ApplyError::BadRequest(_) => ApiError::bad_request(message),
        ApplyError::InvalidConfig(_) | ApplyError::Internal(_) => ApiError::new(code, "", message),
    }
}
