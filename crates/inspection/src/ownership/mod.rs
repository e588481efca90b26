//! The owners of an object's fields that Git sets: contested, stolen and abandoned fields, for `tenure audit`.
//!
//! The audit is a function of the object's metadata, of Git's content, and of the Kustomizations that claim to apply the object. It compares no values: managedFields
//! say which manager has a field. So the content of a Secret is never read, and two managers with equal values today may differ tomorrow.
//!
//! - **Contested**: Git's manager has the field, and another manager too; or two Kustomizations claim to apply the object. The first writer of a change decides for
//!   both.
//! - **Stolen**: Git sets the field, and another manager alone has it.
//! - **Abandoned**: Git's manager has the field, and nothing exists any more that would change or remove it; or Git sets the field and no manager has it.

pub mod fields;
pub mod writers;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use structured_merge::{
    FieldPath, FieldSet, Managed, ManagedFieldsEntry, ManagedFieldsError, Operation, PathElement, owners,
};
use tenure_api::metadata::KUSTOMIZE_CONTROLLER;
use tenure_api::{ObjectId, ObjectView};

use crate::object_facts::find_other_cluster;

/// The namespace and the name of a Kustomization.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct KustomizationName {
    /// The namespace of the Kustomization.
    pub namespace: String,
    /// The name of the Kustomization.
    pub name: String,
}

impl std::fmt::Display for KustomizationName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// The state of the Kustomization that the object's labels name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// The Kustomization exists and has the object in its inventory.
    Keeps,
    /// The Kustomization exists, and the object is not in its inventory.
    Dropped,
    /// The Kustomization doesn't exist.
    Gone,
    /// The user may not read the Kustomization, so no finding rests on it.
    Unseen,
}

/// An object that bears a Kustomization's labels, or is in the inventory of one.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// The id of the object.
    pub id: &'a ObjectId,
    /// The object; its metadata are enough.
    pub object: &'a Value,
    /// The Kustomization that the object's labels name. Without labels, the Kustomization whose inventory lists the object.
    pub owner: &'a KustomizationName,
    /// The state of the Kustomization that the labels name.
    pub keeper: OwnerState,
    /// Other Kustomizations that have the object in their inventories.
    pub claimants: &'a [KustomizationName],
    /// The object in Git, if it is known.
    pub declared: Option<&'a Value>,
}

/// The problem of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Fault {
    /// Git's manager and another manager have the field, or two Kustomizations claim the object.
    Contested,
    /// Git sets the field, and another manager has it.
    Stolen,
    /// No writer is left that would change or remove the field.
    Abandoned,
}

impl Fault {
    /// Returns the fault in a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Contested => "contested",
            Self::Stolen => "stolen",
            Self::Abandoned => "abandoned",
        }
    }
}

/// A contested, stolen or abandoned field, or an object with such a problem as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The object.
    pub id: ObjectId,
    /// The field; nothing if the finding is about the object as a whole.
    pub field: Option<FieldPath>,
    /// The fault.
    pub fault: Fault,
    /// Entries of managedFields that have the field, Git's first.
    pub holders: Vec<ManagedFieldsEntry>,
    /// The meaning of the fault.
    pub why: String,
    /// The remedy.
    pub remedy: String,
}

/// Finds the problems of an object's fields, in the order of the fields.
///
/// # Errors
/// The object's managedFields can't be read.
pub fn audit_fields(subject: &Subject<'_>) -> Result<Vec<Finding>, ManagedFieldsError> {
    // Other subresources, such as `scale`, write fields of the spec.
    let entries: Vec<ManagedFieldsEntry> = Managed::of_object(subject.object)?
        .entries()
        .into_iter()
        .filter(|entry| entry.subresource != "status")
        .collect();
    let (git, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_git);
    let mut findings = Vec::new();
    findings.extend(find_claimants(subject));
    let Some(git) = git.into_iter().next() else {
        if subject.keeper == OwnerState::Keeps {
            findings.push(make_finding(
                subject,
                None,
                Fault::Abandoned,
                Vec::new(),
                "Git's manager has none of its fields: its entry was taken out of managedFields, or it never applied them".to_owned(),
                format!("tenure reconcile ks/{} -n {} makes them Git's again", subject.owner.name, subject.owner.namespace),
            ));
        }
        return Ok(findings);
    };
    if let Some((why, remedy)) = describe_abandonment(subject) {
        findings.push(make_finding(
            subject,
            None,
            Fault::Abandoned,
            vec![git.clone()],
            why,
            remedy,
        ));
        // No writer is left with which the others could contend.
        return Ok(findings);
    }
    findings.extend(find_contested(subject, &git, &others));
    findings.extend(find_stolen(subject, &git, &others));
    Ok(findings)
}

fn is_git(entry: &ManagedFieldsEntry) -> bool {
    entry.manager == KUSTOMIZE_CONTROLLER && entry.operation == Operation::Apply && entry.subresource.is_empty()
}

fn make_finding(
    subject: &Subject<'_>,
    field: Option<FieldPath>,
    fault: Fault,
    holders: Vec<ManagedFieldsEntry>,
    why: String,
    remedy: String,
) -> Finding {
    Finding {
        id: subject.id.clone(),
        field,
        fault,
        holders,
        why,
        remedy,
    }
}

/// Returns a finding if several Kustomizations have the object in their inventories. All use one field manager, so managedFields don't show the conflict.
fn find_claimants(subject: &Subject<'_>) -> Option<Finding> {
    if subject.claimants.is_empty() {
        return None;
    }
    let others: Vec<String> = subject.claimants.iter().map(ToString::to_string).collect();
    Some(make_finding(
        subject,
        None,
        Fault::Contested,
        Vec::new(),
        format!(
            "Kustomization {} applied it last, and it is in the inventory of {} too",
            subject.owner,
            others.join(", ")
        ),
        "take it out of the repositories of all but one".to_owned(),
    ))
}

/// Returns the reason and the remedy if the object's Kustomization is gone or no longer applies the object.
fn describe_abandonment(subject: &Subject<'_>) -> Option<(String, String)> {
    let owner = subject.owner;
    match subject.keeper {
        OwnerState::Keeps | OwnerState::Unseen => None,
        OwnerState::Dropped => Some((
            format!("Kustomization {owner} applied it, but its inventory no longer lists it"),
            "delete it with kubectl, or add it to a repository again, whose Kustomization takes it over".to_owned(),
        )),
        OwnerState::Gone => Some((
            format!("Kustomization {owner}, which applied it, is gone"),
            "delete it, or apply it by another Kustomization, which takes it over".to_owned(),
        )),
    }
}

/// Finds the fields that both Git's manager and another manager have.
fn find_contested(subject: &Subject<'_>, git: &ManagedFieldsEntry, others: &[ManagedFieldsEntry]) -> Vec<Finding> {
    let mut shared: BTreeMap<String, (FieldPath, Vec<ManagedFieldsEntry>)> = BTreeMap::new();
    for other in others {
        for path in list_leaves(&other.fields) {
            if git.fields.contains(&path.0) && is_leaf(&git.fields, &path.0) {
                let (_, holders) = shared
                    .entry(path.to_string())
                    .or_insert_with(|| (path, vec![git.clone()]));
                holders.push(other.clone());
            }
        }
    }
    let describe = |(path, holders): (FieldPath, Vec<ManagedFieldsEntry>)| {
        let why =
            "Git and another manager own it with the same value; the next change of either decides for both".to_owned();
        let remedy =
            "leave it to one of them: remove it from the repository, or from the writes of the other".to_owned();
        make_finding(subject, Some(path), Fault::Contested, holders, why, remedy)
    };
    shared.into_values().map(describe).collect()
}

/// Finds the fields that Git sets and only other managers have.
fn find_stolen(subject: &Subject<'_>, git: &ManagedFieldsEntry, others: &[ManagedFieldsEntry]) -> Vec<Finding> {
    let Some(declared) = subject.declared else {
        return Vec::new();
    };
    let mut taken: BTreeMap<String, (FieldPath, Vec<ManagedFieldsEntry>)> = BTreeMap::new();
    for other in others {
        for path in list_leaves(&other.fields) {
            if owners::value_at(declared, &path).is_some() && !owns_path(&git.fields, &path.0) {
                let (_, holders) = taken.entry(path.to_string()).or_insert_with(|| (path, Vec::new()));
                holders.push(other.clone());
            }
        }
    }
    let suspended = format!(
        "tenure reconcile ks/{} -n {} puts it back. To leave the field to the other writer, remove it from the repository, or name that writer in {}",
        subject.owner.name,
        subject.owner.namespace,
        tenure_api::metadata::OTHER_WRITERS
    );
    let describe = |(path, holders): (FieldPath, Vec<ManagedFieldsEntry>)| {
        let why = "Git sets it, and its manager doesn't own it".to_owned();
        make_finding(subject, Some(path), Fault::Stolen, holders, why, suspended.clone())
    };
    taken.into_values().map(describe).collect()
}

/// Lists the fields that are owned as a whole, except the keys of a list's items, which every manager of a part of the item has.
fn list_leaves(set: &FieldSet) -> Vec<FieldPath> {
    let is_key = |path: &FieldPath| match path.0.as_slice() {
        [.., PathElement::Key(key), PathElement::Field(name)] => key.iter().any(|field| field.name == *name),
        _ => false,
    };
    set.paths()
        .into_iter()
        .filter(|path| is_leaf(set, &path.0) && !is_key(path))
        .collect()
}

/// Checks whether no field inside this path is owned.
fn is_leaf(set: &FieldSet, path: &[PathElement]) -> bool {
    let mut below = set;
    for element in path {
        match below.node(element) {
            Some(node) => below = &node.children,
            None => return true,
        }
    }
    below.is_empty()
}

/// Checks whether the field or a field inside it is owned, or a parent is owned as a whole.
fn owns_path(set: &FieldSet, path: &[PathElement]) -> bool {
    let mut below = set;
    for element in path {
        match below.node(element) {
            // A parent that is owned as a whole.
            Some(node) if node.member && node.children.is_empty() => return true,
            Some(node) => below = &node.children,
            None => return false,
        }
    }
    true
}

/// Reads the Kustomization that an object's labels name.
#[must_use]
pub fn read_owner(object: &Value) -> Option<KustomizationName> {
    let (namespace, name) = tenure_tenancy::owner::read_owner_labels(object)?;
    Some(KustomizationName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Reads the objects that a Kustomization has applied in this cluster by its status.
///
/// # Errors
/// The inventory is of another cluster, which the error names: objects of the same names in this cluster don't belong to it.
pub fn read_inventory(kustomization: &Value) -> Result<Vec<ObjectId>, String> {
    let kustomization = ObjectView::new(kustomization);
    if let Some(elsewhere) = find_other_cluster(kustomization) {
        return Err(elsewhere);
    }
    let entries = kustomization.list_views("/status/inventory/entries");
    Ok(entries
        .filter_map(|entry| entry.read_text("/id").parse().ok())
        .collect())
}

/// Judges the state of the Kustomization in an object's labels; `kustomization` is this object, if it exists.
#[must_use]
pub fn assess_owner_state(kustomization: Option<&Value>, id: &ObjectId) -> OwnerState {
    match kustomization.map(read_inventory) {
        None => OwnerState::Gone,
        Some(Ok(inventory)) if inventory.contains(id) => OwnerState::Keeps,
        Some(_) => OwnerState::Dropped,
    }
}

#[cfg(test)]
mod tests;
