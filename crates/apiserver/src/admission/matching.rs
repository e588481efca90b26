//! Matching of requests to a webhook or a policy: rules and selectors, and other versions of the same objects.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tenure_auth::identity::ObjectLookup;
use tenure_kinds::object::ObjectExt as _;

use super::Attributes;
use super::attributes::Action;
use crate::catalog::Resource;
use crate::contents::Contents;
use crate::http::ApiError;
use crate::selectors::Selectors;

/// The group of webhooks and policies. Requests about this group never reach a webhook or policy, which could
/// otherwise block its own removal.
pub(super) const GROUP: &str = "admissionregistration.k8s.io";

/// A rule of a webhook or policy: the operations and resources that it covers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Rule {
    operations: Vec<String>,
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
    scope: String,
}

impl Rule {
    /// Checks whether the rule covers the request, if the request were about `resource`.
    pub(super) fn covers(&self, attributes: &Attributes<'_>, resource: &Resource) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let is_namespace = attributes.is_part_of_namespace();
        let namespaced = !is_namespace && !attributes.namespace().is_empty();
        let in_scope = match self.scope.as_str() {
            "Namespaced" => namespaced,
            "Cluster" => !namespaced,
            _ => true,
        };
        in_scope
            && has(&self.operations, attributes.action.as_str())
            && has(&self.api_groups, &resource.group)
            && has(&self.api_versions, &resource.version)
            && self.resources.iter().any(|item| {
                let (plural, subresource) = item.split_once('/').unwrap_or((item, ""));
                (plural == "*" || plural == resource.plural)
                    && (subresource == "*" || subresource == attributes.subresource())
            })
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == attributes.name))
    }
}

/// The rules and selectors by which a webhook, policy or binding selects requests.
#[derive(Debug, Clone)]
pub(super) struct Matcher {
    rules: Vec<Rule>,
    /// Whether an empty list of rules matches everything.
    everything: bool,
    excluded: Vec<Rule>,
    equivalent: bool,
    namespaces: Selectors,
    objects: Selectors,
}

/// The fields of a webhook, of `matchConstraints` or of `matchResources`, with empty defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Constraints {
    rules: Vec<Rule>,
    resource_rules: Vec<Rule>,
    exclude_resource_rules: Vec<Rule>,
    match_policy: String,
    namespace_selector: Value,
    object_selector: Value,
}

impl Matcher {
    /// Reads the conditions of a webhook, or a policy's `matchConstraints`.
    pub(super) fn read(constraints: &Value) -> Self {
        Self::build(constraints, false)
    }

    /// Reads a binding's `matchResources`. Without rules they match everything that the policy matches.
    pub(super) fn of_binding(resources: &Value) -> Self {
        Self::build(resources, true)
    }

    fn build(constraints: &Value, everything: bool) -> Self {
        let read: Constraints = serde_json::from_value(constraints.clone()).unwrap_or_default();
        Self {
            rules: if read.rules.is_empty() {
                read.resource_rules
            } else {
                read.rules
            },
            everything,
            excluded: read.exclude_resource_rules,
            equivalent: read.match_policy != "Exact",
            namespaces: Selectors::from_label_selector(&read.namespace_selector),
            objects: Selectors::from_label_selector(&read.object_selector),
        }
    }

    /// Returns the resource as which the rules cover the request, if they do.
    pub(super) fn matched_resource(&self, contents: &Contents, attributes: &Attributes<'_>) -> Option<Arc<Resource>> {
        let own = &attributes.op.resource;
        let covers = |rules: &[Rule], resource: &Resource| rules.iter().any(|rule| rule.covers(attributes, resource));
        let own_covered = covers(&self.rules, own) || self.everything && self.rules.is_empty();
        if own_covered && self.excluded.is_empty() {
            return Some(own.clone());
        }
        let others: Vec<Arc<Resource>> = contents
            .catalog()
            .iter()
            .filter(|other| self.equivalent && other.stored_as == own.stored_as)
            .filter(|other| (&other.group, &other.version) != (&own.group, &own.version))
            .cloned()
            .collect();
        if covers(&self.excluded, own) || others.iter().any(|other| covers(&self.excluded, other)) {
            return None;
        }
        if own_covered {
            return Some(own.clone());
        }
        self.rules.iter().find_map(|rule| {
            let other = others.iter().find(|other| rule.covers(attributes, other))?;
            Some(other.clone())
        })
    }

    /// Checks whether the selectors select the request. An object counts if its old or its new state is selected.
    pub(super) fn selects(
        &self,
        contents: &Contents,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<bool, ApiError> {
        let either = [object, attributes.old].into_iter().flatten();
        if !self.objects.is_empty() && !either.into_iter().any(|object| self.objects.matches(object)) {
            return Ok(false);
        }
        if self.namespaces.is_empty() || attributes.namespace().is_empty() && !attributes.is_part_of_namespace() {
            return Ok(true);
        }
        let labels = namespace_labels(contents, attributes, object)?;
        Ok(self.namespaces.matches(&json!({"metadata": {"labels": labels}})))
    }
}

/// Returns the labels of the request's namespace. For a write of the namespace itself, the new labels.
fn namespace_labels(
    contents: &Contents,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<Value, ApiError> {
    let labels = |object: &Value| {
        object
            .metadata()
            .and_then(|metadata| metadata.get("labels"))
            .cloned()
            .unwrap_or_default()
    };
    if attributes.is_of_namespace()
        && attributes.action != Action::Delete
        && let Some(object) = object
    {
        return Ok(labels(object));
    }
    let name = attributes.namespace();
    let found = contents.view().get("", "namespaces", None, name);
    found
        .map(|namespace| labels(&namespace))
        .ok_or_else(|| ApiError::new(404, "NotFound", format!("namespaces {name:?} not found")))
}
