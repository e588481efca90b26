//! The actions of a kubelet on a container: probes, and hooks at start and stop.

use serde_json::Value;

use super::{Pod, get_number, validate_name, validate_required};
use crate::schema::validation::{get_text, list_items, names, non_negative};
use crate::schema::{FieldError, FieldPath};

/// Checks the probes of a container that may have them.
pub(super) fn validate_probes(pod: &Pod<'_>, container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get(kind) else { continue };
        let at = at.child(kind);
        let kinds = ["exec", "httpGet", "tcpSocket", "grpc"];
        validate_handler(pod, probe, &kinds, &at, errors);
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
        } else if get_number(probe, "successThreshold") != 1 {
            let threshold = get_number(probe, "successThreshold");
            errors.push(FieldError::invalid(
                at.child("successThreshold"),
                threshold,
                "must be 1",
            ));
        }
    }
}

/// Checks the hooks of a container that may have them.
pub(super) fn validate_lifecycle(pod: &Pod<'_>, container: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for hook in ["postStart", "preStop"] {
        if let Some(found) = container.pointer(&format!("/lifecycle/{hook}")) {
            let kinds = ["exec", "httpGet", "tcpSocket", "sleep"];
            validate_handler(pod, found, &kinds, &at.child("lifecycle").child(hook), errors);
        }
    }
}

/// Checks that exactly one of the kinds exists. If several exist, only the first one is checked.
fn validate_handler(pod: &Pod<'_>, value: &Value, kinds: &[&str], at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut given = kinds.iter().filter_map(|kind| Some((*kind, value.get(*kind)?)));
    let Some((kind, action)) = given.next() else {
        errors.push(FieldError::required(at, "must specify a handler type"));
        return;
    };
    let inner = at.child(kind);
    match kind {
        "exec" => {
            if list_items(action, "command", &inner).next().is_none() {
                errors.push(FieldError::required(inner.child("command"), ""));
            }
        }
        "httpGet" => {
            validate_required(action, "path", &inner, errors);
            validate_port(action, &inner, errors);
            let scheme = get_text(action, "scheme");
            let schemes = ["HTTP", "HTTPS"];
            if !schemes.contains(&scheme) {
                errors.push(FieldError::not_supported(inner.child("scheme"), scheme, &schemes));
            }
            for (header, _) in list_items(action, "httpHeaders", &inner) {
                validate_name(
                    header_name,
                    get_text(header, "name"),
                    &inner.child("httpHeaders"),
                    errors,
                );
            }
        }
        "sleep" => {
            let seconds = get_number(action, "seconds");
            if let Some(grace) = pod.grace_period
                && !(0..=grace).contains(&seconds)
            {
                let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                errors.push(FieldError::invalid(inner, seconds, detail));
            }
        }
        _ => validate_port(action, &inner, errors),
    }
    for (kind, _) in given {
        errors.push(FieldError::forbidden(
            at.child(kind),
            "may not specify more than 1 handler type",
        ));
    }
}

fn validate_port(action: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let at = at.child("port");
    if let Some(name) = action.get("port").and_then(Value::as_str) {
        validate_name(names::port_name, name, &at, errors);
    } else if let Some(complaint) = names::port_number(get_number(action, "port")) {
        errors.push(FieldError::invalid(at, get_number(action, "port"), complaint));
    }
}

fn header_name(name: &str) -> Vec<String> {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if letters && !name.is_empty() {
        return Vec::new();
    }
    vec!["a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')".to_owned()]
}
