//! Validation of containers of every kind: their fields, and the rules between containers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::volumes::{descending_path, no_steps_back};
use super::{
    Pod, environment, get_number, named_field, not_found, probes, resources, security, too_many, validate_required,
};
use crate::schema::validation::{get_text, is_empty_field, list_items, names, one_of};
use crate::schema::{FieldError, FieldPath};

const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];

/// Checks the containers that do the pod's work.
pub(super) fn validate_containers(pod: &Pod<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if is_empty_field(pod.spec, "containers") {
        errors.push(FieldError::required(path.child("containers"), ""));
        return;
    }
    let mut known = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    let mut conflicts = Vec::new();
    for (container, at) in list_items(pod.spec, "containers", path) {
        validate_every_container(pod, container, &at, errors);
        if !known.insert(get_text(container, "name")) {
            errors.push(FieldError::duplicate(at.child("name"), get_text(container, "name")));
        }
        probes::validate_lifecycle(pod, container, &at, errors);
        probes::validate_probes(pod, container, &at, errors);
        restart_policy(container, &at, errors);
        unique_host_ports(container, &mut host_ports, &at, &mut conflicts);
    }
    errors.append(&mut conflicts);
}

/// Checks the containers that run before, one after the other.
pub(super) fn init_containers(pod: &Pod<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut known: BTreeSet<&str> = list_items(pod.spec, "containers", path)
        .map(|(container, _)| get_text(container, "name"))
        .collect();
    for (container, at) in list_items(pod.spec, "initContainers", path) {
        validate_every_container(pod, container, &at, errors);
        restart_policy(container, &at, errors);
        let name = get_text(container, "name");
        if known.contains(name) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        } else if !name.is_empty() {
            known.insert(name);
        }
        // The real server counts from the start for each of them.
        let first = path.child("initContainers").index(0);
        unique_host_ports(container, &mut BTreeSet::new(), &first, errors);
        let stays = get_text(container, "restartPolicy") == "Always";
        if stays {
            probes::validate_lifecycle(pod, container, &at, errors);
            probes::validate_probes(pod, container, &at, errors);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.get(field).is_some() {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.push(FieldError::forbidden(at.child(field), detail));
            }
        }
        for (policy, at) in list_items(container, "resizePolicy", &at) {
            if get_text(policy, "restartPolicy") == "RestartContainer" {
                let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                errors.push(FieldError::invalid(
                    at.child("restartPolicy"),
                    "RestartContainer",
                    detail,
                ));
            }
        }
    }
}

/// Checks the containers that were added to look into a running pod.
pub(super) fn ephemeral_containers(pod: &Pod<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let others: BTreeSet<&str> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|field| list_items(pod.spec, field, path))
        .map(|(container, _)| get_text(container, "name"))
        .collect();
    let mut known = others.clone();
    for (container, at) in list_items(pod.spec, "ephemeralContainers", path) {
        validate_every_container(pod, container, &at, errors);
        image_without_spaces(container, &at, errors);
        if !known.insert(get_text(container, "name")) {
            errors.push(FieldError::duplicate(at.child("name"), get_text(container, "name")));
        }
        let target = get_text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.push(not_found(at.child("targetContainerName"), target));
        }
        let detail = "cannot be set for an Ephemeral Container";
        for field in [
            "ports",
            "resources",
            "resizePolicy",
            "restartPolicy",
            "restartPolicyRules",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
        ] {
            if !is_empty_field(container, field) {
                errors.push(FieldError::forbidden(at.child(field), detail));
            }
        }
        for (mount, at) in list_items(container, "volumeMounts", &at) {
            for field in ["subPath", "subPathExpr"] {
                if !get_text(mount, field).is_empty() {
                    errors.push(FieldError::forbidden(at.child(field), detail));
                }
            }
        }
    }
}

/// Checks that an image's name has no spaces around it. Templates are less strict.
pub(super) fn image_without_spaces(container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let image = get_text(container, "image");
    if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(at.child("image"), image, detail));
    }
}

/// Checks the rules for every container.
fn validate_every_container(pod: &Pod<'_>, container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    validate_required(container, "name", at, errors);
    named_field(container, "name", names::find_label_errors, at, errors);
    validate_required(container, "image", at, errors);
    let policies = ["File", "FallbackToLogsOnError"];
    one_of(container, "terminationMessagePolicy", &policies, true, at, errors);
    validate_ports(container, at, errors);
    environment::validate_environment(container, at, errors);
    validate_mounts(pod, container, at, errors);
    validate_devices(pod, container, at, errors);
    let policies = ["Always", "IfNotPresent", "Never"];
    one_of(container, "imagePullPolicy", &policies, true, at, errors);
    if let Some(found) = container.get("resources") {
        resources::validate_container_resources(found, &pod.claims, &at.child("resources"), errors);
    }
    resize_policies(pod, container, &at.child("resizePolicy"), errors);
    if let Some(context) = container.get("securityContext") {
        security::validate_container_context(context, pod.host_users, &at.child("securityContext"), errors);
    }
}

fn validate_ports(container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut known = BTreeSet::new();
    for (port, at) in list_items(container, "ports", at) {
        let name = get_text(port, "name");
        if !name.is_empty() {
            let complaints = names::port_name(name);
            if complaints.is_empty() && !known.insert(name) {
                errors.push(FieldError::duplicate(at.child("name"), name));
            }
            for complaint in complaints {
                errors.push(FieldError::invalid(at.child("name"), name, complaint));
            }
        }
        if get_number(port, "containerPort") == 0 {
            errors.push(FieldError::required(at.child("containerPort"), ""));
        }
        for field in ["containerPort", "hostPort"] {
            let number = get_number(port, field);
            if let Some(complaint) = names::port_number(number)
                && number != 0
            {
                errors.push(FieldError::invalid(at.child(field), number, complaint));
            }
        }
        one_of(port, "protocol", &["SCTP", "TCP", "UDP"], true, &at, errors);
    }
}

fn unique_host_ports(container: &Value, known: &mut BTreeSet<String>, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for (port, at) in list_items(container, "ports", at) {
        let number = get_number(port, "hostPort");
        let key = format!("{}/{}/{number}", get_text(port, "protocol"), get_text(port, "hostIP"));
        if number != 0 && !known.insert(key.clone()) {
            errors.push(FieldError::duplicate(at.child("hostPort"), key));
        }
    }
}

fn validate_mounts(pod: &Pod<'_>, container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let devices: BTreeMap<&str, &str> = list_items(container, "volumeDevices", at)
        .map(|(device, _)| (get_text(device, "name"), get_text(device, "devicePath")))
        .collect();
    let device_paths: BTreeSet<&str> = devices.values().copied().collect();
    // The errors inside a mount do not name the mount's index.
    let all = at.child("volumeMounts");
    let mut paths = BTreeSet::new();
    for (mount, at) in list_items(container, "volumeMounts", at) {
        let (name, path) = (get_text(mount, "name"), get_text(mount, "mountPath"));
        validate_required(mount, "name", &at, errors);
        if !pod.volumes.contains_key(name) {
            errors.push(not_found(at.child("name"), name));
        }
        validate_required(mount, "mountPath", &at, errors);
        if !paths.insert(path) {
            errors.push(FieldError::invalid(at.child("mountPath"), path, "must be unique"));
        }
        if devices.contains_key(name) {
            let detail = "must not already exist in volumeDevices";
            errors.push(FieldError::invalid(at.child("name"), name, detail));
        }
        if device_paths.contains(path) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.push(FieldError::invalid(at.child("mountPath"), path, detail));
        }
        let (part, expression) = (get_text(mount, "subPath"), get_text(mount, "subPathExpr"));
        descending_path(part, &all.child("subPath"), errors);
        if !part.is_empty() && !expression.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.push(FieldError::invalid(at.child("subPathExpr"), expression, detail));
        }
        descending_path(expression, &all.child("subPathExpr"), errors);
        validate_propagation(container, mount, &all, errors);
        recursive_read_only(mount, &all, errors);
    }
}

fn validate_propagation(container: &Value, mount: &Value, all: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(mode) = mount.get("mountPropagation").and_then(Value::as_str) else {
        return;
    };
    let at = all.child("mountPropagation");
    let modes = ["Bidirectional", "HostToContainer", "None"];
    if !modes.contains(&mode) {
        errors.push(FieldError::not_supported(&at, mode, &modes));
    }
    let privileged = container.pointer("/securityContext/privileged") == Some(&Value::Bool(true));
    if mode == "Bidirectional" && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.push(FieldError::forbidden(at, detail));
    }
}

fn recursive_read_only(mount: &Value, all: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(mode) = mount.get("recursiveReadOnly").and_then(Value::as_str) else {
        return;
    };
    let at = all.child("recursiveReadOnly");
    let modes = ["Disabled", "Enabled", "IfPossible"];
    match mode {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if mount.get("readOnly") != Some(&Value::Bool(true)) {
                let detail = "may only be specified when readOnly is true";
                errors.push(FieldError::forbidden(&at, detail));
            }
            if mount
                .get("mountPropagation")
                .is_some_and(|mode| mode.as_str() != Some("None"))
            {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.push(FieldError::forbidden(at, detail));
            }
        }
        other => errors.push(FieldError::not_supported(at, other, &modes)),
    }
}

fn validate_devices(pod: &Pod<'_>, container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mounts: BTreeMap<&str, &str> = list_items(container, "volumeMounts", at)
        .map(|(mount, _)| (get_text(mount, "name"), get_text(mount, "mountPath")))
        .collect();
    let mount_paths: BTreeSet<&str> = mounts.values().copied().collect();
    let (mut known, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (device, at) in list_items(container, "volumeDevices", at) {
        let (name, path) = (get_text(device, "name"), get_text(device, "devicePath"));
        let (at_name, at_path) = (at.child("name"), at.child("devicePath"));
        validate_required(device, "name", &at, errors);
        if known.contains(name) {
            errors.push(FieldError::invalid(&at_name, name, "must be unique"));
        }
        match pod.volumes.get(name) {
            None => errors.push(not_found(&at_name, name)),
            Some(volume) if volume.get("persistentVolumeClaim").is_none() && volume.get("ephemeral").is_none() => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(FieldError::invalid(&at_name, name, detail));
            }
            Some(_) => {}
        }
        validate_required(device, "devicePath", &at, errors);
        if paths.contains(path) {
            errors.push(FieldError::invalid(&at_path, path, "must be unique"));
        }
        let before = errors.len();
        no_steps_back(path, &at_path, errors);
        if errors.len() > before {
            errors.truncate(before);
            let detail = "can not contain backsteps ('..')";
            errors.push(FieldError::invalid(&at_path, path, detail));
        } else {
            paths.insert(path);
        }
        if mounts.contains_key(name) {
            let detail = "must not already exist in volumeMounts";
            errors.push(FieldError::invalid(at_name, name, detail));
        }
        if mount_paths.contains(path) {
            let detail = "must not already exist as a path in volumeMounts";
            errors.push(FieldError::invalid(at_path, path, detail));
        }
        if !name.is_empty() {
            known.insert(name);
        }
    }
}

/// Checks the resize policies of a container. Errors name the whole list.
fn resize_policies(pod: &Pod<'_>, container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let list = container.get("resizePolicy").and_then(Value::as_array);
    let mut known = BTreeSet::new();
    for (index, policy) in list.into_iter().flatten().enumerate() {
        let (resource, restart) = (get_text(policy, "resourceName"), get_text(policy, "restartPolicy"));
        if !known.insert(resource) {
            errors.push(FieldError::duplicate(at.index(index), resource));
        }
        for (found, supported) in [
            (resource, ["cpu", "memory"]),
            (restart, ["NotRequired", "RestartContainer"]),
        ] {
            if found.is_empty() {
                errors.push(FieldError::required(at, ""));
            } else if !supported.contains(&found) {
                errors.push(FieldError::not_supported(at, found, &supported));
            }
        }
        if get_text(pod.spec, "restartPolicy") == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid(at, restart, detail));
        }
    }
}

/// Checks the restart policy of a single container.
fn restart_policy(container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let at_policy = at.child("restartPolicy");
    let rules = !is_empty_field(container, "restartPolicyRules");
    match container.get("restartPolicy").and_then(Value::as_str) {
        None if rules => {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.push(FieldError::required(at_policy, detail));
        }
        Some(policy) if !RESTART_POLICIES.contains(&policy) => {
            errors.push(FieldError::not_supported(at_policy, policy, &RESTART_POLICIES));
        }
        _ => {}
    }
    too_many(container, "restartPolicyRules", 20, at, errors);
    for (rule, at) in list_items(container, "restartPolicyRules", at) {
        let actions = ["Restart", "RestartAllContainers"];
        let action = get_text(rule, "action");
        if !actions.contains(&action) {
            errors.push(FieldError::not_supported(at.child("action"), action, &actions));
        }
        let at = at.child("exitCodes");
        let Some(codes) = rule.get("exitCodes") else {
            errors.push(FieldError::required(at, "must be specified"));
            continue;
        };
        let operators = ["In", "NotIn"];
        let operator = get_text(codes, "operator");
        if !operators.contains(&operator) {
            errors.push(FieldError::not_supported(at.child("operator"), operator, &operators));
        }
        too_many(codes, "values", 255, &at, errors);
    }
}
