//! The ServiceAccount of a Pod: its name, the fields that it adds to the Pod, and the Secrets that it allows.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{get_text, has_value, set};
use crate::kind::{Admitted, Awaited};
use crate::object::{ObjectExt as _, generate_name};
use crate::schema::resources::list;

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";
const MIRROR: &str = "kubernetes.io/config.mirror";
const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
/// The ServiceAccount of Pods that name none.
const DEFAULT: &str = "default";

/// Returns whether the request creates a Pod with a ServiceAccount.
fn needs_service_account(admitted: &Admitted<'_>, pod: &Value) -> bool {
    admitted.is_creation() && pod.get("spec").is_some_and(Value::is_object) && !is_mirror(pod)
}

/// Returns the object to wait for: a new namespace gets its default account after a moment.
pub(super) fn object_to_await(admitted: &Admitted<'_>, pod: &Value) -> Option<Awaited> {
    let is_default = ["", DEFAULT].contains(&get_text(pod, "/spec/serviceAccountName"));
    (needs_service_account(admitted, pod) && is_default).then(|| Awaited {
        group: "",
        plural: "serviceaccounts",
        name: DEFAULT.to_owned(),
    })
}

/// Gives a Pod its ServiceAccount, and the fields that come with it.
pub(super) fn mutate(admitted: &Admitted<'_>, pod: &mut Value) -> Result<(), String> {
    if !needs_service_account(admitted, pod) {
        return Ok(());
    }
    if get_text(pod, "/spec/serviceAccountName").is_empty() {
        set(pod, "serviceAccountName", json!(DEFAULT));
    }
    let name = get_text(pod, "/spec/serviceAccountName").to_owned();
    set(pod, "serviceAccount", json!(name));
    let namespace = admitted.namespace;
    let account = find_account(admitted, &name).ok_or_else(|| {
        format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found")
    })?;
    let wanted = |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_bool);
    let mounts = wanted(pod, "/spec/automountServiceAccountToken")
        .or_else(|| wanted(&account, "/automountServiceAccountToken"))
        .unwrap_or(true);
    if mounts {
        mount_token(pod, admitted.request.random);
    }
    if list(pod, "/spec/imagePullSecrets").is_empty() {
        let secrets: Vec<Value> = list(&account, "/imagePullSecrets")
            .iter()
            .map(|secret| json!({"name": get_text(secret, "/name")}))
            .collect();
        if !secrets.is_empty() {
            set(pod, "imagePullSecrets", Value::from(secrets));
        }
    }
    Ok(())
}

fn find_account(admitted: &Admitted<'_>, name: &str) -> Option<Arc<Value>> {
    admitted
        .request
        .objects
        .get("", "serviceaccounts", Some(admitted.namespace), name)
}

fn is_mirror(pod: &Value) -> bool {
    let annotations = pod.metadata().and_then(|metadata| metadata.get("annotations"));
    annotations.is_some_and(|annotations| annotations.get(MIRROR).is_some())
}

/// Mounts the ServiceAccount's token into every container that has nothing in its place.
fn mount_token(pod: &mut Value, random: fn(&mut [u8])) {
    let existing = list(pod, "/spec/volumes")
        .iter()
        .map(|volume| get_text(volume, "/name"))
        .find(|name| name.starts_with(TOKEN_VOLUME))
        .map(str::to_owned);
    let has_volume = existing.is_some();
    let volume = existing.unwrap_or_else(|| generate_name(TOKEN_VOLUME, random));
    let mut needed = false;
    for key in ["initContainers", "containers"] {
        let containers = pod
            .pointer_mut(&format!("/spec/{key}"))
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        for container in containers {
            let taken = list(container, "/volumeMounts")
                .iter()
                .any(|mount| get_text(mount, "/mountPath") == TOKEN_PATH);
            let Some(container) = container.as_object_mut().filter(|_| !taken) else {
                continue;
            };
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            if let Some(mounts) = mounts.as_array_mut() {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH}));
                needed = true;
            }
        }
    }
    if has_volume || !needed {
        return;
    }
    let token = json!({"name": volume, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}});
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(volumes) = spec.entry("volumes").or_insert_with(|| json!([])).as_array_mut()
    {
        volumes.push(token);
    }
}

/// Refuses Secrets that a ServiceAccount with that annotation does not list, and Secrets of a mirror Pod.
pub(super) fn validate(admitted: &Admitted<'_>, pod: &Value) -> Result<(), String> {
    if !admitted.is_creation() {
        return Ok(());
    }
    let name = get_text(pod, "/spec/serviceAccountName");
    if is_mirror(pod) {
        if !name.is_empty() {
            return Err("a mirror pod may not reference service accounts".to_owned());
        }
        if list_secrets(pod).next().is_some() {
            return Err("a mirror pod may not reference secrets".to_owned());
        }
        return Ok(());
    }
    let Some(account) = find_account(admitted, name) else {
        return Ok(());
    };
    let annotations = account.metadata().and_then(|metadata| metadata.get("annotations"));
    let enforced = annotations
        .and_then(|annotations| annotations.get(MOUNTABLE))
        .and_then(Value::as_str);
    if !matches!(enforced, Some("1" | "t" | "T" | "true" | "TRUE" | "True")) {
        return Ok(());
    }
    let lists = |pointer: &str, wanted: &str| {
        list(&account, pointer)
            .iter()
            .any(|one| get_text(one, "/name") == wanted)
    };
    for (secret, place) in list_secrets(pod) {
        if !lists("/secrets", &secret) {
            return Err(format!(
                "{place}secret.secretName=\"{secret}\" is not allowed because service account {name} does not reference that secret"
            ));
        }
    }
    for (index, secret) in list(pod, "/spec/imagePullSecrets").iter().enumerate() {
        let secret = get_text(secret, "/name");
        if !lists("/imagePullSecrets", secret) {
            return Err(format!(
                "imagePullSecrets[{index}].name=\"{secret}\" is not allowed because service account {name} does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

/// Returns the Secrets that a Pod's volumes and containers name, and the words for where.
fn list_secrets(pod: &Value) -> impl Iterator<Item = (String, String)> {
    let mut found = Vec::new();
    for volume in list(pod, "/spec/volumes") {
        if has_value(volume, "/secret") {
            found.push((
                get_text(volume, "/secret/secretName").to_owned(),
                "volume with ".to_owned(),
            ));
        }
    }
    for (key, what) in [("initContainers", "init container"), ("containers", "container")] {
        for container in list(pod, &format!("/spec/{key}")) {
            let name = get_text(container, "/name");
            for variable in list(container, "/env") {
                if has_value(variable, "/valueFrom/secretKeyRef") {
                    found.push((
                        get_text(variable, "/valueFrom/secretKeyRef/name").to_owned(),
                        format!("{what} {name} with envVar {} referencing ", get_text(variable, "/name")),
                    ));
                }
            }
            for source in list(container, "/envFrom") {
                if has_value(source, "/secretRef") {
                    found.push((
                        get_text(source, "/secretRef/name").to_owned(),
                        format!("{what} {name} with envFrom referencing "),
                    ));
                }
            }
        }
    }
    found.into_iter()
}
