//! What every new Pod gets: a ServiceAccount and its token, a priority, tolerations of a node that is away.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_access::identity::Lookup;
use tenure_kinds::object::{ObjectExt as _, generate_name};
use tenure_kinds::schema::resources::list;

use super::{Action, Attributes};
use crate::contents::Contents;
use crate::http::ApiError;
use crate::keys;
use crate::operation::fill_randomly;
use crate::view::View;

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";
const MIRROR: &str = "kubernetes.io/config.mirror";
const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
/// How long a new namespace may take to get its ServiceAccount.
const PATIENCE: Duration = Duration::from_millis(1500);
const PRIORITY: &str = "scheduling.k8s.io";

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn set(pod: &mut Value, key: &str, value: Value) {
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert(key.to_owned(), value);
    }
}

fn has(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).is_some_and(|value| !value.is_null())
}

/// Gives a Pod its ServiceAccount, and what that brings with it.
pub(super) async fn service_account(
    contents: &Contents,
    attributes: &Attributes<'_>,
    pod: &mut Value,
) -> Result<(), ApiError> {
    if !attributes.is("", "pods")
        || attributes.action != Action::Create
        || !pod.get("spec").is_some_and(Value::is_object)
    {
        return Ok(());
    }
    if is_mirror(pod) {
        return Ok(());
    }
    if text(pod, "/spec/serviceAccountName").is_empty() {
        set(pod, "serviceAccountName", json!("default"));
    }
    let name = text(pod, "/spec/serviceAccountName").to_owned();
    set(pod, "serviceAccount", json!(name));
    let account = find_account(contents, attributes, &name, pod).await?;
    let wanted = |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_bool);
    let mounts = wanted(pod, "/spec/automountServiceAccountToken")
        .or_else(|| wanted(&account, "/automountServiceAccountToken"))
        .unwrap_or(true);
    if mounts {
        mount_token(pod);
    }
    if list(pod, "/spec/imagePullSecrets").is_empty() {
        let secrets: Vec<Value> = list(&account, "/imagePullSecrets")
            .iter()
            .map(|secret| json!({"name": text(secret, "/name")}))
            .collect();
        if !secrets.is_empty() {
            set(pod, "imagePullSecrets", Value::from(secrets));
        }
    }
    Ok(())
}

fn is_mirror(pod: &Value) -> bool {
    let annotations = pod.metadata().and_then(|metadata| metadata.get("annotations"));
    annotations.is_some_and(|annotations| annotations.get(MIRROR).is_some())
}

async fn find_account(
    contents: &Contents,
    attributes: &Attributes<'_>,
    name: &str,
    pod: &Value,
) -> Result<Value, ApiError> {
    let namespace = attributes.namespace();
    let find = || contents.view().get("", "serviceaccounts", Some(namespace), name);
    if let Some(found) = find() {
        return Ok((*found).clone());
    }
    if name == "default" {
        // A new namespace gets it in a moment.
        let key = keys::of_object("", "serviceaccounts", Some(namespace), name);
        if let Ok(mut watcher) = contents.store().watch(key, contents.store().revision()) {
            if let Some(found) = find() {
                return Ok((*found).clone());
            }
            let _ = tokio::time::timeout(PATIENCE, watcher.next()).await;
        }
        if let Some(found) = find() {
            return Ok((*found).clone());
        }
    }
    Err(attributes.denied(
        Some(pod),
        &format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"),
    ))
}

/// Mounts the ServiceAccount's token into every container that has nothing in its place.
fn mount_token(pod: &mut Value) {
    let existing = list(pod, "/spec/volumes")
        .iter()
        .map(|volume| text(volume, "/name"))
        .find(|name| name.starts_with(TOKEN_VOLUME))
        .map(str::to_owned);
    let has_volume = existing.is_some();
    let volume = existing.unwrap_or_else(|| generate_name(TOKEN_VOLUME, fill_randomly));
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
                .any(|mount| text(mount, "/mountPath") == TOKEN_PATH);
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

/// Refuses Secrets that a ServiceAccount with that annotation does not list, and a mirror Pod's.
pub(super) fn validate_service_account(attributes: &Attributes<'_>, view: &View, pod: &Value) -> Result<(), ApiError> {
    if !attributes.is("", "pods") || attributes.action != Action::Create {
        return Ok(());
    }
    let refuse = |why: &str| Err(attributes.denied(Some(pod), why));
    let name = text(pod, "/spec/serviceAccountName");
    if is_mirror(pod) {
        if !name.is_empty() {
            return refuse("a mirror pod may not reference service accounts");
        }
        if secrets(pod).next().is_some() {
            return refuse("a mirror pod may not reference secrets");
        }
        return Ok(());
    }
    let Some(account) = view.get("", "serviceaccounts", Some(attributes.namespace()), name) else {
        return Ok(());
    };
    let annotations = account.metadata().and_then(|metadata| metadata.get("annotations"));
    let enforced = annotations
        .and_then(|annotations| annotations.get(MOUNTABLE))
        .and_then(Value::as_str);
    if !matches!(enforced, Some("1" | "t" | "T" | "true" | "TRUE" | "True")) {
        return Ok(());
    }
    let lists = |pointer: &str, wanted: &str| list(&account, pointer).iter().any(|one| text(one, "/name") == wanted);
    for (secret, place) in secrets(pod) {
        if !lists("/secrets", &secret) {
            return refuse(&format!(
                "{place}secret.secretName=\"{secret}\" is not allowed because service account {name} does not reference that secret"
            ));
        }
    }
    for (index, secret) in list(pod, "/spec/imagePullSecrets").iter().enumerate() {
        let secret = text(secret, "/name");
        if !lists("/imagePullSecrets", secret) {
            return refuse(&format!(
                "imagePullSecrets[{index}].name=\"{secret}\" is not allowed because service account {name} does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

/// The Secrets that a Pod's volumes and containers name, and the words for where.
fn secrets(pod: &Value) -> impl Iterator<Item = (String, String)> {
    let mut found = Vec::new();
    for volume in list(pod, "/spec/volumes") {
        if has(volume, "/secret") {
            found.push((text(volume, "/secret/secretName").to_owned(), "volume with ".to_owned()));
        }
    }
    for (key, what) in [("initContainers", "init container"), ("containers", "container")] {
        for container in list(pod, &format!("/spec/{key}")) {
            let name = text(container, "/name");
            for variable in list(container, "/env") {
                if has(variable, "/valueFrom/secretKeyRef") {
                    found.push((
                        text(variable, "/valueFrom/secretKeyRef/name").to_owned(),
                        format!("{what} {name} with envVar {} referencing ", text(variable, "/name")),
                    ));
                }
            }
            for source in list(container, "/envFrom") {
                if has(source, "/secretRef") {
                    found.push((
                        text(source, "/secretRef/name").to_owned(),
                        format!("{what} {name} with envFrom referencing "),
                    ));
                }
            }
        }
    }
    found.into_iter()
}

/// Gives a Pod the priority of its class, or keeps the one that it has.
pub(super) fn priority(attributes: &Attributes<'_>, view: &View, pod: &mut Value) -> Result<(), ApiError> {
    if !attributes.is("", "pods") || !pod.get("spec").is_some_and(Value::is_object) {
        return Ok(());
    }
    match (attributes.action, attributes.old) {
        (Action::Update, Some(old)) => {
            for key in ["priority", "preemptionPolicy"] {
                let kept = old.pointer(&format!("/spec/{key}")).cloned();
                if let Some(kept) = kept.filter(|_| !has(pod, &format!("/spec/{key}"))) {
                    set(pod, key, kept);
                }
            }
            return Ok(());
        }
        (Action::Create, _) => {}
        _ => return Ok(()),
    }
    let name = text(pod, "/spec/priorityClassName").to_owned();
    let class = if name.is_empty() {
        default_class(view)
    } else {
        let found = view.get(PRIORITY, "priorityclasses", None, &name);
        let Some(found) = found else {
            let why = format!("no PriorityClass with name {name} was found");
            return Err(attributes.denied(Some(pod), &why));
        };
        Some((*found).clone())
    };
    let computed = class
        .as_ref()
        .and_then(|class| class.get("value").and_then(Value::as_i64))
        .unwrap_or_default();
    let policy = match &class {
        Some(class) => text(class, "/preemptionPolicy").to_owned(),
        None => "PreemptLowerPriority".to_owned(),
    };
    if let Some(class) = &class {
        set(pod, "priorityClassName", json!(class.name()));
    }
    if let Some(given) = pod.pointer("/spec/priority").and_then(Value::as_i64)
        && given != computed
    {
        return Err(attributes.denied(
            Some(pod),
            &format!("the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"),
        ));
    }
    set(pod, "priority", json!(computed));
    if policy.is_empty() {
        return Ok(());
    }
    let given = text(pod, "/spec/preemptionPolicy");
    if !given.is_empty() && given != policy {
        return Err(attributes.denied(
            Some(pod),
            &format!("the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"),
        ));
    }
    set(pod, "preemptionPolicy", json!(policy));
    Ok(())
}

/// The class of Pods that name none: of several, the lowest.
fn default_class(view: &View) -> Option<Value> {
    view.list(PRIORITY, "priorityclasses", None)
        .into_iter()
        .filter(|class| class.get("globalDefault").and_then(Value::as_bool) == Some(true))
        .min_by_key(|class| class.get("value").and_then(Value::as_i64))
}

/// Refuses a second default among the priority classes.
pub(super) fn validate_priority_class(
    attributes: &Attributes<'_>,
    view: &View,
    object: &Value,
) -> Result<(), ApiError> {
    let is_default = object.get("globalDefault").and_then(Value::as_bool) == Some(true);
    if !attributes.is(PRIORITY, "priorityclasses") || attributes.action == Action::Delete || !is_default {
        return Ok(());
    }
    match default_class(view) {
        Some(other) if attributes.action == Action::Create || other.name() != object.name() => Err(attributes.denied(
            Some(object),
            &format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                other.name()
            ),
        )),
        _ => Ok(()),
    }
}

/// Lets a Pod stay for five minutes on a node that is not ready or can't be reached, if it says nothing of that.
pub(super) fn tolerations(attributes: &Attributes<'_>, pod: &mut Value) {
    if !attributes.is("", "pods") || attributes.action == Action::Delete {
        return;
    }
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list(pod, "/spec/tolerations").iter().any(|toleration| {
            let (own, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
            (own == key || own.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if tolerated {
            continue;
        }
        let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
            return;
        };
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        if !tolerations.is_array() {
            *tolerations = json!([]);
        }
        if let Some(tolerations) = tolerations.as_array_mut() {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
}
