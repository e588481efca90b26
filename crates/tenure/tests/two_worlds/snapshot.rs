//! The side of everybody but `evil` in a world: all objects outside of its namespaces, without what differs from run to run.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::discovery::Scope;
use serde_json::{Value, json};

use crate::grammar::MENTIONED;
use crate::servers::Server;

/// What may differ between the worlds, by declaration: kind, name, path of the field, and the reason.
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

/// Kinds that are left out: records of single processes and moments.
const LEFT_OUT: [&str; 6] = ["Event", "Lease", "ComponentStatus", "IPAddress", "Enforcement", "Node"];

/// Fields that differ from run to run.
const VOLATILE: [&str; 13] = [
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
    "lastHandledReconcileAt",
    "history",
    "lastAttemptedRevisionDigest",
];

/// All objects of a world, by kind, namespace and name.
pub(crate) struct Snapshot {
    objects: BTreeMap<String, Value>,
}

impl Snapshot {
    /// Reads everything.
    pub(crate) async fn take(server: &Server) -> Self {
        let client = server.admin.client();
        let discovery = kube::discovery::Discovery::new(client.clone())
            .run_aggregated()
            .await
            .unwrap();
        let evils = list_namespaces_of_evil(server).await;
        let mut objects = BTreeMap::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let can_list = capabilities.supports_operation("list");
                if !can_list || LEFT_OUT.contains(&resource.kind.as_str()) {
                    continue;
                }
                let is_cluster = capabilities.scope == Scope::Cluster;
                let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
                let Ok(listed) = api.list(&ListParams::default()).await else {
                    continue;
                };
                for object in listed.items {
                    let mut object = serde_json::to_value(object).unwrap();
                    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
                    let is_evils = evils.contains(&namespace) || resource.kind == "Namespace" && evils.contains(&name);
                    let is_book = (is_cluster || namespace == "tenure-system") && is_named_for_evil(&name);
                    if is_evils || is_book {
                        continue;
                    }
                    let name = match object["metadata"]["generateName"].as_str() {
                        Some(begins) => format!("{begins}*"),
                        None => name,
                    };
                    object["metadata"]["name"] = json!(name);
                    for (kind, shared, path, _) in SHARED {
                        if kind == resource.kind
                            && shared == name
                            && let Some(field) = object.pointer_mut(path)
                        {
                            *field = Value::Null;
                        }
                    }
                    if resource.kind == "Secret" && namespace == "tenure-system" {
                        object["data"] = json!("keys");
                    }
                    normalize(&mut object);
                    objects.insert(format!("{}/{namespace}/{name}", resource.kind), object);
                }
            }
        }
        Self { objects }
    }
}

/// The names by which Tenure keeps its books about Tenant evil, and names of the tenant's own.
fn is_named_for_evil(name: &str) -> bool {
    name.contains("evil")
}

async fn list_namespaces_of_evil(server: &Server) -> BTreeSet<String> {
    let listed = server
        .admin
        .get("/api/v1/namespaces?labelSelector=capsule.clastix.io/tenant=evil")
        .await;
    let items = listed.body["items"].as_array().cloned().unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned))
        .collect()
}

fn normalize(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !VOLATILE.contains(&key.as_str()) && !key.ends_with("Time"));
            fields.values_mut().for_each(normalize);
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::String(text) => *text = mask(text),
        _ => {}
    }
}

/// Masks what differs from run to run in a text: times, commits, digests, ports, keys.
fn mask(text: &str) -> String {
    if text.starts_with("-----BEGIN ") {
        return "PEM".to_owned();
    }
    // Kubernetes ends the name of this volume with five letters by chance.
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
        // Times such as 2026-01-01T10:00:00Z fall into words with a digit and a T or a Z.
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

/// Masks UUIDs, which would fall into words.
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

/// Lists what differs: an object that only one world has, or the paths of its fields.
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

/// Lists the rights outside of its namespaces that the owner of Tenant evil, or an account in one of them, has.
pub(crate) async fn list_reached_rights(server: &Server) -> Vec<String> {
    let mut subjects = vec![(
        "evil-owner".to_owned(),
        vec!["capsule.clastix.io".to_owned(), "system:authenticated".to_owned()],
    )];
    for namespace in list_namespaces_of_evil(server).await {
        let mut names: BTreeSet<String> = ["default", "robot", "deployer", "argocd-application-controller"]
            .map(str::to_owned)
            .into();
        let listed = server
            .admin
            .get(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"))
            .await;
        let items = listed.body["items"].as_array().cloned().unwrap_or_default();
        names.extend(
            items
                .iter()
                .filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)),
        );
        for name in names {
            let groups = [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ];
            subjects.push((format!("system:serviceaccount:{namespace}:{name}"), groups.into()));
        }
    }
    let mut reached = Vec::new();
    let asked = [
        ("", "*", "*"),
        ("", "get", "secrets"),
        ("alpha", "get", "secrets"),
        ("alpha", "update", "configmaps"),
        ("alpha-dev", "create", "pods"),
        ("kube-system", "create", "pods"),
        ("tenure-system", "get", "secrets"),
    ];
    for (user, groups) in &subjects {
        for (namespace, verb, resource) in asked {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": { "user": user, "groups": groups, "resourceAttributes": { "namespace": namespace, "verb": verb, "resource": resource } }
            });
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let answer = server.admin.send(Method::POST, path, &review).await;
            if answer.body["status"]["allowed"] != json!(false) {
                reached.push(format!("{user} may {verb} {resource} in namespace {namespace:?}"));
            }
        }
    }
    let taken = list_namespaces_of_evil(server).await;
    reached.extend(
        MENTIONED
            .iter()
            .filter(|name| taken.contains(**name))
            .map(|name| format!("evil has namespace {name}, which something outside names")),
    );
    reached
}
