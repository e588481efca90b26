//! The type of a custom resource: the schema of its CustomResourceDefinition, with the metadata of every object.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::build::{At, Builder};
use super::{Field, ListRelation, ListType, MapType, Scalar, SchemaError, Type, TypeRef, Typing};

pub(super) fn from_structural(schema: &Value) -> Result<Typing, SchemaError> {
    let mut builder = Builder::new(false);
    let metadata = object_meta(&mut builder);
    builder.names.insert(OBJECT_META.to_owned(), metadata);
    let at = At {
        parent: None,
        step: "openAPIV3Schema",
    };
    let mut root = with_embedded_metadata(schema);
    let fields = root.as_object_mut().ok_or_else(|| at.not_an_object())?;
    add_type_and_object_meta(fields);
    let built = builder.build(&at, fields, false)?;
    let type_ref = builder.add(built);
    Ok(Typing {
        schema: Arc::new(builder.finish()),
        type_ref,
    })
}

const OBJECT_META: &str = "ObjectMeta";

/// Adds apiVersion, kind and metadata to an embedded resource, even if its schema lacks them.
fn with_embedded_metadata(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let mut fields: Map<String, Value> = fields
                .iter()
                .map(|(name, value)| (name.clone(), convert_keyword(name, value)))
                .collect();
            if fields.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
                add_type_and_object_meta(&mut fields);
            }
            Value::Object(fields)
        }
        other => other.clone(),
    }
}

/// Schemas are found under these keywords only; a default or an enum may look like one.
fn convert_keyword(keyword: &str, value: &Value) -> Value {
    match (keyword, value) {
        ("properties", Value::Object(properties)) => Value::Object(
            properties
                .iter()
                .map(|(name, schema)| (name.clone(), with_embedded_metadata(schema)))
                .collect(),
        ),
        ("items" | "additionalProperties", schema) => with_embedded_metadata(schema),
        (_, other) => other.clone(),
    }
}

fn add_type_and_object_meta(schema: &mut Map<String, Value>) {
    let properties = schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(properties) = properties {
        for name in ["apiVersion", "kind"] {
            properties.insert(name.to_owned(), serde_json::json!({"type": "string"}));
        }
        properties.insert("metadata".to_owned(), serde_json::json!({"$ref": OBJECT_META}));
    }
}

/// `metav1.ObjectMeta`: labels and annotations are merged, finalizers are a set, owner references are
/// keyed by uid, managedFields is atomic.
fn object_meta(builder: &mut Builder) -> TypeRef {
    let scalar = |scalar| Type {
        scalar: Some(scalar),
        ..Type::default()
    };
    let text = builder.add(scalar(Scalar::String));
    let number = builder.add(scalar(Scalar::Numeric));
    let flag = builder.add(scalar(Scalar::Boolean));
    let time = builder.add(scalar(Scalar::Any));
    let map = |map| Type {
        map: Some(map),
        ..Type::default()
    };
    let list = |element, relation| Type {
        list: Some(ListType { element, relation }),
        ..Type::default()
    };
    let strings = builder.add(map(MapType {
        element: Some(text),
        ..MapType::default()
    }));
    let finalizers = builder.add(list(text, ListRelation::Set));
    let mut owner = make_struct(&[
        ("apiVersion", text),
        ("blockOwnerDeletion", flag),
        ("controller", flag),
        ("kind", text),
        ("name", text),
        ("uid", text),
    ]);
    owner.atomic = true;
    // The key of an owner reference without a UID.
    for field in owner.fields.iter_mut().filter(|field| &*field.name == "uid") {
        field.default = Some(Value::from(""));
    }
    let owner = builder.add(map(owner));
    let owners = builder.add(list(
        owner,
        ListRelation::Map {
            keys: vec![Arc::from("uid")],
        },
    ));
    let fields = builder.add(map(MapType {
        element: Some(super::DEDUCED),
        ..MapType::default()
    }));
    let entry = builder.add(map(make_struct(&[
        ("apiVersion", text),
        ("fieldsType", text),
        ("fieldsV1", fields),
        ("manager", text),
        ("operation", text),
        ("subresource", text),
        ("time", time),
    ])));
    let entries = builder.add(list(entry, ListRelation::Atomic));
    builder.add(map(make_struct(&[
        ("annotations", strings),
        ("creationTimestamp", time),
        ("deletionGracePeriodSeconds", number),
        ("deletionTimestamp", time),
        ("finalizers", finalizers),
        ("generateName", text),
        ("generation", number),
        ("labels", strings),
        ("managedFields", entries),
        ("name", text),
        ("namespace", text),
        ("ownerReferences", owners),
        ("resourceVersion", text),
        ("selfLink", text),
        ("uid", text),
    ])))
}

/// Returns a struct with these fields, which must be sorted.
fn make_struct(fields: &[(&str, TypeRef)]) -> MapType {
    let field = |(name, type_ref): &(&str, TypeRef)| Field {
        name: Arc::from(*name),
        type_ref: *type_ref,
        default: None,
        zero: None,
    };
    MapType {
        fields: fields.iter().map(field).collect(),
        ..MapType::default()
    }
}
