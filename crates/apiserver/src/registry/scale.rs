//! The scale subresource: the replica count of an object, shown as an object of its own.

use serde_json::{Value, json};
use structured_merge::{FieldPath, Managed, scale};
use tenure_kinds::schema::json_type_name;

use super::apply::make_apply_error;
use super::patch::unpatchable_error;
use super::update::check_name;
use super::{ObjectExt, Operation, Patch, PatchKind, Registry, apply_patch};
use crate::http::{ApiError, FieldError};
use crate::kind_properties;

impl Registry {
    /// Returns the Scale of an object for a client.
    ///
    /// # Errors
    /// A custom resource without a replica count has no Scale.
    pub(crate) fn shown_scale(&self, op: &Operation, object: &Value) -> Result<Value, ApiError> {
        let path = op.resource.scale_paths().spec;
        if op.resource.is_custom() && object.pointer(&path).is_none_or(Value::is_null) {
            let path = path.replace('/', ".");
            return Err(ApiError::internal(format!(
                "the spec replicas field {path:?} does not exist"
            )));
        }
        Ok(op.resource.scale_of(object))
    }

    /// Replaces the replica count.
    pub(crate) async fn update_scale(&self, op: &Operation, name: &str, scale: Value) -> Result<Value, ApiError> {
        let manager = kind_properties::scale_manager();
        self.change_scale(op, name, |live| {
            Ok(manager.update(
                Some(live),
                without_zero(scale.clone()),
                &op.field_manager,
                self.write_time(),
            ))
        })
        .await
    }

    /// Changes the replica count by a patch or an apply of the Scale.
    pub(crate) async fn patch_scale(&self, op: &Operation, name: &str, patch: &Patch) -> Result<Value, ApiError> {
        let manager = kind_properties::scale_manager();
        if patch.kind == PatchKind::Apply {
            return self
                .change_scale(op, name, |live| {
                    let applied = manager.apply(
                        Some(live),
                        &patch.body,
                        &op.field_manager,
                        patch.force,
                        self.write_time(),
                    );
                    Ok(applied.map_err(make_apply_error)?.into_object(Some(live)))
                })
                .await;
        }
        let mut patch = patch.clone();
        if patch.kind == PatchKind::Strategic {
            // A Scale has no lists, so both ways of merging are the same.
            patch.kind = PatchKind::Merge;
        }
        self.change_scale(op, name, |live| {
            let patched = apply_patch(op, live, &patch)?;
            Ok(manager.update(Some(live), without_zero(patched), &op.field_manager, self.write_time()))
        })
        .await
    }

    /// Writes the replica count of a Scale into the object, and its owners into the object's managedFields.
    async fn change_scale(
        &self,
        op: &Operation,
        name: &str,
        wanted: impl Fn(&Value) -> Result<Value, ApiError>,
    ) -> Result<Value, ApiError> {
        let replicas_paths = self.replicas_paths(op);
        let outcome = self
            .change_object(op, name, |live| {
                let live = live.ok_or_else(|| ApiError::not_found(&op.resource, name))?;
                let owners = Managed::of_object(live).unwrap_or_default();
                let mut seen = op.resource.scale_of(live);
                seen.set_meta("managedFields", scale::to_scale(&owners, &replicas_paths).to_value());
                let scale = wanted(&seen)?;
                check_name(&scale, name)?;
                let version = scale.wanted_version();
                if !version.is_empty() && version != live.resource_version() {
                    return Err(ApiError::modified(&op.resource, name));
                }
                if scale.resource_version() == "0" {
                    super::update::require_version(op, name)?;
                }
                let replicas = scale.pointer("/spec/replicas").filter(|replicas| !replicas.is_null());
                let replicas = replicas.cloned().unwrap_or_else(|| json!(0));
                let Some(number) = replicas.as_i64().filter(|number| i32::try_from(*number).is_ok()) else {
                    let found = json_type_name(&replicas);
                    let shown = if replicas.is_number() {
                        format!("{found} {replicas}")
                    } else {
                        found.to_owned()
                    };
                    let why = format!(
                        "json: cannot unmarshal {shown} into Go struct field ScaleSpec.spec.replicas of type int32"
                    );
                    return Err(unpatchable_error("Scale", why));
                };
                // The validation of a custom resource reports a negative count with its own error.
                if number < 0 && !op.resource.is_custom() {
                    let fault = FieldError::invalid("spec.replicas", number, "must be greater than or equal to 0");
                    return Err(ApiError::invalid("autoscaling", "Scale", name, &[fault]));
                }
                let mut new = live.clone();
                op.resource.set_replicas(&mut new, replicas);
                let scaled = Managed::of_object(&scale).unwrap_or_default();
                let owners = scale::to_parent(&owners, &scaled, &replicas_paths, &op.resource.api_version());
                new.set_meta("managedFields", owners);
                Ok(new)
            })
            .await?;
        Ok(op.resource.scale_of(&self.present_answer(op, outcome.answer).await?))
    }

    /// Returns the path of the replica count in each version of the kind, for field ownership.
    fn replicas_paths(&self, op: &Operation) -> Vec<(String, Option<FieldPath>)> {
        let catalog = self.catalog();
        let versions = catalog
            .iter()
            .filter(|resource| resource.stored_as == op.resource.stored_as);
        versions
            .map(|resource| {
                let path = resource.subresource("scale").map(|_| {
                    let pointer = resource.scale_paths().spec;
                    let names: Vec<&str> = pointer.split('/').filter(|name| !name.is_empty()).collect();
                    FieldPath::of_fields(&names)
                });
                (resource.api_version(), path)
            })
            .collect()
    }
}

/// Removes a replica count of zero from a Scale. The field is omitted then, and so it has no owner.
fn without_zero(mut scale: Value) -> Value {
    if let Some(spec) = scale.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|field, value| field != "replicas" || *value != json!(0));
    }
    scale
}
