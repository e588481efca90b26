//! Types from OpenAPI schemas, inlined or by reference.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    DEDUCED, Field, ListRelation, ListType, MapType, Scalar, Schema, SchemaError, Type, TypeRef, UNTYPED_ATOMIC, Zero,
    untyped_types,
};

/// Definitions whose schema does not describe their JSON form.
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

pub(super) fn from_openapi(definitions: &Map<String, Value>) -> Result<Schema, SchemaError> {
    let mut builder = Builder::new(true);
    for name in definitions.keys() {
        let type_ref = builder.reserve();
        builder.names.insert(name.clone(), type_ref);
    }
    for (name, definition) in definitions {
        let Some(&type_ref) = builder.names.get(name) else {
            continue;
        };
        let at = At {
            parent: None,
            step: name,
        };
        let schema = definition.as_object().ok_or_else(|| at.not_an_object())?;
        let built = match name.as_str() {
            QUANTITY => Type {
                scalar: Some(Scalar::Any),
                ..Type::default()
            },
            RAW_EXTENSION => builder.get(UNTYPED_ATOMIC),
            _ => match find_reference(schema) {
                // A definition that is nothing but another name of one.
                Some((target, _)) => {
                    let target = builder.type_of_name(&at, target)?;
                    builder.copies.push((type_ref, target, None));
                    continue;
                }
                None => builder.build(&at, schema, false)?,
            },
        };
        builder.set(type_ref, built);
        for kind in schema
            .get("x-kubernetes-group-version-kind")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let text = |field| kind.get(field).and_then(Value::as_str).map(str::to_owned);
            if let (Some(group), Some(version), Some(kind)) = (text("group"), text("version"), text("kind")) {
                builder.kinds.insert((group, version, kind), type_ref);
            }
        }
    }
    Ok(builder.finish())
}

/// The builder's position in a schema, for messages.
pub(super) struct At<'a> {
    pub(super) parent: Option<&'a At<'a>>,
    pub(super) step: &'a str,
}

impl At<'_> {
    fn text(&self) -> String {
        match self.parent {
            None => self.step.to_owned(),
            Some(parent) => format!("{}.{}", parent.text(), self.step),
        }
    }

    pub(super) fn not_an_object(&self) -> SchemaError {
        SchemaError::NotAnObject { at: self.text() }
    }

    fn bad_value(&self, field: &'static str, value: &Value) -> SchemaError {
        SchemaError::BadValue {
            at: self.text(),
            field,
            value: value.to_string(),
        }
    }

    fn missing_field(&self, field: &'static str) -> SchemaError {
        SchemaError::Missing { at: self.text(), field }
    }
}

/// The types of a schema that have been built so far.
pub(super) struct Builder {
    types: Vec<Type>,
    kinds: HashMap<(String, String, String), TypeRef>,
    pub(super) names: HashMap<String, TypeRef>,
    /// Types that are copies of others, made after all others: target, source, atomic or not.
    copies: Vec<(TypeRef, TypeRef, Option<bool>)>,
    /// Whether fields have Go's zero values.
    structs: bool,
}

impl Builder {
    pub(super) fn new(structs: bool) -> Self {
        Self {
            types: untyped_types(),
            kinds: HashMap::new(),
            names: HashMap::new(),
            copies: Vec::new(),
            structs,
        }
    }

    pub(super) fn reserve(&mut self) -> TypeRef {
        let type_ref = TypeRef(u32::try_from(self.types.len()).unwrap_or(u32::MAX));
        self.types.push(Type::default());
        type_ref
    }

    pub(super) fn set(&mut self, type_ref: TypeRef, built: Type) {
        if let Some(place) = self.types.get_mut(type_ref.0 as usize) {
            *place = built;
        }
    }

    pub(super) fn add(&mut self, built: Type) -> TypeRef {
        let type_ref = self.reserve();
        self.set(type_ref, built);
        type_ref
    }

    fn get(&self, type_ref: TypeRef) -> Type {
        self.types.get(type_ref.0 as usize).cloned().unwrap_or_default()
    }

    fn type_of_name(&self, at: &At<'_>, name: &str) -> Result<TypeRef, SchemaError> {
        let unknown = || SchemaError::UnknownReference {
            at: at.text(),
            name: name.to_owned(),
        };
        self.names.get(name).copied().ok_or_else(unknown)
    }

    pub(super) fn finish(mut self) -> Schema {
        // A copy's source may be a copy itself; after as many rounds as there are copies all is settled.
        for _ in 0..self.copies.len().min(8) {
            for (target, source, atomic) in self.copies.clone() {
                let mut copy = self.get(source);
                if let Some(atomic) = atomic {
                    if let Some(map) = &mut copy.map {
                        map.atomic = atomic;
                    } else if let (Some(list), true) = (&mut copy.list, atomic) {
                        list.relation = ListRelation::Atomic;
                    }
                }
                self.set(target, copy);
            }
        }
        // A default `{}` means a struct only if the referenced type is an object, because a Time also has `default: {}`. A required scalar
        // without a value isn't null.
        let is_struct = |built: &Type| built.map.is_some() && built.scalar.is_none() && built.list.is_none();
        let facts: Vec<(bool, bool)> = self
            .types
            .iter()
            .map(|built| (is_struct(built), built.scalar.is_some()))
            .collect();
        for map in self.types.iter_mut().filter_map(|built| built.map.as_mut()) {
            for field in &mut map.fields {
                let (is_struct, is_scalar) = facts.get(field.type_ref.0 as usize).copied().unwrap_or_default();
                field.zero = field.zero.take().filter(|zero| match zero {
                    Zero::Struct(_) => is_struct,
                    Zero::Null => !is_scalar,
                    Zero::Scalar(value) => is_scalar || value.is_null(),
                });
            }
            map.holds_structs = map
                .fields
                .iter()
                .any(|field| matches!(field.zero, Some(Zero::Struct(_))));
        }
        Schema {
            types: self.types,
            kinds: self.kinds,
            names: self.names,
        }
    }

    /// Returns the type of a schema used inside another.
    pub(super) fn build_reference(
        &mut self,
        at: &At<'_>,
        schema: &Value,
        preserve: bool,
    ) -> Result<TypeRef, SchemaError> {
        let schema = schema.as_object().ok_or_else(|| at.not_an_object())?;
        let Some((name, holder)) = find_reference(schema) else {
            let built = self.build(at, schema, preserve)?;
            return Ok(self.add(built));
        };
        let named = self.type_of_name(at, name)?;
        Ok(match map_atomicity(at, holder)? {
            None => named,
            Some(atomic) => {
                let copy = self.reserve();
                self.copies.push((copy, named, Some(atomic)));
                copy
            }
        })
    }

    /// Builds a type. `preserve` is true if a surrounding schema keeps unknown fields; the inner types then keep them too.
    pub(super) fn build(
        &mut self,
        at: &At<'_>,
        schema: &Map<String, Value>,
        preserve: bool,
    ) -> Result<Type, SchemaError> {
        let preserve = preserve || schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        let format = schema.get("format").and_then(Value::as_str).unwrap_or("");
        let type_value = match schema.get("type") {
            Some(Value::Array(types)) => types.first(),
            other => other,
        };
        let scalar = |scalar| {
            Ok(Type {
                scalar: Some(scalar),
                ..Type::default()
            })
        };
        match type_value.map_or(Some(""), Value::as_str) {
            Some("") => Ok(Type {
                scalar: Some(Scalar::Any),
                list: Some(self.list(at, schema, preserve)?),
                map: Some(self.build_map(at, schema, preserve)?),
            }),
            Some("object") => Ok(Type {
                map: Some(self.build_map(at, schema, preserve)?),
                ..Type::default()
            }),
            Some("array") => {
                if !schema.contains_key("items") {
                    return Err(at.missing_field("items"));
                }
                Ok(Type {
                    list: Some(self.list(at, schema, preserve)?),
                    ..Type::default()
                })
            }
            Some("integer" | "number") => scalar(Scalar::Numeric),
            Some("boolean") => scalar(Scalar::Boolean),
            // Other formats (date-time, int-or-string, …) may be written as something else than text.
            Some("string") if matches!(format, "" | "byte") => scalar(Scalar::String),
            Some("string") => scalar(Scalar::Any),
            _ => Err(at.bad_value("type", type_value.unwrap_or(&Value::Null))),
        }
    }

    fn build_map(&mut self, at: &At<'_>, schema: &Map<String, Value>, preserve: bool) -> Result<MapType, SchemaError> {
        let no_properties = Map::new();
        let properties = match schema.get("properties") {
            None | Some(Value::Null) => &no_properties,
            Some(properties) => properties
                .as_object()
                .ok_or_else(|| at.bad_value("properties", properties))?,
        };
        let required = schema.get("required").and_then(Value::as_array);
        let mut fields = Vec::with_capacity(properties.len());
        for (name, property) in properties {
            let type_ref = self.build_reference(
                &At {
                    parent: Some(at),
                    step: name,
                },
                property,
                preserve,
            )?;
            let default = property.get("default").filter(|default| !default.is_null()).cloned();
            let is_required = required.is_some_and(|required| required.iter().any(|required| required == name));
            let zero = if self.structs {
                zero_value(at, name, default.as_ref(), is_required)
            } else {
                None
            };
            fields.push(Field {
                name: Arc::from(name.as_str()),
                type_ref,
                default,
                zero,
            });
        }
        let element = match schema.get("additionalProperties") {
            None | Some(Value::Null) => (preserve || properties.is_empty()).then_some(DEDUCED),
            Some(Value::Bool(allowed)) => allowed.then_some(DEDUCED),
            Some(element) => Some(self.build_reference(
                &At {
                    parent: Some(at),
                    step: "additionalProperties",
                },
                element,
                preserve,
            )?),
        };
        Ok(MapType {
            fields,
            element,
            atomic: map_atomicity(at, schema)? == Some(true),
            is_struct: self.structs && !properties.is_empty(),
            holds_structs: false,
        })
    }

    fn list(&mut self, at: &At<'_>, schema: &Map<String, Value>, preserve: bool) -> Result<ListType, SchemaError> {
        let element = match schema.get("items") {
            None => UNTYPED_ATOMIC,
            Some(items) => self.build_reference(
                &At {
                    parent: Some(at),
                    step: "items",
                },
                items,
                preserve,
            )?,
        };
        Ok(ListType {
            element,
            relation: list_relation(at, schema)?,
        })
    }
}

/// Fields that a marker makes required. Their JSON omits them when they are empty, as with optional fields.
const REQUIRED_BUT_OMITTED: &[(&str, &str)] = &[
    (
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec",
        "validationActions",
    ),
    ("io.k8s.api.networking.v1.IPAddressSpec", "parentRef"),
    ("io.k8s.api.resource.v1.CounterSet", "counters"),
    ("io.k8s.api.resource.v1.DeviceCounterConsumption", "counters"),
];

/// Numbers that are zero by default and left out then.
const ZERO_BUT_OMITTED: &[(&str, &str)] = &[
    ("io.k8s.api.autoscaling.v1.ScaleSpec", "replicas"),
    ("io.k8s.api.core.v1.ReplicationControllerSpec", "minReadySeconds"),
];

/// Optional fields that Go prints as null if they are unset.
const OPTIONAL_BUT_PRINTED: &[(&str, &str)] = &[
    ("io.k8s.api.authentication.v1.TokenRequestStatus", "expirationTimestamp"),
    (
        "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus",
        "currentMetrics",
    ),
    ("io.k8s.api.core.v1.AzureFilePersistentVolumeSource", "secretNamespace"),
    ("io.k8s.api.core.v1.ContainerImage", "names"),
    ("io.k8s.api.core.v1.Event", "eventTime"),
    ("io.k8s.api.core.v1.Event", "firstTimestamp"),
    ("io.k8s.api.core.v1.Event", "lastTimestamp"),
    ("io.k8s.api.core.v1.ProjectedVolumeSource", "sources"),
    ("io.k8s.api.core.v1.TypedLocalObjectReference", "apiGroup"),
    ("io.k8s.api.core.v1.TypedObjectReference", "apiGroup"),
    ("io.k8s.api.discovery.v1.EndpointSlice", "endpoints"),
    ("io.k8s.api.discovery.v1.EndpointSlice", "ports"),
    ("io.k8s.api.events.v1.Event", "deprecatedFirstTimestamp"),
    ("io.k8s.api.events.v1.Event", "deprecatedLastTimestamp"),
    ("io.k8s.api.events.v1.Event", "eventTime"),
    ("io.k8s.api.networking.v1.IngressClassParametersReference", "scope"),
    ("io.k8s.api.rbac.v1.ClusterRole", "rules"),
    ("io.k8s.api.rbac.v1.Role", "rules"),
    ("io.k8s.api.storage.v1.CSINodeDriver", "topologyKeys"),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
        "conditions",
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
        "storedVersions",
    ),
];

/// Returns the value of an unset field in a Go struct, as the schema describes it. A field held by value has its zero value as default. Of
/// the other fields, those without `omitempty` are required.
fn zero_value(at: &At<'_>, name: &str, default: Option<&Value>, is_required: bool) -> Option<Zero> {
    match default {
        Some(default @ Value::Object(fields)) if fields.is_empty() => Some(Zero::Struct(default.clone())),
        // A pointer may have an explicit default of false.
        Some(default) if *default == 0 && ZERO_BUT_OMITTED.contains(&(at.step, name)) => None,
        Some(default) if default == "" || default == 0 || (default == false && is_required) => {
            Some(Zero::Scalar(default.clone()))
        }
        None if is_required && !REQUIRED_BUT_OMITTED.contains(&(at.step, name)) => Some(Zero::Null),
        None if OPTIONAL_BUT_PRINTED.contains(&(at.step, name)) => Some(Zero::Scalar(Value::Null)),
        _ => None,
    }
}

/// Returns the definition that a schema refers to, directly or by a single `allOf`.
fn find_reference(schema: &Map<String, Value>) -> Option<(&str, &Map<String, Value>)> {
    let direct = schema.get("$ref");
    let wrapped = || match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) => only.get("$ref"),
        _ => None,
    };
    let target = direct.or_else(wrapped)?.as_str()?;
    Some((target.rsplit('/').next().unwrap_or(target), schema))
}

fn map_atomicity(at: &At<'_>, schema: &Map<String, Value>) -> Result<Option<bool>, SchemaError> {
    const FIELD: &str = "x-kubernetes-map-type";
    match schema.get(FIELD) {
        None => Ok(None),
        Some(Value::String(kind)) if kind == "atomic" => Ok(Some(true)),
        Some(Value::String(kind)) if kind == "granular" => Ok(Some(false)),
        Some(other) => Err(at.bad_value(FIELD, other)),
    }
}

fn list_relation(at: &At<'_>, schema: &Map<String, Value>) -> Result<ListRelation, SchemaError> {
    const TYPE: &str = "x-kubernetes-list-type";
    const KEYS: &str = "x-kubernetes-list-map-keys";
    const STRATEGY: &str = "x-kubernetes-patch-strategy";
    match schema.get(TYPE).map(Value::as_str) {
        Some(Some("atomic")) => Ok(ListRelation::Atomic),
        Some(Some("set")) => Ok(ListRelation::Set),
        Some(Some("map")) => {
            let keys = schema.get(KEYS).ok_or_else(|| at.missing_field(KEYS))?;
            let keys = keys.as_array().ok_or_else(|| at.bad_value(KEYS, keys))?;
            let keys: Vec<Arc<str>> = keys.iter().filter_map(Value::as_str).map(Arc::from).collect();
            if keys.is_empty() {
                Err(at.missing_field(KEYS))
            } else {
                Ok(ListRelation::Map { keys })
            }
        }
        Some(_) => Err(at.bad_value(TYPE, schema.get(TYPE).unwrap_or(&Value::Null))),
        // For kinds that are older than list types, the strategic merge patch strategy decides.
        None => match schema.get(STRATEGY).map(Value::as_str) {
            Some(Some("merge" | "merge,retainKeys")) => Ok(
                match schema.get("x-kubernetes-patch-merge-key").and_then(Value::as_str) {
                    Some(key) => ListRelation::Map {
                        keys: vec![Arc::from(key)],
                    },
                    None => ListRelation::Set,
                },
            ),
            _ => Ok(ListRelation::Atomic),
        },
    }
}
