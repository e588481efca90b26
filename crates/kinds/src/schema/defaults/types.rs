//! Defaults of single structs, at every place.

use serde_json::{Map, Value, json};

use super::{get_text, is_empty, object_at, set};

/// Volume modes are octal 0644.
const VOLUME_MODE: i32 = 0o644;

/// Adds the defaults of a struct with that Go name.
pub(super) fn fill_defaults(name: &str, object: &mut Map<String, Value>) {
    match name {
        "Container" | "EphemeralContainer" => {
            let policy = pull_policy(get_text(object, "image"));
            set(object, "imagePullPolicy", policy);
            set(object, "terminationMessagePath", "/dev/termination-log");
            set(object, "terminationMessagePolicy", "File");
        }
        "PodSpec" => {
            set(object, "dnsPolicy", "ClusterFirst");
            set(object, "restartPolicy", "Always");
            set(object, "securityContext", Map::new());
            set(object, "terminationGracePeriodSeconds", 30);
            set(object, "schedulerName", "default-scheduler");
            // The older name of this field gets the same value.
            let account = get_text(object, "serviceAccountName").to_owned();
            let account = if account.is_empty() {
                get_text(object, "serviceAccount").to_owned()
            } else {
                account
            };
            if !account.is_empty() {
                object.insert("serviceAccountName".into(), account.clone().into());
                object.insert("serviceAccount".into(), account.into());
            }
        }
        "Probe" => {
            set(object, "timeoutSeconds", 1);
            set(object, "periodSeconds", 10);
            set(object, "successThreshold", 1);
            set(object, "failureThreshold", 3);
        }
        "HTTPGetAction" => {
            set(object, "path", "/");
            set(object, "scheme", "HTTP");
        }
        "Volume" => default_volume_source(object),
        "SecretVolumeSource" | "ConfigMapVolumeSource" | "DownwardAPIVolumeSource" | "ProjectedVolumeSource" => {
            set(object, "defaultMode", VOLUME_MODE);
        }
        "ServiceAccountTokenProjection" => set(object, "expirationSeconds", 3600),
        "HostPathVolumeSource" => set(object, "type", ""),
        "ObjectFieldSelector" => set(object, "apiVersion", "v1"),
        "PersistentVolumeClaimSpec" => set(object, "volumeMode", "Filesystem"),
        // A claim in a StatefulSet's template too.
        "PersistentVolumeClaim" => {
            if let Some(status) = object_at(object, "status") {
                set(status, "phase", "Pending");
            }
        }
        "LimitRangeItem" => limit_range_item(object),
        "Subject" if !object.contains_key("user") && matches!(get_text(object, "kind"), "User" | "Group") => {
            set(object, "apiGroup", "rbac.authorization.k8s.io");
        }
        "NetworkPolicyPort" => set(object, "protocol", "TCP"),
        "PodFailurePolicyOnPodConditionsPattern" => set(object, "status", "True"),
        "ValidatingWebhook" | "MutatingWebhook" => {
            set(object, "failurePolicy", "Fail");
            set(object, "timeoutSeconds", 10);
            match_resources(object);
            if name == "MutatingWebhook" {
                set(object, "reinvocationPolicy", "Never");
            }
        }
        "MatchResources" => match_resources(object),
        "Rule" | "RuleWithOperations" | "NamedRuleWithOperations" => set(object, "scope", "*"),
        "ServiceReference" => set(object, "port", 443),
        "ValidatingAdmissionPolicySpec" | "MutatingAdmissionPolicySpec" => set(object, "failurePolicy", "Fail"),
        _ => {}
    }
}

fn match_resources(object: &mut Map<String, Value>) {
    set(object, "matchPolicy", "Equivalent");
    set(object, "namespaceSelector", Map::new());
    set(object, "objectSelector", Map::new());
}

fn default_volume_source(object: &mut Map<String, Value>) {
    // Besides the name there is nothing but the source.
    if object.keys().all(|key| key == "name") {
        object.insert("emptyDir".into(), json!({}));
    }
    if let Some(Value::Object(image)) = object.get_mut("image") {
        let policy = pull_policy(get_text(image, "reference"));
        set(image, "pullPolicy", policy);
    }
}

/// Returns `Always` for the tag `latest`, explicit or implied. An image with only a digest has no tag.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image
        .split_once('@')
        .map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
        None if digest.is_some() => "IfNotPresent",
        // Text that is no image reference has no tag either.
        None if !is_reference(name) => "IfNotPresent",
        None => "Always",
    }
}

fn is_reference(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-/:".contains(&byte))
}

fn limit_range_item(object: &mut Map<String, Value>) {
    if get_text(object, "type") != "Container" {
        return;
    }
    for (from, to) in [
        ("max", "default"),
        ("default", "defaultRequest"),
        ("min", "defaultRequest"),
    ] {
        let Some(Value::Object(known)) = object.get(from).cloned() else {
            continue;
        };
        if let Some(target) = object_at(object, to) {
            for (key, value) in known {
                target.entry(key).or_insert(value);
            }
        }
    }
    for field in ["default", "defaultRequest"] {
        if is_empty(object, field) {
            object.remove(field);
        }
    }
}
