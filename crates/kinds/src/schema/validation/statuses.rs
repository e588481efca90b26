//! Statuses that controllers write: counts that agree with each other, and where a Service is reached.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{addresses, items, names, non_negative, policies, text};
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;

/// The counts of a kind: all of them, those that are no more than all replicas, and the word for those that are ready.
struct Counts {
    all: &'static [&'static str],
    parts: &'static [&'static str],
    ready: &'static str,
}

fn counts(kind: &str) -> Option<Counts> {
    let plain = "cannot be greater than readyReplicas";
    let (all, parts, ready): (&[&str], &[&str], &str) = match kind {
        "Deployment" => (
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
            &["updatedReplicas", "readyReplicas", "availableReplicas"],
            plain,
        ),
        "ReplicaSet" => (
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
                "terminatingReplicas",
            ],
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
            plain,
        ),
        "ReplicationController" => (
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
            ],
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
            plain,
        ),
        "StatefulSet" => (
            &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
            &[
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
            ],
            "cannot be greater than status.readyReplicas",
        ),
        "DaemonSet" => (
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
            &[],
            plain,
        ),
        _ => return None,
    };
    Some(Counts { all, parts, ready })
}

fn status(object: &Value) -> &Value {
    object.get("status").unwrap_or(&NOTHING)
}

/// Checks the counts of a kind that makes pods.
pub(crate) fn counted(kind: &str, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let Some(counts) = counts(kind) else { return };
    let (status, before) = (status(value), status(old));
    let path = FieldPath::new("status");
    let number = |status: &Value, field: &str| status.get(field).and_then(Value::as_i64).unwrap_or(0);
    for field in counts.all {
        non_negative(status, field, &path, errors);
    }
    let replicas = number(status, "replicas");
    for field in counts.parts.iter().filter(|field| number(status, field) > replicas) {
        let detail = "cannot be greater than status.replicas";
        errors.push(FieldError::invalid(path.child(field), number(status, field), detail));
    }
    let available = number(status, "availableReplicas");
    if !counts.parts.is_empty() && available > number(status, "readyReplicas") {
        errors.push(FieldError::invalid(
            path.child("availableReplicas"),
            available,
            counts.ready,
        ));
    }
    let field = "collisionCount";
    let was = before.get(field).and_then(Value::as_i64);
    if counts.all.contains(&field) && was.is_some_and(|was| number(status, field) < was) {
        let detail = "cannot be decremented";
        errors.push(FieldError::invalid(path.child(field), number(status, field), detail));
    }
}

/// Where a balancer takes the traffic of a Service.
pub(crate) fn balancer(service: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (status, before) = (status(service), status(old));
    let path = FieldPath::new("status").child("loadBalancer");
    let entries = status.get("loadBalancer").unwrap_or(&NOTHING);
    if items(entries, "ingress", &path).next().is_none() {
        return;
    }
    let spec = service.get("spec").unwrap_or(&NOTHING);
    if text(spec, "type") != "LoadBalancer" {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden(path.child("ingress"), detail));
        return;
    }
    let known = known_addresses(before);
    for (entry, at) in items(entries, "ingress", &path) {
        let ip = text(entry, "ip");
        reached_at(entry, &known, &at, errors);
        let modes = ["Proxy", "VIP"];
        match entry.get("ipMode").and_then(Value::as_str) {
            None if !ip.is_empty() => {
                let detail = "must be specified when `ip` is set";
                errors.push(FieldError::required(at.child("ipMode"), detail));
            }
            Some(_) if ip.is_empty() => {
                let detail = "may not be specified when `ip` is not set";
                errors.push(FieldError::forbidden(at.child("ipMode"), detail));
            }
            Some(mode) if !modes.contains(&mode) => {
                errors.push(FieldError::not_supported(at.child("ipMode"), mode, &modes));
            }
            _ => {}
        }
    }
}

/// A namespace's phase says whether it is being deleted.
pub(crate) fn phase(namespace: &Value, errors: &mut Vec<FieldError>) {
    let status = status(namespace);
    let deleted = namespace
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null());
    let (wanted, when) = if deleted {
        ("Terminating", "not empty")
    } else {
        ("Active", "empty")
    };
    let found = text(status, "phase");
    if found != wanted {
        let detail = format!("may only be '{wanted}' if `deletionTimestamp` is {when}");
        errors.push(FieldError::invalid("status.Phase", found, detail));
    }
}

/// Where a balancer takes the traffic of an Ingress.
pub(crate) fn ingress(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (status, before) = (status(value), status(old));
    let path = FieldPath::new("status").child("loadBalancer");
    let known = known_addresses(before);
    let entries = status.get("loadBalancer").unwrap_or(&NOTHING);
    for (entry, at) in items(entries, "ingress", &path) {
        reached_at(entry, &known, &at, errors);
    }
}

/// The addresses that a status has already: they may stay, whatever they look like.
fn known_addresses(before: &Value) -> BTreeSet<&str> {
    let entries = before.get("loadBalancer").unwrap_or(&NOTHING);
    items(entries, "ingress", &FieldPath::default())
        .map(|(entry, _)| text(entry, "ip"))
        .collect()
}

/// The address and the name of one way in.
fn reached_at(entry: &Value, known: &BTreeSet<&str>, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let ip = text(entry, "ip");
    if !ip.is_empty() && !known.contains(ip) {
        addresses::address(ip, &at.child("ip"), errors);
    }
    let host = text(entry, "hostname");
    if !host.is_empty() {
        for complaint in names::subdomain(host) {
            errors.push(FieldError::invalid(at.child("hostname"), host, complaint));
        }
        if addresses::lenient(host).is_some() {
            let detail = "must be a DNS name, not an IP address";
            errors.push(FieldError::invalid(at.child("hostname"), host, detail));
        }
    }
}

/// How many pods a budget counts, and its conditions.
pub(crate) fn budget(value: &Value, errors: &mut Vec<FieldError>) {
    let status = status(value);
    let path = FieldPath::new("status");
    policies::conditions(status, &path, errors);
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        non_negative(status, field, &path, errors);
    }
}
