//! Validation of built-in kinds, in the words of the real server.
//!
//! Every kind's metadata is checked; the kinds that people write by hand get the checks that matter (required parts,
//! enumerations, selectors that match, names, ports, what may not change). What is not checked here is stored as it
//! came: a kubelet, which there is none of, would have been the one to complain.

mod addresses;
mod admission;
mod autoscaling;
mod claims;
mod configuration;
mod endpoints;
mod events;
mod jobs;
pub mod metadata;
pub mod names;
mod networking;
mod node_selectors;
mod pods;
mod policies;
mod quotas;
mod rbac;
mod runtimes;
mod services;
mod signing_requests;
mod statuses;
mod storage;
mod storage_plugins;
mod workloads;

use serde_json::Value;

use super::field_error::{FieldError, FieldErrorKind, FieldPath, Shown};

pub use admission::{service as webhook_service, url as webhook_url};
pub use metadata::annotations;
pub(super) use metadata::label_value;
pub use metadata::{CLEANUP_FINALIZER, label_selector, labels, object_meta, object_meta_update};
pub use pods::{app_armor_of_annotation, part_update as pod_part_update};
pub use services::cluster_addresses;
pub use signing_requests::{
    CLIENT_SIGNER, is_one as is_signing_request, organizations, update as signing_request_update,
};

/// What is wrong with an object about to be created.
pub(super) fn create(group: &str, kind: &str, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata::object_meta(
        value,
        names::rule(group, kind),
        &FieldPath::new("metadata"),
        &mut errors,
    );
    metadata::standard_finalizers(value, &mut errors);
    if (group, kind) == ("policy", "PodDisruptionBudget") {
        // Its metadata is looked at only once all else is right.
        let mut first = Vec::new();
        object(group, kind, value, &mut first);
        return if first.is_empty() { errors } else { first };
    }
    object(group, kind, value, &mut errors);
    admission::object(group, kind, value, None, &mut errors);
    match (group, kind) {
        ("scheduling.k8s.io", "PriorityClass") => quotas::priority_class(value, &mut errors),
        ("networking.k8s.io", "Ingress") => networking::ingress_create(value, &mut errors),
        ("", "Event") => events::core(value, &mut errors),
        ("events.k8s.io", "Event") => events::reported(value, &mut errors),
        ("", "Pod") => pods::pod_create(value, &mut errors),
        ("", "Service") => services::service(value, None, &mut errors),
        ("batch", "Job") => jobs::job(value, true, &mut errors),
        _ if signing_requests::is_one(group, kind) => signing_requests::create(value, &mut errors),
        ("batch", "CronJob") => jobs::cron_job(value, None, &mut errors),
        _ if workloads::is_one(group, kind) => workloads::object(kind, value, None, &mut errors),
        _ => {}
    }
    errors
}

/// What is wrong with an object about to replace another.
pub(super) fn update(group: &str, kind: &str, value: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata::object_meta_update(value, old, &FieldPath::new("metadata"), &mut errors);
    metadata::standard_finalizers(value, &mut errors);
    object(group, kind, value, &mut errors);
    admission::object(group, kind, value, Some(old), &mut errors);
    match (group, kind) {
        ("", "ConfigMap" | "Secret") => configuration::immutable_data(kind, value, old, &mut errors),
        ("", "Service") => services::service_update(value, old, &mut errors),
        ("", "Pod") => pods::pod_update(value, old, &mut errors),
        ("", "ResourceQuota") => quotas::quota_update(value, old, &mut errors),
        ("scheduling.k8s.io", "PriorityClass") => quotas::priority_class_update(value, old, &mut errors),
        ("", "PersistentVolume") => storage::volume_update(value, old, &mut errors),
        ("", "PersistentVolumeClaim") => claims::claim_update(value, old, &mut errors),
        ("batch", "Job") => jobs::job_update(value, old, &mut errors),
        ("batch", "CronJob") => jobs::cron_job(value, Some(old), &mut errors),
        ("discovery.k8s.io", "EndpointSlice") => endpoints::slice_update(value, old, &mut errors),
        ("networking.k8s.io", "IngressClass") => networking::ingress_class_update(value, old, &mut errors),
        ("rbac.authorization.k8s.io", _) => rbac::update(kind, value, old, &mut errors),
        ("storage.k8s.io", "StorageClass") => storage::storage_class_update(value, old, &mut errors),
        ("storage.k8s.io", _) => storage_plugins::update(kind, value, old, &mut errors),
        ("node.k8s.io", "RuntimeClass") => runtimes::runtime_class_update(value, old, &mut errors),
        _ if workloads::is_one(group, kind) => workloads::object(kind, value, Some(old), &mut errors),
        _ => {}
    }
    errors
}

/// What is wrong with an object whose status is about to change.
pub(super) fn status_update(group: &str, kind: &str, value: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata::object_meta_update(value, old, &FieldPath::new("metadata"), &mut errors);
    match (group, kind) {
        ("", "ResourceQuota") => quotas::quota_status(value, &mut errors),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => policies::policy_status(value, &mut errors),
        ("", "PersistentVolumeClaim") => claims::claim_status(value, &mut errors),
        ("", "Pod") => pods::status(value, old, &mut errors),
        ("storage.k8s.io", "VolumeAttachment") => storage_plugins::attachment_status(value, &mut errors),
        ("batch", "Job") => jobs::job_status(value, old, &mut errors),
        _ => {}
    }
    statuses::status(group, kind, value, old, &mut errors);
    errors
}

fn object(group: &str, kind: &str, value: &Value, errors: &mut Vec<FieldError>) {
    match (group, kind) {
        ("", "ConfigMap" | "Secret") => configuration::data(kind, value, errors),
        ("", "PersistentVolumeClaim") => storage::claim(value, &FieldPath::default(), errors),
        ("", "PersistentVolume") => storage::volume(value, errors),
        ("", "Endpoints") => endpoints::endpoints(value, errors),
        ("", "Namespace") => metadata::namespace(value, errors),
        ("", "Pod") => pods::pod(value, errors),
        ("", "ResourceQuota") => quotas::quota(value, errors),
        ("", "LimitRange") => quotas::limit_range(value, errors),
        ("discovery.k8s.io", "EndpointSlice") => endpoints::slice(value, errors),
        ("networking.k8s.io", "Ingress") => networking::ingress(value, errors),
        ("networking.k8s.io", "IngressClass") => networking::ingress_class(value, errors),
        ("networking.k8s.io", "NetworkPolicy") => networking::network_policy(value, errors),
        ("rbac.authorization.k8s.io", _) => rbac::object(kind, value, errors),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler(value, errors),
        ("policy", "PodDisruptionBudget") => workloads::disruption_budget(value, errors),
        ("storage.k8s.io", "StorageClass") => storage::storage_class(value, errors),
        ("storage.k8s.io", _) => storage_plugins::object(kind, value, errors),
        ("node.k8s.io", "RuntimeClass") => runtimes::runtime_class(value, errors),
        ("coordination.k8s.io", "Lease") => configuration::lease(value, errors),
        _ => {}
    }
}

/// The complaints of a rule about a name.
fn named(rule: impl Fn(&str) -> Vec<String>, name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    errors.extend(rule(name).into_iter().map(|why| FieldError::invalid(at, name, why)));
}

/// A field's text; empty when absent.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A list field's items with their paths.
pub(super) fn items<'a>(
    value: &'a Value,
    field: &str,
    path: &FieldPath,
) -> impl Iterator<Item = (&'a Value, FieldPath)> {
    let path = path.child(field);
    let list = value
        .get(field)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    list.iter()
        .enumerate()
        .map(move |(index, item)| (item, path.index(index)))
}

fn empty(value: &Value, field: &str) -> bool {
    match value.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// A field that must be one of a list, in the order in which the real server lists them; absent is `Required` when `required`.
fn one_of(
    value: &Value,
    field: &str,
    allowed: &[&str],
    required: bool,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let found = text(value, field);
    if found.is_empty() {
        if required {
            errors.push(FieldError::required(path.child(field), ""));
        }
    } else if !allowed.contains(&found) {
        errors.push(FieldError::not_supported(path.child(field), found, allowed));
    }
}

/// A struct of the real server's internal types, whose fields it prints with Go's names and in Go's order.
fn internal(fields: &[(&str, &Value)]) -> Shown {
    let parts: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    Shown::Verbatim(format!("{{{}}}", parts.join(",")))
}

/// A list of such structs.
fn internal_list<'a>(structs: impl Iterator<Item = Vec<(&'static str, &'a Value)>>) -> Shown {
    let shown: Vec<String> = structs.map(|fields| internal(&fields).to_string()).collect();
    Shown::Verbatim(format!("[{}]", shown.join(",")))
}

/// A number that may not be negative.
fn non_negative(value: &Value, field: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(number) = value.get(field).and_then(Value::as_i64)
        && number < 0
    {
        errors.push(FieldError::invalid(
            path.child(field),
            number,
            "must be greater than or equal to 0",
        ));
    }
}

/// A field that may not change.
fn immutable(value: &Value, old: &Value, field: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let now = value.get(field).cloned().unwrap_or(Value::Null);
    if now != old.get(field).cloned().unwrap_or(Value::Null) {
        errors.push(FieldError::new(
            FieldErrorKind::Invalid,
            path.child(field),
            now,
            "field is immutable",
        ));
    }
}
