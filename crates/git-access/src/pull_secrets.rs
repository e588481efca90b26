//! The delivered Secret among the `imagePullSecrets` of the ServiceAccounts in an entry, so that the kubelet also pulls images with it.
//!
//! This module decides which entries to add and remove. The list is one field (`listType=atomic`), so a change writes the whole list, bound to the observed
//! version, with the entries of other writers unchanged. An annotation on the account marks Tenure's entry, and is written with the entry. The annotation is
//! deleted with the account, so a re-created account begins without marks. The list of an account that another writer applies is not changed: the next application
//! would remove the entry. The condition then names that writer.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenure_api::ObjectView;
use tenure_api::access::PULL_PREFIX;
use tenure_api::text::visible_line;

const IMAGES: &str = "imagePullSecrets";

/// The accounts of a namespace that an entry names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ObservedAccounts {
    /// The entry doesn't ask for pulling images.
    #[default]
    NotAsked,
    /// The accounts couldn't be read, for this reason.
    Unknown(String),
    /// The accounts were read.
    Seen(Vec<AccountFacts>),
}

/// The name of a ServiceAccount, and its state if it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountFacts {
    /// The name of the account.
    pub name: String,
    /// The state of the account. Unset if the account is missing.
    pub state: Option<AccountState>,
}

/// The observed `imagePullSecrets` of an existing ServiceAccount, and the marks of Tenure's entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountState {
    /// Uid.
    uid: String,
    /// Resource version: writes require this version.
    resource_version: String,
    /// The current list.
    images: Vec<Value>,
    /// The Secret that each request added.
    marks: BTreeMap<String, String>,
    /// The field manager that applies the list, if any.
    applier: Option<String>,
}

/// A patch of one ServiceAccount, which adds or removes a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountChange {
    /// The name of the account.
    pub name: String,
    /// The merge patch.
    pub patch: Value,
}

/// The next action for an account that should have the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullSecretAction {
    /// The account has the Secret.
    Done,
    /// The account is missing.
    Missing,
    /// This field manager applies the list without the Secret.
    Applied(String),
    /// This change adds the Secret.
    Change(AccountChange),
}

/// Reads the facts of an account. An account that is being deleted counts: Pods still get its list until it is gone.
#[must_use]
pub fn read_account(name: &str, object: Option<&Value>) -> AccountFacts {
    let state = object.map(ObjectView::new);
    AccountFacts {
        name: name.to_owned(),
        state: state.map(read_state),
    }
}

fn read_state(view: ObjectView<'_>) -> AccountState {
    let annotations = view.find_map("/metadata/annotations").into_iter().flatten();
    let marks = annotations.filter_map(|(key, value)| {
        let request = key.strip_prefix(PULL_PREFIX)?;
        Some((request.to_owned(), value.as_str()?.to_owned()))
    });
    let mut managers = view.list_views("/metadata/managedFields");
    let applier = managers
        .find(|manager| manager.read_text("/operation") == "Apply" && manager.has("/fieldsV1/f:imagePullSecrets"));
    AccountState {
        uid: view.read_text("/metadata/uid").to_owned(),
        resource_version: view.read_text("/metadata/resourceVersion").to_owned(),
        images: view.list("/imagePullSecrets").to_vec(),
        marks: marks.collect(),
        applier: applier.map(|applier| visible_line(applier.read_text("/manager")).into()),
    }
}

fn is_named(image: &Value, secret: &str) -> bool {
    image.get("name").and_then(Value::as_str) == Some(secret)
}

/// Returns the action after which an account has a request's Secret.
#[must_use]
pub fn name_in(account: &AccountFacts, request: &str, secret: &str) -> PullSecretAction {
    let Some(state) = &account.state else {
        return PullSecretAction::Missing;
    };
    let is_there = state.images.iter().any(|image| is_named(image, secret));
    let is_marked = state.marks.get(request).is_some_and(|marked| marked == secret);
    // An entry without a mark of a request belongs to another writer, and stays.
    let is_of_another = || state.marks.values().any(|marked| marked == secret);
    match (is_there, &state.applier) {
        (true, _) if is_marked || !is_of_another() => PullSecretAction::Done,
        (false, Some(applier)) => PullSecretAction::Applied(applier.clone()),
        _ => {
            let mut images = state.images.clone();
            if !is_there {
                images.push(json!({ "name": secret }));
            }
            PullSecretAction::Change(make_change(account, state, (request, json!(secret)), images))
        }
    }
}

/// Returns the change that removes a request's Secret from an account, if the request added it.
#[must_use]
pub fn remove_pull_secret(account: &AccountFacts, request: &str, secret: &str) -> Option<AccountChange> {
    let state = account.state.as_ref()?;
    let marked = state.marks.get(request)?;
    let mut others = state.marks.iter().filter(|(other, _)| *other != request);
    let is_kept = marked != secret || others.any(|(_, marked)| marked == secret);
    let mut images = state.images.clone();
    // Another writer may have added the same name, so the list has it twice. One of them is Tenure's.
    if let Some(at) = images.iter().rposition(|image| is_named(image, secret))
        && !is_kept
    {
        images.remove(at);
    }
    Some(make_change(account, state, (request, Value::Null), images))
}

/// Returns the patch, bound to the observed version. An unchanged list is not written, so that its applier remains its only owner.
fn make_change(
    account: &AccountFacts,
    state: &AccountState,
    (request, mark): (&str, Value),
    images: Vec<Value>,
) -> AccountChange {
    let mut patch = Map::new();
    patch.insert(
        "metadata".to_owned(),
        json!({
            "uid": state.uid, "resourceVersion": state.resource_version,
            "annotations": { format!("{PULL_PREFIX}{request}"): mark },
        }),
    );
    if images != state.images {
        let images = if images.is_empty() {
            Value::Null
        } else {
            Value::Array(images)
        };
        patch.insert(IMAGES.to_owned(), images);
    }
    AccountChange {
        name: account.name.clone(),
        patch: Value::Object(patch),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const REQUEST: &str = "work-42-1f2e3d4c5b6a";
    const SECRET: &str = "images";

    fn make_account(rest: &Value) -> AccountFacts {
        let mut object = json!({ "metadata": { "name": "runner", "uid": "a-1", "resourceVersion": "7" } });
        merge(&mut object, rest);
        read_account("runner", Some(&object))
    }

    /// Applies a JSON merge patch (RFC 7386).
    pub(crate) fn merge(object: &mut Value, patch: &Value) {
        let Value::Object(fields) = patch else {
            object.clone_from(patch);
            return;
        };
        if !object.is_object() {
            *object = json!({});
        }
        for (field, value) in fields {
            match value {
                Value::Null => {
                    object.as_object_mut().unwrap().remove(field);
                }
                value => merge(
                    object.as_object_mut().unwrap().entry(field).or_insert(Value::Null),
                    value,
                ),
            }
        }
    }

    fn list_pull_secrets(object: &Value) -> Vec<&str> {
        let images = object["imagePullSecrets"].as_array().into_iter().flatten();
        images.map(|image| image["name"].as_str().unwrap()).collect()
    }

    /// Adds the Secret to the object, as a server would store it.
    fn add(object: &mut Value, request: &str) -> PullSecretAction {
        let naming = name_in(&read_account("runner", Some(object)), request, SECRET);
        if let PullSecretAction::Change(change) = &naming {
            merge(object, &change.patch);
        }
        naming
    }

    fn remove(object: &mut Value, request: &str) -> bool {
        let change = remove_pull_secret(&read_account("runner", Some(object)), request, SECRET);
        if let Some(change) = &change {
            merge(object, &change.patch);
        }
        change.is_some()
    }

    #[test]
    fn pull_secret_is_added_once_and_removed_alone() {
        let mut object = json!({ "metadata": { "uid": "a-1", "resourceVersion": "7" },
            "imagePullSecrets": [{ "name": "of-somebody" }] });
        let before = object.clone();
        assert!(!remove(&mut object, REQUEST));
        let PullSecretAction::Change(change) = add(&mut object, REQUEST) else {
            panic!()
        };
        assert_eq!(change.patch["metadata"]["uid"], "a-1");
        assert_eq!(change.patch["metadata"]["resourceVersion"], "7");
        assert_eq!(list_pull_secrets(&object), ["of-somebody", SECRET]);
        assert_eq!(add(&mut object, REQUEST), PullSecretAction::Done);
        // Another writer removes the Secret, but the request still asks for it.
        object["imagePullSecrets"] = json!([]);
        assert!(matches!(add(&mut object, REQUEST), PullSecretAction::Change(_)));
        object["imagePullSecrets"] = json!([{ "name": SECRET }, { "name": "of-somebody" }]);
        assert!(remove(&mut object, REQUEST));
        assert_eq!(list_pull_secrets(&object), ["of-somebody"]);
        assert!(!remove(&mut object, REQUEST));
        object["metadata"].as_object_mut().unwrap().remove("annotations");
        assert_eq!(object, before);
        // If Tenure's entry was the only one, the list is removed.
        object.as_object_mut().unwrap().remove("imagePullSecrets");
        let _added = add(&mut object, REQUEST);
        assert!(remove(&mut object, REQUEST) && object.get("imagePullSecrets").is_none());
    }

    #[test]
    fn foreign_pull_secret_entry_stays() {
        let mut object = json!({ "imagePullSecrets": [{ "name": SECRET }] });
        assert_eq!(add(&mut object, REQUEST), PullSecretAction::Done);
        assert!(!remove(&mut object, REQUEST));
        // The control: two requests share an entry, and the entry is removed with the last one.
        let mut object = json!({});
        let _first = add(&mut object, "work-42-first");
        assert!(matches!(add(&mut object, REQUEST), PullSecretAction::Change(_)));
        assert_eq!(list_pull_secrets(&object), [SECRET]);
        assert!(remove(&mut object, "work-42-first"));
        assert_eq!(list_pull_secrets(&object), [SECRET]);
        assert!(remove(&mut object, REQUEST) && list_pull_secrets(&object).is_empty());
        // A forged mark that names another Secret removes nothing.
        let mark = format!("{PULL_PREFIX}{REQUEST}");
        let mut object = json!({ "metadata": { "annotations": { mark.clone(): "of-somebody" } },
            "imagePullSecrets": [{ "name": "of-somebody" }, { "name": SECRET }] });
        assert!(remove(&mut object, REQUEST));
        assert_eq!(list_pull_secrets(&object), ["of-somebody", SECRET]);
    }

    #[test]
    fn applied_pull_secret_list_is_left_to_its_manager() {
        let applied = |operation: &str, field: &str| {
            make_account(&json!({ "metadata": { "managedFields": [
                { "manager": "kustomize-controller", "operation": operation, "fieldsV1": { field: {} } }] } }))
        };
        let naming = name_in(&applied("Apply", "f:imagePullSecrets"), REQUEST, SECRET);
        assert_eq!(naming, PullSecretAction::Applied("kustomize-controller".to_owned()));
        for (operation, field) in [("Update", "f:imagePullSecrets"), ("Apply", "f:secrets")] {
            let naming = name_in(&applied(operation, field), REQUEST, SECRET);
            assert!(matches!(naming, PullSecretAction::Change(_)), "{operation} {field}");
        }
    }

    /// A ServiceAccount that doesn't exist is reported as missing.
    #[test]
    fn recreated_account_gets_pull_secret_again() {
        assert_eq!(
            name_in(&read_account("runner", None), REQUEST, SECRET),
            PullSecretAction::Missing
        );
        let going = make_account(&json!({ "metadata": { "deletionTimestamp": "2026-06-01T12:00:00Z" } }));
        assert!(matches!(name_in(&going, REQUEST, SECRET), PullSecretAction::Change(_)));
        let recreated = make_account(&json!({ "metadata": { "uid": "a-2" } }));
        let PullSecretAction::Change(change) = name_in(&recreated, REQUEST, SECRET) else {
            panic!()
        };
        assert_eq!(change.patch["metadata"]["uid"], "a-2");
        // No forged content causes a panic.
        for rest in [
            json!({ "imagePullSecrets": "x" }),
            json!({ "imagePullSecrets": [5, { "name": 5 }, null] }),
            json!({ "metadata": { "annotations": { PULL_PREFIX: 5 }, "managedFields": [5, {}] } }),
            json!({ "metadata": null }),
        ] {
            assert!(
                matches!(
                    name_in(&make_account(&rest), REQUEST, SECRET),
                    PullSecretAction::Change(_)
                ),
                "{rest}"
            );
        }
    }
}
