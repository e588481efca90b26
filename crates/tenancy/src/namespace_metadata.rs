//! Labels and annotations that a Tenant sets on its namespaces. The keys are read from the Tenant's spec.
//!
//! Other controllers obey them: the scheduler's plugins, Pod Security, network policies that select namespaces. So only users
//! with the verb `adopt` change a key that a Tenant sets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenure_api::TenantSpec;
use tenure_api::metadata::{NODE_SELECTOR, POD_SECURITY_ENFORCE};

use crate::pod_security::PodSecurityLevel;

/// The labels and annotations that a Tenant sets on its namespaces. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "MetadataSpec", into = "MetadataSpec")]
pub struct NamespaceMetadata(Arc<MetadataSpec>);

/// The keys that a Tenant sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MetadataSpec {
    /// Labels of all its namespaces.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, MarkValue>,
    /// Annotations of all its namespaces.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, MarkValue>,
    /// Labels of namespaces that a selector chooses.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub chosen_labels: BTreeSet<String>,
    /// Annotations of namespaces that a selector chooses.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub chosen_annotations: BTreeSet<String>,
    /// The Pod Security level of all its namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_security: Option<PodSecurityLevel>,
    /// True if a selector chooses the Pod Security level.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub chooses_pod_security: bool,
}

/// The value of a label or an annotation, as the Tenant writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MarkValue {
    /// A text with placeholders: a value of `additionalMetadataList`.
    Template(String),
    /// The text itself: `additionalMetadata` has no placeholders, as in Capsule.
    Literal {
        /// The text.
        literal: String,
    },
}

impl MarkValue {
    /// Returns the value on a namespace.
    fn fill(&self, tenant: &str, namespace: &str) -> String {
        match self {
            Self::Literal { literal } => literal.clone(),
            Self::Template(text) => fill_placeholders(text, tenant, namespace),
        }
    }

    fn as_written(&self) -> &str {
        match self {
            Self::Template(text) | Self::Literal { literal: text } => text,
        }
    }
}

/// The value that a Tenant sets for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataValue {
    /// All namespaces of the Tenant have the key with this value.
    Fixed(String),
    /// A selector decides which namespaces have the key.
    Chosen,
}

impl From<MetadataSpec> for NamespaceMetadata {
    fn from(spec: MetadataSpec) -> Self {
        Self(Arc::new(spec))
    }
}

impl From<NamespaceMetadata> for MetadataSpec {
    fn from(marks: NamespaceMetadata) -> Self {
        marks.0.as_ref().clone()
    }
}

impl From<&TenantSpec> for NamespaceMetadata {
    fn from(spec: &TenantSpec) -> Self {
        let mut metadata = MetadataSpec::default();
        if let Some(options) = &spec.namespace_options {
            let all = options.additional_metadata.iter();
            all.for_each(|all| metadata.fix(&all.labels, &all.annotations, |literal| MarkValue::Literal { literal }));
            for some in &options.additional_metadata_list {
                match some.namespace_selector {
                    None => metadata.fix(&some.labels, &some.annotations, MarkValue::Template),
                    Some(_) => {
                        metadata.chosen_labels.extend(some.labels.keys().cloned());
                        metadata.chosen_annotations.extend(some.annotations.keys().cloned());
                    }
                }
            }
        }
        if let Some(selector) = write_node_selector(spec) {
            let selector = MarkValue::Literal { literal: selector };
            metadata.annotations.insert(NODE_SELECTOR.to_owned(), selector);
        }
        if let Some(level) = metadata.labels.remove(POD_SECURITY_ENFORCE) {
            metadata.pod_security = Some(PodSecurityLevel::parse_strictly(level.as_written()));
        }
        metadata.chooses_pod_security = metadata.chosen_labels.remove(POD_SECURITY_ENFORCE);
        Self::from(metadata)
    }
}

impl MetadataSpec {
    /// Adds labels and annotations that all namespaces get. `write` makes the value from the text in the spec.
    fn fix(
        &mut self,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
        write: impl Fn(String) -> MarkValue,
    ) {
        for (into, from) in [(&mut self.labels, labels), (&mut self.annotations, annotations)] {
            for (key, value) in from {
                // The first entry of a key takes effect.
                into.entry(key.clone()).or_insert_with(|| write(value.clone()));
            }
        }
    }
}

impl NamespaceMetadata {
    /// Checks whether the Tenant sets nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self.0 == MetadataSpec::default()
    }

    /// Returns the level that the Tenant's labels set on all its namespaces.
    #[must_use]
    pub fn pod_security(&self) -> Option<PodSecurityLevel> {
        self.0.pod_security
    }

    /// Checks whether a selector chooses the Pod Security level.
    #[must_use]
    pub fn chooses_pod_security(&self) -> bool {
        self.0.chooses_pod_security
    }

    /// Returns the value that the Tenant sets for a label of a namespace.
    #[must_use]
    pub fn find_label(&self, key: &str, names: (&str, &str)) -> Option<MetadataValue> {
        find(&self.0.labels, &self.0.chosen_labels, key, names)
    }

    /// Returns the value that the Tenant sets for an annotation of a namespace.
    #[must_use]
    pub fn find_annotation(&self, key: &str, names: (&str, &str)) -> Option<MetadataValue> {
        find(&self.0.annotations, &self.0.chosen_annotations, key, names)
    }

    /// Lists all labels that the Tenant sets, with their values.
    pub fn list_labels<'a>(&'a self, names: (&'a str, &'a str)) -> impl Iterator<Item = (&'a str, MetadataValue)> {
        list(&self.0.labels, &self.0.chosen_labels, names)
    }

    /// Lists all annotations that the Tenant sets, with their values.
    pub fn list_annotations<'a>(&'a self, names: (&'a str, &'a str)) -> impl Iterator<Item = (&'a str, MetadataValue)> {
        list(&self.0.annotations, &self.0.chosen_annotations, names)
    }
}

fn find(
    fixed: &BTreeMap<String, MarkValue>,
    chosen: &BTreeSet<String>,
    key: &str,
    (tenant, namespace): (&str, &str),
) -> Option<MetadataValue> {
    // A chosen value may come before a fixed one in the list, so that the value in a given namespace isn't known.
    if chosen.contains(key) {
        return Some(MetadataValue::Chosen);
    }
    let value = fixed.get(key)?;
    Some(MetadataValue::Fixed(value.fill(tenant, namespace)))
}

fn list<'a>(
    fixed: &'a BTreeMap<String, MarkValue>,
    chosen: &'a BTreeSet<String>,
    names: (&'a str, &'a str),
) -> impl Iterator<Item = (&'a str, MetadataValue)> {
    let keys: BTreeSet<&str> = fixed.keys().chain(chosen).map(String::as_str).collect();
    keys.into_iter()
        .filter_map(move |key| Some((key, find(fixed, chosen, key, names)?)))
}

/// Returns the annotation for the nodes of a Tenant's Pods, if the Tenant sets one.
#[must_use]
pub fn write_node_selector(spec: &TenantSpec) -> Option<String> {
    let selector = spec.node_selector.iter().map(|(key, value)| format!("{key}={value}"));
    let selector = selector.collect::<Vec<_>>().join(",");
    (!selector.is_empty()).then_some(selector)
}

/// Inserts names into the placeholders of a value.
#[must_use]
pub fn fill_placeholders(text: &str, tenant: &str, namespace: &str) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((asked, behind)) = after.split_once("}}") else {
            break;
        };
        filled.push_str(before);
        match asked.trim() {
            "tenant.name" => filled.push_str(tenant),
            "namespace" => filled.push_str(namespace),
            // An unknown placeholder becomes empty, as in Capsule.
            _ => {}
        }
        rest = behind;
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_of_the_list_have_placeholders() {
        let spec: TenantSpec = serde_json::from_value(serde_json::json!({
            "namespaceOptions": {
                "additionalMetadata": { "annotations": { "literal": "{{ namespace }}", "both": "{{ namespace }}" } },
                "additionalMetadataList": [{ "annotations": { "filled": "{{ namespace }}", "both": "other" } }]
            },
            "nodeSelector": { "pool": "{{ namespace }}" }
        }))
        .unwrap();
        let marks = NamespaceMetadata::from(&spec);
        let sent: NamespaceMetadata = serde_json::from_str(&serde_json::to_string(&marks).unwrap()).unwrap();
        assert_eq!(sent, marks);
        let found = |key: &str| marks.find_annotation(key, ("blue", "blue-dev"));
        let fixed = |text: &str| Some(MetadataValue::Fixed(text.to_owned()));
        assert_eq!(found("literal"), fixed("{{ namespace }}"));
        assert_eq!(found("both"), fixed("{{ namespace }}"));
        assert_eq!(found("filled"), fixed("blue-dev"));
        assert_eq!(found(NODE_SELECTOR), fixed("pool={{ namespace }}"));
    }

    #[test]
    fn names_stand_where_they_are_asked_for() {
        let filled = |text: &str| fill_placeholders(text, "blue", "blue-dev");
        assert_eq!(filled("{{ tenant.name }}/{{namespace}}"), "blue/blue-dev");
        assert_eq!(filled("a {{ other }} b"), "a  b");
        assert_eq!(filled("{{ open"), "{{ open");
        assert_eq!(filled("}} {{ namespace }}"), "}} blue-dev");
    }
}
