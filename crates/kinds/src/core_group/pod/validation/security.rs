//! Security contexts of a Pod and of its containers, and the old annotations with the same meaning.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::volumes::descending_path;
use super::{all_containers, windows};
use crate::schema::validation::{get_text, list_items, one_of, show_go_struct};
use crate::schema::{FieldError, FieldPath, Shown};

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR_CONTAINER: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Checks the numbers of users and groups.
fn validate_numbers(context: &Value, fields: &[&str], at: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in fields {
        if let Some(found) = context.get(*field).and_then(Value::as_i64) {
            user_or_group(found, &at.child(field), errors);
        }
    }
}

fn user_or_group(number: i64, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if !(0..=i64::from(i32::MAX)).contains(&number) {
        errors.push(FieldError::invalid(
            at,
            number,
            "must be between 0 and 2147483647, inclusive",
        ));
    }
}

fn has_flag(value: &Value, field: &str, wanted: bool) -> bool {
    value.get(field) == Some(&Value::Bool(wanted))
}

/// Checks the context of a Pod. Some of its fields are in the Pod's spec.
pub(super) fn validate_pod_context(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    let context = spec.get("securityContext").unwrap_or(&NOTHING);
    let at = path.child("securityContext");
    validate_numbers(context, &["fsGroup", "runAsUser", "runAsGroup"], &at, errors);
    for (group, at) in list_items(context, "supplementalGroups", &at) {
        user_or_group(group.as_i64().unwrap_or_default(), &at, errors);
    }
    if has_flag(spec, "shareProcessNamespace", true) && has_flag(spec, "hostPID", true) {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(at.child("shareProcessNamespace"), true, detail));
    }
    validate_sysctls(spec, context, &at, errors);
    validate_supported(
        context,
        "fsGroupChangePolicy",
        &["Always", "OnRootMismatch"],
        &at,
        errors,
    );
    validate_seccomp(context, &at, errors);
    windows::validate_options(context, &at, errors);
    app_armor(context, &at, errors);
    validate_supported(context, "supplementalGroupsPolicy", &["Merge", "Strict"], &at, errors);
    validate_supported(context, "seLinuxChangePolicy", &["Recursive"], &at, errors);
}

/// Checks that a field, if it exists, has one of these values.
fn validate_supported(context: &Value, field: &str, values: &[&str], at: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(found) = context.get(field).and_then(Value::as_str)
        && !values.contains(&found)
    {
        errors.push(FieldError::not_supported(at.child(field), found, values));
    }
}

fn validate_sysctls(spec: &Value, context: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut known = BTreeSet::new();
    for (sysctl, at) in list_items(context, "sysctls", at) {
        let name = get_text(sysctl, "name");
        let at = at.child("name");
        if name.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else if !is_sysctl(name) {
            let detail = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.push(FieldError::invalid(&at, name, detail));
        } else if !known.insert(name) {
            errors.push(FieldError::duplicate(&at, name));
        }
        // The first separator decides which of the two it is.
        let dotted = match name.find(['.', '/']).and_then(|index| name.get(index..=index)) {
            Some("/") => name.replace('/', "."),
            _ => name.to_owned(),
        };
        let of_processes = ["kernel.shm", "kernel.msg", "fs.mqueue."]
            .iter()
            .any(|prefix| dotted.starts_with(prefix))
            || dotted == "kernel.sem";
        for (applies, field) in [(dotted.starts_with("net."), "hostNetwork"), (of_processes, "hostIPC")] {
            if applies && has_flag(spec, field, true) {
                let detail = format!("may not be specified when '{field}' is true");
                errors.push(FieldError::invalid(&at, name, detail));
            }
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            let part = part.as_bytes();
            edge(part.first())
                && edge(part.last())
                && part.iter().all(|byte| edge(Some(byte)) || matches!(byte, b'-' | b'_'))
        })
}

/// Checks the context of a container.
pub(super) fn validate_container_context(
    context: &Value,
    host_users: bool,
    at: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    validate_numbers(context, &["runAsUser", "runAsGroup"], at, errors);
    validate_supported(context, "procMount", &["Default", "Unmasked"], at, errors);
    if host_users && get_text(context, "procMount") == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.push(FieldError::invalid(at.child("procMount"), "Unmasked", detail));
    }
    validate_seccomp(context, at, errors);
    if has_flag(context, "allowPrivilegeEscalation", false) {
        if has_flag(context, "privileged", true) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(FieldError::invalid(at, show_context(context), detail));
        }
        let added = context.pointer("/capabilities/add").and_then(Value::as_array);
        for _ in added
            .into_iter()
            .flatten()
            .filter(|one| one.as_str() == Some("CAP_SYS_ADMIN"))
        {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(FieldError::invalid(at, show_context(context), detail));
        }
    }
    windows::validate_options(context, at, errors);
    app_armor(context, at, errors);
}

/// Returns a context as the real server shows it.
fn show_context(context: &Value) -> Shown {
    let part = |field: &str, parts: &[(&str, &str, bool)]| {
        let Some(value) = context.get(field) else {
            return "null".to_owned();
        };
        let parts: Vec<String> = parts
            .iter()
            .map(|(go, json, is_text)| match value.get(*json) {
                Some(found) => format!("\"{go}\":{found}"),
                None if *is_text => format!("\"{go}\":\"\""),
                None => format!("\"{go}\":null"),
            })
            .collect();
        format!("{{{}}}", parts.join(","))
    };
    let plain = |field: &str| context.get(field).unwrap_or(&Value::Null).to_string();
    let profile = [("Type", "type", true), ("LocalhostProfile", "localhostProfile", false)];
    let fields = [
        (
            "Capabilities",
            part("capabilities", &[("Add", "add", false), ("Drop", "drop", false)]),
        ),
        ("Privileged", plain("privileged")),
        (
            "SELinuxOptions",
            part(
                "seLinuxOptions",
                &[
                    ("User", "user", true),
                    ("Role", "role", true),
                    ("Type", "type", true),
                    ("Level", "level", true),
                ],
            ),
        ),
        (
            "WindowsOptions",
            part(
                "windowsOptions",
                &[
                    ("GMSACredentialSpecName", "gmsaCredentialSpecName", false),
                    ("GMSACredentialSpec", "gmsaCredentialSpec", false),
                    ("RunAsUserName", "runAsUserName", false),
                    ("HostProcess", "hostProcess", false),
                ],
            ),
        ),
        ("RunAsUser", plain("runAsUser")),
        ("RunAsGroup", plain("runAsGroup")),
        ("RunAsNonRoot", plain("runAsNonRoot")),
        ("ReadOnlyRootFilesystem", plain("readOnlyRootFilesystem")),
        ("AllowPrivilegeEscalation", plain("allowPrivilegeEscalation")),
        ("ProcMount", plain("procMount")),
        ("SeccompProfile", part("seccompProfile", &profile)),
        ("AppArmorProfile", part("appArmorProfile", &profile)),
    ];
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    Shown::Verbatim(format!("{{{}}}", fields.join(",")))
}

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

fn validate_seccomp(context: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(profile) = context.get("seccompProfile") else {
        return;
    };
    let at = at.child("seccompProfile");
    if get_text(profile, "type").is_empty() {
        let detail = "type is required when seccompProfile is set";
        errors.push(FieldError::required(at.child("type"), detail));
    }
    one_of(profile, "type", &PROFILES, false, &at, errors);
    let local = get_text(profile, "type") == "Localhost";
    let inner = at.child("localhostProfile");
    match profile.get("localhostProfile").and_then(Value::as_str) {
        Some(path) if local => descending_path(path, &inner, errors),
        None if local => {
            let detail = "must be set when seccomp type is Localhost";
            errors.push(FieldError::required(inner, detail));
        }
        Some(path) => {
            let shown = show_go_struct(&[
                ("Type", &Value::from(get_text(profile, "type"))),
                ("LocalhostProfile", &Value::from(path)),
            ]);
            let detail = "can only be set when seccomp type is Localhost";
            errors.push(FieldError::invalid(inner, shown, detail));
        }
        None => {}
    }
}

fn app_armor(context: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(profile) = context.get("appArmorProfile") else {
        return;
    };
    let at = at.child("appArmorProfile");
    let inner = at.child("localhostProfile");
    let path = profile.get("localhostProfile").and_then(Value::as_str);
    match get_text(profile, "type") {
        "Localhost" => {
            let path = path.unwrap_or_default();
            if path.trim() != path {
                let detail = "must not be padded with whitespace";
                errors.push(FieldError::invalid(&inner, path, detail));
            } else if path.is_empty() {
                let detail = "must be set when AppArmor type is Localhost";
                errors.push(FieldError::required(&inner, detail));
            }
            if path.len() > 4095 {
                errors.push(super::too_long(inner, 4095));
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if let Some(path) = path {
                let detail = "can only be set when AppArmor type is Localhost";
                errors.push(FieldError::invalid(inner, path, detail));
            }
        }
        "" => {
            let detail = "type is required when appArmorProfile is set";
            errors.push(FieldError::required(at.child("type"), detail));
        }
        other => errors.push(FieldError::not_supported(at.child("type"), other, &PROFILES)),
    }
}

/// Converts the profile in an annotation into the field that replaces it; `None` if the annotation names no profile.
pub(crate) fn profile_of_annotation(annotation: &str) -> Option<Value> {
    let profile = match annotation {
        "unconfined" => json!({"type": "Unconfined"}),
        "runtime/default" => json!({"type": "RuntimeDefault"}),
        other => {
            let path = other.strip_prefix("localhost/").filter(|path| !path.is_empty())?;
            json!({"type": "Localhost", "localhostProfile": path})
        }
    };
    let mut faults = Vec::new();
    app_armor(
        &json!({"appArmorProfile": profile.clone()}),
        &FieldPath::default(),
        &mut faults,
    );
    faults.is_empty().then_some(profile)
}

fn read_annotation<'a>(metadata: &'a Value, key: &str) -> Option<&'a str> {
    metadata.get("annotations")?.get(key)?.as_str()
}

/// Checks the annotations that formerly contained the profiles of containers.
pub(super) fn validate_annotations(metadata: &Value, spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let all = metadata.get("annotations").and_then(Value::as_object);
    let all = all.into_iter().flatten();
    let all = all.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
    let names: BTreeSet<&str> = all_containers(spec, path)
        .into_iter()
        .map(|(container, _)| get_text(container, "name"))
        .collect();
    let (mut of_pod, mut of_containers, mut of_app_armor) = (Vec::new(), Vec::new(), Vec::new());
    for (key, value) in all {
        if key == SECCOMP_POD {
            seccomp_text(value, &path.child(key), &mut of_pod);
        } else if key.starts_with(SECCOMP_CONTAINER) {
            seccomp_text(value, &path.child(key), &mut of_containers);
        } else if let Some(name) = key.strip_prefix(APP_ARMOR_CONTAINER) {
            let at = path.key(key);
            if !names.contains(name) {
                of_app_armor.push(FieldError::invalid(&at, name, "container not found"));
            }
            if !matches!(value, "" | "runtime/default" | "unconfined") && !value.starts_with("localhost/") {
                let detail = format!("invalid AppArmor profile name: {value:?}");
                of_app_armor.push(FieldError::invalid(at, value, detail));
            }
        }
    }
    for mut found in [of_pod, of_containers, of_app_armor] {
        errors.append(&mut found);
    }
}

fn seccomp_text(profile: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(path) = profile.strip_prefix("localhost/") {
        descending_path(path, at, errors);
    } else if !matches!(profile, "runtime/default" | "docker/default" | "unconfined") {
        errors.push(FieldError::invalid(at, profile, "must be a valid seccomp profile"));
    }
}

/// Checks that a profile in both a field and an annotation has equal values.
pub(super) fn validate_agreement(metadata: &Value, spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let context = spec.get("securityContext").unwrap_or(&Value::Null);
    let of_pod = (context.get("seccompProfile"), read_annotation(metadata, SECCOMP_POD));
    if let (Some(profile), Some(annotation)) = of_pod {
        let at = path.child("securityContext").child("seccompProfile");
        validate_same_profile(profile, annotation, "seccomp", &at, errors);
    }
    let containers = all_containers(spec, path);
    for (prefix, field, what) in [
        (SECCOMP_CONTAINER, "seccompProfile", "seccomp"),
        (APP_ARMOR_CONTAINER, "appArmorProfile", "apparmor"),
    ] {
        let by_pod = (what == "apparmor").then(|| context.get(field)).flatten();
        if what == "apparmor" && spec.pointer("/os/name").and_then(Value::as_str) == Some("windows") {
            continue;
        }
        for (container, at) in &containers {
            let own = container.pointer(&format!("/securityContext/{field}"));
            let key = format!("{prefix}{}", get_text(container, "name"));
            if let (Some(profile), Some(annotation)) = (own.or(by_pod), read_annotation(metadata, &key)) {
                validate_same_profile(
                    profile,
                    annotation,
                    what,
                    &at.child("securityContext").child(field),
                    errors,
                );
            }
        }
    }
}

fn validate_same_profile(profile: &Value, annotation: &str, what: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let local = annotation.strip_prefix("localhost/");
    let agrees = match get_text(profile, "type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default"),
        "Localhost" => local.is_some(),
        _ => true,
    };
    if !agrees {
        let detail = format!("{what} type in annotation and field must match");
        errors.push(FieldError::forbidden(at.child("type"), detail));
    } else if get_text(profile, "type") == "Localhost"
        && profile.get("localhostProfile").and_then(Value::as_str) != local
    {
        let detail = format!("{what} profile in annotation and field must match");
        errors.push(FieldError::forbidden(at.child("localhostProfile"), detail));
    }
}
