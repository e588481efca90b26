//! `metadata.managedFields`: reading, writing, ordering, and the detection of a reset by the client.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::fields_v1::FieldsError;
use crate::set::FieldSet;
use crate::timestamp::Timestamp;

/// The operation by which a manager got its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By anything else: create, update, patch.
    Update,
}

impl Operation {
    /// Returns the operation as written in managedFields.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The identity of a manager in managedFields. The version counts for updates only: a manager that applies has one entry, whichever version
/// it applied last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManagerId {
    /// The manager's name, `kubectl`.
    pub manager: String,
    /// Apply or Update.
    pub operation: Operation,
    /// For updates the version of the fields; empty for applies.
    pub api_version: String,
    /// The subresource written to, `status`; empty for the main resource.
    pub subresource: String,
}

impl ManagerId {
    /// Creates the manager `name` that applies or updates `api_version` through `subresource` (or `""`).
    #[must_use]
    pub fn new(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        Self {
            manager: name.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }
}

impl ManagerId {
    /// Returns the key by which Kubernetes sorts managers in lists: their identity as JSON. In this order, a manager of a subresource comes
    /// before the manager of the same name without a subresource.
    pub(crate) fn sort_key(&self) -> String {
        let text = |name: &str, value: &str| match value {
            "" => String::new(),
            value => format!(",\"{name}\":{}", Value::from(value)),
        };
        format!(
            "{{\"manager\":{}{}{}{}}}",
            Value::from(self.manager.as_str()),
            text("operation", self.operation.as_str()),
            text("apiVersion", &self.api_version),
            text("subresource", &self.subresource)
        )
    }
}

/// The fields of one manager, in the version that the manager wrote last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedFields {
    /// The version of the fields, `apps/v1`.
    pub api_version: String,
    /// The fields.
    pub fields: FieldSet,
    /// The time of the manager's last change. Kubernetes omits it if a manager got fields without a change.
    pub time: Option<Timestamp>,
}

/// An entry of managedFields as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedFieldsEntry {
    /// The manager's name.
    pub manager: String,
    /// Apply or Update.
    pub operation: Operation,
    /// The version of the fields.
    pub api_version: String,
    /// The time of the manager's last change.
    pub time: Option<Timestamp>,
    /// The fields.
    pub fields: FieldSet,
    /// The subresource written to; empty for the main resource.
    pub subresource: String,
}

/// managedFields that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagedFieldsError {
    /// `managedFields` isn't a list of objects, or a field of an entry has another type than text.
    #[error("managedFields entry {0} isn't an object of texts and fieldsV1")]
    Malformed(usize),
    /// `operation` is neither Apply nor Update.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// `apiVersion` is empty.
    #[error("apiVersion must not be empty")]
    NoApiVersion,
    /// `fieldsType` is empty.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// `fieldsType` isn't FieldsV1.
    #[error("invalid fieldsType {found:?} in managed fields entry {entry}")]
    FieldsType {
        /// The entry's position.
        entry: usize,
        /// The value of the field.
        found: String,
    },
    /// `time` isn't a time.
    #[error("managedFields entry {0}: time isn't of the form 2006-01-02T15:04:05Z")]
    Time(usize),
    /// `fieldsV1` can't be read.
    #[error("error decoding set: {0}")]
    Fields(#[from] FieldsError),
}

/// The managers of an object, each with its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managed {
    /// By manager.
    pub managers: BTreeMap<ManagerId, OwnedFields>,
}

impl Managed {
    /// Reads the managers of an object. An object without managedFields has no managers.
    ///
    /// # Errors
    /// If an entry can't be read.
    pub fn of_object(object: &Value) -> Result<Self, ManagedFieldsError> {
        match managed_fields(object) {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(Value::Array(entries)) => Self::from_entries(entries),
            Some(_) => Err(ManagedFieldsError::Malformed(0)),
        }
    }

    /// Reads the entries of a managedFields list.
    ///
    /// # Errors
    /// If an entry can't be read.
    pub fn from_entries(entries: &[Value]) -> Result<Self, ManagedFieldsError> {
        let mut managers = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            let entry = ManagedFieldsEntry::read(index, entry)?;
            let id = ManagerId::new(&entry.manager, entry.operation, &entry.api_version, &entry.subresource);
            managers.insert(
                id,
                OwnedFields {
                    api_version: entry.api_version,
                    fields: entry.fields,
                    time: entry.time,
                },
            );
        }
        Ok(Self { managers })
    }

    /// Returns the entries in the order that Kubernetes writes them: by operation, time, manager, version,
    /// subresource.
    #[must_use]
    pub fn entries(&self) -> Vec<ManagedFieldsEntry> {
        self.sorted_managers()
            .into_iter()
            .map(|(id, owned)| ManagedFieldsEntry {
                manager: id.manager.clone(),
                operation: id.operation,
                api_version: owned.api_version.clone(),
                time: owned.time,
                fields: owned.fields.clone(),
                subresource: id.subresource.clone(),
            })
            .collect()
    }

    fn sorted_managers(&self) -> Vec<(&ManagerId, &OwnedFields)> {
        in_order(self.managers.iter().collect())
    }

    /// Returns the value of `metadata.managedFields`.
    #[must_use]
    pub fn to_value(&self) -> Value {
        list_of(self.managers.iter().collect())
    }

    /// Writes the managers into an object's metadata. Without managers, the field is removed.
    pub(crate) fn write_to(&self, object: &mut Value) {
        if self.managers.is_empty() {
            remove_managed_fields(object);
            return;
        }
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if metadata.is_null() {
            *metadata = Value::Object(Map::new());
        }
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("managedFields".to_owned(), self.to_value());
        }
    }
}

/// Managers in the order in which Kubernetes writes them.
fn in_order<'m>(mut managers: Vec<(&'m ManagerId, &'m OwnedFields)>) -> Vec<(&'m ManagerId, &'m OwnedFields)> {
    managers.sort_by(|(left_id, left), (right_id, right)| -> Ordering {
        let seconds = |owned: &OwnedFields| owned.time.map_or(0, Timestamp::unix_seconds);
        left_id
            .operation
            .cmp(&right_id.operation)
            .then_with(|| seconds(left).cmp(&seconds(right)))
            .then_with(|| left_id.manager.cmp(&right_id.manager))
            .then_with(|| left.api_version.cmp(&right.api_version))
            .then_with(|| left_id.subresource.cmp(&right_id.subresource))
    });
    managers
}

/// Returns the value of `metadata.managedFields` for these managers, of which some may be equal.
pub(crate) fn list_of(managers: Vec<(&ManagerId, &OwnedFields)>) -> Value {
    Value::Array(
        in_order(managers)
            .into_iter()
            .map(|(id, owned)| write_entry(id, &owned.api_version, owned.time, &owned.fields))
            .collect(),
    )
}

impl ManagedFieldsEntry {
    fn read(index: usize, entry: &Value) -> Result<Self, ManagedFieldsError> {
        let fields = entry.as_object().ok_or(ManagedFieldsError::Malformed(index))?;
        let text = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(_) => Err(ManagedFieldsError::Malformed(index)),
        };
        let operation = match text("operation")? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(ManagedFieldsError::Operation),
        };
        let api_version = text("apiVersion")?;
        if api_version.is_empty() {
            return Err(ManagedFieldsError::NoApiVersion);
        }
        match text("fieldsType")? {
            "FieldsV1" => {}
            "" => return Err(ManagedFieldsError::NoFieldsType(index)),
            other => {
                return Err(ManagedFieldsError::FieldsType {
                    entry: index,
                    found: other.to_owned(),
                });
            }
        }
        let time = match text("time")? {
            "" => None,
            time => Some(time.parse().map_err(|_| ManagedFieldsError::Time(index))?),
        };
        let set = match fields.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::new(),
            Some(set) => FieldSet::from_fields_v1(set)?,
        };
        Ok(Self {
            manager: text("manager")?.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            time,
            fields: set,
            subresource: text("subresource")?.to_owned(),
        })
    }

    /// Returns the entry as JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let id = ManagerId::new(&self.manager, self.operation, &self.api_version, &self.subresource);
        write_entry(&id, &self.api_version, self.time, &self.fields)
    }
}

fn write_entry(id: &ManagerId, api_version: &str, time: Option<Timestamp>, fields: &FieldSet) -> Value {
    let mut entry = Map::new();
    entry.insert("apiVersion".to_owned(), Value::from(api_version));
    entry.insert("fieldsType".to_owned(), Value::from("FieldsV1"));
    entry.insert("fieldsV1".to_owned(), fields.to_fields_v1());
    if !id.manager.is_empty() {
        entry.insert("manager".to_owned(), Value::from(id.manager.as_str()));
    }
    entry.insert("operation".to_owned(), Value::from(id.operation.as_str()));
    if !id.subresource.is_empty() {
        entry.insert("subresource".to_owned(), Value::from(id.subresource.as_str()));
    }
    if let Some(time) = time {
        entry.insert("time".to_owned(), Value::from(time.to_string()));
    }
    Value::Object(entry)
}

/// Returns `metadata.managedFields` of an object.
pub(crate) fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Takes managedFields out of an object.
pub(crate) fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// Returns whether a request's managedFields ask to forget all managers: one empty entry, or, for built-in
/// kinds only, an empty list.
pub(crate) fn is_reset(managed_fields: Option<&Value>, custom_resource: bool) -> bool {
    match managed_fields.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => !custom_resource,
        Some([only]) => only.as_object().is_some_and(|entry| {
            entry.values().all(|value| match value {
                Value::Null => true,
                Value::String(text) => text.is_empty(),
                _ => false,
            })
        }),
        _ => false,
    }
}
