//! Acceptance of names, conditions, and the fields that the server writes into a definition.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::get_text;
use crate::schema::validation::CLEANUP_FINALIZER;

/// Writes the server's part of a new definition: an empty status with the stored version.
pub fn prepare_create(definition: &mut Value) {
    let storage = storage_version(definition).map(str::to_owned);
    let Value::Object(object) = definition else { return };
    let stored: Vec<String> = storage.into_iter().collect();
    object.insert(
        "status".into(),
        json!({"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}),
    );
}

/// Writes the server's part of a definition that replaces `old` (not through `/status`): its status, with a new storage version added.
pub fn prepare_update(definition: &mut Value, old: &Value) {
    let storage = storage_version(definition).map(str::to_owned);
    let Value::Object(object) = definition else { return };
    let status = old.get("status").cloned().unwrap_or_else(|| json!({}));
    object.insert("status".into(), status);
    let stored = object.get_mut("status").and_then(Value::as_object_mut);
    if let Some(status) = stored
        && let Some(storage) = storage
        && let Value::Array(stored) = status.entry("storedVersions").or_insert_with(|| json!([]))
        && !stored.iter().any(|one| one.as_str() == Some(&storage))
    {
        stored.push(json!(storage));
    }
}

fn storage_version(definition: &Value) -> Option<&str> {
    super::list_versions(definition)
        .find(|version| version.get("storage") == Some(&Value::Bool(true)))
        .map(|version| get_text(version, "name"))
}

/// Returns whether a definition's resources are served.
pub fn is_established(definition: &Value) -> bool {
    find_condition(definition, "Established").is_some_and(|one| get_text(one, "status") == "True")
}

fn find_condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array)?;
    conditions.iter().find(|one| get_text(one, "type") == kind)
}

/// Decides a definition's accepted names and the conditions NamesAccepted and Established, against the names that
/// `others` (all other definitions) hold in its group. `now` is the transition time, RFC 3339. Gives back the definition
/// with its new status, or nothing when nothing changes.
pub fn accept_names<'a>(definition: &Value, others: impl IntoIterator<Item = &'a Value>, now: &str) -> Option<Value> {
    let group = definition
        .pointer("/spec/group")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let name = definition.pointer("/metadata/name");
    let mut resources = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    for other in others {
        if other.pointer("/spec/group").and_then(Value::as_str) != Some(group)
            || other.pointer("/metadata/name") == name
        {
            continue;
        }
        let accepted = other.pointer("/status/acceptedNames").unwrap_or(&Value::Null);
        resources.extend(["plural", "singular"].map(|field| get_text(accepted, field)));
        resources.extend(
            accepted
                .get("shortNames")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str),
        );
        kinds.extend(["kind", "listKind"].map(|field| get_text(accepted, field)));
    }
    let (accepted, conflict) = decide_names(definition, &resources, &kinds);
    let mut result = definition.clone();
    if let Some(status) = result
        .as_object_mut()
        .map(|object| object.entry("status").or_insert_with(|| json!({})))
        && let Value::Object(status) = status
    {
        status.insert("acceptedNames".into(), Value::Object(accepted));
    }
    let held = is_established(definition);
    match &conflict {
        Some((reason, message)) => set_condition(&mut result, "NamesAccepted", "False", reason, message, now),
        None => set_condition(
            &mut result,
            "NamesAccepted",
            "True",
            "NoConflicts",
            "no conflicts found",
            now,
        ),
    }
    if conflict.is_none() && !held {
        // No delay is necessary, because the resources are served from the table to which this status is written.
        set_condition(
            &mut result,
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
            now,
        );
    } else if !held {
        set_condition(
            &mut result,
            "Established",
            "False",
            "NotAccepted",
            "not all names are accepted",
            now,
        );
    }
    super::warnings::drop_old_conditions(&mut result);
    (result != *definition).then_some(result)
}

/// The reason and the message of the condition for names that are taken.
type Conflict = (&'static str, String);

fn decide_names(
    definition: &Value,
    resources: &BTreeSet<&str>,
    kinds: &BTreeSet<&str>,
) -> (Map<String, Value>, Option<Conflict>) {
    let nothing = Value::Null;
    let requested = definition.pointer("/spec/names").unwrap_or(&nothing);
    let before = definition.pointer("/status/acceptedNames").unwrap_or(&nothing);
    let mut accepted = before.as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    let fields = [
        ("plural", "PluralConflict", resources),
        ("singular", "SingularConflict", resources),
        ("shortNames", "ShortNamesConflict", resources),
        ("kind", "KindConflict", kinds),
        ("listKind", "ListKindConflict", kinds),
    ];
    for (field, reason, used) in fields {
        if field == "shortNames" {
            let list = |names: &Value| -> Vec<String> {
                let found = names.get(field).and_then(Value::as_array).into_iter().flatten();
                found.filter_map(Value::as_str).map(str::to_owned).collect()
            };
            let (wanted, held) = (list(requested), list(before));
            let clashes: Vec<String> = wanted
                .iter()
                .filter(|name| !held.contains(name) && used.contains(name.as_str()))
                .map(|name| format!("\"{name}\" is already in use"))
                .collect();
            match clashes.as_slice() {
                [] if wanted.is_empty() => {
                    accepted.remove(field);
                }
                [] => {
                    accepted.insert(field.into(), json!(wanted));
                }
                [only] => conflict = Some((reason, only.clone())),
                many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
            }
            continue;
        }
        let wanted = get_text(requested, field);
        if wanted != get_text(before, field) && used.contains(wanted) {
            conflict = Some((reason, format!("\"{wanted}\" is already in use")));
        } else if wanted.is_empty() {
            accepted.remove(field);
        } else {
            accepted.insert(field.into(), json!(wanted));
        }
    }
    match requested
        .get("categories")
        .filter(|categories| categories.as_array().is_some_and(|list| !list.is_empty()))
    {
        Some(categories) => accepted.insert("categories".into(), categories.clone()),
        None => accepted.remove("categories"),
    };
    (accepted, conflict)
}

/// Marks a definition whose objects are being deleted.
pub fn set_terminating(definition: &mut Value, now: &str) {
    let (reason, message) = ("InstanceDeletionInProgress", "CustomResource deletion is in progress");
    set_condition(definition, "Terminating", "True", reason, message, now);
    let Value::Object(object) = definition else { return };
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Some(finalizers) = metadata
        .as_object_mut()
        .map(|metadata| metadata.entry("finalizers").or_insert_with(|| json!([])))
        && let Value::Array(finalizers) = finalizers
        && !finalizers.iter().any(|one| one.as_str() == Some(CLEANUP_FINALIZER))
    {
        finalizers.push(json!(CLEANUP_FINALIZER));
    }
}

/// Sets a condition; the transition time moves only with the status.
pub fn set_condition(definition: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    let Value::Object(object) = definition else { return };
    let Value::Object(holder) = object.entry("status").or_insert_with(|| json!({})) else {
        return;
    };
    let conditions = holder.entry("conditions").or_insert_with(|| json!([]));
    if conditions.is_null() {
        *conditions = json!([]);
    }
    let Value::Array(conditions) = conditions else { return };
    let known = conditions.iter_mut().find(|one| get_text(one, "type") == kind);
    let time = known
        .as_ref()
        .filter(|one| get_text(one, "status") == status)
        .map_or(now, |one| get_text(one, "lastTransitionTime"))
        .to_owned();
    let set = json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time});
    match known {
        Some(known) => *known = set,
        None => conditions.push(set),
    }
}
