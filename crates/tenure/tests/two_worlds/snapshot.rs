//! All objects of a world outside of `evil`'s namespaces, without values that differ from run to run.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::{Api, DynamicObject, ListParams};
use kube::core::discovery::Scope;
use serde_json::{Value, json};

use crate::cast::{Scene, is_of_another};
use crate::host;
use crate::servers::Server;

/// Declared differences between the worlds: kind, name, path of the field, and the reason.
pub(crate) const SHARED: [(&str, &str, &str, &str); 5] = [
    (
        "ClusterRoleBinding",
        "capsule-namespace-provisioner",
        "/subjects",
        "names the owners of all Tenants",
    ),
    (
        "ClusterRoleBinding",
        "tenure-show-token",
        "/subjects",
        "names the accounts of all Tenants",
    ),
    (
        "Service",
        "kubernetes",
        "/spec/ports",
        "is the address of the API server",
    ),
    (
        "Endpoints",
        "kubernetes",
        "/subsets",
        "is the address of the API server",
    ),
    (
        "EndpointSlice",
        "kubernetes",
        "/ports",
        "is the address of the API server",
    ),
];

/// Declared differences of conditions: the type, and the reason.
pub(crate) const SHARED_CONDITIONS: [(&str, &str); 1] = [(
    "AccountExclusive",
    "is looked at from time to time, so that its message depends on the moment; rights themselves are compared",
)];

/// Kinds that are left out, because they record single processes and moments.
const LEFT_OUT: [&str; 6] = ["Event", "Lease", "ComponentStatus", "IPAddress", "Enforcement", "Node"];

/// Fields that differ from run to run. Times, whose names end with `Time` or `At`, are left out as well.
const VOLATILE: [&str; 12] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "generation",
    "observedGeneration",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "caBundle",
    "history",
    "lastAttemptedRevisionDigest",
];

/// The objects of a world.
pub(crate) struct Snapshot {
    /// The objects of all sides except `evil`'s, by kind, namespace and name.
    objects: BTreeMap<String, Value>,
    /// All objects as read, without values of Secrets, for a search of rights.
    pub(crate) raw: Vec<Value>,
}

impl Snapshot {
    /// Reads all objects that concern these stories.
    pub(crate) async fn read_all(server: &Server, scenes: &[Scene]) -> Self {
        let mut snapshot = Self {
            objects: BTreeMap::new(),
            raw: Vec::new(),
        };
        snapshot.read(server, scenes, |_| true).await;
        snapshot
    }

    /// Reads the objects of these kinds again.
    pub(crate) async fn update(&mut self, server: &Server, scenes: &[Scene], kinds: &BTreeSet<String>) {
        self.objects.retain(|name, _| !kinds.contains(kind_of(name)));
        self.raw
            .retain(|object| object["kind"].as_str().is_none_or(|kind| !kinds.contains(kind)));
        self.read(server, scenes, |kind| kinds.contains(kind)).await;
    }

    /// Adds the objects of the kinds that the condition selects.
    async fn read(&mut self, server: &Server, scenes: &[Scene], is_read: impl Fn(&str) -> bool) {
        let client = server.admin.client();
        let discovery = kube::discovery::Discovery::new(client.clone())
            .run_aggregated()
            .await
            .unwrap();
        let evils = list_namespaces_of_evil(server, scenes).await;
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let can_list = capabilities.supports_operation("list");
                if !can_list || LEFT_OUT.contains(&resource.kind.as_str()) || !is_read(&resource.kind) {
                    continue;
                }
                let is_cluster = capabilities.scope == Scope::Cluster;
                let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
                let Ok(listed) = api.list(&ListParams::default()).await else {
                    continue;
                };
                for object in listed.items {
                    let mut object = serde_json::to_value(object).unwrap();
                    object["apiVersion"] = json!(resource.api_version);
                    object["kind"] = json!(resource.kind);
                    self.add(object, is_cluster, &evils, scenes);
                }
            }
        }
    }

    fn add(&mut self, mut object: Value, is_cluster: bool, evils: &BTreeSet<String>, scenes: &[Scene]) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = text(&object["kind"]);
        let (name, namespace) = (
            text(&object["metadata"]["name"]),
            text(&object["metadata"]["namespace"]),
        );
        let mut raw = object.clone();
        if let Some(fields) = raw.as_object_mut() {
            fields.remove("data");
        }
        self.raw.push(raw);
        let is_evils = evils.contains(&namespace) || kind == "Namespace" && evils.contains(&name);
        let is_book = BOOKS.contains(&kind.as_str()) && is_cluster || namespace == "tenure-system";
        let is_book = is_book && scenes.iter().any(|scene| name.contains(&scene.evil));
        let is_book = is_book || is_of_access_of_others(&object, scenes);
        if is_evils || is_book || is_of_another(&name, scenes) || is_of_another(&namespace, scenes) {
            return;
        }
        let name = match object["metadata"]["generateName"].as_str() {
            Some(begins) => format!("{begins}*"),
            // The name ends with a digest, which covers the uid of the cluster.
            None if kind == "FluxAccessRequest" => {
                let target = name.rsplit_once('-').map(|(target, _)| target);
                format!("{}-*", target.unwrap_or(&name))
            }
            None => name,
        };
        object["metadata"]["name"] = json!(name);
        for (shared_kind, shared, path, _) in SHARED {
            if shared_kind == kind
                && shared == name
                && let Some(field) = object.pointer_mut(path)
            {
                *field = Value::Null;
            }
        }
        if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
            conditions.retain(|one| !SHARED_CONDITIONS.iter().any(|(name, _)| one["type"] == *name));
        }
        // Certificates and credentials differ from run to run, and their keys in the Secret stay the same.
        if kind == "Secret"
            && (namespace == "tenure-system" || name == host::SECRET)
            && let Some(values) = object["data"].as_object_mut()
        {
            values.values_mut().for_each(|value| *value = json!("value"));
        }
        // The host counts credentials of all tenants.
        let credentials = object.pointer_mut("/status/credentials").and_then(Value::as_array_mut);
        for credential in credentials.into_iter().flatten() {
            if let Some(id) = credential.pointer_mut("/current/id") {
                *id = Value::Null;
            }
        }
        normalize(&mut object);
        self.objects.insert(format!("{kind}/{namespace}/{name}"), object);
    }
}

/// Whether an object is about access to a project that no tenant `alpha` of these stories requests. The names of such objects have a project's number.
fn is_of_access_of_others(object: &Value, scenes: &[Scene]) -> bool {
    let asks = |namespace: &Value| scenes.iter().any(|scene| *namespace == *scene.alpha);
    match object["kind"].as_str() {
        Some("FluxAccessRequest") => !asks(&object["spec"]["askedIn"]["namespace"]),
        Some("FluxAccessTarget") => !scenes.iter().any(|scene| object["spec"]["id"] == scene.alpha_project),
        _ => false,
    }
}

/// Cluster-scoped kinds with Tenure's records about Tenant evil, under names with the Tenant's name.
const BOOKS: [&str; 4] = ["Tenant", "ClusterRole", "ClusterRoleBinding", "FluxAccessTarget"];

/// Returns the namespaces with the label of a hostile tenant.
pub(crate) async fn list_namespaces_of_evil(server: &Server, scenes: &[Scene]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for scene in scenes {
        let path = format!(
            "/api/v1/namespaces?labelSelector=capsule.clastix.io/tenant={}",
            scene.evil
        );
        let listed = server.admin.get(&path).await;
        let items = listed.body["items"].as_array().cloned().unwrap_or_default();
        let found = items.iter().filter_map(|item| item["metadata"]["name"].as_str());
        names.extend(found.map(str::to_owned));
    }
    names
}

fn normalize(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !VOLATILE.contains(&key.as_str()) && !key.ends_with("Time") && !key.ends_with("At"));
            fields.values_mut().for_each(normalize);
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::String(text) => *text = mask(text),
        _ => {}
    }
}

/// Masks values in a text that differ from run to run: times, commits, digests, ports, keys.
fn mask(text: &str) -> String {
    if text.starts_with("-----BEGIN ") {
        return "PEM".to_owned();
    }
    // Kubernetes ends the name of this volume with five random letters.
    if let Some((before, _)) = text.split_once("kube-api-access-") {
        return format!("{before}kube-api-access-*");
    }
    let text = mask_uids(text);
    let is_word = |letter: char| letter.is_ascii_alphanumeric();
    let mut masked = String::with_capacity(text.len());
    for part in text.split_inclusive(|letter: char| !is_word(letter)) {
        let word = part.trim_end_matches(|letter: char| !is_word(letter));
        let rest = &part[word.len()..];
        let is_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_number = word.len() >= 4 && word.bytes().all(|byte| byte.is_ascii_digit());
        // A time such as 2026-01-01T10:00:00Z is split into words with a digit and a T or a Z.
        let is_time = word.ends_with('Z') && word.starts_with(|letter: char| letter.is_ascii_digit());
        let is_day = word.len() == 5 && word.as_bytes().get(2) == Some(&b'T');
        let replaced = match () {
            () if is_hex && word.len() >= 8 => "HEX",
            () if is_number => "NUMBER",
            () if is_time || is_day => "TIME",
            () => word,
        };
        masked.push_str(replaced);
        masked.push_str(rest);
    }
    masked
}

/// Masks UUIDs, which would be split into words.
fn mask_uids(text: &str) -> String {
    const LENGTH: usize = 36;
    let is_uid = |part: &str| {
        part.bytes().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match rest.get(..LENGTH).filter(|part| is_uid(part)) {
            Some(_) => {
                masked.push_str("UID");
                rest = &rest[LENGTH..];
            }
            None => {
                masked.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    masked
}

/// Returns the kind in the name of an object.
fn kind_of(name: &str) -> &str {
    name.split_once('/').map_or(name, |(kind, _)| kind)
}

/// Returns the kinds whose objects differ.
pub(crate) fn list_kinds(alone: &Snapshot, shared: &Snapshot) -> BTreeSet<String> {
    let names = alone.objects.keys().chain(shared.objects.keys());
    names
        .filter(|name| alone.objects.get(*name) != shared.objects.get(*name))
        .map(|name| kind_of(name).to_owned())
        .collect()
}

/// Lists the differences: an object that only one world has, or the paths of its fields.
pub(crate) fn compare(alone: &Snapshot, shared: &Snapshot) -> Vec<String> {
    let names: BTreeSet<&String> = alone.objects.keys().chain(shared.objects.keys()).collect();
    let mut differences = Vec::new();
    for name in names {
        match (alone.objects.get(name), shared.objects.get(name)) {
            (Some(_), None) => differences.push(format!("{name} is missing beside evil")),
            (None, Some(object)) => differences.push(format!("{name} is there beside evil only: {object}")),
            (Some(one), Some(other)) => compare_values(name, one, other, &mut differences),
            (None, None) => {}
        }
    }
    differences
}

fn compare_values(path: &str, one: &Value, other: &Value, differences: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let (one, other) = (
                    left.get(key).unwrap_or(&Value::Null),
                    right.get(key).unwrap_or(&Value::Null),
                );
                compare_values(&format!("{path} .{key}"), one, other, differences);
            }
        }
        _ if one != other => differences.push(format!("{path}: {one}, but beside evil {other}")),
        _ => {}
    }
}
