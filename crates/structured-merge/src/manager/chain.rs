//! The conventions around a write, in Kubernetes' order: version check, kubectl's annotation, objects without managers yet, the cap on
//! managers, times, and metadata without owners.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::{Applied, FieldManager, UpdateError, last_applied};
use crate::conflict::{ApplyError, to_error};
use crate::managed::{Managed, ManagerId, Operation, OwnedFields, is_reset, managed_fields, remove_managed_fields};
use crate::path::FieldPath;
use crate::set::FieldSet;
use crate::timestamp::Timestamp;
use crate::typed::{Duplicates, TypedObject};
use crate::updater::{Failure, Merged, Updater};

/// The maximum number of update entries of an object. Beyond it, the oldest entries are merged.
const MOST_UPDATE_MANAGERS: usize = 10;
/// The manager that owns the fields of the oldest update entries.
const ANCIENT_CHANGES: &str = "ancient-changes";
/// The manager that owns the fields that an object had before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

impl FieldManager {
    pub(super) fn managed_after_update(
        &self,
        live: Option<&Value>,
        new: &mut Value,
        manager: &str,
        now: Timestamp,
    ) -> Result<Managed, UpdateError> {
        let managed = self.decode_live_or_new(live, new);
        remove_managed_fields(new);
        // An object without managers stays without managers, unless this write creates it.
        let is_create = live.is_none_or(|live| get_uid(live).is_empty());
        if managed.managers.is_empty() && !is_create {
            return Ok(managed);
        }
        let live = self.live_or_empty(live);
        self.update_managers(&live, new, managed, manager, now)
            .map_err(UpdateError)
    }

    /// Returns the managers that an update starts from. A client may write managedFields, but not through a
    /// subresource. A client that omits managedFields, or writes unreadable ones, doesn't change them.
    fn decode_live_or_new(&self, live: Option<&Value>, new: &Value) -> Managed {
        let of_live = || live.map(Managed::of_object).and_then(Result::ok).unwrap_or_default();
        if !self.subresource.is_empty() {
            return of_live();
        }
        if is_reset(managed_fields(new), self.custom_resource) {
            return Managed::default();
        }
        match Managed::of_object(new) {
            Ok(managed) if !managed.managers.is_empty() => managed,
            _ => of_live(),
        }
    }

    /// Returns the live object; for a create, an empty object of its kind.
    fn live_or_empty<'v>(&self, live: Option<&'v Value>) -> Cow<'v, Value> {
        live.map_or_else(
            || Cow::Owned(json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": {}})),
            Cow::Borrowed,
        )
    }

    fn updater(&self) -> Updater<'_> {
        Updater {
            api_version: &self.api_version,
            typing: &self.typing,
            converter: self.converter.as_ref(),
            reset_fields: &self.reset_fields,
        }
    }

    fn id(&self, manager: &str, operation: Operation) -> ManagerId {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        ManagerId::new(manager, operation, &self.api_version, &self.subresource)
    }

    /// Returns the managers after `manager` has changed `live` into `new`.
    fn update_managers(
        &self,
        live: &Value,
        new: &Value,
        managed: Managed,
        manager: &str,
        now: Timestamp,
    ) -> Result<Managed, String> {
        let typed = |object| TypedObject::new(object, &self.typing, Duplicates::Allowed);
        let new_typed = typed(new).map_err(|errors| {
            format!(
                "failed to convert new object ({}) to smd typed: {errors}",
                describe_object(new)
            )
        })?;
        let live_typed = typed(live).map_err(|errors| {
            format!(
                "failed to convert live object ({}) to smd typed: {errors}",
                describe_object(live)
            )
        })?;
        let (mut managers, taken) = match self.updater().update(&live_typed, &new_typed, managed.managers) {
            Ok(done) => done,
            Err(Failure::Other(problem) | Failure::InvalidConfig(problem)) => {
                return Err(problem);
            }
            // An update takes the fields that it changes. It never has a conflict.
            Err(Failure::Conflicts(conflicts)) => return Err(to_error(conflicts).to_string()),
        };
        let taken = taken.difference(untracked_fields());
        if !taken.is_empty() {
            let owned = managers
                .entry(self.id(manager, Operation::Update))
                .or_insert_with(|| OwnedFields {
                    api_version: self.api_version.clone(),
                    fields: FieldSet::new(),
                    time: None,
                });
            owned.fields = taken.union(&owned.fields);
            owned.time = Some(now);
        }
        let mut managed = Managed { managers };
        cap_update_managers(&mut managed);
        Ok(managed)
    }

    pub(super) fn apply_chain(
        &self,
        live: Option<&Value>,
        config: &Value,
        manager: &str,
        force: bool,
        now: Timestamp,
    ) -> Result<Applied, ApplyError> {
        self.check_config(config)?;
        let is_create = live.is_none();
        let live = self.live_or_empty(live);
        let before = Managed::of_object(&live)
            .map_err(|error| ApplyError::Internal(format!("failed to decode managed fields: {error}")))?;

        let attempt = |force| self.apply_tracked(&live, config, &before, manager, force, now);
        let (merged, managed) = match attempt(force) {
            Err(Failure::Conflicts(conflicts)) if manager == last_applied::KUBECTL => {
                let allowed = last_applied::allowed_conflicts(self, &live);
                let left = match &allowed {
                    Some(allowed) => conflicts
                        .into_iter()
                        .filter(|conflict| !allowed.contains(&conflict.path.0))
                        .collect(),
                    None => conflicts,
                };
                if !left.is_empty() {
                    return Err(to_error(left));
                }
                attempt(true).map_err(to_apply_error)?
            }
            other => other.map_err(to_apply_error)?,
        };

        let mut managed = managed;
        if (matches!(merged, Merged::Changed(_)) || is_create)
            && let Some(owned) = managed.managers.get_mut(&self.id(manager, Operation::Apply))
        {
            owned.time = Some(now);
        }
        let annotation = match &merged {
            Merged::Same => last_applied::refresh_annotation(manager, &live, config),
            Merged::Changed(object) => last_applied::refresh_annotation(manager, object, config),
        };
        let same = matches!(merged, Merged::Same) && !is_create;
        let mut object = match merged {
            // Two entries of one identity become one, which is a change.
            Merged::Same
                if !is_create
                    && annotation.is_none()
                    && managed == before
                    && managed_fields(&live)
                        .and_then(Value::as_array)
                        .is_none_or(|entries| entries.len() == managed.managers.len()) =>
            {
                return Ok(Applied::Unchanged);
            }
            Merged::Same => live.into_owned(),
            Merged::Changed(object) => object,
        };
        if let Some(annotation) = annotation {
            last_applied::write(&mut object, annotation);
        }
        managed.write_to(&mut object);
        Ok(if same {
            Applied::OwnersChanged(object)
        } else {
            Applied::Changed(object)
        })
    }

    /// Applies a configuration, after recording an owner for the fields that the object had without any manager.
    fn apply_tracked(
        &self,
        live: &Value,
        config: &Value,
        before: &Managed,
        manager: &str,
        force: bool,
        now: Timestamp,
    ) -> Result<(Merged, Managed), Failure> {
        let mut managed = before.clone();
        if managed.managers.is_empty() {
            let empty = self.live_or_empty(None);
            managed = self
                .update_managers(&empty, live, managed, BEFORE_FIRST_APPLY, now)
                .map_err(|problem| {
                    Failure::Other(format!("failed to create manager for existing fields: {problem}"))
                })?;
        }
        let config_typed = TypedObject::new(config, &self.typing, Duplicates::Refused).map_err(|errors| {
            Failure::InvalidConfig(format!(
                "failed to create typed patch object ({}): {errors}",
                describe_object(config)
            ))
        })?;
        let live_typed = TypedObject::new(live, &self.typing, Duplicates::Allowed).map_err(|errors| {
            Failure::Other(format!(
                "failed to create typed live object ({}): {errors}",
                describe_object(live)
            ))
        })?;
        let id = self.id(manager, Operation::Apply);
        let (merged, mut managers) = self
            .updater()
            .apply(&live_typed, &config_typed, managed.managers, &id, force)?;
        if let Some(owned) = managers.get_mut(&id) {
            owned.fields = owned.fields.difference(untracked_fields());
            if owned.fields.is_empty() {
                managers.remove(&id);
            }
        }
        Ok((merged, Managed { managers }))
    }

    fn check_config(&self, config: &Value) -> Result<(), ApplyError> {
        let text = |field| config.get(field).and_then(Value::as_str).unwrap_or("");
        if text("apiVersion") != self.api_version || text("kind") != self.kind {
            return Err(ApplyError::BadRequest(format!(
                "invalid object type: {}",
                group_version_kind(config)
            )));
        }
        // If the value is no list of entries, the type check reports it.
        let entries = managed_fields(config).and_then(Value::as_array);
        if entries.is_some_and(|entries| entries.iter().all(Value::is_object)) {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
        }
        Ok(())
    }
}

fn to_apply_error(failure: Failure) -> ApplyError {
    match failure {
        Failure::Conflicts(conflicts) => to_error(conflicts),
        Failure::InvalidConfig(problem) => ApplyError::InvalidConfig(problem),
        Failure::Other(problem) => ApplyError::Internal(problem),
    }
}

fn get_uid(object: &Value) -> &str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get("uid"))
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// Returns `group/version, Kind=Kind`. For the core group, the text before the slash is empty.
fn group_version_kind(object: &Value) -> String {
    let text = |field| object.get(field).and_then(Value::as_str).unwrap_or("");
    let api_version = text("apiVersion");
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={}", text("kind"))
}

/// Returns Kubernetes' name of an object in these messages.
fn describe_object(object: &Value) -> String {
    let text = |field| {
        object
            .get("metadata")
            .and_then(|metadata| metadata.get(field))
            .and_then(Value::as_str)
            .unwrap_or("")
    };
    format!("{}/{}; {}", text("namespace"), text("name"), group_version_kind(object))
}

/// Returns the fields that identify an object or belong to the server. No manager owns them.
fn untracked_fields() -> &'static FieldSet {
    static UNTRACKED: OnceLock<FieldSet> = OnceLock::new();
    UNTRACKED.get_or_init(|| {
        let in_metadata = [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        ];
        let mut paths: Vec<FieldPath> = ["apiVersion", "kind", "metadata"]
            .iter()
            .map(|name| FieldPath::of_fields(&[name]))
            .collect();
        paths.extend(in_metadata.iter().map(|name| FieldPath::of_fields(&["metadata", name])));
        FieldSet::from_paths(&paths)
    })
}

/// Merges the oldest update entries, separately for each version, until the number is within the limit.
fn cap_update_managers(managed: &mut Managed) {
    let mut updaters: Vec<(i64, ManagerId)> = managed
        .managers
        .iter()
        .filter(|(id, _)| id.operation == Operation::Update)
        .map(|(id, owned)| (owned.time.map_or(0, Timestamp::unix_seconds), id.clone()))
        .collect();
    if updaters.len() <= MOST_UPDATE_MANAGERS {
        return;
    }
    updaters.sort_by_cached_key(|(seconds, id)| (*seconds, id.sort_key()));
    let mut left = updaters.len();
    // The oldest entry of each version, with which the next entry of this version is merged.
    let mut first_of: Vec<(String, ManagerId)> = Vec::new();
    for (_, id) in updaters {
        if left <= MOST_UPDATE_MANAGERS {
            return;
        }
        let Some(version) = managed.managers.get(&id).map(|owned| owned.api_version.clone()) else {
            continue;
        };
        let Some((_, first)) = first_of.iter().find(|(known, _)| *known == version) else {
            first_of.push((version, id));
            continue;
        };
        let bucket = ManagerId::new(ANCIENT_CHANGES, Operation::Update, &version, "");
        if !managed.managers.contains_key(&bucket)
            && let Some(owned) = managed.managers.remove(first)
        {
            managed.managers.insert(bucket.clone(), owned);
        }
        if bucket == id {
            continue;
        }
        if let Some(merged) = managed.managers.remove(&id) {
            if let Some(owned) = managed.managers.get_mut(&bucket) {
                owned.fields = merged.fields.union(&owned.fields);
                // The later of the two, since they are merged from the oldest on.
                owned.time = merged.time;
            }
            left -= 1;
        }
    }
}
