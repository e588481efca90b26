//! The scale subresource: one number of an object, seen as an object of its own.

use serde_json::{Value, json};
use structured_merge::{FieldPath, Managed, scale};
use tenure_kinds::schema::found;

use super::apply::refused;
use super::kinds;
use super::patch::unpatchable;
use super::update::check_name;
use super::{ObjectExt, Operation, Patch, PatchKind, Registry, apply_patch};
use crate::catalog::{Origin, ScalePaths};
use crate::http::{ApiError, FieldError};

fn paths(op: &Operation) -> ScalePaths {
    if let Origin::Custom(custom) = &op.resource.origin
        && let Some(scale) = &custom.scale
    {
        return scale.clone();
    }
    ScalePaths {
        spec: "/spec/replicas".to_owned(),
        status: "/status/replicas".to_owned(),
        selector: None,
    }
}

impl Registry {
    /// The Scale of an object.
    pub(crate) fn scale_of(&self, op: &Operation, object: &Value) -> Result<Value, ApiError> {
        let paths = paths(op);
        let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or_default();
        let mut spec = json!({});
        if let Some(map) = spec.as_object_mut()
            && let Some(replicas) = object
                .pointer(&paths.spec)
                .and_then(Value::as_i64)
                .filter(|replicas| *replicas != 0)
        {
            map.insert("replicas".to_owned(), json!(replicas));
        }
        let mut status = json!({"replicas": number(&paths.status)});
        let selector = match &paths.selector {
            Some(path) => object.pointer(path).and_then(Value::as_str).map(str::to_owned),
            None if op.resource.is_custom() => None,
            None => object.pointer("/spec/selector").map(selector_text),
        };
        if let (Some(map), Some(selector)) = (status.as_object_mut(), selector.filter(|selector| !selector.is_empty()))
        {
            map.insert("selector".to_owned(), Value::from(selector));
        }
        let mut metadata = json!({});
        for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let (Some(map), Some(value)) = (
                metadata.as_object_mut(),
                object.metadata().and_then(|metadata| metadata.get(key)),
            ) {
                map.insert(key.to_owned(), value.clone());
            }
        }
        Ok(
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}),
        )
    }

    /// The Scale of an object, for who asks for it.
    ///
    /// # Errors
    /// A custom resource that has no number has no Scale.
    pub(crate) fn shown_scale(&self, op: &Operation, object: &Value) -> Result<Value, ApiError> {
        let path = paths(op).spec;
        if op.resource.is_custom() && object.pointer(&path).is_none_or(Value::is_null) {
            let path = path.replace('/', ".");
            return Err(ApiError::internal(format!(
                "the spec replicas field {path:?} does not exist"
            )));
        }
        self.scale_of(op, object)
    }

    /// Writes the number of a Scale into the object.
    pub(crate) fn set_replicas(&self, op: &Operation, object: &mut Value, replicas: Value) {
        set(object, &paths(op).spec, replicas);
    }

    /// Replaces the number.
    pub(crate) async fn update_scale(&self, op: &Operation, name: &str, scale: Value) -> Result<Value, ApiError> {
        let manager = kinds::scale_manager();
        self.change_scale(op, name, |live| {
            Ok(manager.update(Some(live), without_zero(scale.clone()), &op.field_manager, self.stamp()))
        })
        .await
    }

    /// Changes the number by a patch of the Scale, or by applying one.
    pub(crate) async fn patch_scale(&self, op: &Operation, name: &str, patch: &Patch) -> Result<Value, ApiError> {
        let manager = kinds::scale_manager();
        if patch.kind == PatchKind::Apply {
            return self
                .change_scale(op, name, |live| {
                    let applied = manager.apply(Some(live), &patch.body, &op.field_manager, patch.force, self.stamp());
                    Ok(applied.map_err(refused)?.into_object(Some(live)))
                })
                .await;
        }
        let mut patch = patch.clone();
        if patch.kind == PatchKind::Strategic {
            // A Scale has no lists: the two ways of merging are the same.
            patch.kind = PatchKind::Merge;
        }
        self.change_scale(op, name, |live| {
            let patched = apply_patch(op, live, &patch)?;
            Ok(manager.update(Some(live), without_zero(patched), &op.field_manager, self.stamp()))
        })
        .await
    }

    /// Writes the number of a Scale into the object, and its owners among the object's.
    async fn change_scale(
        &self,
        op: &Operation,
        name: &str,
        wanted: impl Fn(&Value) -> Result<Value, ApiError>,
    ) -> Result<Value, ApiError> {
        let paths = paths(op);
        let replicas_paths = self.replicas_paths(op);
        let outcome = self
            .change(op, name, |live| {
                let live = live.ok_or_else(|| ApiError::not_found(&op.resource, name))?;
                let owners = Managed::of_object(live).unwrap_or_default();
                let mut seen = self.scale_of(op, live)?;
                seen.set_meta("managedFields", scale::to_scale(&owners, &replicas_paths).to_value());
                let scale = wanted(&seen)?;
                check_name(&scale, name)?;
                let version = scale.wanted_version();
                if !version.is_empty() && version != live.resource_version() {
                    return Err(ApiError::modified(&op.resource, name));
                }
                if scale.resource_version() == "0" {
                    super::update::needs_version(op, name)?;
                }
                let replicas = scale.pointer("/spec/replicas").filter(|replicas| !replicas.is_null());
                let replicas = replicas.cloned().unwrap_or_else(|| json!(0));
                let Some(number) = replicas.as_i64().filter(|number| i32::try_from(*number).is_ok()) else {
                    let found = found(&replicas);
                    let shown = if replicas.is_number() {
                        format!("{found} {replicas}")
                    } else {
                        found.to_owned()
                    };
                    let why = format!(
                        "json: cannot unmarshal {shown} into Go struct field ScaleSpec.spec.replicas of type int32"
                    );
                    return Err(unpatchable("Scale", why));
                };
                // A custom resource's own validation has a word for it.
                if number < 0 && !op.resource.is_custom() {
                    let fault = FieldError::invalid("spec.replicas", number, "must be greater than or equal to 0");
                    return Err(ApiError::invalid("autoscaling", "Scale", name, &[fault]));
                }
                let mut new = live.clone();
                set(&mut new, &paths.spec, replicas);
                let scaled = Managed::of_object(&scale).unwrap_or_default();
                let owners = scale::to_parent(&owners, &scaled, &replicas_paths, &op.resource.api_version());
                new.set_meta("managedFields", owners);
                Ok(new)
            })
            .await?;
        self.scale_of(op, &self.answered(op, outcome.answer).await?)
    }

    /// Where each version of the kind keeps the number, for the owners of fields.
    fn replicas_paths(&self, op: &Operation) -> Vec<(String, Option<FieldPath>)> {
        let catalog = self.catalog();
        let versions = catalog
            .iter()
            .filter(|resource| resource.stored_as == op.resource.stored_as);
        versions
            .map(|resource| {
                let version = Operation {
                    resource: resource.clone(),
                    ..op.clone()
                };
                let path = resource.subresource("scale").map(|_| {
                    let pointer = paths(&version).spec;
                    let names: Vec<&str> = pointer.split('/').filter(|name| !name.is_empty()).collect();
                    FieldPath::of_fields(&names)
                });
                (resource.api_version(), path)
            })
            .collect()
    }
}

/// A Scale of nothing doesn't say so, and nobody owns what it doesn't say.
fn without_zero(mut scale: Value) -> Value {
    if let Some(spec) = scale.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|field, value| field != "replicas" || *value != json!(0));
    }
    scale
}

/// Sets a value at a pointer, making the objects on the way.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut current = object;
    let parts: Vec<&str> = pointer.split('/').filter(|part| !part.is_empty()).collect();
    let Some((last, parents)) = parts.split_last() else {
        return;
    };
    for part in parents {
        if !current.is_object() {
            *current = json!({});
        }
        let Some(map) = current.as_object_mut() else { return };
        current = map.entry(*part).or_insert_with(|| json!({}));
    }
    if !current.is_object() {
        *current = json!({});
    }
    if let Some(map) = current.as_object_mut() {
        map.insert((*last).to_owned(), value);
    }
}

/// A selector in the form that label selectors have in URLs.
pub(super) fn selector_text(selector: &Value) -> String {
    let labels = match selector.get("matchLabels") {
        Some(labels) => Some(labels),
        None if selector.get("matchExpressions").is_none() => Some(selector),
        None => None,
    };
    let mut terms: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    for expression in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
        let values: Vec<&str> = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        match expression.get("operator").and_then(Value::as_str) {
            Some("In") => terms.push(format!("{key} in ({})", values.join(","))),
            Some("NotIn") => terms.push(format!("{key} notin ({})", values.join(","))),
            Some("Exists") => terms.push(key.to_owned()),
            Some("DoesNotExist") => terms.push(format!("!{key}")),
            _ => {}
        }
    }
    terms.join(",")
}
