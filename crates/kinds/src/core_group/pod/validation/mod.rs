//! Validation of Pods and Pod templates, in the words of the real server: the Pod as a whole, and its updates.

mod containers;
mod environment;
mod parts;
mod placement;
mod probes;
mod resources;
mod security;
mod status;
mod systems;
mod volumes;
mod windows;

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use crate::schema::validation::metadata::{validate_annotations, validate_labels};
use crate::schema::validation::{addresses, get_text, is_empty_field, list_items, names, one_of, validate_name};
use crate::schema::{FieldError, FieldErrorKind, FieldPath, Shown};

pub(crate) use parts::part_update;
pub(crate) use placement::validate_tolerations;
pub(crate) use resources::validate_overhead;
pub(crate) use security::profile_of_annotation as app_armor_of_annotation;
pub(crate) use status::validate_status;
pub(crate) use volumes::HOST_PATH_KINDS;

static NOTHING: Value = Value::Null;

/// Volume names that a template's owner adds.
pub(crate) type ExtraVolumes = BTreeSet<String>;

/// The context for the checks of a Pod's parts.
struct Pod<'a> {
    /// The Pod's name; `None` for a template, which has no name.
    name: Option<&'a str>,
    spec: &'a Value,
    /// The volumes without errors. Only these can be mounted.
    volumes: volumes::Sound<'a>,
    /// Names of claimed devices.
    claims: BTreeSet<&'a str>,
    grace_period: Option<i64>,
    /// Whether the Pod uses the host's user namespace.
    host_users: bool,
}

/// Checks a pod.
pub(crate) fn validate_pod(value: &Value, errors: &mut Vec<FieldError>) {
    let metadata = value.get("metadata").unwrap_or(&NOTHING);
    let inner = value.get("spec").unwrap_or(&NOTHING);
    let at = FieldPath::new("spec");
    let at_annotations = FieldPath::new("metadata").child("annotations");
    validate_own_annotations(metadata, inner, &at_annotations, errors);
    validate_spec(inner, Some(metadata), &ExtraVolumes::new(), &at, errors);
    if get_text(inner, "serviceAccountName").is_empty() {
        for (volume, at) in list_items(inner, "volumes", &at) {
            let sources = volume.get("projected").unwrap_or(&NOTHING);
            for (source, at) in list_items(sources, "sources", &at.child("projected")) {
                if source.get("serviceAccountToken").is_some() {
                    let detail = "must not be specified when serviceAccountName is not set";
                    errors.push(FieldError::forbidden(at.child("serviceAccountToken"), detail));
                }
            }
        }
    }
    for field in ["containers", "initContainers"] {
        for (container, at) in list_items(inner, field, &at) {
            containers::image_without_spaces(container, &at, errors);
        }
    }
}

/// Checks rules that apply only to a new Pod.
pub(crate) fn pod_create(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let at = FieldPath::new("spec");
    if !is_empty_field(spec, "ephemeralContainers") {
        errors.push(FieldError::forbidden(
            at.child("ephemeralContainers"),
            "cannot be set on create",
        ));
    }
    if !get_text(spec, "nodeName").is_empty() && !is_empty_field(spec, "schedulingGates") {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden(at.child("nodeName"), detail));
    }
    security::validate_agreement(value.get("metadata").unwrap_or(&NOTHING), spec, &at, errors);
}

/// Checks a pod template.
pub(crate) fn validate_template(value: &Value, extra: &ExtraVolumes, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let metadata = value.get("metadata").unwrap_or(&NOTHING);
    let inner = value.get("spec").unwrap_or(&NOTHING);
    template_metadata(value, path, errors);
    let at = path.child("spec");
    validate_spec(inner, None, extra, &at, errors);
    security::validate_agreement(metadata, inner, &at, errors);
    if !is_empty_field(inner, "ephemeralContainers") {
        errors.push(FieldError::forbidden(
            at.child("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        ));
    }
}

/// Checks the labels and annotations of a pod template.
pub(crate) fn template_metadata(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let metadata = value.get("metadata").unwrap_or(&NOTHING);
    if let Some(Value::Object(map)) = metadata.get("labels") {
        validate_labels(map, &path.child("labels"), errors);
    }
    let at = path.child("annotations");
    if let Some(Value::Object(map)) = metadata.get("annotations") {
        validate_annotations(map, &at, errors);
    }
    validate_own_annotations(metadata, value.get("spec").unwrap_or(&NOTHING), &at, errors);
}

/// Checks the annotations with a meaning to Kubernetes.
fn validate_own_annotations(metadata: &Value, spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let all = metadata.get("annotations").unwrap_or(&NOTHING);
    let value = |key: &str| all.get(key).and_then(Value::as_str);
    const MIRROR: &str = "kubernetes.io/config.mirror";
    if let Some(mirrored) = value(MIRROR)
        && get_text(spec, "nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(FieldError::invalid(path.key(MIRROR), mirrored, detail));
    }
    const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    if let Some(cost) = value(COST) {
        let zeros = cost.starts_with('+') || (cost.starts_with('0') && cost != "0");
        if zeros || cost.parse::<i32>().is_err() {
            errors.push(FieldError::invalid(path.key(COST), cost, "must be a 32bit integer"));
        }
    }
    security::validate_annotations(metadata, spec, path, errors);
}

fn validate_spec(
    spec: &Value,
    metadata: Option<&Value>,
    extra: &ExtraVolumes,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let mut pod = Pod {
        name: metadata.map(|metadata| get_text(metadata, "name")),
        spec,
        volumes: volumes::Sound::new(),
        claims: list_items(spec, "resourceClaims", path)
            .map(|(claim, _)| get_text(claim, "name"))
            .filter(|name| !name.is_empty())
            .collect(),
        grace_period: spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64),
        host_users: spec.get("hostUsers") != Some(&Value::Bool(false)),
    };
    let claimed = volumes::make_claim_volumes(extra);
    pod.volumes = volumes::validate_volumes(&pod, &claimed, path, errors);
    placement::resource_claims(spec, path, errors);
    containers::validate_containers(&pod, path, errors);
    containers::init_containers(&pod, path, errors);
    containers::ephemeral_containers(&pod, path, errors);
    resources::validate_pod_resources(spec, &pod.claims, path, errors);
    host_network(&pod, path, errors);
    let policies = ["Always", "OnFailure", "Never"];
    one_of(spec, "restartPolicy", &policies, true, path, errors);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(spec, "dnsPolicy", &policies, true, path, errors);
    if let Some(Value::Object(map)) = spec.get("nodeSelector") {
        validate_labels(map, &path.child("nodeSelector"), errors);
    }
    security::validate_pod_context(spec, path, errors);
    placement::validate_affinity(spec, path, errors);
    name_service(spec, path, errors);
    placement::validate_gates(spec, path, errors);
    placement::validate_topology_spread(spec, path, errors);
    windows::host_processes(spec, path, errors);
    validate_user_namespace(&pod, path, errors);
    hostname_override(spec, path, errors);
    for field in ["serviceAccountName", "nodeName"] {
        named_field(spec, field, names::find_subdomain_errors, path, errors);
    }
    if let Some(seconds) = spec.get("activeDeadlineSeconds").and_then(Value::as_i64)
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(
            path.child("activeDeadlineSeconds"),
            seconds,
            detail,
        ));
    }
    for field in ["hostname", "subdomain"] {
        named_field(spec, field, names::find_label_errors, path, errors);
    }
    placement::validate_tolerations(spec, path, errors);
    for (alias, at) in list_items(spec, "hostAliases", path) {
        addresses::parse_address(get_text(alias, "ip"), &at.child("ip"), errors);
        for (name, at) in list_items(alias, "hostnames", &at) {
            validate_name(
                names::find_subdomain_errors,
                name.as_str().unwrap_or_default(),
                &at,
                errors,
            );
        }
    }
    named_field(spec, "priorityClassName", names::find_subdomain_errors, path, errors);
    if let Some(class) = spec.get("runtimeClassName").and_then(Value::as_str) {
        validate_name(
            names::find_subdomain_errors,
            class,
            &path.child("runtimeClassName"),
            errors,
        );
    }
    if spec.get("preemptionPolicy").is_some() {
        let policies = ["PreemptLowerPriority", "Never"];
        one_of(spec, "preemptionPolicy", &policies, true, path, errors);
    }
    resources::validate_overhead(spec, path, errors);
    windows::validate_system(spec, path, errors);
    environment::files_in_volumes(spec, path, errors);
}

/// Checks that a Pod in the host's network uses only host ports.
fn host_network(pod: &Pod<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if pod.spec.get("hostNetwork") != Some(&Value::Bool(true)) {
        return;
    }
    for (container, at) in list_items(pod.spec, "containers", path) {
        for (port, at) in list_items(container, "ports", &at) {
            let (host, own) = (get_number(port, "hostPort"), get_number(port, "containerPort"));
            if host != own && (host != 0 || pod.name.is_some()) {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(at.child("hostPort"), host, detail));
            }
        }
    }
}

/// Checks a Pod with its own user namespace, which may share little with the host.
fn validate_user_namespace(pod: &Pod<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if pod.host_users {
        return;
    }
    let detail = "when `hostUsers` is false";
    for (field, called) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if pod.spec.get(field) == Some(&Value::Bool(true)) {
            errors.push(FieldError::forbidden(path.child(called), detail));
        }
    }
    for (container, at) in all_containers(pod.spec, path) {
        if !is_empty_field(container, "volumeDevices") {
            errors.push(FieldError::forbidden(at.child("volumeDevices"), detail));
        }
    }
}

fn hostname_override(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(name) = spec.get("hostnameOverride").and_then(Value::as_str) else {
        return;
    };
    let at = path.child("hostnameOverride");
    for (field, what) in [
        ("setHostnameAsFQDN", "setHostnameAsFQDN"),
        ("hostNetwork", "hostNetwork"),
    ] {
        if spec.get(field) == Some(&Value::Bool(true)) {
            let detail = format!("may not be specified when {what} is true");
            errors.push(FieldError::forbidden(&at, detail));
        }
    }
    if name.len() > 64 {
        errors.push(too_long(&at, 64));
    }
    validate_name(names::find_subdomain_errors, name, &at, errors);
}

/// Checks the DNS configuration of a Pod.
fn name_service(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let config = spec.get("dnsConfig");
    let at = path.child("dnsConfig");
    if get_text(spec, "dnsPolicy") == "None" {
        let missing = match config {
            None => Some((at.clone(), "must provide `dnsConfig` when `dnsPolicy` is None")),
            Some(config) if is_empty_field(config, "nameservers") => Some((
                at.child("nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            )),
            Some(_) => None,
        };
        if let Some((at, detail)) = missing {
            errors.push(FieldError::required(at, detail));
            return;
        }
    }
    let Some(config) = config else { return };
    let list = |field: &str| config.get(field).cloned().unwrap_or_default();
    if list_items(config, "nameservers", &at).count() > 3 {
        let detail = "must not have more than 3 nameservers";
        errors.push(FieldError::invalid(
            at.child("nameservers"),
            list("nameservers"),
            detail,
        ));
    }
    for (server, at) in list_items(config, "nameservers", &at) {
        addresses::parse_address(server.as_str().unwrap_or_default(), &at, errors);
    }
    let searches: Vec<&str> = list_items(config, "searches", &at)
        .map(|(search, _)| search.as_str().unwrap_or_default())
        .collect();
    let size = searches.iter().map(|search| search.len() + 1).sum::<usize>();
    for (wrong, detail) in [
        (searches.len() > 32, "must not have more than 32 search paths"),
        (
            size > 2049,
            "must not have more than 2048 characters (including spaces) in the search list",
        ),
    ] {
        if wrong {
            errors.push(FieldError::invalid(at.child("searches"), list("searches"), detail));
        }
    }
    for (index, search) in searches.into_iter().enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        validate_name(
            names::subdomain_with_underscores,
            search,
            &at.child("searches").index(index),
            errors,
        );
    }
    for (option, at) in list_items(config, "options", &at) {
        if get_text(option, "name").is_empty() {
            errors.push(FieldError::required(at, "must not be empty"));
        }
    }
}

/// Checks an update. A Pod's spec is immutable except for images, the deadline, added tolerations, removed gates, and the fields that gates
/// leave open.
pub(crate) fn pod_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let before = old.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    for list in ["containers", "initContainers"] {
        if list_items(spec, list, &path).count() != list_items(before, list, &path).count() {
            let detail = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(path.child(list), detail));
            return;
        }
        // This error occurs twice, as in the real server.
        for (container, at) in list_items(spec, list, &path) {
            validate_required(container, "image", &at, errors);
            containers::image_without_spaces(container, &at, errors);
        }
    }
    if !deadline_update(spec, before, &path, errors) {
        return;
    }
    toleration_update(spec, before, &path, errors);
    let gates = |spec: &Value| -> Vec<String> {
        let gates = list_items(spec, "schedulingGates", &path);
        gates.map(|(gate, _)| get_text(gate, "name").to_owned()).collect()
    };
    let known = gates(before);
    for (index, gate) in gates(spec).iter().enumerate().filter(|(_, gate)| !known.contains(gate)) {
        let detail = format!("only deletion is allowed, but found new scheduling gate '{gate}'");
        let at = path.child("schedulingGates").index(index).child("name");
        errors.push(FieldError::forbidden(at, detail));
    }
    let gated = !known.is_empty();
    if gated {
        node_selector_update(spec, before, &path, errors);
    }
    if immutable_part(spec, before, gated) != immutable_part(before, before, gated) {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", detail));
    }
}

/// Returns the immutable part of a spec.
fn immutable_part(spec: &Value, before: &Value, gated: bool) -> Value {
    let mut spec = spec.clone();
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container.remove("image");
            }
        }
    }
    if let Some(spec) = spec.as_object_mut() {
        let seconds = |spec: Option<&Value>| spec.and_then(Value::as_i64);
        let grace = "terminationGracePeriodSeconds";
        if seconds(before.get(grace)).is_some_and(|seconds| seconds < 0) && seconds(spec.get(grace)) == Some(1) {
            spec.remove(grace);
            spec.extend(before.get(grace).map(|seconds| (grace.to_owned(), seconds.clone())));
        }
        for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
            spec.remove(field);
        }
        if gated {
            spec.remove("nodeSelector");
            if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
                affinity.remove("nodeAffinity");
                if affinity.is_empty() {
                    spec.remove("affinity");
                }
            }
        }
    }
    spec
}

/// Checks that a deadline is only shortened. Returns whether further checks make sense.
fn deadline_update(spec: &Value, before: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> bool {
    let field = "activeDeadlineSeconds";
    let seconds = |spec: &Value| spec.get(field).and_then(Value::as_i64);
    let at = path.child(field);
    match (seconds(spec), seconds(before)) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            let detail = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(at, new, detail));
            return false;
        }
        (Some(new), Some(old)) if old < new => {
            let detail = "must be less than or equal to previous value";
            errors.push(FieldError::invalid(at, new, detail));
            return false;
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(at, Value::Null, detail));
        }
        _ => {}
    }
    true
}

/// Checks that existing tolerations change only in their `tolerationSeconds`. Others may be added.
fn toleration_update(spec: &Value, before: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let timeless = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(map) = toleration.as_object_mut() {
            map.remove("tolerationSeconds");
        }
        toleration
    };
    let new: HashSet<Value> = list_items(spec, "tolerations", path)
        .map(|(one, _)| timeless(one))
        .collect();
    if list_items(before, "tolerations", path).any(|(old, _)| !new.contains(&timeless(old))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden(path.child("tolerations"), detail));
    } else {
        placement::validate_tolerations(spec, path, errors);
    }
}

/// Checks a node selector update. While a Pod waits for gates, its selector may become stricter.
fn node_selector_update(spec: &Value, before: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let new = spec.get("nodeSelector").unwrap_or(&NOTHING);
    let mut old = before
        .get("nodeSelector")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    if old.any(|(key, value)| new.get(key) != Some(value)) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid(path.child("nodeSelector"), new.clone(), detail));
    }
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = |spec: &Value| {
        let terms = spec.pointer(&format!("/affinity/nodeAffinity/{required}/nodeSelectorTerms"));
        terms.and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let (new, old) = (terms(spec), terms(before));
    let at = path.child("affinity").child("nodeAffinity");
    let at = at.child(required).child("nodeSelectorTerms");
    if !old.is_empty() && old.len() != new.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let shown: Vec<String> = new.iter().map(shown_term).collect();
        let shown = if shown.is_empty() {
            "null".to_owned()
        } else {
            format!("[{}]", shown.join(","))
        };
        errors.push(FieldError::invalid(at, Shown::Verbatim(shown), detail));
        return;
    }
    for (index, (new, old)) in new.iter().zip(&old).enumerate() {
        let list = |term: &Value, field: &str| term.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
        let fields = ["matchExpressions", "matchFields"];
        let was_empty = fields.iter().all(|field| list(old, field).is_empty());
        let is_empty = fields.iter().all(|field| list(new, field).is_empty());
        let grown = fields
            .iter()
            .all(|field| list(new, field).starts_with(&list(old, field)));
        if (was_empty && !is_empty) || !grown {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid(
                at.index(index),
                Shown::Verbatim(shown_term(new)),
                detail,
            ));
        }
    }
}

/// Returns a term as the real server shows it.
fn shown_term(term: &Value) -> String {
    let list = |field: &str| {
        let list = term.get(field).and_then(Value::as_array)?;
        let shown: Vec<String> = list.iter().map(shown_requirement).collect();
        Some(format!("[{}]", shown.join(",")))
    };
    let [expressions, fields] =
        ["matchExpressions", "matchFields"].map(|field| list(field).unwrap_or("null".to_owned()));
    format!("{{\"MatchExpressions\":{expressions},\"MatchFields\":{fields}}}")
}

fn shown_requirement(requirement: &Value) -> String {
    let [key, operator] = ["key", "operator"].map(|field| Value::from(get_text(requirement, field)));
    let values = requirement.get("values").unwrap_or(&NOTHING);
    format!("{{\"Key\":{key},\"Operator\":{operator},\"Values\":{values}}}")
}

/// Returns every container with its path, in the order in which they start.
fn all_containers<'a>(spec: &'a Value, path: &FieldPath) -> Vec<(&'a Value, FieldPath)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|field| list_items(spec, field, path))
        .collect()
}

/// Returns a number; 0 when absent.
fn get_number(value: &Value, field: &str) -> i64 {
    value.get(field).and_then(Value::as_i64).unwrap_or(0)
}

/// Returns the errors of a rule about a field, which may be empty.
fn named_field(
    value: &Value,
    field: &str,
    rule: fn(&str) -> Vec<String>,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let name = get_text(value, field);
    if !name.is_empty() {
        validate_name(rule, name, &path.child(field), errors);
    }
}

/// Checks that a field is not empty.
fn validate_required(value: &Value, field: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if get_text(value, field).is_empty() {
        errors.push(FieldError::required(path.child(field), ""));
    }
}

fn not_found(at: impl ToString, name: &str) -> FieldError {
    FieldError::new(FieldErrorKind::NotFound, at, name, "")
}

fn too_long(at: impl ToString, most: usize) -> FieldError {
    let detail = format!("may not be more than {most} bytes");
    FieldError::new(FieldErrorKind::TooLong, at, "", detail)
}

fn too_many(value: &Value, field: &str, most: usize, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let count = list_items(value, field, path).count();
    if count > most {
        let detail = format!("must have at most {most} items");
        errors.push(FieldError::new(
            FieldErrorKind::TooMany,
            path.child(field),
            count,
            detail,
        ));
    }
}
