//! The result of a build: objects, the origins of objects and fields, and the YAML.

use std::fmt;
use std::sync::Arc;

use go_yaml::emit;
use go_yaml::node::{Data, Node};
use serde_json::Value;

use crate::options::Budget;
use crate::resource::Resource;
use crate::touched::{Register, Touched};

/// A place in a file of the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The file's path in the tree.
    pub path: String,
    /// The line, from 1; 0 if it is unknown.
    pub line: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.path, self.line)
    }
}

/// The origin of a resource.
#[derive(Clone, Default)]
pub struct Provenance {
    /// The document that the resource was read from, or the generator that made it.
    pub location: Location,
    touched: Touched,
    register: Arc<Register>,
}

impl Provenance {
    /// Returns the transformers that ran over the resource, in order, each as `Transformer (file:line)`.
    pub fn transformers(&self) -> impl Iterator<Item = &str> {
        self.touched
            .steps()
            .filter_map(|step| self.register.steps.get(step).map(String::as_str))
    }
}

/// The name of a file for one resource, as `kustomize build -o DIR` makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileName {
    /// The namespace before the name, separated by `_`, if the resources of the build are in several namespaces; `None` for a
    /// cluster-scoped resource.
    pub namespace: Option<String>,
    /// Group, version, kind and name, in lower case.
    pub name: String,
}

/// A resource of a build.
///
/// The debug form prints its name and its origin, but not its content, which may be secret.
#[derive(Clone)]
pub struct BuiltResource {
    /// The object.
    pub object: Value,
    /// The origin of the resource.
    pub origin: Provenance,
    node: Node,
    is_cluster_scoped: bool,
    is_confidential: bool,
}

impl fmt::Debug for Provenance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Provenance")
            .field("location", &self.location)
            .field("transformers", &self.transformers().collect::<Vec<_>>())
            .finish()
    }
}

impl BuiltResource {
    pub(crate) fn new(object: Value, resource: Resource, register: Arc<Register>) -> Self {
        let is_cluster_scoped = resource.is_cluster_scoped();
        let is_confidential = resource.is_confidential();
        let mut built = BuiltResource {
            object,
            origin: Provenance {
                location: Location::default(),
                touched: resource.notes.touched_by,
                register,
            },
            node: resource.node,
            is_cluster_scoped,
            is_confidential,
        };
        built.origin.location = built.locate_node(&built.node).unwrap_or_default();
        built
    }

    /// Returns whether the resource is confidential: a Secret, a Secret that got another kind, or a resource with content copied from a
    /// Secret.
    #[must_use]
    pub fn is_confidential(&self) -> bool {
        self.is_confidential
    }

    /// Returns the object as JSON: a copy of [`Self::object`].
    #[must_use]
    pub fn to_json(&self) -> Value {
        self.object.clone()
    }

    /// Returns the object as one YAML document, without a separator.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        emit::write_document(&self.object)
    }

    /// Returns the name of the file that `kustomize build -o DIR` writes.
    #[must_use]
    pub fn file_name(&self) -> FileName {
        let text = |pointer: &str| self.object.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let parts: Vec<&str> = [group, version, kind]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        let namespace = match text("/metadata/namespace") {
            "" => "default",
            namespace => namespace,
        };
        FileName {
            namespace: (!self.is_cluster_scoped).then(|| namespace.to_lowercase()),
            name: format!("{}_{name}.yaml", parts.join("_")).to_lowercase(),
        }
    }

    /// Returns the location of the field at a JSON pointer. For a field without a line, it is the location of the nearest field around it.
    /// `None` if the field is missing.
    ///
    /// A field that a patch set is located in the patch. A field that a transformer made has the location of its resource, or of the field
    /// that it replaced.
    #[must_use]
    pub fn locate(&self, pointer: &str) -> Option<Location> {
        let mut node = &self.node;
        let mut nearest = self.locate_node(node);
        if pointer.is_empty() {
            return nearest;
        }
        for part in pointer.strip_prefix('/')?.split('/') {
            let part = part.replace("~1", "/").replace("~0", "~");
            node = match &node.data {
                Data::Map(_) => node.get(&part)?,
                Data::Seq(items) => items.get(part.parse::<usize>().ok()?)?,
                Data::Scalar(_) => return None,
            };
            nearest = self.locate_node(node).or(nearest);
        }
        nearest
    }

    fn locate_node(&self, node: &Node) -> Option<Location> {
        let path = self.origin.register.file(node.source);
        (node.line != 0 && !path.is_empty()).then(|| Location {
            path: path.to_owned(),
            line: node.line,
        })
    }
}

impl fmt::Debug for BuiltResource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |pointer: &str| {
            self.object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned()
        };
        formatter
            .debug_struct("BuiltResource")
            .field("kind", &text("/kind"))
            .field("name", &text("/metadata/name"))
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

/// The result of a build.
#[derive(Debug, Clone)]
pub struct Build {
    /// The resources, in the order in which they are written.
    pub resources: Vec<BuiltResource>,
    /// Warnings for the author, for example about deprecated fields. kustomize prints warnings on stderr.
    pub warnings: Vec<String>,
    /// The bytes and steps that the build used, in the units of the budget.
    pub used: Budget,
}

impl Build {
    /// Returns all resources as YAML documents, byte for byte as `kustomize build` prints them.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        for (index, resource) in self.resources.iter().enumerate() {
            if index > 0 {
                text.push_str("---\n");
            }
            text.push_str(&resource.to_yaml());
        }
        text
    }
}
