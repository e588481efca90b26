//! Warnings for the writer of a valid Pod or Pod template, in the words of the real server.

mod files;
mod ports;

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::Value;

use crate::schema::quantity::Quantity;
use crate::schema::validation::{get_text, label_value, list_items, names};
use crate::schema::{FieldPath, go_quoted};

use files::warn_about_files;
use ports::warn_about_ports;

/// The limit for warnings, which is more than the API server sends. Checks of all pairs of items stop at this number.
const MOST_TEXTS: usize = 1_000;

static NOTHING: Value = Value::Null;

/// Labels of nodes that have other names by now.
const DEPRECATED_LABELS: [(&str, &str); 8] = [
    (
        "beta.kubernetes.io/arch",
        r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#,
    ),
    (
        "beta.kubernetes.io/os",
        r#"deprecated since v1.14; use "kubernetes.io/os" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
    ),
    (
        "beta.kubernetes.io/instance-type",
        r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#,
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        r#"use "node-role.kubernetes.io/control-plane" instead"#,
    ),
];

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// Annotations of Pods without an effect.
const DEAD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
];

/// Kinds of volumes that are on their way out or gone, and how the real server calls them.
const DEAD_VOLUMES: [(&str, &str, &str); 9] = [
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Returns the warning about a node label that has been renamed.
pub(crate) fn find_deprecation(label: &str) -> Option<&'static str> {
    DEPRECATED_LABELS
        .iter()
        .find(|(known, _)| *known == label)
        .map(|(_, message)| *message)
}

/// Returns a field's number; zero if it is missing.
pub(crate) fn get_number(value: &Value, field: &str) -> i64 {
    value.get(field).and_then(Value::as_i64).unwrap_or(0)
}

/// Returns warnings about a new Pod.
pub(super) fn list_pod_warnings(pod: &Value) -> Vec<String> {
    let name = pod
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let complaints = names::find_label_errors(name);
    let mut found = Vec::new();
    if !complaints.is_empty() {
        found.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            complaints.join(" ")
        ));
    }
    found.extend(list_template_warnings(pod, &FieldPath::default()));
    found
}

/// Returns warnings about a Pod template at a path. The path of a Pod itself is empty.
pub(crate) fn list_template_warnings(template: &Value, path: &FieldPath) -> Vec<String> {
    let spec = template.get("spec").unwrap_or(&NOTHING);
    let at = path.child("spec");
    let annotations = template.pointer("/metadata/annotations").unwrap_or(&NOTHING);
    let at_annotations = path.child("metadata").child("annotations");
    let mut found = Vec::new();
    warn_about_placement(spec, &at, &mut found);
    for (key, message) in DEAD_ANNOTATIONS {
        if annotations.get(key).is_some() {
            found.push(format!("{}: {message}", at_annotations.key(key)));
        }
    }
    warn_about_volumes(spec, &at, &mut found);
    warn_about_duplicates(spec, "hostAliases", "ip", &at, &mut found);
    warn_about_duplicates(spec, "imagePullSecrets", "name", &at, &mut found);
    for (secret, at) in list_items(spec, "imagePullSecrets", &at) {
        if get_text(secret, "name").is_empty() {
            found.push(format!("{}: invalid empty name \"\"", at.child("name")));
        }
    }
    warn_about_fractions(spec.get("overhead"), &at.child("overhead"), &mut found);
    let profile = r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;
    if spec.pointer("/securityContext/seccompProfile").is_none() && annotations.get(SECCOMP_POD).is_some() {
        found.push(format!("{}: {profile}", at_annotations.key(SECCOMP_POD)));
    }
    let containers: Vec<(&Value, FieldPath)> = ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| list_items(spec, list, &at))
        .collect();
    for (container, at) in &containers {
        let key = format!("{SECCOMP_CONTAINER}{}", get_text(container, "name"));
        if container.pointer("/securityContext/seccompProfile").is_none() && annotations.get(&key).is_some() {
            found.push(format!("{}: {profile}", at_annotations.key(&key)));
        }
        for side in ["limits", "requests"] {
            let amounts = container.pointer(&format!("/resources/{side}"));
            warn_about_fractions(amounts, &at.child("resources").child(side), &mut found);
        }
        warn_about_environment(container, at, &mut found);
    }
    warn_about_ports(&containers, &mut found);
    if get_number(spec, "terminationGracePeriodSeconds") < 0 {
        found.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            at.child("terminationGracePeriodSeconds")
        ));
    }
    pod_affinity(spec, &at.child("affinity"), &mut found);
    let config = spec.get("dnsConfig").unwrap_or(&NOTHING);
    for (server, at) in list_items(config, "nameservers", &at.child("dnsConfig")) {
        warn_about_address(server.as_str().unwrap_or_default(), &at, &mut found);
    }
    for (alias, at) in list_items(spec, "hostAliases", &at) {
        warn_about_address(get_text(alias, "ip"), &at.child("ip"), &mut found);
    }
    found
}

fn warn_about_placement(spec: &Value, at: &FieldPath, found: &mut Vec<String>) {
    for (key, _) in spec
        .get("nodeSelector")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if let Some(message) = find_deprecation(key) {
            found.push(format!("{}: {message}", at.child("nodeSelector").key(key)));
        }
    }
    let nodes = spec.pointer("/affinity/nodeAffinity").unwrap_or(&NOTHING);
    let at_nodes = at.child("affinity").child("nodeAffinity");
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let selector = nodes.get(required).unwrap_or(&NOTHING);
    for (term, at) in list_items(selector, "nodeSelectorTerms", &at_nodes.child(required)) {
        node_term(term, false, &at, found);
    }
    for (weighted, at) in list_items(nodes, "preferredDuringSchedulingIgnoredDuringExecution", &at_nodes) {
        let preference = weighted.get("preference").unwrap_or(&NOTHING);
        node_term(preference, true, &at.child("preference"), found);
    }
    for (constraint, at) in list_items(spec, "topologySpreadConstraints", at) {
        let key = get_text(constraint, "topologyKey");
        if let Some(message) = find_deprecation(key) {
            found.push(format!("{}: {key} is {message}", at.child("topologyKey")));
        }
        no_selector(constraint, &at, found);
    }
}

/// Adds warnings about a term that selects nodes.
pub(crate) fn node_term(term: &Value, values: bool, at: &FieldPath, found: &mut Vec<String>) {
    for (expression, at) in list_items(term, "matchExpressions", at) {
        let key = get_text(expression, "key");
        if let Some(message) = find_deprecation(key) {
            found.push(format!("{}: {key} is {message}", at.child("key")));
        }
        for (value, at) in list_items(expression, "values", &at).filter(|_| values) {
            let value = value.as_str().unwrap_or_default();
            for complaint in label_value(value) {
                found.push(format!("{at}: {value} is invalid, {complaint}"));
            }
        }
    }
}

fn no_selector(value: &Value, at: &FieldPath, found: &mut Vec<String>) {
    if value.get("labelSelector").is_none() {
        found.push(format!(
            "{}: a null labelSelector results in matching no pod",
            at.child("labelSelector")
        ));
    }
}

fn pod_affinity(spec: &Value, at: &FieldPath, found: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = spec.pointer(&format!("/affinity/{kind}")).unwrap_or(&NOTHING);
        let at = at.child(kind);
        for (term, at) in list_items(pods, "requiredDuringSchedulingIgnoredDuringExecution", &at) {
            no_selector(term, &at, found);
        }
        for (weighted, at) in list_items(pods, "preferredDuringSchedulingIgnoredDuringExecution", &at) {
            let term = weighted.get("podAffinityTerm").unwrap_or(&NOTHING);
            no_selector(term, &at.child("podAffinityTerm"), found);
        }
    }
}

fn warn_about_volumes(spec: &Value, at: &FieldPath, found: &mut Vec<String>) {
    for (volume, at) in list_items(spec, "volumes", at) {
        for (kind, called, message) in DEAD_VOLUMES {
            if volume.get(kind).is_some() {
                found.push(format!("{}: {message}", at.child(called)));
            }
        }
        if let Some(claim) = volume.pointer("/ephemeral/volumeClaimTemplate/spec/resources") {
            let at = at.child("ephemeral").child("volumeClaimTemplate").child("spec");
            claim_sizes(claim, &at.child("resources"), found);
        }
    }
    for (volume, _) in list_items(spec, "volumes", at) {
        warn_about_files(volume, found);
    }
}

/// Adds warnings about sizes of claims that are not whole bytes.
pub(crate) fn claim_sizes(resources: &Value, at: &FieldPath, found: &mut Vec<String>) {
    for side in ["requests", "limits"] {
        let sizes = resources.get(side).unwrap_or(&NOTHING);
        warn_about_fraction(sizes, "storage", &at.child(side), found);
    }
}

fn warn_about_duplicates(spec: &Value, list: &str, field: &str, at: &FieldPath, found: &mut Vec<String>) {
    let mut known = HashSet::new();
    for (item, at) in list_items(spec, list, at) {
        let value = get_text(item, field);
        if !known.insert(value) {
            found.push(format!("{}: duplicate {field} {}", at.child(field), go_quoted(value)));
        }
    }
}

/// Adds warnings about amounts with a fraction of a byte.
fn warn_about_fractions(amounts: Option<&Value>, at: &FieldPath, found: &mut Vec<String>) {
    let amounts = amounts.unwrap_or(&NOTHING);
    for resource in ["memory", "ephemeral-storage"] {
        warn_about_fraction(amounts, resource, at, found);
    }
}

fn warn_about_fraction(amounts: &Value, resource: &str, at: &FieldPath, found: &mut Vec<String>) {
    if let Ok(amount) = Quantity::parse(get_text(amounts, resource))
        && !amount.is_whole()
    {
        found.push(format!(
            "{}: fractional byte value {} is invalid, must be an integer",
            at.key(resource),
            go_quoted(&amount.canonical())
        ));
    }
}

fn warn_about_environment(container: &Value, at: &FieldPath, found: &mut Vec<String>) {
    let mut known = HashSet::new();
    for (variable, at) in list_items(container, "env", at) {
        let name = get_text(variable, "name");
        let reference = format!("$({name})");
        let value = get_text(variable, "value");
        let extends = variable.get("valueFrom").is_none() && value != reference && value.contains(&reference);
        if !known.insert(name) && !extends {
            found.push(format!(
                "{at}: hides previous definition of {}, which may be dropped when using apply",
                go_quoted(name)
            ));
        }
    }
}

/// Adds a warning about an address that has a simpler form.
pub(crate) fn warn_about_address(address: &str, at: &FieldPath, found: &mut Vec<String>) {
    if let Ok(parsed @ IpAddr::V6(_)) = address.parse::<IpAddr>()
        && parsed.to_string() != address
    {
        found.push(format!(
            "{at}: IPv6 address {} should be in RFC 5952 canonical format ({})",
            go_quoted(address),
            go_quoted(&parsed.to_string())
        ));
    }
}
