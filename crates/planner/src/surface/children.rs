//! The generated objects of a Surface: a GitRepository for each source, and a Kustomization for each path of a source.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenure_api::metadata::{
    APPLY_MODE, MANAGED_BY, MANAGED_BY_TENURE, PASSED_REQUEST, REQUESTED_AT, SURFACE_LABEL, SURFACE_SOURCE_LABEL,
};
use tenure_api::surface::{SurfacePath, SurfaceSource};
use tenure_api::{ObjectId, ObjectView, Surface};
use tenure_tenancy::surface::Tier;

use super::Snapshot;
use super::deploy_key::{self, KeyState};
use crate::answer::Live;
use crate::dependents::Wanted;
use crate::read_requested_at;

const SOURCE_API: &str = "source.toolkit.fluxcd.io";
const KUSTOMIZE_API: &str = "kustomize.toolkit.fluxcd.io";
/// The interval of requests to a source and of full looks, if the Surface sets none.
const DEFAULT_INTERVAL: &str = "1m";
/// The branch, if the Surface sets no reference.
const DEFAULT_BRANCH: &str = "main";

/// A GitRepository or Kustomization that a Surface generates.
pub(super) struct Child {
    /// Name of the source.
    pub(super) source: String,
    pub(super) wanted: Wanted,
}

impl Child {
    fn set_annotation(&mut self, key: &str, value: &str) {
        let metadata = self.wanted.object.get_mut("metadata").and_then(Value::as_object_mut);
        let annotations = metadata.map(|metadata| metadata.entry("annotations").or_insert_with(|| json!({})));
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.insert(key.to_owned(), json!(value));
        }
    }

    /// Copies the Surface's request to reconcile to the object, once. After that, a later request of a Receiver or of a user (`tenure reconcile`) stays.
    fn pass_request(&mut self, request: &str, live: &BTreeMap<ObjectId, Live>) {
        let live = live.get(&self.wanted.id).and_then(Live::object).map(ObjectView::new);
        let find = |key| live.and_then(|live| live.find_annotation(key));
        let asked = match (find(PASSED_REQUEST), find(REQUESTED_AT)) {
            (Some(passed), later) if passed == request => later,
            _ => Some(request),
        };
        self.set_annotation(PASSED_REQUEST, request);
        if let Some(asked) = asked {
            self.set_annotation(REQUESTED_AT, asked);
        }
    }
}

/// Returns the name of a source's GitRepository.
#[must_use]
pub fn name_repository(surface: &str, source: &str) -> String {
    format!("{surface}-{source}")
}

/// Returns the names of a source's Kustomizations, one for each path.
#[must_use]
pub fn name_kustomizations(surface: &str, source: &SurfaceSource) -> Vec<String> {
    if source.paths.is_empty() {
        return vec![name_repository(surface, &source.name)];
    }
    source
        .paths
        .iter()
        .map(|path| format!("{surface}-{}-{}", source.name, path.name))
        .collect()
}

/// Lists everything that a Surface generates, acting as a ServiceAccount of its namespace.
pub(super) fn list_children(snapshot: &Snapshot, tier: Tier<'_>, service_account: &str) -> Vec<Child> {
    let surface = &snapshot.surface;
    let name = surface.metadata.name.as_deref().unwrap_or_default();
    let mut children = Vec::new();
    for source in &surface.spec.sources {
        let access = snapshot.access.get(&source.name).map(String::as_str);
        let key = deploy_key::judge_key(snapshot, &source.name);
        children.push(make_repository(snapshot, source, key, access));
        let single = SurfacePath {
            name: String::new(),
            path: source.path.clone().unwrap_or_default(),
            target_namespace: None,
        };
        let paths = if source.paths.is_empty() {
            std::slice::from_ref(&single)
        } else {
            source.paths.as_slice()
        };
        for (child, path) in name_kustomizations(name, source).into_iter().zip(paths) {
            children.push(make_kustomization(snapshot, source, path, child, tier, service_account));
        }
    }
    children
}

/// Makes the GitRepository of a source. A re-created key causes a request at once. A key that isn't known to be the Surface's own is not used at all.
fn make_repository(snapshot: &Snapshot, source: &SurfaceSource, key: Option<KeyState>, access: Option<&str>) -> Child {
    let surface = &snapshot.surface;
    let name = surface.metadata.name.as_deref().unwrap_or_default();
    let mut spec = Map::new();
    spec.insert("url".to_owned(), json!(source.url));
    spec.insert("interval".to_owned(), json!(find_interval(source)));
    spec.insert(
        "ref".to_owned(),
        source
            .reference
            .as_ref()
            .and_then(|reference| serde_json::to_value(reference).ok())
            .filter(|reference| reference.as_object().is_some_and(|reference| !reference.is_empty()))
            .unwrap_or_else(|| json!({ "branch": DEFAULT_BRANCH })),
    );
    if let Some(secret) = &source.secret_ref {
        spec.insert("secretRef".to_owned(), json!({ "name": secret.name }));
    } else if let Some(secret) = access {
        // The source names no Secret, and access to its project was approved, so the approved Secret is used.
        spec.insert("secretRef".to_owned(), json!({ "name": secret }));
    }
    if let Some(ignore) = &source.ignore {
        spec.insert("ignore".to_owned(), json!(ignore));
    }
    if let Some(key) = &key {
        spec.insert("secretRef".to_owned(), json!({ "name": key.secret }));
    }
    if surface.spec.suspend || key.as_ref().is_some_and(|key| key.is_held) {
        spec.insert("suspend".to_owned(), json!(true));
    }
    let mut child = make_child(
        surface,
        source,
        SOURCE_API,
        "GitRepository",
        name_repository(name, &source.name),
        spec,
    );
    let fingerprint = key.and_then(|key| key.pair).map(|pair| pair.fingerprint.clone());
    let requests: Vec<String> = read_requested_at(&surface.metadata)
        .into_iter()
        .chain(fingerprint)
        .collect();
    if !requests.is_empty() {
        child.pass_request(&requests.join(" "), &snapshot.live);
    }
    child
}

fn make_kustomization(
    snapshot: &Snapshot,
    source: &SurfaceSource,
    path: &SurfacePath,
    child_name: String,
    tier: Tier<'_>,
    service_account: &str,
) -> Child {
    let surface = &snapshot.surface;
    let name = surface.metadata.name.as_deref().unwrap_or_default();
    let mut spec = Map::new();
    let mut set = |key: &str, value: Value| spec.insert(key.to_owned(), value);
    set("interval", json!(find_interval(source)));
    set("prune", json!(source.prune.unwrap_or(true)));
    set("serviceAccountName", json!(service_account));
    set(
        "sourceRef",
        json!({ "kind": "GitRepository", "name": name_repository(name, &source.name) }),
    );
    set(
        "path",
        json!(if path.path.is_empty() { "./" } else { path.path.as_str() }),
    );
    if source.wait {
        set("wait", json!(true));
    }
    if source.force {
        set("force", json!(true));
    }
    if surface.spec.suspend {
        set("suspend", json!(true));
    }
    if let Some(timeout) = &source.timeout {
        set("timeout", json!(timeout));
    }
    if let Some(retry_interval) = &source.retry_interval {
        set("retryInterval", json!(retry_interval));
    }
    if !source.patches.is_empty() {
        set("patches", json!(source.patches));
    }
    if let Some(decryption) = &source.decryption {
        set("decryption", json!(decryption));
    }
    if let Some(target) = path.target_namespace.as_ref().or(source.target_namespace.as_ref()) {
        set("targetNamespace", json!(target));
    }
    let policy = match (&source.deletion_policy, tier) {
        (Some(policy), _) => Some(policy.as_str()),
        (None, Tier::Tenant(_)) => Some("Orphan"),
        (None, Tier::Platform) => None,
    };
    if let Some(policy) = policy {
        set("deletionPolicy", json!(policy));
    }
    let depends_on: Vec<Value> = source
        .depends_on
        .iter()
        .filter_map(|dependency| surface.spec.sources.iter().find(|other| other.name == dependency.name))
        .flat_map(|other| name_kustomizations(name, other))
        .map(|name| json!({ "name": name }))
        .collect();
    if !depends_on.is_empty() {
        set("dependsOn", Value::Array(depends_on));
    }
    let mut child = make_child(surface, source, KUSTOMIZE_API, "Kustomization", child_name, spec);
    if let Some(mode) = &source.apply {
        child.set_annotation(APPLY_MODE, mode);
    }
    if let Some(request) = read_requested_at(&surface.metadata) {
        child.pass_request(&request, &snapshot.live);
    }
    child
}

fn find_interval(source: &SurfaceSource) -> &str {
    source
        .interval
        .as_ref()
        .map_or(DEFAULT_INTERVAL, |interval| interval.0.as_str())
}

fn make_child(
    surface: &Surface,
    source: &SurfaceSource,
    group: &str,
    kind: &str,
    name: String,
    spec: Map<String, Value>,
) -> Child {
    let namespace = surface.metadata.namespace.clone().unwrap_or_default();
    let metadata = json!({
        "name": name,
        "namespace": namespace,
        "labels": {
            SURFACE_LABEL: surface.metadata.name,
            SURFACE_SOURCE_LABEL: source.name,
            MANAGED_BY: MANAGED_BY_TENURE,
        },
        "ownerReferences": [{
            "apiVersion": "tenure.dev/v1alpha1",
            "kind": "Surface",
            "name": surface.metadata.name,
            "uid": surface.metadata.uid,
            "controller": true,
        }],
    });
    Child {
        source: source.name.clone(),
        wanted: Wanted {
            id: ObjectId {
                namespace,
                name,
                group: group.to_owned(),
                kind: kind.to_owned(),
            },
            version: "v1",
            object: json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": metadata, "spec": spec }),
        },
    }
}
