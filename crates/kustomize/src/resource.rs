//! A resource under construction: its nodes, its names so far, and its origin.

use std::collections::BTreeMap;
use std::sync::Arc;

use go_yaml::node::{Node, Style};

use crate::collection::Trouble;
use crate::id::{Gvk, ResourceId};
use crate::meter;
use crate::schema::Schema;
use crate::touched::Touched;

/// The behavior of a generator for an existing resource with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Behavior {
    #[default]
    Unspecified,
    Create,
    Replace,
    Merge,
}

impl Behavior {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "create" => Behavior::Create,
            "replace" => Behavior::Replace,
            "merge" => Behavior::Merge,
            _ => Behavior::Unspecified,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Behavior::Unspecified => "unspecified",
            Behavior::Create => "create",
            Behavior::Replace => "replace",
            Behavior::Merge => "merge",
        }
    }
}

/// The notes about a resource during a build. The real kustomize stores them in annotations that it removes at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// Earlier names, oldest first: name, namespace and kind.
    pub(crate) previous: Vec<(String, String, String)>,
    pub(crate) prefixes: Vec<String>,
    pub(crate) suffixes: Vec<String>,
    pub(crate) behavior: Behavior,
    pub(crate) needs_hash: bool,
    /// A generator made the resource.
    pub(crate) is_generated: bool,
    pub(crate) allow_name_change: bool,
    pub(crate) allow_kind_change: bool,
    /// Names of the vars that read from this resource.
    pub(crate) var_names: Vec<String>,
    /// The text of the origin annotation, when the build keeps one.
    pub(crate) origin: Option<String>,
    /// The text of the transformations annotation.
    pub(crate) transformations: String,
    /// Transformers that were run over the resource, in order.
    pub(crate) touched_by: Touched,
    /// The number of groups of shared nodes in the resource.
    pub(crate) shares: u16,
    /// The resource was read or made as a Secret, or contains a value copied from one.
    pub(crate) holds_secret: bool,
}

impl Notes {
    /// Checks whether kustomize would store any of these notes in annotations of the resource.
    pub(crate) fn are_annotations(&self) -> bool {
        !self.previous.is_empty() || self.needs_hash || self.is_generated || self.origin.is_some()
    }
}

/// A resource of a build.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) node: Node,
    pub(crate) notes: Notes,
    /// The build's knowledge of kinds.
    pub(crate) schema: Arc<Schema>,
}

/// Annotations that only the build uses. Annotations of these names from the author are removed too.
pub(crate) const BUILD_ANNOTATIONS: [&str; 19] = [
    "internal.config.kubernetes.io/previousKinds",
    "internal.config.kubernetes.io/previousNames",
    "internal.config.kubernetes.io/prefixes",
    "internal.config.kubernetes.io/suffixes",
    "internal.config.kubernetes.io/previousNamespaces",
    "internal.config.kubernetes.io/allowNameChange",
    "internal.config.kubernetes.io/allowKindChange",
    "internal.config.kubernetes.io/refBy",
    "internal.config.kubernetes.io/generatorBehavior",
    "internal.config.kubernetes.io/needsHashSuffix",
    "internal.config.kubernetes.io/path",
    "internal.config.kubernetes.io/index",
    "internal.config.kubernetes.io/seqindent",
    "internal.config.kubernetes.io/id",
    "internal.config.kubernetes.io/annotations-migration-resource-id",
    "config.kubernetes.io/path",
    "config.kubernetes.io/index",
    "config.k8s.io/id",
    "internal.config.kubernetes.io/helm-generated",
];

/// The annotations that show the author the origin of a resource, and its transformations.
const ORIGIN: &str = "config.kubernetes.io/origin";
const TRANSFORMATIONS: &str = "alpha.config.kubernetes.io/transformations";

impl Resource {
    /// Takes a resource as it was read; notes that an author wrote as annotations are honoured.
    pub(crate) fn new(node: Node, schema: &Arc<Schema>) -> Self {
        let mut notes = Notes::default();
        if let Some(annotations) = node.find_at(&["metadata", "annotations"]) {
            let wanted = annotations.get("internal.config.kubernetes.io/needsHashSuffix");
            notes.needs_hash = wanted.is_some_and(|value| value.text() == "enabled");
            if let Some(behavior) = annotations.get("internal.config.kubernetes.io/generatorBehavior") {
                notes.behavior = Behavior::parse(behavior.text());
            }
        }
        notes.holds_secret = node.get("kind").is_some_and(|kind| kind.text() == "Secret");
        Resource {
            node,
            notes,
            schema: Arc::clone(schema),
        }
    }

    /// Returns a field of the root, as text.
    fn root_text(&self, field: &str) -> &str {
        self.node.get(field).map_or("", Node::text)
    }

    pub(crate) fn gvk(&self) -> Gvk {
        Gvk::new(self.root_text("apiVersion"), self.root_text("kind"))
    }

    pub(crate) fn is_cluster_scoped(&self) -> bool {
        self.schema.is_cluster_scoped(&self.gvk())
    }

    pub(crate) fn kind(&self) -> &str {
        self.root_text("kind")
    }

    /// Returns whether the resource may contain a Secret's value.
    pub(crate) fn is_confidential(&self) -> bool {
        self.notes.holds_secret || self.kind() == "Secret"
    }

    pub(crate) fn api_version(&self) -> &str {
        self.root_text("apiVersion")
    }

    fn metadata_text(&self, field: &str) -> &str {
        self.node
            .find_at(&["metadata", field])
            .filter(|node| !node.is_empty())
            .map_or("", Node::text)
    }

    pub(crate) fn name(&self) -> &str {
        self.metadata_text("name")
    }

    pub(crate) fn namespace(&self) -> &str {
        self.metadata_text("namespace")
    }

    pub(crate) fn current_id(&self) -> ResourceId {
        ResourceId::new(&self.schema, self.gvk(), self.name(), self.namespace())
    }

    /// Ids that the resource had before, oldest first.
    pub(crate) fn previous_ids(&self) -> Vec<ResourceId> {
        meter::count_steps(1 + 4 * self.notes.previous.len());
        let gvk = self.gvk();
        self.notes
            .previous
            .iter()
            .map(|(name, namespace, kind)| {
                ResourceId::new(
                    &self.schema,
                    Gvk {
                        kind: kind.clone(),
                        ..gvk.clone()
                    },
                    name.clone(),
                    namespace.clone(),
                )
            })
            .collect()
    }

    /// Returns the oldest id.
    pub(crate) fn original_id(&self) -> ResourceId {
        self.previous_ids()
            .into_iter()
            .next()
            .unwrap_or_else(|| self.current_id())
    }

    /// Previous ids, then the current one.
    pub(crate) fn all_ids(&self) -> Vec<ResourceId> {
        let mut ids = self.previous_ids();
        ids.push(self.current_id());
        ids
    }

    /// Notes the current id as a previous one, before a change.
    pub(crate) fn store_previous_id(&mut self) {
        self.drop_empty_annotations();
        let id = self.current_id();
        let namespace = id.effective_namespace().to_owned();
        meter::count_text(80 + id.name.len() + namespace.len() + id.gvk.kind.len());
        self.notes.previous.push((id.name, namespace, id.gvk.kind));
    }

    /// Records that a JSON patch wrote and read the labels, independent of their source.
    pub(crate) fn note_labels_are_read(&mut self) {
        let line = self.node.line.max(1);
        let metadata = self.node.get_mut("metadata").and_then(Node::entries_mut);
        let Some((key, labels)) =
            metadata.and_then(|entries| entries.iter_mut().find(|(key, _)| key.text() == "labels"))
        else {
            return;
        };
        let inside = labels.entries_mut().into_iter().flatten().map(|(key, _)| key);
        for key in std::iter::once(key).chain(inside).filter(|key| key.line == 0) {
            key.line = line;
        }
    }

    /// Takes annotations away that are no mapping: kustomize makes one of its notes in their place.
    fn drop_empty_annotations(&mut self) {
        if let Some(metadata) = self.node.get_mut("metadata")
            && metadata
                .get("annotations")
                .is_some_and(|annotations| annotations.is_scalar() || annotations.is_empty())
        {
            metadata.remove("annotations");
        }
    }

    /// Notes where the resource comes from.
    ///
    /// # Errors
    /// If the annotations, which kustomize keeps this in, are no mapping.
    pub(crate) fn set_origin(&mut self, origin: String) -> Result<(), Trouble> {
        let annotations = self.node.find_at(&["metadata", "annotations"]);
        if annotations.is_some_and(|annotations| !annotations.is_map() && !annotations.is_null()) {
            let message = "metadata.annotations must be a mapping: buildMetadata notes the origin there";
            return Err(Trouble::new(self, message));
        }
        self.notes.origin = Some(origin);
        Ok(())
    }

    /// Copies the latest write to one place of a shared node to all of its places.
    pub(crate) fn settle_shares(&mut self) {
        if self.notes.shares > 0 {
            self.node.settle_shares();
        }
    }

    pub(crate) fn set_name(&mut self, name: &str) {
        if let Some(metadata) = self.node.map_field("metadata") {
            metadata.set_field("name", Node::untyped(name));
        }
    }

    pub(crate) fn set_namespace(&mut self, namespace: &str) {
        if namespace.is_empty() {
            if let Some(metadata) = self.node.get_mut("metadata") {
                metadata.remove("namespace");
            }
        } else if let Some(metadata) = self.node.map_field("metadata") {
            metadata.set_field("namespace", Node::untyped(namespace));
        }
    }

    pub(crate) fn set_kind(&mut self, kind: &str) {
        self.node.set_field("kind", Node::untyped(kind));
    }

    pub(crate) fn set_api_version(&mut self, api_version: &str) {
        self.node.set_field("apiVersion", Node::untyped(api_version));
    }

    /// Returns labels or annotations with every value as text.
    pub(crate) fn text_map(&self, field: &str) -> BTreeMap<String, String> {
        self.node
            .find_at(&["metadata", field])
            .map(|map| {
                meter::count_steps(4 * map.entries().len());
                map.entries()
                    .iter()
                    .map(|(key, value)| (key.text().to_owned(), value.text().to_owned()))
                    .collect()
            })
            .unwrap_or_default()
    }

    /// Replaces labels or annotations; their values become strings, and an empty map removes the field.
    pub(crate) fn set_text_map(&mut self, field: &str, map: &BTreeMap<String, String>) {
        let Some(metadata) = self.node.map_field("metadata") else {
            return;
        };
        let old = metadata.remove(field);
        if map.is_empty() {
            return;
        }
        let Some(target) = metadata.map_field(field) else {
            return;
        };
        for (key, text) in map {
            let mut value = Node::string(text.clone());
            if let Some(old) = old.as_ref().and_then(|old| old.get(key)) {
                value = value.with_place_of(old);
            }
            if text.contains('\n') {
                value.style = Style::Literal;
            }
            target.set_field(key, value);
        }
    }

    /// Makes all annotations strings and removes an empty map. kustomize does this on every write of an annotation.
    pub(crate) fn settle_annotations(&mut self) {
        let annotations = self.text_map("annotations");
        self.set_text_map("annotations", &annotations);
    }

    /// Writes the notes that kustomize stores in annotations, so that a patch can remove them.
    pub(crate) fn show_origin(&mut self) {
        let shown = [
            (ORIGIN, self.notes.origin.clone()),
            (TRANSFORMATIONS, Some(self.notes.transformations.clone())),
        ];
        for (name, text) in shown {
            if let Some(text) = text.filter(|text| !text.is_empty())
                && let Some(metadata) = self.node.map_field("metadata")
                && let Some(annotations) = metadata.map_field("annotations")
            {
                annotations.set_field(name, Node::quoted(text));
            }
        }
    }

    /// Removes the annotations that [`Self::show_origin`] wrote, as far as patches left them.
    pub(crate) fn hide_origin(&mut self) {
        let mut hidden = |name: &str| -> Option<String> {
            let metadata = self.node.get_mut("metadata")?;
            let annotations = metadata.get_mut("annotations")?;
            let text = annotations.remove(name)?.text().to_owned();
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
            Some(text)
        };
        let (origin, transformations) = (hidden(ORIGIN), hidden(TRANSFORMATIONS));
        if self.notes.origin.is_some() {
            self.notes.origin = origin;
            self.notes.transformations = transformations.unwrap_or_default();
        }
    }

    /// Removes the annotations that only the build uses, and writes the annotations that the build keeps.
    pub(crate) fn finish(&mut self, keep_origin: bool, keep_transformations: bool) {
        let mut annotations = self.text_map("annotations");
        for name in BUILD_ANNOTATIONS {
            annotations.remove(name);
        }
        annotations.remove(ORIGIN);
        annotations.remove(TRANSFORMATIONS);
        if keep_origin && let Some(origin) = &self.notes.origin {
            annotations.insert(ORIGIN.to_owned(), origin.clone());
        }
        if keep_transformations && !self.notes.transformations.is_empty() {
            annotations.insert(TRANSFORMATIONS.to_owned(), self.notes.transformations.clone());
        }
        self.set_text_map("annotations", &annotations);
    }
}
