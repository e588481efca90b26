//! The actions of a kubelet on a container: probes, and hooks at start and stop.

use serde_json::Value;

use super::{Pod, named, number, required};
use crate::schema::validation::{items, names, non_negative, text};
use crate::schema::{FieldError, FieldPath};

/// Checks the probes of a container that may have them.
pub(super) fn probes(pod: &Pod<'_>, container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get(kind) else { continue };
        let at = at.child(kind);
        let kinds = ["exec", "httpGet", "tcpSocket", "grpc"];
        handler(pod, probe, &kinds, &at, errors);
        for field in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            non_negative(probe, field, &at, errors);
        }
        let grace = probe.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
        let at_grace = at.child("terminationGracePeriodSeconds");
        if let Some(seconds) = grace
            && seconds <= 0
        {
            errors.push(FieldError::invalid(&at_grace, seconds, "must be greater than 0"));
        }
        if kind == "readinessProbe" {
            if let Some(seconds) = grace {
                errors.push(FieldError::invalid(
                    at_grace,
                    seconds,
                    "must not be set for readinessProbes",
                ));
            }
        } else if number(probe, "successThreshold") != 1 {
            let threshold = number(probe, "successThreshold");
            errors.push(FieldError::invalid(
                at.child("successThreshold"),
                threshold,
                "must be 1",
            ));
        }
    }
}

/// Checks the hooks of a container that may have them.
pub(super) fn lifecycle(pod: &Pod<'_>, container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for hook in ["postStart", "preStop"] {
        if let Some(found) = container.pointer(&format!("/lifecycle/{hook}")) {
            let kinds = ["exec", "httpGet", "tcpSocket", "sleep"];
            handler(pod, found, &kinds, &at.child("lifecycle").child(hook), errors);
        }
    }
}

/// Checks that exactly one of the kinds exists. If several exist, only the first one is checked.
fn handler(pod: &Pod<'_>, value: &Value, kinds: &[&str], at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut given = kinds.iter().filter_map(|kind| Some((*kind, value.get(*kind)?)));
    let Some((kind, action)) = given.next() else {
        errors.push(FieldError::required(at, "must specify a handler type"));
        return;
    };
    let inner = at.child(kind);
    match kind {
        "exec" => {
            if items(action, "command", &inner).next().is_none() {
                errors.push(FieldError::required(inner.child("command"), ""));
            }
        }
        "httpGet" => {
            required(action, "path", &inner, errors);
            port(action, &inner, errors);
            let scheme = text(action, "scheme");
            let schemes = ["HTTP", "HTTPS"];
            if !schemes.contains(&scheme) {
                errors.push(FieldError::not_supported(inner.child("scheme"), scheme, &schemes));
            }
            for (header, _) in items(action, "httpHeaders", &inner) {
                named(header_name, text(header, "name"), &inner.child("httpHeaders"), errors);
            }
        }
        "sleep" => {
            let seconds = number(action, "seconds");
            if let Some(grace) = pod.grace_period
                && !(0..=grace).contains(&seconds)
            {
                let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                errors.push(FieldError::invalid(inner, seconds, detail));
            }
        }
        _ => port(action, &inner, errors),
    }
    for (kind, _) in given {
        errors.push(FieldError::forbidden(
            at.child(kind),
            "may not specify more than 1 handler type",
        ));
    }
}

fn port(action: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let at = at.child("port");
    if let Some(name) = action.get("port").and_then(Value::as_str) {
        named(names::port_name, name, &at, errors);
    } else if let Some(complaint) = names::port_number(number(action, "port")) {
        errors.push(FieldError::invalid(at, number(action, "port"), complaint));
    }
}

fn header_name(name: &str) -> Vec<String> {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if letters && !name.is_empty() {
        return Vec::new();
    }
    vec!["a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')".to_owned()]
}
