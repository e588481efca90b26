//! Kinds and namespaces that a folder creates and other objects of the folder need. Before these exist, the API server refuses such objects, and the refusal says
//! nothing about their later fate.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenure_api::{ObjectId, ObjectView};

use super::{Category, Finding, Level};
use tenure_planner::object::Origin;

/// The kinds and namespaces that a folder creates.
#[derive(Debug, Default)]
pub struct Prerequisites {
    kinds: BTreeMap<(String, String), String>,
    namespaces: BTreeSet<String>,
}

impl Prerequisites {
    /// Collects the kinds and namespaces from all objects of a folder.
    #[must_use]
    pub fn collect_from<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut awaited = Self::default();
        for object in objects {
            let view = ObjectView::new(object);
            let text = |path: &str| view.read_text(path).to_owned();
            match (view.read_text("/apiVersion"), view.read_text("/kind")) {
                ("v1", "Namespace") => {
                    awaited.namespaces.insert(text("/metadata/name"));
                }
                ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => {
                    let kind = (text("/spec/group"), text("/spec/names/kind"));
                    awaited.kinds.insert(kind, text("/metadata/name"));
                }
                _ => {}
            }
        }
        awaited
    }

    /// Returns the namespaces that the folder creates. The caller finds out which of them exist already.
    #[must_use]
    pub fn namespaces(&self) -> &BTreeSet<String> {
        &self.namespaces
    }

    /// Keeps only the namespaces that don't exist yet.
    #[must_use]
    pub fn keep_missing(mut self, missing: &BTreeSet<String>) -> Self {
        self.namespaces.retain(|namespace| missing.contains(namespace));
        self
    }

    /// Returns a finding if an object can't be judged yet. `is_served` says whether the cluster knows its kind.
    #[must_use]
    pub fn find_missing(&self, id: &ObjectId, is_served: bool, origin: Option<Origin>) -> Option<Finding> {
        let kind = (id.group.clone(), id.kind.clone());
        let what = match self.kinds.get(&kind) {
            Some(definition) if !is_served => format!("CustomResourceDefinition/{definition}"),
            _ if self.namespaces.contains(&id.namespace) => format!("Namespace/{}", id.namespace),
            _ => return None,
        };
        let message = format!("can't be checked before {what} exists, which the same folder creates");
        let note = Finding::new(Level::Note, Category::Schema, &message, "check again once it does");
        Some(note.with_object(id).with_origin(origin))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_namespaces_and_definitions_of_folder_are_prerequisites() {
        let objects = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "old"}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.org"},
                "spec": {"group": "example.org", "names": {"kind": "Thing"}}}),
        ];
        let awaited = Prerequisites::collect_from(&objects);
        assert_eq!(awaited.namespaces().len(), 2);
        let awaited = awaited.keep_missing(&BTreeSet::from(["new".to_owned()]));
        let find = |id: &str, is_served| {
            let id: ObjectId = id.parse().unwrap();
            awaited
                .find_missing(&id, is_served, None)
                .map(|finding| finding.message)
        };
        let says = |found: Option<String>, what: &str| {
            assert!(found.as_ref().is_some_and(|found| found.contains(what)), "{found:?}")
        };
        says(find("new_a__ConfigMap", true), "Namespace/new");
        assert_eq!(find("old_a__ConfigMap", true), None);
        says(
            find("old_a_example.org_Thing", false),
            "CustomResourceDefinition/things.example.org",
        );
        assert_eq!(find("old_a_example.org_Thing", true), None);
        assert_eq!(find("old_a_example.org_Other", false), None);
    }
}
