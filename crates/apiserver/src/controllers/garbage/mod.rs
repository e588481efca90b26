//! Garbage collection: decisions about an object whose owners are deleted or being deleted, and about an owner that
//! is to be deleted with, before or without its dependents. The decisions are pure; `run` carries them out.
//!
//! Invariant: an object with an owner that can't be resolved is not deleted. Examples are an unknown kind, and a
//! namespaced owner of a cluster-scoped object.

mod owners;

use std::collections::HashSet;

use serde_json::{Value, json};

pub(crate) use owners::{OwnerIndex, OwnerReference, owners_of};

use super::object_name::{is_deleting, list_finalizers, remove_finalizer};

/// The finalizer of an owner that waits until its dependents are deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner whose dependents stay.
pub(crate) const ORPHAN: &str = "orphan";

/// The state of one owner, as a dependent's reference finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// The owner exists.
    Solid,
    /// The owner exists and waits until its dependents are deleted.
    Waiting,
    /// The owner is missing, or another object now has its name.
    Dangling,
    /// The owner can't be resolved.
    Unresolved,
}

/// Returns the state of an owner, given the object under the reference's name.
#[must_use]
pub(crate) fn owner_state(reference: &OwnerReference, found: Option<&Value>) -> OwnerState {
    match found {
        Some(owner) if owner.pointer("/metadata/uid").and_then(Value::as_str) == Some(&reference.uid) => {
            if is_deleting(owner) && has_finalizer(owner, FOREGROUND) {
                OwnerState::Waiting
            } else {
                OwnerState::Solid
            }
        }
        _ => OwnerState::Dangling,
    }
}

/// The action of the garbage collector for an object with owners.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    /// Nothing.
    Keep,
    /// Nothing yet: an owner can't be resolved.
    Later,
    /// Keep the object; the value is the object without references to missing or terminating owners.
    Release(Value),
    /// Delete the object. If it would block its own owners, first update it to `unblocked`.
    Delete {
        /// `Background`, `Foreground` or `Orphan`.
        propagation: &'static str,
        /// The object without blocking references.
        unblocked: Option<Value>,
    },
}

/// Decides about an object by the states of its owners, in the order of its references.
///
/// `dependents` are the objects that it owns itself.
#[must_use]
pub(crate) fn decide_fate(object: &Value, states: &[OwnerState], dependents: &[Value]) -> Verdict {
    if is_deleting(object) || states.is_empty() {
        return Verdict::Keep;
    }
    if states.contains(&OwnerState::Unresolved) {
        return Verdict::Later;
    }
    let waiting = states.contains(&OwnerState::Waiting);
    if states.contains(&OwnerState::Solid) {
        if !waiting && !states.contains(&OwnerState::Dangling) {
            return Verdict::Keep;
        }
        let gone = owners_of(object)
            .into_iter()
            .zip(states)
            .filter(|(_, state)| **state != OwnerState::Solid)
            .map(|(reference, _)| reference.uid)
            .collect::<Vec<_>>();
        return Verdict::Release(without_owners(object, &gone));
    }
    if waiting && !dependents.is_empty() {
        // A dependent that itself waits for its dependents may be an owner of this object. Then each would wait for the
        // other forever.
        let circle = dependents
            .iter()
            .any(|dependent| is_deleting(dependent) && has_finalizer(dependent, FOREGROUND));
        return Verdict::Delete {
            propagation: "Foreground",
            unblocked: circle.then(|| remove_blocking(object)),
        };
    }
    let propagation = if has_finalizer(object, ORPHAN) {
        "Orphan"
    } else if has_finalizer(object, FOREGROUND) {
        "Foreground"
    } else {
        "Background"
    };
    Verdict::Delete {
        propagation,
        unblocked: None,
    }
}

/// Returns an owner that waits for its dependents without its finalizer, if no dependent blocks it.
///
/// `None` if it does not wait, or has to wait longer.
#[must_use]
pub(crate) fn finish_foreground(owner: &Value, dependents: &[Value]) -> Option<Value> {
    if !is_deleting(owner) || !has_finalizer(owner, FOREGROUND) {
        return None;
    }
    let uid = owner.pointer("/metadata/uid").and_then(Value::as_str)?;
    let blocked = dependents.iter().any(|dependent| {
        owners_of(dependent)
            .iter()
            .any(|reference| reference.uid == uid && reference.blocks)
    });
    if blocked {
        return None;
    }
    let mut owner = owner.clone();
    remove_finalizer(&mut owner, FOREGROUND);
    Some(owner)
}

/// Returns the owner without the finalizer that kept it until its dependents were released.
#[must_use]
pub(crate) fn finish_orphaning(owner: &Value) -> Option<Value> {
    let mut owner = owner.clone();
    (is_deleting(&owner) && remove_finalizer(&mut owner, ORPHAN)).then_some(owner)
}

/// Returns the object without references to these owners.
#[must_use]
pub(crate) fn without_owners(object: &Value, uids: &[String]) -> Value {
    let uids: HashSet<&str> = uids.iter().map(String::as_str).collect();
    let mut object = object.clone();
    if let Some(references) = object
        .pointer_mut("/metadata/ownerReferences")
        .and_then(Value::as_array_mut)
    {
        references.retain(|reference| {
            let uid = reference.get("uid").and_then(Value::as_str);
            uid.is_none_or(|uid| !uids.contains(uid))
        });
    }
    object
}

/// Checks whether the object has this finalizer.
#[must_use]
pub(crate) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    list_finalizers(object).any(|held| held == finalizer)
}

fn remove_blocking(object: &Value) -> Value {
    let mut object = object.clone();
    for reference in object
        .pointer_mut("/metadata/ownerReferences")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if reference.get("blockOwnerDeletion") == Some(&Value::Bool(true))
            && let Some(fields) = reference.as_object_mut()
        {
            fields.insert("blockOwnerDeletion".to_owned(), json!(false));
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(owners: &[(&str, bool)], finalizers: &[&str], deleting: bool) -> Value {
        let references: Vec<Value> = owners
            .iter()
            .map(|(uid, blocks)| json!({ "uid": uid, "kind": "K", "apiVersion": "v1", "name": uid, "blockOwnerDeletion": blocks }))
            .collect();
        let mut metadata =
            json!({ "uid": "me", "name": "me", "ownerReferences": references, "finalizers": finalizers });
        if deleting {
            metadata["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        }
        json!({ "metadata": metadata })
    }

    fn delete(propagation: &'static str) -> Verdict {
        Verdict::Delete {
            propagation,
            unblocked: None,
        }
    }

    #[test]
    fn dependents_are_judged_by_their_owners() {
        use OwnerState::{Dangling, Solid, Unresolved, Waiting};
        let one = object(&[("a", true)], &[], false);
        let two = object(&[("a", true), ("b", false)], &[], false);
        let child = object(&[("me", true)], &[], false);
        let dying_child = object(&[("me", true)], &[FOREGROUND], true);
        let check = |object: &Value, states: &[OwnerState], dependents: &[Value], want: Verdict| {
            assert_eq!(decide_fate(object, states, dependents), want, "{states:?}");
        };
        check(&one, &[Solid], &[], Verdict::Keep);
        check(&one, &[Dangling], &[], delete("Background"));
        check(&one, &[Waiting], &[], delete("Background"));
        check(&one, &[Waiting], &[child], delete("Foreground"));
        check(&one, &[Unresolved], &[], Verdict::Later);
        check(&two, &[Dangling, Unresolved], &[], Verdict::Later);
        check(&two, &[Dangling, Dangling], &[], delete("Background"));
        check(
            &two,
            &[Solid, Dangling],
            &[],
            Verdict::Release(object(&[("a", true)], &[], false)),
        );
        check(
            &two,
            &[Waiting, Solid],
            &[],
            Verdict::Release(object(&[("b", false)], &[], false)),
        );
        check(&object(&[("a", true)], &[], true), &[Dangling], &[], Verdict::Keep);
        check(
            &object(&[("a", true)], &[ORPHAN], false),
            &[Dangling],
            &[],
            delete("Orphan"),
        );
        check(
            &object(&[("a", true)], &[FOREGROUND], false),
            &[Dangling],
            &[],
            delete("Foreground"),
        );
        check(
            &one,
            &[Waiting],
            &[dying_child],
            Verdict::Delete {
                propagation: "Foreground",
                unblocked: Some(object(&[("a", false)], &[], false)),
            },
        );
    }

    #[test]
    fn foreground_deletion_waits_for_blocking_dependents() {
        let owner = object(&[], &[FOREGROUND, "other"], true);
        let blocking = object(&[("me", true)], &[], false);
        let free = object(&[("me", false)], &[], false);
        assert_eq!(finish_foreground(&owner, &[blocking]), None);
        assert_eq!(finish_foreground(&owner, &[free]), Some(object(&[], &["other"], true)));
        assert_eq!(finish_foreground(&object(&[], &["other"], true), &[]), None);
        assert_eq!(finish_foreground(&object(&[], &[FOREGROUND], false), &[]), None);
    }

    #[test]
    fn an_owner_is_known_by_its_uid() {
        let reference = owners_of(&object(&[("me", true)], &[], false)).remove(0);
        let same = object(&[], &[], false);
        let waiting = object(&[], &[FOREGROUND], true);
        let mut other = same.clone();
        other["metadata"]["uid"] = json!("else");
        assert_eq!(owner_state(&reference, Some(&same)), OwnerState::Solid);
        assert_eq!(owner_state(&reference, Some(&waiting)), OwnerState::Waiting);
        assert_eq!(owner_state(&reference, Some(&other)), OwnerState::Dangling);
        assert_eq!(owner_state(&reference, None), OwnerState::Dangling);
    }

    /// A comparison of all references with all UIDs would take minutes.
    #[test]
    fn many_references_are_removed_at_once() {
        let uids: Vec<String> = (0..100_000).map(|number| format!("u{number}")).collect();
        let owners: Vec<(&str, bool)> = uids.iter().map(|uid| (uid.as_str(), false)).collect();
        let left = without_owners(&object(&owners, &[], false), &uids[1..]);
        assert_eq!(left, object(&[("u0", false)], &[], false));
    }
}
