//! The four kinds of patch.

use serde_json::Value;

use super::decode::check_fields;
use super::{ObjectExt, Operation, Outcome, Registry};
use crate::catalog::Resource;
use crate::http::{ApiError, FieldError};
use crate::{kinds, strategy};

/// Kubernetes' limit on the operations of one JSON patch.
const MAX_OPERATIONS: usize = 10_000;

/// How a patch is to be read.
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
    /// Fields that the body has twice, as texts for the client.
    pub(crate) repeated: Vec<String>,
    pub(crate) force: bool,
}

impl Registry {
    /// Changes an object by a patch; an apply creates it if there is none.
    pub(crate) async fn patch(&self, op: &Operation, name: &str, patch: &Patch) -> Result<Outcome, ApiError> {
        if patch.kind == PatchKind::Apply {
            return self.apply(op, name, patch).await;
        }
        self.change(op, name, |live| {
            let live = live.ok_or_else(|| ApiError::not_found(&op.resource, name))?;
            let patched = apply_patch(op, live, patch)?;
            self.accept_patched(op, name, live, patched, patch)
        })
        .await
    }

    /// Checks what a patch made of the live object, and who owns the changed fields.
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
        if let Some(map) = new.as_object_mut().filter(|_| !resource.is_custom()) {
            for (key, own) in [("apiVersion", resource.api_version()), ("kind", resource.kind.clone())] {
                let missing =
                    matches!(map.get(key), None | Some(Value::Null)) || map.get(key) == Some(&Value::from(""));
                if missing {
                    map.insert(key.to_owned(), Value::from(own));
                }
            }
        }
        let found = |key: &str| new.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (found("apiVersion"), found("kind"));
        if (version, kind) != (&resource.api_version(), &resource.kind) {
            return Err(unpatchable(
                resource,
                format!("a patch leaves apiVersion and kind as they are, and these are {version:?} and {kind:?}"),
            ));
        }
        if new.name().is_empty() {
            return Err(super::update::undeterminable(name));
        }
        if new.name() != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                new.name()
            )));
        }
        super::create::check_namespace(op, &mut new)?;
        check_fields(op, &mut new, patch.repeated.clone()).map_err(|error| {
            let prefix = format!(
                "{} in version {:?} cannot be handled as a {}: ",
                resource.kind, resource.version, resource.kind
            );
            unpatchable(
                resource,
                error.message.strip_prefix(&prefix).unwrap_or(&error.message).to_owned(),
            )
        })?;
        strategy::normalize(resource, &mut new);
        kinds::set_defaults(resource, &mut new);
        super::update::check_version(new.resource_version())?;
        let version = new.wanted_version();
        if version.is_empty() {
            super::update::needs_version(op, name)?;
        }
        if !version.is_empty() && version != live.resource_version() {
            return Err(ApiError::modified(resource, name));
        }
        let new = strategy::reset_fields(op, live, new);
        Ok(self.manage_fields(op, Some(live), new))
    }
}

/// A patch makes something that is no object of the kind. The real server repeats the whole object here, secrets included;
/// this one only says what is wrong with it.
fn unpatchable(resource: &Resource, why: String) -> ApiError {
    let fault = FieldError::invalid("patch", resource.kind.as_str(), why);
    let mut refused = ApiError::invalid("", "", "", std::slice::from_ref(&fault));
    refused.details.remove("name");
    refused
}

/// The patched document, not yet checked.
pub(crate) fn apply_patch(op: &Operation, live: &Value, patch: &Patch) -> Result<Value, ApiError> {
    let mut document = live.clone();
    match patch.kind {
        PatchKind::Json => json_patch_onto(&mut document, &patch.body)?,
        PatchKind::Merge => {
            if !patch.body.is_object() {
                return Err(ApiError::bad_request(
                    "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
                ));
            }
            merge(&mut document, &patch.body);
        }
        PatchKind::Strategic => {
            if !patch.body.is_object() {
                return Err(ApiError::bad_request(
                    "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
                ));
            }
            document = kinds::strategic_merge(&op.resource, &document, &patch.body)?;
        }
        PatchKind::Apply => {}
    }
    Ok(document)
}

fn json_patch_onto(document: &mut Value, body: &Value) -> Result<(), ApiError> {
    let operations = body.as_array().map_or(0, Vec::len);
    if operations > MAX_OPERATIONS {
        return Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {operations}"),
        ));
    }
    if !body.is_array() {
        return Err(ApiError::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ));
    }
    // Why is for the client to find out: the real server says no more, and the operation may hold a secret.
    let refused = || {
        ApiError::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
    };
    for operation in body.as_array().into_iter().flatten() {
        let mut operation = operation.clone();
        if let Some(map) = operation.as_object_mut() {
            let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (op, path) = (text("op"), text("path"));
            if matches!(op.as_str(), "add" | "replace" | "test") {
                // No value is null there.
                map.entry("value").or_insert(Value::Null);
            }
            // And a field that is not there can be replaced.
            let parent = path.rsplit_once('/').and_then(|(parent, _)| document.pointer(parent));
            if op == "replace" && parent.is_some_and(Value::is_object) {
                map.insert("op".to_owned(), Value::from("add"));
            }
        }
        let operation: json_patch::PatchOperation = serde_json::from_value(operation).map_err(|_| refused())?;
        json_patch::patch(document, &[operation]).map_err(|_| refused())?;
    }
    Ok(())
}

/// RFC 7386.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
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
    }
}
