//! The operating system of a Pod, and the fields for containers on Windows.

use serde_json::Value;

use super::{all_containers, validate_name};
use crate::schema::validation::{get_text, is_empty_field, names};
use crate::schema::{FieldError, FieldPath};

/// Checks the options of a security context.
pub(super) fn validate_options(context: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(options) = context.get("windowsOptions") else {
        return;
    };
    let at = at.child("windowsOptions");
    if let Some(name) = options.get("gmsaCredentialSpecName").and_then(Value::as_str) {
        validate_name(
            names::find_subdomain_errors,
            name,
            &at.child("gmsaCredentialSpecName"),
            errors,
        );
    }
    if let Some(specification) = options.get("gmsaCredentialSpec").and_then(Value::as_str) {
        let detail = match specification.len() {
            0 => Some("gmsaCredentialSpec cannot be an empty string"),
            65_537.. => Some("gmsaCredentialSpec size must be under 64 KiB"),
            _ => None,
        };
        if let Some(detail) = detail {
            errors.push(FieldError::invalid(
                at.child("gmsaCredentialSpec"),
                specification,
                detail,
            ));
        }
    }
    if let Some(name) = options.get("runAsUserName").and_then(Value::as_str) {
        validate_name(user_name, name, &at.child("runAsUserName"), errors);
    }
}

/// Returns the errors in a user's name, with the domain in front of a backslash or without.
fn user_name(name: &str) -> Vec<String> {
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        [""] => return vec!["runAsUserName cannot be an empty string".to_owned()],
        _ if name.chars().any(|letter| letter.is_ascii_control()) => {
            return vec!["runAsUserName cannot contain control characters".to_owned()];
        }
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return vec!["runAsUserName cannot contain more than one backslash".to_owned()],
    };
    let mut complaints = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= 256) {
        complaints.push("runAsUserName's Domain length must be under 256 characters");
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_domain(domain)) {
        complaints.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
    }
    match user.len() {
        0 => complaints.push("runAsUserName's User cannot be empty"),
        105.. => complaints.push("runAsUserName's User length must not be longer than 104 characters"),
        _ => {}
    }
    if !user.is_empty() && user.chars().all(|letter| matches!(letter, '.' | ' ')) {
        complaints.push("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.chars().any(|letter| r#""/\:;|=,+*?<>@[]"#.contains(letter)) {
        complaints.push(r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#);
    }
    complaints.into_iter().map(str::to_owned).collect()
}

fn is_net_bios(domain: &str) -> bool {
    let plain = |letter: char| !r#"\/:*?"<>|"#.contains(letter);
    (1..=15).contains(&domain.chars().count()) && !domain.starts_with('.') && domain.chars().all(plain)
}

fn is_domain(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        (1..=63).contains(&label.len())
            && edge(label.bytes().next())
            && edge(label.bytes().last())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

/// Checks that all containers are processes of the host, or none.
pub(super) fn host_processes(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let asked = |value: &Value| {
        value
            .pointer("/securityContext/windowsOptions/hostProcess")
            .and_then(Value::as_bool)
    };
    let by_pod = asked(spec);
    let containers = all_containers(spec, path);
    let mut count = 0;
    for (container, at) in &containers {
        let own = asked(container);
        if let (Some(by_pod), Some(own)) = (by_pod, own)
            && by_pod != own
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {by_pod}");
            let at = at.child("securityContext").child("windowsOptions");
            errors.push(FieldError::invalid(at.child("hostProcess"), own, detail));
        }
        if own.or(by_pod) == Some(true) {
            count += 1;
        }
    }
    if count == 0 {
        return;
    }
    if count != containers.len() {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(FieldError::invalid(path, "", detail));
    }
    if spec.get("hostNetwork") != Some(&Value::Bool(true)) {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(FieldError::invalid(path.child("hostNetwork"), false, detail));
    }
}

/// Checks the operating system, and refuses fields of the other system.
pub(super) fn validate_system(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(system) = spec.get("os") else { return };
    let at = path.child("os");
    match get_text(system, "name") {
        "" => errors.push(FieldError::required(at.child("name"), "")),
        "linux" => {
            let detail = "windows options cannot be set for a linux pod";
            let own = std::iter::once((spec, path.clone()));
            for (value, at) in own.chain(all_containers(spec, path)) {
                if value.pointer("/securityContext/windowsOptions").is_some() {
                    let at = at.child("securityContext").child("windowsOptions");
                    errors.push(FieldError::forbidden(at, detail));
                }
            }
        }
        "windows" => not_for_windows(spec, path, errors),
        other => errors.push(FieldError::not_supported(at, other, &["linux", "windows"])),
    }
}

fn not_for_windows(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let detail = "cannot be set for a windows pod";
    let context = spec.get("securityContext").unwrap_or(&Value::Null);
    let at = path.child("securityContext");
    let yes = |field: &str| spec.get(field) == Some(&Value::Bool(true));
    let is_set = |field: &str| context.get(field).is_some();
    let fields = [
        (is_set("appArmorProfile"), at.child("appArmorProfile")),
        (is_set("seLinuxOptions"), at.child("seLinuxOptions")),
        (spec.get("hostUsers").is_some(), path.child("hostUsers")),
        (yes("hostPID"), path.child("hostPID")),
        (yes("hostIPC"), path.child("hostIPC")),
        (is_set("seccompProfile"), at.child("seccompProfile")),
        (is_set("fsGroup"), at.child("fsGroup")),
        (is_set("fsGroupChangePolicy"), at.child("fsGroupChangePolicy")),
        (!is_empty_field(context, "sysctls"), at.child("sysctls")),
        (
            spec.get("shareProcessNamespace").is_some(),
            path.child("shareProcessNamespace"),
        ),
        (is_set("runAsUser"), at.child("runAsUser")),
        (is_set("runAsGroup"), at.child("runAsGroup")),
        (is_set("supplementalGroups"), at.child("supplementalGroups")),
        (is_set("supplementalGroupsPolicy"), at.child("supplementalGroupsPolicy")),
        (is_set("seLinuxChangePolicy"), at.child("seLinuxChangePolicy")),
    ];
    for (_, at) in fields.into_iter().filter(|(is_set, _)| *is_set) {
        errors.push(FieldError::forbidden(at, detail));
    }
    for (container, at) in all_containers(spec, path) {
        let Some(context) = container.get("securityContext") else {
            continue;
        };
        let at = at.child("securityContext");
        for field in [
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "capabilities",
            "readOnlyRootFilesystem",
            "privileged",
            "allowPrivilegeEscalation",
            "procMount",
            "runAsUser",
            "runAsGroup",
        ] {
            if context.get(field).is_some() {
                errors.push(FieldError::forbidden(at.child(field), detail));
            }
        }
    }
}
