//! The Table view, which `kubectl get` asks for.
//!
//! This module has the columns of built-in kinds (recorded from a real server), their cells, and the columns that custom resources declare.
//! All functions are pure: the caller passes `now`, because ages are relative to it. A kind without cells of its own shows only its name
//! and its creation time.

pub(crate) mod cells;
mod custom;
pub(crate) mod duration;
mod jsonpath;

use std::collections::HashMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use custom::CustomColumns;
pub use duration::human_duration;
pub use jsonpath::{JsonPath, JsonPathError};

static COLUMNS: LazyLock<HashMap<String, Vec<Value>>> = LazyLock::new(|| {
    let text = crate::schema::inflate(include_bytes!("../../data/columns.json.gz")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
});

/// The part of each object that a row carries (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata, as a `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Reads the query parameter; empty is the default.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// The columns of one resource, which convert objects into rows.
#[derive(Clone, Debug)]
pub enum Columns {
    /// A built-in resource.
    BuiltIn(BuiltInColumns),
    /// A custom resource.
    Custom(CustomColumns),
}

/// The columns of a built-in resource.
#[derive(Clone, Debug)]
pub struct BuiltInColumns {
    definitions: Vec<Value>,
    cells: fn(&Value, Timestamp) -> Vec<Value>,
    condition: fn(&Value) -> Option<Value>,
}

impl BuiltInColumns {
    /// Creates the recorded columns of a resource in one version, with the functions for the cells and the condition of a row.
    pub fn new(
        (group, version, plural): (&str, &str, &str),
        cells: fn(&Value, Timestamp) -> Vec<Value>,
        condition: fn(&Value) -> Option<Value>,
    ) -> Self {
        let known = COLUMNS.get(&format!("{group}/{version}/{plural}")).cloned();
        Self {
            definitions: known.unwrap_or_else(default_definitions),
            cells,
            condition,
        }
    }
}

/// Returns the name and the creation time, for kinds without cells of their own.
pub fn plain_cells(object: &Value, _now: Timestamp) -> Vec<Value> {
    let text = |pointer: &str| Value::from(cells::get_text(object, pointer));
    vec![text("/metadata/name"), text("/metadata/creationTimestamp")]
}

/// Returns the name and the age.
pub(crate) fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cells::get_text(object, "/metadata/name").into(),
        cells::format_age(object, now),
    ]
}

fn default_definitions() -> Vec<Value> {
    let name = json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0});
    vec![
        name,
        json!({"name": "Created At", "type": "date", "format": "", "description": "", "priority": 0}),
    ]
}

impl Columns {
    /// Returns the `columnDefinitions`.
    pub fn definitions(&self) -> Vec<Value> {
        match self {
            Self::BuiltIn(columns) => columns.definitions.clone(),
            Self::Custom(custom) => custom.definitions(),
        }
    }

    /// Returns the cells of an object.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match self {
            Self::BuiltIn(columns) => (columns.cells)(object, now),
            Self::Custom(custom) => custom.cells(object, now),
        }
    }

    /// Returns a row.
    pub fn row(&self, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
        let mut row = Map::new();
        row.insert("cells".into(), Value::Array(self.cells(object, now)));
        if let Self::BuiltIn(columns) = self
            && let Some(condition) = (columns.condition)(object)
        {
            row.insert("conditions".into(), json!([condition]));
        }
        let embedded = match include {
            IncludeObject::None => None,
            IncludeObject::Metadata => Some(partial_metadata(object)),
            IncludeObject::Object => Some(object.clone()),
        };
        row.insert("object".into(), embedded.unwrap_or(Value::Null));
        Value::Object(row)
    }

    /// Returns the Table of some objects. `list_metadata` is the list's (`resourceVersion`, `continue`, …), or the object's
    /// own `resourceVersion` when one object was asked for. `with_definitions` is false for all but the first event
    /// of a watch, as the real server leaves them out.
    pub fn table<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Value>,
        list_metadata: &Value,
        include: IncludeObject,
        now: Timestamp,
        with_definitions: bool,
    ) -> Value {
        let rows: Vec<Value> = objects
            .into_iter()
            .map(|object| self.row(object, include, now))
            .collect();
        let definitions = if with_definitions {
            Value::Array(self.definitions())
        } else {
            Value::Null
        };
        // For a kind without columns of its own, an empty list of rows is null.
        let own = self
            .definitions()
            .iter()
            .all(|column| column.get("name") != Some(&json!("Created At")));
        let rows = if rows.is_empty() && !own {
            Value::Null
        } else {
            Value::from(rows)
        };
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_metadata,
            "columnDefinitions": definitions, "rows": rows,
        })
    }
}

/// Returns an object's metadata alone.
pub fn partial_metadata(object: &Value) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    // To Kubernetes that is a field of the object, and an annotation only where the whole of it is shown.
    if object.get("kind") == Some(&json!("DaemonSet"))
        && let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
    {
        annotations.remove("deprecated.daemonset.template.generation");
        let none_left = annotations.is_empty();
        if let Some(map) = metadata.as_object_mut().filter(|_| none_left) {
            map.remove("annotations");
        }
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

#[cfg(test)]
mod tests;
