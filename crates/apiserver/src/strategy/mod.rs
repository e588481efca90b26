//! What kinds do differently on the way into the store: the fields that only the server writes, generations,
//! status kept apart from spec, allocated addresses, and when a deleting object may go.
//!
//! What a valid object looks like is `schema`'s business; who may write it, `authorization`'s.

mod daemon_set;
mod generation;
mod job;
mod namespace;
mod pod;
mod pod_parts;
mod secret;
mod service;
mod signing_request;
mod template;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_kinds::customresources;
use tenure_kinds::schema::autoscaler;

use crate::catalog::Resource;
use crate::definitions;
use crate::http::FieldError;
use crate::registry::{ObjectExt, Operation, View, timestamp};

pub(crate) use generation::{bump_generation, has_generation};
pub(crate) use pod::quality_of_service;
pub use service::{InvalidRange, ServiceRange};
pub(crate) use template::pod_template;

/// Whether creates and updates of this resource run one after the other, because they share something finite.
pub(crate) fn allocates(resource: &Resource) -> bool {
    is(resource, "", "services") || is_definition(resource)
}

/// Whether what is shared is given out before anything else of an object is looked at.
pub(crate) fn allocates_first(resource: &Resource) -> bool {
    is(resource, "", "services")
}

/// Whether objects of this resource define other resources.
pub(crate) fn is_definition(resource: &Resource) -> bool {
    is(resource, definitions::GROUP, definitions::PLURAL)
}

/// Whether a PUT has to say which version it replaces.
pub(crate) fn needs_resource_version(resource: &Resource) -> bool {
    resource.is_custom()
        || resource.group == "admissionregistration.k8s.io"
        || is_definition(resource)
        || is(resource, "coordination.k8s.io", "leases")
        || is(resource, "policy", "poddisruptionbudgets")
        || is(resource, "node.k8s.io", "runtimeclasses")
        || (resource.group == "storage.k8s.io"
            && !matches!(resource.plural.as_str(), "storageclasses" | "volumeattributesclasses"))
}

fn is(resource: &Resource, group: &str, plural: &str) -> bool {
    resource.group == group && resource.plural == plural
}

/// Brings what may be written in two ways into the one way that is stored, before owners are settled.
pub(crate) fn normalize(resource: &Resource, object: &mut Value) {
    explicit_nulls(resource, object, false);
    if is(resource, "", "pods") {
        template::normalize_pod(object);
    }
    if is(resource, "", "secrets") {
        secret::prepare(object);
    }
    if is(resource, "apps", "daemonsets") {
        daemon_set::normalize(object);
    }
    through_stored_version(resource, object);
    if is_current_autoscaler(resource)
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty)
    {
        spec.insert("metrics".to_owned(), json!([{
            "type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        }]));
    }
}

/// What two versions say in different ways is said as the server says it: annotations that stand for fields are made from
/// the fields, or read into them.
pub(crate) fn through_stored_version(resource: &Resource, object: &mut Value) {
    if autoscaler::is_one(&resource.group, &resource.plural) {
        *object = autoscaler::round_trip(std::mem::take(object));
    }
    if is(resource, "", "pods") {
        pod_parts::agree_on_addresses(object);
    }
}

fn is_current_autoscaler(resource: &Resource) -> bool {
    autoscaler::is_one(&resource.group, &resource.plural) && resource.is_storage_version()
}

/// Lists that Kubernetes writes as null rather than not at all.
///
/// An empty list is owned by who sends it, and is one with none only once it is stored.
pub(crate) fn explicit_nulls(resource: &Resource, object: &mut Value, stored: bool) {
    let (parent, field) = match (resource.group.as_str(), resource.plural.as_str()) {
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => ("", "rules"),
        ("", "limitranges") => ("/spec", "limits"),
        ("storage.k8s.io", "csinodes") => {
            let drivers = object.pointer_mut("/spec/drivers").and_then(Value::as_array_mut);
            for driver in drivers.into_iter().flatten() {
                null_unless_set(driver, "topologyKeys", stored);
            }
            ("/spec", "drivers")
        }
        ("autoscaling", "horizontalpodautoscalers") if resource.is_storage_version() => ("/status", "currentMetrics"),
        ("discovery.k8s.io", "endpointslices") => {
            null_unless_set(object, "endpoints", stored);
            ("", "ports")
        }
        _ => return,
    };
    if matches!(resource.plural.as_str(), "limitranges" | "csinodes")
        && let Some(map) = object.as_object_mut()
    {
        map.entry("spec").or_insert_with(|| json!({}));
    }
    if let Some(parent) = object.pointer_mut(parent) {
        null_unless_set(parent, field, stored);
    }
}

/// The older field for a claim's data knows claims and snapshots, and forgets the rest, unless the newer one is there too
/// or there was data before.
fn drop_unknown_source(object: &mut Value, live: Option<&Value>) {
    let is_set = |object: &Value, field: &str| {
        let source = object.get("spec").and_then(|spec| spec.get(field));
        source.is_some_and(|source| !source.is_null())
    };
    let before = |live: &Value| is_set(live, "dataSource") || is_set(live, "dataSourceRef");
    if live.is_some_and(before) || is_set(object, "dataSourceRef") {
        return;
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let text = |source: &Value, field: &str| source.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let known = spec.get("dataSource").is_none_or(|source| {
        matches!(
            (text(source, "apiGroup").as_str(), text(source, "kind").as_str()),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    });
    if !known {
        spec.remove("dataSource");
    }
}

/// What version 1 of EndpointSlices has only for those that were written before.
fn drop_topology(object: &mut Value) {
    let endpoints = object.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten().filter_map(Value::as_object_mut) {
        endpoint.remove("deprecatedTopology");
    }
}

/// Fields of an election that Kubernetes has switched off.
fn drop_election(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

/// A claim's data source has two names, and a group even if that is the core group.
fn data_source(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for (from, to) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
        if let Some(source) = spec.get_mut(from).and_then(Value::as_object_mut) {
            source.entry("apiGroup").or_insert(Value::Null);
            let copied = source
                .get("namespace")
                .is_none_or(Value::is_null)
                .then(|| Value::Object(source.clone()));
            if let (Some(copied), false) = (copied, spec.contains_key(to)) {
                spec.insert(to.to_owned(), copied);
            }
        }
    }
}

fn null_unless_set(object: &mut Value, field: &str, stored: bool) {
    if let Some(map) = object.as_object_mut() {
        let value = map.entry(field).or_insert(Value::Null);
        if stored && value.as_array().is_some_and(Vec::is_empty) {
            *value = Value::Null;
        }
    }
}

/// Prepares an object that is about to be created.
pub(crate) fn prepare_create(op: &Operation, object: &mut Value, view: &View, now: Timestamp) {
    let resource = &op.resource;
    if resource.has_status()
        && !keeps_status_on_create(resource)
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
    template::drop_switched_off(resource, object, None);
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => namespace::prepare_create(object),
        // An applied Secret keeps the texts until its owners are settled.
        ("", "secrets") => secret::prepare(object),
        // Nothing is given out to who creates one through its status.
        ("", "services") if op.subresource.is_none() => service::prepare_create(object, view),
        ("", "persistentvolumeclaims") => {
            set_status(object, json!({"phase": "Pending"}));
            drop_unknown_source(object, None);
            data_source(object);
        }
        ("", "persistentvolumes") => {
            let since = timestamp(now);
            set_status(object, json!({"phase": "Pending", "lastPhaseTransitionTime": since}));
        }
        ("discovery.k8s.io", "endpointslices") => drop_topology(object),
        ("coordination.k8s.io", "leases") => drop_election(object),
        ("", "limitranges") if object.name().is_empty() => {
            object.set_meta("name", Value::from(uuid::Uuid::new_v4().to_string()));
        }
        ("", "pods") => {
            let quality = pod::quality_of_service(object);
            set_status(object, json!({"phase": "Pending", "qosClass": quality}));
            template::prepare_pod(object, &timestamp(now));
            pod_parts::app_armor(object).iter().for_each(|text| op.warn(text));
        }
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") => {
            set_status(object, workload_status(resource));
            if resource.plural == "daemonsets" {
                daemon_set::prepare_create(object);
            }
        }
        ("batch", "jobs") => {
            set_status(object, json!({}));
            job::prepare_create(object);
        }
        ("batch", "cronjobs") | ("networking.k8s.io", "ingresses") => {
            set_status(
                object,
                if resource.plural == "ingresses" {
                    json!({"loadBalancer": {}})
                } else {
                    json!({})
                },
            );
        }
        ("policy", "poddisruptionbudgets") => set_status(
            object,
            json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}),
        ),
        ("autoscaling", "horizontalpodautoscalers") => {
            // In the other version, parts of the status are among the annotations.
            let mut stored = autoscaler::convert(std::mem::take(object), autoscaler::STORED);
            set_status(&mut stored, json!({"currentMetrics": null, "desiredReplicas": 0}));
            *object = autoscaler::convert(stored, &resource.api_version());
        }
        ("certificates.k8s.io", "certificatesigningrequests") => signing_request::prepare_create(object, &op.user),
        (definitions::GROUP, definitions::PLURAL) => definitions::settle(object, None, view, &timestamp(now)),
        ("", "resourcequotas") | ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            set_status(object, json!({}));
        }
        ("", "replicationcontrollers") => set_status(object, json!({"replicas": 0})),
        ("storage.k8s.io", "volumeattachments") => set_status(object, json!({"attached": false})),
        _ => {}
    }
}

/// Fills in what Kubernetes fills in when it reads what it has stored.
pub(crate) fn complete_created(resource: &Resource, object: &mut Value) {
    if is(resource, "batch", "jobs") {
        job::default_labels(object);
    }
}

/// Nodes register themselves with their status in one request.
fn keeps_status_on_create(resource: &Resource) -> bool {
    is(resource, "", "nodes")
}

fn workload_status(resource: &Resource) -> Value {
    match resource.plural.as_str() {
        "daemonsets" => json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
        }),
        "statefulsets" => json!({"availableReplicas": 0, "replicas": 0}),
        "replicasets" => json!({"replicas": 0}),
        _ => json!({}),
    }
}

fn set_status(object: &mut Value, status: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
}

/// Whether owners are settled before what an endpoint does not write is put back, and so by what was sent, not by what
/// comes of it: who owns something in another version may lose it for not being sent.
pub(crate) fn settles_owners_first(op: &Operation) -> bool {
    let resource = &op.resource;
    resource.is_custom()
        || autoscaler::is_one(&resource.group, &resource.plural)
        || (is(resource, "", "pods") && op.subresource.is_some())
}

/// Puts the live object's fields in the place of those that this endpoint does not write: status on the main
/// endpoint, everything else on the status endpoint.
pub(crate) fn reset_fields(op: &Operation, live: &Value, new: Value) -> Value {
    let resource = &op.resource;
    if autoscaler::is_one(&resource.group, &resource.plural) && !resource.is_storage_version() {
        // Spec and status share the annotations of this version.
        let stored = |object: Value| autoscaler::convert(object, autoscaler::STORED);
        let reset = reset_parts(op, &stored(live.clone()), stored(new));
        return autoscaler::convert(reset, &resource.api_version());
    }
    reset_parts(op, live, new)
}

fn reset_parts(op: &Operation, live: &Value, mut new: Value) -> Value {
    let resource = &op.resource;
    if is(resource, "", "pods")
        && let Some(reset) = pod_parts::reset(op.subresource.as_deref(), live, &new)
    {
        return reset;
    }
    if is(resource, "certificates.k8s.io", "certificatesigningrequests") {
        signing_request::reset(live, &mut new, op.subresource.as_deref());
        return new;
    }
    match op.subresource.as_deref() {
        Some("status") => {
            let mut result = live.clone();
            let managed = new
                .metadata()
                .and_then(|metadata| metadata.get("managedFields"))
                .cloned();
            let Value::Object(mut sent) = new else { return result };
            if !resource.is_custom()
                && let Some(metadata) = sent.remove("metadata")
                && let Some(map) = result.as_object_mut()
            {
                // Built-in kinds let labels, annotations and finalizers pass on this endpoint, but for those that don't.
                map.insert("metadata".to_owned(), metadata);
                for key in metadata_kept_from_status(resource) {
                    match live.metadata().and_then(|metadata| metadata.get(*key)) {
                        Some(value) => result.set_meta(key, value.clone()),
                        None => {
                            result.remove_meta(key);
                        }
                    }
                }
            }
            match managed {
                Some(managed) => result.set_meta("managedFields", managed),
                None => {
                    result.remove_meta("managedFields");
                }
            }
            if let Some(map) = result.as_object_mut() {
                match sent.remove("status") {
                    Some(status) => map.insert("status".to_owned(), status),
                    None => map.remove("status"),
                };
            }
            if is(resource, "", "pods") {
                pod_parts::keep_from_status(live, &mut result);
            }
            result
        }
        Some("finalize") => {
            let mut result = live.clone();
            if let (Some(map), Some(finalizers)) = (
                result.pointer_mut("/spec").and_then(Value::as_object_mut),
                new.pointer("/spec/finalizers"),
            ) {
                map.insert("finalizers".to_owned(), finalizers.clone());
            } else if let Some(map) = result.pointer_mut("/spec").and_then(Value::as_object_mut) {
                map.remove("finalizers");
            }
            if let Some(managed) = new.metadata().and_then(|metadata| metadata.get("managedFields")) {
                result.set_meta("managedFields", managed.clone());
            }
            result
        }
        _ => {
            if resource.has_status()
                && let Some(map) = new.as_object_mut()
            {
                match live.get("status") {
                    Some(status) => map.insert("status".to_owned(), status.clone()),
                    None => map.remove("status"),
                };
            }
            new
        }
    }
}

/// What of its metadata an object keeps when its status is written.
fn metadata_kept_from_status(resource: &Resource) -> &'static [&'static str] {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("apps", "deployments") => &["labels"],
        ("", "pods") => &["ownerReferences"],
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") | ("storage.k8s.io", "volumeattachments") => {
            &["labels", "annotations", "finalizers", "ownerReferences"]
        }
        _ => &[],
    }
}

/// Prepares an object that is about to replace another.
pub(crate) fn prepare_update(op: &Operation, live: &Value, new: &mut Value, view: &View, now: Timestamp) {
    let resource = &op.resource;
    template::drop_switched_off(resource, new, Some(live));
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => namespace::prepare_update(op, live, new),
        ("", "secrets") => secret::prepare(new),
        (definitions::GROUP, definitions::PLURAL) if op.subresource.is_none() => {
            definitions::settle(new, Some(live), view, &timestamp(now));
        }
        ("", "services") if op.subresource.is_none() => service::prepare_update(live, new, view),
        ("apps", "daemonsets") => daemon_set::prepare_update(live, new),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            signing_request::prepare_update(live, new, op.subresource.as_deref(), &timestamp(now));
        }
        ("batch", "jobs") => job::default_labels(new),
        ("", "persistentvolumeclaims") => {
            drop_unknown_source(new, Some(live));
            data_source(new);
        }
        ("coordination.k8s.io", "leases") => drop_election(new),
        _ => {}
    }
}

/// Prepares an object that waits for its finalizers from now on.
pub(crate) fn prepare_delete(resource: &Resource, object: &mut Value, now: Timestamp) {
    if is_definition(resource) {
        customresources::set_terminating(object, &timestamp(now));
    }
    if is(resource, "", "namespaces") {
        namespace::prepare_delete(object);
    }
}

/// What becomes of dependents if nobody says: Jobs and ReplicationControllers are older than the question.
pub(crate) fn default_propagation(resource: &Resource) -> Option<&'static str> {
    let orphans = is(resource, "batch", "jobs") || is(resource, "", "replicationcontrollers");
    orphans.then_some("Orphan")
}

/// Whether objects of this resource hold others.
pub(crate) fn is_namespace(resource: &Resource) -> bool {
    is(resource, "", "namespaces")
}

/// Whether an object, a namespace, is held by what may still be in it.
pub(crate) fn waits_for_content(resource: &Resource, object: &Value) -> bool {
    let finalizers = object.pointer("/spec/finalizers").and_then(Value::as_array);
    is_namespace(resource) && finalizers.is_some_and(|list| !list.is_empty())
}

/// Whether nothing holds a deleting object any more.
pub(crate) fn is_finalized(resource: &Resource, object: &Value) -> bool {
    object.finalizers().is_empty() && !waits_for_content(resource, object)
}

/// Faults that only show beside other objects, on creation.
pub(crate) fn validate_create(op: &Operation, object: &Value, view: &View) -> Vec<FieldError> {
    if is_definition(&op.resource) {
        return customresources::validate_definition(object);
    }
    if is(&op.resource, "", "services") && op.subresource.is_none() {
        // Kubernetes notes down whose an address is, unless nothing is to be stored, and nobody has none.
        if object.name().is_empty() && !op.dry_run {
            return service::nobodys_address(object);
        }
        service::validate(object, None, view)
    } else {
        Vec::new()
    }
}

/// Faults that only show beside other objects, on a change.
pub(crate) fn validate_update(op: &Operation, live: &Value, new: &Value, view: &View) -> Vec<FieldError> {
    if is_definition(&op.resource) && op.subresource.is_none() {
        return customresources::validate_definition_update(new, live);
    }
    match (op.resource.group.as_str(), op.resource.plural.as_str()) {
        _ if op.subresource.is_some() => Vec::new(),
        ("", "services") => service::validate(new, Some(live), view),
        _ => Vec::new(),
    }
}
