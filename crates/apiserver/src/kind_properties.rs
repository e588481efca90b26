//! The properties of a kind for the registry and admission: schemas, tables and field types of built-in and custom
//! kinds through one interface.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;
use serde_json::{Value, json};
use structured_merge::{FieldManager, ResetFields, Schema, Typing};
use tenure_kinds::kind::{BuiltinVersions, KindSchema, Renaming, Types, version_of};
use tenure_kinds::schema::{BuiltinSchemas, Decoded, ObjectSchema};
use tenure_kinds::table::Columns;
use tenure_kinds::{built_in, customresources, strategic};

use crate::catalog::{Origin, Resource};
use crate::conversion::WebhookVersions;
use crate::http::{ApiError, FieldError};
use crate::operation::Operation;

fn find_builtin_schema(resource: &Resource) -> Option<KindSchema> {
    built_in::schema_of(resource.behavior, &resource.api_version(), &resource.kind)
}

/// Returns the schema of a resource's kind.
fn find_schema(resource: &Resource) -> Option<Arc<dyn ObjectSchema>> {
    match &resource.origin {
        Origin::Builtin => find_builtin_schema(resource).map(|schema| Arc::new(schema) as Arc<dyn ObjectSchema>),
        Origin::Custom(custom) => Some(custom.schema.clone()),
    }
}

/// Reads an object by its kind's types: unknown fields are dropped and returned by name.
pub(crate) fn read(op: &Operation, object: Value) -> Result<Decoded, ApiError> {
    let (api_version, kind) = op.resource.taken_by(op.subresource.as_deref());
    let schema = if kind == op.resource.kind {
        find_schema(&op.resource)
    } else {
        let schema = built_in::find_schema(&api_version, &kind);
        schema.map(|schema| Arc::new(schema) as Arc<dyn ObjectSchema>)
    };
    match schema {
        Some(schema) => schema
            .decode(object)
            .map_err(|error| ApiError::bad_request(error.to_string())),
        None => Ok(Decoded {
            value: object,
            unknown_fields: Vec::new(),
        }),
    }
}

/// Returns the fields of an object that a built-in kind doesn't have in this version.
pub(crate) fn unknown_fields(api_version: &str, kind: &str, object: &Value) -> Result<Vec<String>, ApiError> {
    let Some(schema) = built_in::find_schema(api_version, kind) else {
        return Ok(Vec::new());
    };
    match schema.decode(object.clone()) {
        Ok(decoded) => Ok(decoded.unknown_fields),
        Err(error) => Err(ApiError::bad_request(error.to_string())),
    }
}

/// Returns an empty object of the resource's kind.
pub(crate) fn make_empty_object(op: &Operation) -> Result<Value, ApiError> {
    let resource = &op.resource;
    let mut object = json!({"apiVersion": resource.api_version(), "kind": resource.kind});
    if !resource.is_custom() {
        object = read(op, object)?.value;
    }
    Ok(object)
}

/// Reads the metadata of a custom object, or of an object that claims another kind, by the metadata type that all
/// kinds share. Returns the names of unknown fields.
pub(crate) fn read_metadata(op: &Operation, object: &mut Value) -> Result<Vec<String>, ApiError> {
    let Some(map) = object.as_object_mut() else {
        return Ok(Vec::new());
    };
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, version) = (text("kind").to_owned(), text("apiVersion").to_owned());
    let version = version.rsplit('/').next().unwrap_or_default();
    customresources::read_metadata(&kind, version, map).map_err(|error| {
        ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}: {}",
            op.resource.kind, error.problem
        ))
    })
}

/// Reads an object that claims another kind or version than the resource, as far as that kind is known. Returns the
/// names of unknown fields.
pub(crate) fn read_foreign(op: &Operation, object: &mut Value) -> Result<Vec<String>, ApiError> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let schema = match &op.resource.origin {
        Origin::Custom(custom) if text("kind") == op.resource.kind => custom.schemas.get(text("apiVersion")),
        _ => None,
    };
    let Some(schema) = schema else {
        return read_metadata(op, object);
    };
    let decoded = schema
        .decode(std::mem::take(object))
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    *object = decoded.value;
    Ok(decoded.unknown_fields)
}

/// Drops the metadata fields that the type can't hold, from an object made of stored and checked data.
pub(crate) fn repair_metadata(op: &Operation, object: &mut Value) -> Result<(), ApiError> {
    let mut attempt = object.clone();
    if read_metadata(op, &mut attempt).is_err() {
        let holds = |key: &str, value: &Value| {
            let mut alone = json!({"metadata": {key: value}});
            read_metadata(op, &mut alone).is_ok()
        };
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.retain(|key, value| holds(key, value));
        }
        attempt = object.clone();
        read_metadata(op, &mut attempt)?;
    }
    *object = attempt;
    Ok(())
}

/// Fills in the kind's defaults.
pub(crate) fn set_defaults(resource: &Resource, object: &mut Value) {
    if let Some(schema) = find_schema(resource) {
        schema.default(object);
    }
}

/// Fills in the defaults of the version in which a built-in kind is stored.
pub(crate) fn set_stored_defaults(resource: &Resource, object: &mut Value) {
    if let Some(schema) = built_in::schema_of(resource.behavior, &resource.storage_api_version, &resource.kind) {
        schema.default(object);
    }
}

/// Returns an object in the version for validation: the version that has all fields.
fn convert_for_validation<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    match resource.behavior.convert.filter(|_| resource.has_other_versions()) {
        Some(convert) => Cow::Owned(convert(object.clone(), &resource.storage_api_version)),
        None => Cow::Borrowed(object),
    }
}

/// Returns the faults of an object that is about to be created.
pub(crate) fn validate(resource: &Resource, object: &Value) -> Vec<FieldError> {
    find_schema(resource)
        .map(|schema| schema.validate(&convert_for_validation(resource, object)))
        .unwrap_or_default()
}

/// Returns the faults of an object that is about to replace another. A fault that the old object also has becomes a
/// warning.
pub(crate) fn validate_update(op: &Operation, live: &Value, new: &Value) -> Vec<FieldError> {
    let Some(schema) = find_schema(&op.resource) else {
        return Vec::new();
    };
    let subresource = op.subresource.as_deref();
    if let Some(errors) = (op.resource.behavior.validate_part)(new, live, subresource) {
        return errors;
    }
    let (new, live) = (
        convert_for_validation(&op.resource, new),
        convert_for_validation(&op.resource, live),
    );
    let errors = if subresource == Some("status") {
        schema.validate_status_update(&new, &live)
    } else {
        schema.validate_update(&new, &live)
    };
    let (tolerated, refused): (Vec<_>, Vec<_>) = errors.into_iter().partition(|error| error.tolerated);
    tolerated.iter().for_each(|error| op.warn(error.to_string()));
    refused
}

/// Merges a strategic merge patch, whose lists merge by key.
pub(crate) fn strategic_merge(resource: &Resource, live: &Value, patch: &Value) -> Result<Value, ApiError> {
    let schema = find_builtin_schema(resource)
        .ok_or_else(|| ApiError::internal(format!("nothing is known of the kind {}", resource.kind)))?;
    strategic::strategic_merge(live, patch, schema.definition()).map_err(|error| {
        if error.is_of_form() {
            ApiError::bad_request(error.to_string())
        } else {
            ApiError::new(500, "", error.to_string())
        }
    })
}

/// Drops the fields that the schema of the stored version does not have.
pub(crate) fn trim_for_storage(resource: &Resource, object: &mut Value) {
    let Origin::Custom(custom) = &resource.origin else {
        return;
    };
    if let Some(schema) = custom.schemas.get(&resource.storage_api_version) {
        schema.prune(object);
    }
    customresources::plain_numbers(object);
}

/// Fills in the defaults of the version in which a custom resource is stored now.
pub(crate) fn default_stored(resource: &Resource, object: &mut Value) {
    let Origin::Custom(custom) = &resource.origin else {
        return;
    };
    if let Some(schema) = custom.schemas.get(version_of(object)) {
        schema.default(object);
    }
}

/// Drops the fields of a custom resource that its version does not have.
pub(crate) fn prune_custom_resource(resource: &Resource, object: &mut Value) {
    if let Origin::Custom(custom) = &resource.origin {
        custom.schema.prune(object);
    }
}

/// Returns the columns with which objects of a resource become rows.
pub(crate) fn find_columns(resource: &Resource) -> Columns {
    match &resource.origin {
        Origin::Builtin => {
            built_in::columns_of(resource.behavior, &resource.group, &resource.version, &resource.plural)
        }
        Origin::Custom(custom) => custom.columns.clone(),
    }
}

/// The types of built-in kinds by group and version. Each is built at the first write.
static TYPES: LazyLock<RwLock<HashMap<String, Arc<Schema>>>> = LazyLock::new(RwLock::default);

fn find_typing(resource: &Resource) -> Typing {
    match &resource.origin {
        Origin::Custom(custom) => custom.typing.clone(),
        Origin::Builtin => builtin_typing(&resource.api_version(), &resource.kind),
    }
}

fn builtin_typing(api_version: &str, kind: &str) -> Typing {
    let cached = TYPES.read().get(api_version).cloned();
    let schema = match cached {
        Some(schema) => schema,
        None => {
            let definitions = BuiltinSchemas::instance().openapi_definitions(api_version);
            // The data is part of the program. If it is unreadable, field ownership uses deduced types.
            let built = Schema::from_openapi(&definitions).map_or_else(|_| Schema::deduced(), Arc::new);
            TYPES.write().entry(api_version.to_owned()).or_insert(built).clone()
        }
    };
    Typing::of_kind(&schema, api_version, kind).unwrap_or_else(Typing::deduced)
}

/// Returns the versions of a built-in kind with different field layouts, for the owners of its fields.
fn builtin_versions(resource: &Resource) -> Option<BuiltinVersions> {
    let kind = resource.behavior;
    let typed = |version: &&str| ((*version).to_owned(), builtin_typing(version, &resource.kind));
    let types = Types::new(kind.versions.iter().map(typed).collect());
    Some(BuiltinVersions::new(
        types,
        kind.convert.filter(|_| !kind.versions.is_empty())?,
    ))
}

/// Returns the field manager for a Scale.
pub(crate) fn scale_manager() -> FieldManager {
    FieldManager::new(builtin_typing("autoscaling/v1", "Scale"), "autoscaling/v1", "Scale").with_subresource("scale")
}

/// Returns the field manager for an endpoint.
pub(crate) fn field_manager(op: &Operation) -> FieldManager {
    let resource = &op.resource;
    let subresource = op.subresource.as_deref();
    if subresource == Some("token") {
        let (version, kind) = resource.taken_by(subresource);
        return FieldManager::new(builtin_typing(&version, &kind), &version, &kind).with_subresource("token");
    }
    let mut manager = FieldManager::new(find_typing(resource), &resource.api_version(), &resource.kind);
    match &resource.origin {
        Origin::Custom(custom) => {
            let types = custom.types.clone();
            manager = manager.for_custom_resource().with_converter(match resource.webhook() {
                None => Arc::new(Renaming::new(types)),
                Some(_) => Arc::new(WebhookVersions::new(
                    types,
                    resource.api_version(),
                    op.conversions.clone(),
                )),
            });
            if resource.has_status() {
                let reset = ResetFields::of_custom_resource(subresource);
                // The main resource resets fields only in its own version, and the status in all versions, as
                // Kubernetes does.
                let versions = custom.with_status.iter().filter(|_| subresource.is_some());
                manager = versions.fold(manager.with_reset_fields(reset.clone()), |manager, version| {
                    manager.with_reset_fields_of(version, reset.clone())
                });
            }
        }
        Origin::Builtin => {
            let reset = ResetFields::of_builtin(&resource.group, &resource.kind, subresource);
            manager = manager.with_reset_fields(reset.clone());
            if let Some(versions) = builtin_versions(resource) {
                for version in resource.behavior.versions {
                    manager = manager.with_reset_fields_of(version, reset.clone());
                }
                manager = manager.with_converter(Arc::new(versions));
            }
        }
    }
    match subresource {
        None => manager,
        Some(subresource) => manager.with_subresource(subresource),
    }
}

/// Checks whether a built-in kind of this name exists in this version.
pub(crate) fn is_known(api_version: &str, kind: &str) -> bool {
    BuiltinSchemas::instance().definition_name(api_version, kind).is_some()
}
