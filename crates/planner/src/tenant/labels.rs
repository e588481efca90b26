//! Labels and annotations that a Tenant sets on its namespaces, and the labels of the nodes on which its Pods run.
//!
//! Labels that identify the tenant or the namespace can't be set. Labels that Tenure adds don't select further entries, so a result never depends on earlier
//! results.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use tenure_admission_rules::policy::list_gap_resources;
use tenure_api::metadata::{
    BOUNDED_LABEL, CORDONED_LABEL, COUNTED_LABEL, LEFT_CLAIMS_LABEL, LEFT_INGRESSES_LABEL, LEFT_PODS_LABEL,
    NODE_SELECTOR, POD_SECURITY_ENFORCE, TENANT_LABEL,
};
use tenure_api::names::NamespaceName;
use tenure_api::tenant::{AdditionalMetadata, NamespaceOptions, TenantBounds, TenantSpace};
use tenure_api::{ObjectId, ObjectView};
use tenure_tenancy::namespace_metadata::{fill_placeholders, write_node_selector};
use tenure_tenancy::{PodSecurityLevel, TenantQuotas, pod_security};

use super::Snapshot;
use crate::answer::Live;
use crate::dependents::Memory;

/// The maximum number of labels and annotations in a Tenant.
const MOST_ENTRIES: usize = 256;
/// The maximum total of bytes in their keys and values.
const MOST_BYTES: usize = 32 << 10;
/// The label with the namespace's name, which the API server sets.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// Labels that identify the tenant and the namespace.
const RESERVED: [&str; 2] = [TENANT_LABEL, NAME_LABEL];

/// The kind of a namespace.
pub(super) const NAMESPACE: &str = "Namespace";

/// The labels and annotations that a Tenant sets on a namespace, besides the tenant's label.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WantedMetadata {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// The lowest allowed Pod Security level of the namespace.
    pod_security: Option<PodSecurityLevel>,
}

/// Returns the problem with the Tenant's labels and annotations. If there is one, none of them is written.
pub(super) fn find_problem(snapshot: &Snapshot) -> Option<String> {
    let options = snapshot.tenant.spec.namespace_options.as_ref();
    let (mut entries, mut bytes) = (0, 0);
    for (labels, annotations) in options.into_iter().flat_map(list_additional_metadata) {
        if let Some(key) = RESERVED.iter().find(|key| labels.contains_key(**key)) {
            return Some(format!(
                "spec.namespaceOptions: a namespace's label {key} can't be set here: it names the tenant of the namespace"
            ));
        }
        for (key, value) in labels.iter().chain(annotations) {
            entries += 1;
            bytes += key.len() + value.len();
        }
    }
    let selector = &snapshot.tenant.spec.node_selector;
    bytes += selector
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum::<usize>();
    (entries > MOST_ENTRIES || bytes > MOST_BYTES).then(|| {
        format!(
            "spec.namespaceOptions, spec.nodeSelector: {entries} labels and annotations of {bytes} bytes, of at most {MOST_ENTRIES} and {MOST_BYTES}: leave some out"
        )
    })
}

/// Lists all labels and annotations in the Tenant, for every namespace.
fn list_additional_metadata(
    options: &NamespaceOptions,
) -> impl Iterator<Item = (&BTreeMap<String, String>, &BTreeMap<String, String>)> {
    let all = options.additional_metadata.iter();
    let some = options.additional_metadata_list.iter();
    all.map(|metadata| (&metadata.labels, &metadata.annotations))
        .chain(some.map(|metadata| (&metadata.labels, &metadata.annotations)))
}

/// Returns the wanted labels and annotations of a namespace.
pub(super) fn list_marks(snapshot: &Snapshot, namespace: &str) -> WantedMetadata {
    let spec = &snapshot.tenant.spec;
    let tenant = snapshot.tenant.metadata.name.as_deref().unwrap_or_default();
    let mut marks = WantedMetadata::default();
    // The strictest Pod Security level of the entries that labels of the namespace select.
    let mut raised = None;
    if let Some(options) = &spec.namespace_options {
        let id = make_namespace_id(namespace);
        let live = snapshot.live.get(&id).and_then(Live::object).map(ObjectView::new);
        let own: BTreeSet<&str> = list_additional_metadata(options)
            .flat_map(|(labels, _)| labels.keys().map(String::as_str))
            .collect();
        let find_label = |key: &str| match key {
            TENANT_LABEL => Some(tenant),
            NAME_LABEL => Some(namespace),
            key if own.contains(key) => None,
            key => live.and_then(|live| live.find_label(key)),
        };
        if let Some(additional) = &options.additional_metadata {
            marks.labels = additional.labels.clone();
            marks.annotations = additional.annotations.clone();
        }
        let fill = |into: &mut BTreeMap<String, String>, from: &BTreeMap<String, String>| {
            for (key, value) in from {
                // The first entry for a key wins.
                into.entry(key.clone())
                    .or_insert_with(|| fill_placeholders(value, tenant, namespace));
            }
        };
        for entry in &options.additional_metadata_list {
            let selector = entry.namespace_selector.as_ref();
            if !selector.is_none_or(|selector| selector.selects(find_label)) {
                continue;
            }
            let mut labels = entry.labels.clone();
            // An owner sets the labels of its namespaces, and so selects the entry. A selector that lists names of namespaces is an administrator's choice.
            if selector.is_some_and(|selector| !selector.lists_values(NAME_LABEL)) {
                let level = labels.remove(POD_SECURITY_ENFORCE);
                raised = raised.max(level.as_deref().map(PodSecurityLevel::parse_strictly));
            }
            fill(&mut marks.labels, &labels);
            fill(&mut marks.annotations, &entry.annotations);
        }
    }
    if let Some(selector) = write_node_selector(spec) {
        marks.annotations.insert(NODE_SELECTOR.to_owned(), selector);
    }
    let label = marks.labels.remove(POD_SECURITY_ENFORCE);
    let level = find_level(snapshot, namespace, label.as_deref());
    marks.pod_security = level.max(raised.filter(|raised| *raised > PodSecurityLevel::Privileged));
    if let Some(level) = marks.pod_security {
        let level = choose_level(snapshot, namespace, level);
        marks
            .labels
            .insert(POD_SECURITY_ENFORCE.to_owned(), level.as_str().to_owned());
    }
    if spec.cordoned.unwrap_or_default() && snapshot.tenancy.settings.is_guarded {
        marks.labels.insert(CORDONED_LABEL.to_owned(), "true".to_owned());
    }
    if spec.bounds != TenantBounds::default() && snapshot.tenancy.settings.is_guarded {
        marks.labels.insert(BOUNDED_LABEL.to_owned(), "true".to_owned());
    }
    if snapshot.tenancy.settings.is_guarded && snapshot.tenancy.settings.has_policies {
        for resource in list_gap_resources(&spec.bounds) {
            let label = match resource {
                "pods" => LEFT_PODS_LABEL,
                "persistentvolumeclaims" => LEFT_CLAIMS_LABEL,
                _ => LEFT_INGRESSES_LABEL,
            };
            marks.labels.insert(label.to_owned(), "true".to_owned());
        }
    }
    if !TenantQuotas::from(spec).is_empty() && snapshot.tenancy.settings.is_guarded {
        marks.labels.insert(COUNTED_LABEL.to_owned(), "true".to_owned());
    }
    marks
}

/// Returns the lowest allowed Pod Security level of a namespace, if Tenure sets one: from the Tenant's annotation, else from its label for this namespace, else
/// from the installation. A namespace that the Tenant had before levels were set keeps its level.
fn find_level(snapshot: &Snapshot, namespace: &str, label: Option<&str>) -> Option<PodSecurityLevel> {
    let annotation = pod_security::read_annotation(&snapshot.tenant.metadata);
    if let Some(level) = annotation.or(label) {
        return Some(PodSecurityLevel::parse_strictly(level));
    }
    let space = find_space(snapshot, namespace);
    let is_older = space.is_some_and(|space| pod_security::read_recorded(space.metadata.as_ref()).is_none());
    let level = snapshot.tenancy.settings.pod_security;
    (!is_older && level > PodSecurityLevel::Privileged).then_some(level)
}

/// Returns the level to write. A stricter choice of an owner stays. A level that Tenure wrote earlier is no choice of an owner.
fn choose_level(snapshot: &Snapshot, namespace: &str, least: PodSecurityLevel) -> PodSecurityLevel {
    let live = snapshot
        .live
        .get(&make_namespace_id(namespace))
        .and_then(Live::object)
        .map(ObjectView::new);
    let live = live.and_then(|live| live.find_label(POD_SECURITY_ENFORCE));
    let live = live.and_then(PodSecurityLevel::parse);
    let written =
        find_space(snapshot, namespace).and_then(|space| pod_security::read_recorded(space.metadata.as_ref()));
    live.filter(|live| *live > least && Some(*live) != written)
        .unwrap_or(least)
}

fn find_space<'a>(snapshot: &'a Snapshot, namespace: &str) -> Option<&'a TenantSpace> {
    let spaces = &snapshot.tenant.status.as_ref()?.spaces;
    spaces.iter().find(|space| space.name == namespace)
}

/// Returns the id of a namespace.
pub(super) fn make_namespace_id(namespace: &str) -> ObjectId {
    ObjectId {
        namespace: String::new(),
        name: namespace.to_owned(),
        group: String::new(),
        kind: NAMESPACE.to_owned(),
    }
}

/// Returns the labels and annotations that a namespace has from the Tenant, by the Tenant's status.
pub(super) fn list_applied_metadata<'a>(
    snapshot: &'a Snapshot,
    namespace: &NamespaceName,
) -> Option<&'a AdditionalMetadata> {
    find_space(snapshot, namespace.as_str())?.metadata.as_ref()
}

/// Returns the metadata for the status. If a write failed, the old labels may still exist, so they stay in the status.
pub(super) fn report_metadata(
    snapshot: &Snapshot,
    memory: &Memory,
    namespace: &NamespaceName,
) -> Option<AdditionalMetadata> {
    let mut reported = AdditionalMetadata::default();
    let is_withheld = find_problem(snapshot).is_some();
    if !is_withheld {
        let marks = list_marks(snapshot, namespace.as_str());
        reported.labels = marks.labels;
        reported.annotations = marks.annotations;
        // A stricter level that an owner chose belongs to the owner.
        if let Some(level) = marks.pod_security {
            reported
                .labels
                .insert(POD_SECURITY_ENFORCE.to_owned(), level.as_str().to_owned());
        }
    }
    if let Some(before) = list_applied_metadata(snapshot, namespace)
        && (is_withheld || memory.refused.contains_key(&make_namespace_id(namespace.as_str())))
    {
        reported.labels.extend(before.labels.clone());
        reported.annotations.extend(before.annotations.clone());
    }
    (reported != AdditionalMetadata::default()).then_some(reported)
}

impl WantedMetadata {
    /// Checks whether an object has this metadata, and no leftover metadata of the Tenant.
    pub(super) fn are_on(&self, live: ObjectView<'_>, before: Option<&AdditionalMetadata>) -> bool {
        let agree = |path: &str, wanted: &BTreeMap<String, String>, before: Option<&BTreeMap<String, String>>| {
            let live = live.find_map(path);
            let find = |key: &str| live.and_then(|live| live.get(key));
            let mut gone = before
                .into_iter()
                .flatten()
                .filter(|(key, _)| !wanted.contains_key(*key));
            wanted
                .iter()
                .all(|(key, value)| find(key).and_then(Value::as_str) == Some(value))
                && gone.all(|(key, _)| find(key).is_none())
        };
        agree("/metadata/labels", &self.labels, before.map(|before| &before.labels))
            && agree(
                "/metadata/annotations",
                &self.annotations,
                before.map(|before| &before.annotations),
            )
    }

    /// Adds these labels and annotations to an object's metadata.
    pub(super) fn write(&self, metadata: &mut Map<String, Value>) {
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            for (key, value) in &self.labels {
                labels.entry(key.clone()).or_insert_with(|| json!(value));
            }
        }
        if !self.annotations.is_empty() {
            metadata.insert("annotations".to_owned(), json!(self.annotations));
        }
    }
}
