//! The four kinds of patch.

use go_words::value::type_name;
use serde_json::Value;
use tenure_kinds::schema::json_type_name;
use tenure_kinds::schema::strict::{self, Twice};

use super::decode::{self, check_fields};
use super::{ObjectExt, Operation, Outcome, Registry};
use crate::formats::{self, BodyFormat};
use crate::http::body::MAX_BODY;
use crate::http::{ApiError, FieldError};
use crate::json_patch::FaultReason;
use crate::kind_properties;

/// Kubernetes' limit on the operations of one JSON patch.
const MAX_OPERATIONS: usize = 10_000;

/// The format of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own: lists merge by key.
    Strategic,
    /// Server-side apply.
    Apply,
}

/// A patch and its options.
#[derive(Debug, Clone)]
pub(crate) struct Patch {
    pub(crate) kind: PatchKind,
    pub(crate) body: Value,
    /// Repeated fields of the body, as texts for the client.
    pub(crate) repeated: Vec<String>,
    pub(crate) force: bool,
}

impl Patch {
    /// Reads the body of a patch.
    ///
    /// # Errors
    /// 400 with the fault of the body, in Kubernetes' words for this format.
    pub(crate) fn read(kind: PatchKind, body: &[u8], force: bool) -> Result<Self, ApiError> {
        let undecodable = |why: String| {
            ApiError::bad_request(match kind {
                PatchKind::Strategic => why,
                _ => format!("error decoding patch: {why}"),
            })
        };
        let (mut body, repeated) = match kind {
            PatchKind::Apply => formats::parse(body, BodyFormat::Yaml, Twice::Last)?,
            _ => strict::read_json(body, Twice::Last).map_err(undecodable)?,
        };
        let mismatch = |value: &Value, wanted: &str| {
            let found = json_type_name(value);
            undecodable(format!("json: cannot unmarshal {found} into Go value of type {wanted}"))
        };
        match (kind, &body) {
            (PatchKind::Json, Value::Null) => body = Value::Array(Vec::new()),
            (PatchKind::Json, Value::Array(operations)) => {
                // The name of a Go type, which clients of kube-apiserver see.
                if let Some(odd) = operations.iter().find(|one| !one.is_object() && !one.is_null()) {
                    return Err(mismatch(odd, "handlers.jsonPatchOp"));
                }
                for (operation, key) in operations
                    .iter()
                    .flat_map(|one| ["op", "path", "from"].map(|key| (one, key)))
                {
                    if let Some(odd) = operation
                        .get(key)
                        .filter(|value| !value.is_string() && !value.is_null())
                    {
                        let found = json_type_name(odd);
                        return Err(undecodable(format!(
                            "json: cannot unmarshal {found} into Go struct field jsonPatchOp.{key} of type string"
                        )));
                    }
                }
            }
            (PatchKind::Json, other) => return Err(mismatch(other, "[]handlers.jsonPatchOp")),
            (PatchKind::Merge, Value::Null) => return Err(ApiError::bad_request("Invalid JSON Patch")),
            (PatchKind::Strategic, Value::Null) => body = Value::Object(serde_json::Map::new()),
            (PatchKind::Merge | PatchKind::Strategic, other) if !other.is_object() => {
                return Err(mismatch(other, "map[string]interface {}"));
            }
            _ => {}
        }
        Ok(Self {
            kind,
            body,
            repeated,
            force,
        })
    }
}

impl Registry {
    /// Changes an object by a patch; an apply creates a missing object.
    pub(crate) async fn patch(&self, op: &Operation, name: &str, patch: &Patch) -> Result<Outcome, ApiError> {
        if patch.kind == PatchKind::Apply {
            return self.apply(op, name, patch).await;
        }
        self.change_object(op, name, |live| {
            let live = live.ok_or_else(|| ApiError::not_found(&op.resource, name))?;
            let patched = apply_patch(op, live, patch)?;
            self.accept_patched(op, name, live, patched, patch)
        })
        .await
    }

    /// Checks the patched object and updates managedFields.
    fn accept_patched(
        &self,
        op: &Operation,
        name: &str,
        live: &Value,
        mut new: Value,
        patch: &Patch,
    ) -> Result<Value, ApiError> {
        if !new.is_object() {
            return Err(ApiError::new(422, "Invalid", "the patch leaves no object"));
        }
        let resource = &op.resource;
        let mut versionless = false;
        if let Some(map) = new.as_object_mut().filter(|_| !resource.is_custom()) {
            for (key, own) in [("apiVersion", resource.api_version()), ("kind", resource.kind.clone())] {
                let missing =
                    matches!(map.get(key), None | Some(Value::Null)) || map.get(key) == Some(&Value::from(""));
                if missing {
                    map.insert(key.to_owned(), Value::from(own));
                    versionless |= key == "apiVersion";
                }
            }
        }
        let found = |key: &str| new.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (found("apiVersion"), found("kind"));
        if resource.is_custom() {
            if version.is_empty() {
                check_resource_version(op, name, live, &new)?;
                let why = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
                return Err(ApiError::internal(why));
            }
            if kind.is_empty() {
                let why = "Object 'Kind' is missing in what the patch leaves".to_owned();
                return Err(unpatchable_error(&resource.kind, why));
            }
            let wanted = [
                ("kind", kind, resource.kind.clone()),
                ("apiVersion", version, resource.api_version()),
            ];
            let faults: Vec<FieldError> = wanted
                .iter()
                .filter(|(_, found, wanted)| found != wanted)
                .map(|(field, found, wanted)| FieldError::invalid(field, *found, format!("must be {wanted}")))
                .collect();
            if !faults.is_empty() {
                let group = version.split_once('/').map_or("", |(group, _)| group);
                return Err(ApiError::invalid(group, kind, name, &faults));
            }
        }
        if (version, kind) != (&resource.api_version(), &resource.kind) {
            return Err(unpatchable_error(
                &resource.kind,
                format!("a patch leaves apiVersion and kind as they are, and these are {version:?} and {kind:?}"),
            ));
        }
        let undecodable = |error: ApiError| {
            let prefix = format!(
                "{} in version {:?} cannot be handled as a {}: ",
                resource.kind, resource.version, resource.kind
            );
            unpatchable_error(
                &resource.kind,
                error.message.strip_prefix(&prefix).unwrap_or(&error.message).to_owned(),
            )
        };
        if versionless {
            // Without a version, Kubernetes decodes into its internal types, whose fields have other names, so no
            // field is known.
            let fields = new.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
            let unknown = fields.filter(|name| !matches!(*name, "apiVersion" | "kind"));
            let faults = unknown.map(|name| format!("unknown field {name:?}")).collect();
            decode::report_unknown_fields(op, &new, faults).map_err(undecodable)?;
            super::update::check_name(&Value::Null, name)?;
        }
        check_fields(op, &mut new, patch.repeated.clone()).map_err(undecodable)?;
        super::create::check_namespace(op, &mut new)?;
        super::update::check_name(&new, name)?;
        resource.normalize(&mut new);
        kind_properties::set_defaults(resource, &mut new);
        check_resource_version(op, name, live, &new)?;
        Ok(self.update_managed_fields(op, live, new))
    }
}

/// Checks the resourceVersion of the patched object: it must be the live one, or missing.
fn check_resource_version(op: &Operation, name: &str, live: &Value, new: &Value) -> Result<(), ApiError> {
    super::update::check_version(new.resource_version())?;
    match new.wanted_version() {
        "" => super::update::require_version(op, name),
        same if same == live.resource_version() => Ok(()),
        _ => Err(ApiError::modified(&op.resource, name)),
    }
}

/// Returns the error for a patch whose result is not an object of the kind. kube-apiserver repeats the whole object
/// here, with secrets; this server reports only the fault.
pub(super) fn unpatchable_error(kind: &str, why: String) -> ApiError {
    let fault = FieldError::invalid("patch", kind, why);
    let mut refused = ApiError::invalid("", "", "", std::slice::from_ref(&fault));
    refused.details.remove("name");
    refused
}

/// Returns the patched document, not yet checked.
pub(crate) fn apply_patch(op: &Operation, live: &Value, patch: &Patch) -> Result<Value, ApiError> {
    let mut document = live.clone();
    match patch.kind {
        PatchKind::Json => document = json_patch(document, &patch.body)?,
        PatchKind::Merge => merge(&mut document, &patch.body),
        PatchKind::Strategic => {
            for key in ["apiVersion", "kind"] {
                if let Some(odd) = patch
                    .body
                    .get(key)
                    .filter(|value| !value.is_string() && !value.is_null())
                {
                    let found = type_name(odd);
                    return Err(unpatchable_error(
                        &op.resource.kind,
                        format!("cannot convert {found} to string"),
                    ));
                }
            }
            document = kind_properties::strategic_merge(&op.resource, &document, &patch.body)?;
            // The patched object has a fixed type, so the patch can't change the type.
            for key in ["apiVersion", "kind"] {
                if let (Some(map), Some(own)) = (document.as_object_mut(), live.get(key)) {
                    map.insert(key.to_owned(), own.clone());
                }
            }
        }
        PatchKind::Apply => {}
    }
    Ok(document)
}

/// Applies a JSON patch, within Kubernetes' limits.
fn json_patch(document: Value, body: &Value) -> Result<Value, ApiError> {
    let operations = body.as_array().map(Vec::as_slice).unwrap_or_default();
    if operations.len() > MAX_OPERATIONS {
        return Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    crate::json_patch::apply(document, operations).map_err(|fault| match fault.why {
        FaultReason::TooLarge => ApiError::too_large(MAX_BODY),
        // The error gives no reason: kube-apiserver gives none either, also for copies that add up to too much, and
        // the operation may hold a secret.
        _ => ApiError::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        ),
    })
}

/// Applies RFC 7386, and more: a value that replaces another also loses the nulls of the objects in its lists.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        let replaces_object = target.is_object();
        *target = patch.clone();
        if !replaces_object {
            prune_nulls(target);
        }
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, value) in changes {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}

fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_patches() {
        let mut target = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(
            &mut target,
            &json!({"a": {"b": null, "e": {"f": null, "g": 1}}, "d": "x"}),
        );
        assert_eq!(target, json!({"a": {"c": 2, "e": {"g": 1}}, "d": "x"}));
        merge(
            &mut target,
            &json!({"a": [{"x": null}], "d": [null, {"x": null, "y": [{"z": null}]}]}),
        );
        assert_eq!(target, json!({"a": [{"x": null}], "d": [null, {"y": [{}]}]}));
    }
}
