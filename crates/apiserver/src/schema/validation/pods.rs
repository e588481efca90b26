//! Pods and pod templates.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::metadata::{labels, qualified_name};
use super::{empty, items, names, non_negative, one_of, text};
use crate::schema::quantity::Quantity;
use crate::schema::{FieldError, FieldErrorKind, FieldPath};

/// Volume names that a template's owner adds.
pub(super) type ExtraVolumes = BTreeSet<String>;

/// Checks a pod.
pub(super) fn pod(value: &Value, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    spec(
        value.get("spec").unwrap_or(&NOTHING),
        &ExtraVolumes::new(),
        &FieldPath::new("spec"),
        errors,
    );
}

/// Checks a pod template.
pub(super) fn template(value: &Value, extra: &ExtraVolumes, path: &FieldPath, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    if let Some(Value::Object(map)) = value.pointer("/metadata/labels") {
        labels(map, &path.child("labels"), errors);
    }
    if let Some(Value::Object(map)) = value.pointer("/metadata/annotations") {
        for key in map.keys() {
            for complaint in qualified_name(&key.to_lowercase()) {
                errors.push(FieldError::invalid(path.child("annotations"), key.as_str(), complaint));
            }
        }
    }
    let inner = value.get("spec").unwrap_or(&NOTHING);
    spec(inner, extra, &path.child("spec"), errors);
    if !empty(inner, "ephemeralContainers") {
        let at = path.child("spec").child("ephemeralContainers");
        errors.push(FieldError::forbidden(
            at,
            "ephemeral containers not allowed in pod template",
        ));
    }
}

fn spec(spec: &Value, extra: &ExtraVolumes, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut volumes = extra.clone();
    self::volumes(spec, path, &mut volumes, errors);
    if empty(spec, "containers") {
        errors.push(FieldError::required(path.child("containers"), ""));
    }
    let mut known = BTreeSet::new();
    for (container, at) in items(spec, "containers", path) {
        self::container(container, &volumes, &at, errors);
        unique_name(container, &mut known, &at, errors);
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            if let Some(found) = container.get(probe) {
                self::probe(found, probe, &at.child(probe), errors);
            }
        }
    }
    for (container, at) in items(spec, "initContainers", path) {
        self::container(container, &volumes, &at, errors);
        unique_name(container, &mut known, &at, errors);
        let restartable = text(container, "restartPolicy") == "Always";
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.get(field).is_some() && !restartable {
                errors.push(FieldError::forbidden(
                    at.child(field),
                    "may not be set for init containers without restartPolicy=Always",
                ));
            }
        }
    }
    one_of(
        spec,
        "restartPolicy",
        &["Always", "OnFailure", "Never"],
        true,
        path,
        errors,
    );
    one_of(
        spec,
        "dnsPolicy",
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        true,
        path,
        errors,
    );
    if let Some(Value::Object(map)) = spec.get("nodeSelector") {
        labels(map, &path.child("nodeSelector"), errors);
    }
    for field in ["serviceAccountName", "nodeName", "priorityClassName"] {
        named(spec, field, names::subdomain, path, errors);
    }
    for field in ["hostname", "subdomain"] {
        named(spec, field, names::label, path, errors);
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
    for (toleration, at) in items(spec, "tolerations", path) {
        self::toleration(toleration, &at, errors);
    }
    for (constraint, at) in items(spec, "topologySpreadConstraints", path) {
        if constraint.get("maxSkew").and_then(Value::as_i64).unwrap_or(0) <= 0 {
            let skew = constraint.get("maxSkew").cloned().unwrap_or(Value::from(0));
            errors.push(FieldError::invalid(
                at.child("maxSkew"),
                skew,
                "must be greater than zero",
            ));
        }
        if text(constraint, "topologyKey").is_empty() {
            errors.push(FieldError::required(at.child("topologyKey"), "can not be empty"));
        }
        one_of(
            constraint,
            "whenUnsatisfiable",
            &["DoNotSchedule", "ScheduleAnyway"],
            true,
            &at,
            errors,
        );
    }
}

fn named(value: &Value, field: &str, rule: fn(&str) -> Vec<String>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let name = text(value, field);
    if !name.is_empty() {
        for complaint in rule(name) {
            errors.push(FieldError::invalid(path.child(field), name, complaint));
        }
    }
}

fn unique_name(container: &Value, known: &mut BTreeSet<String>, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let name = text(container, "name");
    if !known.insert(name.to_owned()) {
        errors.push(FieldError::duplicate(at.child("name"), name));
    }
}

fn volumes(spec: &Value, path: &FieldPath, known: &mut BTreeSet<String>, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (volume, at) in items(spec, "volumes", path) {
        let name = text(volume, "name");
        if name.is_empty() {
            errors.push(FieldError::required(at.child("name"), ""));
        } else {
            for complaint in names::label(name) {
                errors.push(FieldError::invalid(at.child("name"), name, complaint));
            }
            if !seen.insert(name.to_owned()) {
                errors.push(FieldError::duplicate(at.child("name"), name));
            }
        }
        volume_source(volume, &at, errors);
        known.insert(name.to_owned());
    }
}

/// The real server looks at the kinds of volumes in this order, takes the first, and refuses the others.
const SOURCES: [(&str, &str); 5] = [
    ("hostPath", "path"),
    ("emptyDir", ""),
    ("secret", "secretName"),
    ("persistentVolumeClaim", "claimName"),
    ("configMap", "name"),
];

fn volume_source(volume: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let given = volume
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .filter(|key| *key != "name");
    let mut given: Vec<&str> = given.map(String::as_str).collect();
    let rank = |source: &&str| {
        SOURCES
            .iter()
            .position(|(known, _)| known == source)
            .unwrap_or(SOURCES.len())
    };
    given.sort_by_key(rank);
    let Some((first, rest)) = given.split_first() else {
        errors.push(FieldError::required(at, "must specify a volume type"));
        return;
    };
    for source in rest {
        errors.push(FieldError::forbidden(
            at.child(source),
            "may not specify more than 1 volume type",
        ));
    }
    if let Some((_, field)) = SOURCES
        .iter()
        .find(|(known, field)| known == first && !field.is_empty())
        && let Some(source) = volume.get(*first)
        && text(source, field).is_empty()
    {
        errors.push(FieldError::required(at.child(first).child(field), ""));
    }
}

fn container(container: &Value, volumes: &BTreeSet<String>, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if text(container, "name").is_empty() {
        errors.push(FieldError::required(at.child("name"), ""));
    } else {
        named(container, "name", names::label, at, errors);
    }
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(at.child("image"), ""));
    }
    one_of(
        container,
        "terminationMessagePolicy",
        &["File", "FallbackToLogsOnError"],
        true,
        at,
        errors,
    );
    ports(container, at, errors);
    environment(container, at, errors);
    mounts(container, volumes, at, errors);
    one_of(
        container,
        "imagePullPolicy",
        &["Always", "IfNotPresent", "Never"],
        true,
        at,
        errors,
    );
    if let Some(resources) = container.get("resources") {
        self::resources(resources, &at.child("resources"), errors);
    }
}

fn ports(container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut known = BTreeSet::new();
    for (port, at) in items(container, "ports", at) {
        let name = text(port, "name");
        if !name.is_empty() {
            let complaints = names::port_name(name);
            if complaints.is_empty() && !known.insert(name.to_owned()) {
                errors.push(FieldError::duplicate(at.child("name"), name));
            }
            for complaint in complaints {
                errors.push(FieldError::invalid(at.child("name"), name, complaint));
            }
        }
        match port.get("containerPort").and_then(Value::as_i64).unwrap_or(0) {
            0 => errors.push(FieldError::required(at.child("containerPort"), "")),
            number => {
                if let Some(complaint) = names::port_number(number) {
                    errors.push(FieldError::invalid(at.child("containerPort"), number, complaint));
                }
            }
        }
        if let Some(number) = port.get("hostPort").and_then(Value::as_i64)
            && let Some(complaint) = names::port_number(number)
        {
            errors.push(FieldError::invalid(at.child("hostPort"), number, complaint));
        }
        one_of(port, "protocol", &["SCTP", "TCP", "UDP"], true, &at, errors);
    }
}

fn environment(container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for (variable, at) in items(container, "env", at) {
        let name = text(variable, "name");
        if name.is_empty() {
            errors.push(FieldError::required(at.child("name"), ""));
        } else if !name.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'=') {
            let detail =
                "a valid environment variable name must consist only of printable ASCII characters other than '='";
            errors.push(FieldError::invalid(at.child("name"), name, detail));
        }
        let Some(from) = variable.get("valueFrom") else {
            continue;
        };
        let at = at.child("valueFrom");
        let sources = from.as_object().map_or(0, Map::len);
        if sources == 0 {
            errors.push(FieldError::invalid(
                &at,
                "",
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
            ));
        } else if !text(variable, "value").is_empty() {
            errors.push(FieldError::invalid(
                &at,
                "",
                "may not be specified when `value` is not empty",
            ));
        } else if sources > 1 {
            errors.push(FieldError::invalid(
                &at,
                "",
                "may not have more than one field specified at a time",
            ));
        }
        for source in ["configMapKeyRef", "secretKeyRef"] {
            if let Some(reference) = from.get(source) {
                for field in ["name", "key"] {
                    if text(reference, field).is_empty() {
                        errors.push(FieldError::required(at.child(source).child(field), ""));
                    }
                }
            }
        }
    }
}

fn mounts(container: &Value, volumes: &BTreeSet<String>, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut paths = BTreeSet::new();
    for (mount, at) in items(container, "volumeMounts", at) {
        let name = text(mount, "name");
        if name.is_empty() {
            errors.push(FieldError::required(at.child("name"), ""));
        }
        if !volumes.contains(name) {
            errors.push(FieldError::new(FieldErrorKind::NotFound, at.child("name"), name, ""));
        }
        let path = text(mount, "mountPath");
        if path.is_empty() {
            errors.push(FieldError::required(at.child("mountPath"), ""));
        }
        if !paths.insert(path.to_owned()) {
            errors.push(FieldError::invalid(at.child("mountPath"), path, "must be unique"));
        }
    }
}

fn resources(resources: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    let limits = resources.get("limits").unwrap_or(&NOTHING);
    let quantity = |list: &Value, key: &str| {
        list.get(key)
            .and_then(Value::as_str)
            .and_then(|text| Quantity::parse(text).ok())
    };
    for field in ["limits", "requests"] {
        for key in resources
            .get(field)
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::keys)
        {
            let path = at.child(field).key(key);
            let Some(value) = resources.get(field).and_then(|list| quantity(list, key)) else {
                continue;
            };
            if value.is_negative() {
                errors.push(FieldError::invalid(
                    &path,
                    value.canonical(),
                    "must be greater than or equal to 0",
                ));
            }
            if field == "requests"
                && let Some(limit) = quantity(limits, key)
                && value > limit
            {
                let detail = format!("must be less than or equal to {key} limit of {}", limit.canonical());
                errors.push(FieldError::invalid(at.child("requests"), value.canonical(), detail));
            }
        }
    }
}

fn probe(probe: &Value, kind: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let handlers: Vec<&str> = ["exec", "httpGet", "tcpSocket", "grpc"]
        .into_iter()
        .filter(|one| probe.get(*one).is_some())
        .collect();
    match handlers.as_slice() {
        [] => errors.push(FieldError::required(at, "must specify a handler type")),
        [_] => {}
        [_, rest @ ..] => {
            for handler in rest {
                errors.push(FieldError::forbidden(
                    at.child(handler),
                    "may not specify more than 1 handler type",
                ));
            }
        }
    }
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        non_negative(probe, field, at, errors);
    }
    if kind != "readinessProbe"
        && let Some(threshold) = probe.get("successThreshold").and_then(Value::as_i64)
        && threshold != 1
    {
        errors.push(FieldError::invalid(
            at.child("successThreshold"),
            threshold,
            "must be 1",
        ));
    }
}

fn toleration(toleration: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let key = text(toleration, "key");
    if !key.is_empty() {
        for complaint in qualified_name(key) {
            errors.push(FieldError::invalid(at.child("key"), key, complaint));
        }
    }
    let operator = text(toleration, "operator");
    if key.is_empty() && operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(at.child("operator"), operator, detail));
    }
    if operator == "Exists" && !text(toleration, "value").is_empty() {
        errors.push(FieldError::invalid(
            at.child("operator"),
            text(toleration, "value"),
            "value must be empty when `operator` is 'Exists'",
        ));
    }
    one_of(
        toleration,
        "effect",
        &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        false,
        at,
        errors,
    );
}

/// A pod's spec is fixed but for images, the deadline, and added tolerations.
pub(super) fn pod_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let fixed = |object: &Value| {
        let mut spec = object.get("spec").cloned().unwrap_or_default();
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    container.remove("image");
                }
            }
        }
        if let Some(spec) = spec.as_object_mut() {
            for field in [
                "activeDeadlineSeconds",
                "tolerations",
                "terminationGracePeriodSeconds",
                "schedulingGates",
                "nodeSelector",
            ] {
                spec.remove(field);
            }
            // Binding a pod to a node sets this.
            if old.pointer("/spec/nodeName").is_none() {
                spec.remove("nodeName");
            }
        }
        spec
    };
    if fixed(value) != fixed(old) {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", detail));
    }
}
