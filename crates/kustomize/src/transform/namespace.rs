//! `namespace`: sets the namespace of namespaced resources, the name of the Namespace itself, and the fields that name it.

use go_yaml::node::{Node, Style, Tag};

use crate::collection::{Collection, Trouble};
use crate::fields::FieldSpec;
use crate::fieldspec::{Create, apply};
use crate::meter;
use crate::resource::Resource;

/// The subjects of role bindings that get the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Subjects {
    /// Subjects named `default`.
    #[default]
    Default,
    /// Every service account.
    All,
    /// No subjects.
    None,
}

/// The namespace transformer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Namespace {
    pub(crate) namespace: String,
    pub(crate) fields: Vec<FieldSpec>,
    pub(crate) unset_only: bool,
    pub(crate) subjects: Subjects,
}

impl Namespace {
    pub(crate) fn transform(&self, resources: &mut Collection) -> Result<(), Trouble> {
        if self.namespace.is_empty() {
            return Ok(());
        }
        for resource in &mut resources.list {
            if resource
                .text_map("annotations")
                .get("internal.config.kubernetes.io/helm-generated")
                .is_some_and(|v| v == "true")
            {
                continue;
            }
            resource.store_previous_id();
            meter::check().map_err(|message| Trouble::new(resource, message))?;
            self.set(resource)
                .map_err(|message| Trouble::new(resource, format!("namespace transformation failed: {message}")))?;
            if self.fields.iter().any(|spec| spec.path.starts_with("metadata/labels")) {
                resource.settle_shares();
            }
        }
        let mut known = std::collections::HashSet::new();
        for resource in &resources.list {
            if !known.insert(resource.current_id().into_key()) {
                return Err(Trouble::new(
                    resource,
                    "namespace transformation produces ID conflict: another resource has this id now",
                ));
            }
        }
        Ok(())
    }

    /// Sets the namespace of one resource.
    pub(crate) fn set(&self, resource: &mut Resource) -> Result<(), String> {
        let mut write = |node: &mut Node| self.write(node);
        if !resource.is_cluster_scoped() {
            let spec = FieldSpec {
                path: "metadata/namespace".to_owned(),
                create: true,
                ..FieldSpec::default()
            };
            apply(&mut resource.node, &spec, Create::Scalar, &mut write)?;
        }
        let binding = matches!(resource.kind(), "RoleBinding" | "ClusterRoleBinding");
        if binding {
            self.set_subjects(&mut resource.node)?;
        }
        let is_core = resource.api_version() == "v1";
        for spec in &self.fields {
            let skipped = spec.path == "metadata/namespace"
                || (spec.path == "metadata/name" && !is_core)
                || (binding
                    && spec.path == "subjects/namespace"
                    && matches!(spec.gvk.kind.as_str(), "RoleBinding" | "ClusterRoleBinding"));
            if !skipped {
                apply(&mut resource.node, spec, Create::Scalar, &mut write)?;
            }
        }
        Ok(())
    }

    fn write(&self, node: &mut Node) -> Result<(), String> {
        if !node.is_scalar() {
            return Err("namespace field specs must target scalar nodes".to_owned());
        }
        if self.unset_only && !node.text().is_empty() {
            // An explicit null is not unset, and stays unchanged.
            if node.style == Style::Plain && matches!(node.text(), "null" | "Null" | "NULL" | "~") {
                node.tag = Tag::None;
            }
            return Ok(());
        }
        node.assign_scalar(Node::scalar(self.namespace.clone(), Tag::Str));
        Ok(())
    }

    fn set_subjects(&self, node: &mut Node) -> Result<(), String> {
        let (field, wanted) = match self.subjects {
            Subjects::None => return Ok(()),
            Subjects::Default => ("name", "default"),
            Subjects::All => ("kind", "ServiceAccount"),
        };
        let Some(subjects) = node.get_mut("subjects").filter(|subjects| !subjects.is_null()) else {
            return Ok(());
        };
        let Some(items) = subjects.items_mut() else {
            return Err("subjects must be a list".to_owned());
        };
        for subject in items {
            meter::check()?;
            if subject
                .get(field)
                .is_none_or(|value| value.is_null() || value.text() != wanted)
            {
                continue;
            }
            if subject.get("namespace").is_none() {
                subject.set_field("namespace", Node::untyped(""));
            }
            if let Some(namespace) = subject.get_mut("namespace") {
                self.write(namespace)?;
            }
        }
        Ok(())
    }
}
