//! The ordered list of resources of a build. Each id is unique.

use std::collections::HashSet;

use crate::id::{Key, ResourceId};
use crate::meter;
use crate::resource::{Behavior, Resource};

/// Resources in the order in which they were loaded.
#[derive(Debug, Default)]
pub(crate) struct Collection {
    pub(crate) list: Vec<Resource>,
}

/// The error of a step for one resource, before the file's number is replaced by its path.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// The resource.
    pub(crate) id: String,
    /// The number of the file, and the line.
    pub(crate) source: u32,
    pub(crate) line: u32,
    pub(crate) message: String,
}

impl Trouble {
    pub(crate) fn new(resource: &Resource, message: impl Into<String>) -> Self {
        Trouble {
            id: resource.current_id().to_string(),
            source: resource.node.source,
            line: resource.node.line,
            message: if resource.is_confidential() {
                HIDDEN_REASON.to_owned()
            } else {
                message.into()
            },
        }
    }
}

/// The message for a failed operation on a Secret. The reason is left out, because it could quote the Secret's content.
pub(crate) const HIDDEN_REASON: &str =
    "this can't be done with what the Secret holds; it is not said why, since that could quote it";

impl Collection {
    /// Appends resources.
    ///
    /// # Errors
    /// If one has the id of another.
    pub(crate) fn append_all(&mut self, others: Vec<Resource>) -> Result<(), Trouble> {
        let mut known = self.keys();
        self.append_known(&mut known, others)
    }

    /// Checks for two resources with one id, as kustomize does each time it collects resources.
    ///
    /// # Errors
    /// If two resources have one id.
    pub(crate) fn check_ids(&self) -> Result<(), Trouble> {
        let mut known = HashSet::with_capacity(self.list.len());
        for resource in &self.list {
            let id = resource.current_id();
            if !known.insert(id.clone().into_key()) {
                return Err(Trouble::new(
                    resource,
                    format!("may not add resource with an already registered id: {id}"),
                ));
            }
        }
        Ok(())
    }

    /// Returns the keys of all ids. Ids with equal keys collide.
    pub(crate) fn keys(&self) -> HashSet<Key> {
        self.list
            .iter()
            .map(|resource| resource.current_id().into_key())
            .collect()
    }

    /// Appends resources to a collection whose keys are known, so that many small appends cost no more than a large one.
    ///
    /// # Errors
    /// If a resource has the id of another.
    pub(crate) fn append_known(&mut self, known: &mut HashSet<Key>, others: Vec<Resource>) -> Result<(), Trouble> {
        for resource in others {
            meter::count_steps(1);
            if !known.insert(resource.current_id().into_key()) {
                let id = resource.current_id();
                let first = self.list.iter().find(|other| other.current_id().same_as(&id));
                let place = first.map_or(String::new(), |other| {
                    format!(", first on line {} of its file", other.node.line)
                });
                return Err(Trouble::new(
                    &resource,
                    format!("may not add resource with an already registered id: {id}{place}"),
                ));
            }
            self.list.push(resource);
        }
        Ok(())
    }

    /// Adds a generated resource: as a new resource, or into the existing resource with its name.
    ///
    /// # Errors
    /// If the behavior of the generator doesn't fit the existing resources.
    pub(crate) fn absorb(&mut self, mut resource: Resource) -> Result<(), Trouble> {
        meter::check().map_err(|message| Trouble::new(&resource, message))?;
        let id = resource.current_id();
        let matches = self.matching_any(|known| known.same_as(&id));
        let behavior = resource.notes.behavior;
        match matches.as_slice() {
            [] if matches!(behavior, Behavior::Merge | Behavior::Replace) => Err(Trouble::new(
                &resource,
                format!("id {id} does not exist; cannot merge or replace"),
            )),
            [] => {
                self.list.push(resource);
                Ok(())
            }
            [only] => {
                let Some(old) = self.list.get_mut(*only) else {
                    return Ok(());
                };
                match behavior {
                    Behavior::Replace => take_metadata(&mut resource, old),
                    Behavior::Merge => {
                        let origin = old.notes.origin.clone();
                        take_metadata(&mut resource, old);
                        merge_data(&mut resource, old);
                        if origin.is_some() {
                            resource.notes.origin = origin;
                        }
                    }
                    _ => {
                        let message = format!(
                            "id {id} exists; can not use behavior: '{}', behavior must be merge or replace",
                            behavior.name()
                        );
                        return Err(Trouble::new(&resource, message));
                    }
                }
                *old = resource;
                Ok(())
            }
            _ => Err(Trouble::new(
                &resource,
                format!("found multiple objects that could accept merge of {id}"),
            )),
        }
    }

    /// Positions of resources of which any id, previous or current, fits.
    pub(crate) fn matching_any(&self, fits: impl Fn(&ResourceId) -> bool) -> Vec<usize> {
        self.list
            .iter()
            .enumerate()
            .filter(|(_, resource)| meter::exhausted_limit().is_none() && resource.all_ids().iter().any(&fits))
            .map(|(position, _)| position)
            .collect()
    }

    /// Returns the position of the only resource that has, or had, an id.
    ///
    /// # Errors
    /// If no resource has the id, or several have it.
    pub(crate) fn find_only(&self, id: &ResourceId) -> Result<usize, String> {
        meter::count_steps(self.list.len());
        meter::check()?;
        let found: Vec<usize> = self
            .list
            .iter()
            .enumerate()
            .filter(|(_, resource)| {
                (resource.name() == id.name || resource.notes.previous.iter().any(|(name, _, _)| *name == id.name))
                    && resource.all_ids().iter().any(|known| known.same_as(id))
            })
            .map(|(position, _)| position)
            .collect();
        match found.as_slice() {
            [only] => Ok(*only),
            [] => Err(format!("no matches for Id {id}{}", self.list_similar(id))),
            _ => Err(format!(
                "multiple matches for Id {id}; failed to find unique target for patch {id}"
            )),
        }
    }

    /// Returns ids that are similar to a missing id: with its kind, or with its name.
    fn list_similar(&self, id: &ResourceId) -> String {
        let of_kind = self.list.iter().filter(|other| other.kind() == id.gvk.kind);
        let of_name = self
            .list
            .iter()
            .filter(|other| other.kind() != id.gvk.kind && other.name() == id.name);
        let shown = of_kind.chain(of_name).take(3);
        let shown: Vec<String> = shown.map(|other| other.current_id().to_string()).collect();
        if shown.is_empty() {
            return String::new();
        }
        format!("; there is {}", shown.join(", "))
    }

    /// Drops resources that a patch left nothing of.
    pub(crate) fn drop_empty(&mut self) {
        self.list.retain(|resource| !resource.node.is_empty());
    }
}

/// Copies the labels, annotations, name and notes of the old resource to the generated resource that merges into it or replaces it.
fn take_metadata(resource: &mut Resource, old: &Resource) {
    let mut labels = old.text_map("labels");
    labels.extend(resource.text_map("labels"));
    resource.set_text_map("labels", &labels);
    let mut annotations = old.text_map("annotations");
    annotations.extend(resource.text_map("annotations"));
    resource.set_text_map("annotations", &annotations);
    if old.notes.are_annotations() {
        // The notes come behind these labels, as in a resource that is generated with labels.
        resource.note_labels_are_read();
    }
    resource.set_name(old.name());
    resource.set_namespace(old.namespace());
    let needs_hash = resource.notes.needs_hash && old.notes.needs_hash;
    let origin = resource.notes.origin.take().or_else(|| old.notes.origin.clone());
    resource.notes = old.notes.clone();
    resource.notes.needs_hash = needs_hash;
    resource.notes.origin = origin;
}

fn merge_data(resource: &mut Resource, old: &Resource) {
    for field in ["data", "binaryData"] {
        let map = |from: &Resource| -> std::collections::BTreeMap<String, go_yaml::node::Node> {
            from.node
                .get(field)
                .map(|data| {
                    data.entries()
                        .iter()
                        .map(|(key, value)| (key.text().to_owned(), value.clone()))
                        .collect()
                })
                .unwrap_or_default()
        };
        let mut merged = map(old);
        merged.extend(map(resource));
        resource.node.remove(field);
        if merged.is_empty() {
            continue;
        }
        // kustomize decides again for each value whether it belongs into data or binaryData, by whether the value is UTF-8. So the
        // binaryData of a Secret stays data.
        let Some(target) = resource.node.map_field(field) else {
            continue;
        };
        for (key, value) in merged {
            let mut fresh =
                go_yaml::node::Node::quoted(if value.is_null() { "" } else { value.text() }).with_place_of(&value);
            fresh.style = go_yaml::node::Style::Quoted;
            target.set_field(&key, fresh);
        }
    }
}
