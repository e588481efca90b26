//! The ReplicaSets of a Deployment: one for each template that it had. The newest has all replicas and the others
//! have none, as after a finished rollout. `kubectl rollout history` and `undo` read and use them, and `helm --wait`
//! looks for the newest. This module creates no Pods, and changes no object of another controller.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::object_name::{get_text, is_deleting};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// The Deployment's annotations that its ReplicaSets don't get, as in Kubernetes' deployment controller.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];

/// How many ReplicaSets without replicas are kept by default.
const KEPT: i64 = 10;

/// How many names are tried for a new ReplicaSet.
const NAMES: u32 = 16;

/// The writes that bring a Deployment's ReplicaSets to their desired state.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Rollout {
    /// The ReplicaSet of a new template.
    pub(crate) create: Option<Value>,
    /// ReplicaSets in their desired state.
    pub(crate) change: Vec<Value>,
    /// ReplicaSets beyond `spec.revisionHistoryLimit`.
    pub(crate) delete: Vec<Value>,
    /// The Deployment with its revision.
    pub(crate) deployment: Option<Value>,
}

/// Computes the writes for a Deployment's ReplicaSets. `dependents` name it as an owner; `named` finds a ReplicaSet
/// by its name.
pub(crate) fn roll_out(
    deployment: &Value,
    dependents: Vec<Value>,
    named: impl Fn(&str) -> Option<Arc<Value>>,
) -> Rollout {
    let mut rollout = Rollout::default();
    if is_deleting(deployment) {
        return rollout;
    }
    // The map is keyed by name, because a new ReplicaSet may be missing in `dependents` and is then added from `named`.
    let mut owned: BTreeMap<String, Value> = dependents
        .into_iter()
        .filter(|set| get_text(set, "/kind") == "ReplicaSet" && is_controlled(set, deployment))
        .map(|set| (get_text(&set, "/metadata/name").to_owned(), set))
        .collect();
    let template = deployment.pointer("/spec/template").unwrap_or(&Value::Null);
    let mut name = String::new();
    if find(&owned, template).is_none() {
        for collisions in 0..NAMES {
            let candidate = format!(
                "{}-{}",
                get_text(deployment, "/metadata/name"),
                hash(template, collisions)
            );
            match named(&candidate) {
                None if !owned.contains_key(&candidate) => {
                    name = candidate;
                    break;
                }
                Some(found) if is_controlled(&found, deployment) && is_of(&found, template) => {
                    owned.insert(candidate, (*found).clone());
                    break;
                }
                _ => {}
            }
        }
    }
    let newest = find(&owned, template);
    let paused = deployment.pointer("/spec/paused") == Some(&Value::Bool(true));
    let before = owned.iter().filter(|(name, _)| newest.as_ref() != Some(*name));
    let highest = before.map(|(_, set)| get_revision(set)).max().unwrap_or(0);
    let (current, revised) = match newest {
        Some(newest) => {
            let revised = owned
                .get(&newest)
                .map_or(0, get_revision)
                .max(highest.saturating_add(1));
            (Some(newest), Some(revised))
        }
        // A paused Deployment is scaled, and not rolled out.
        None if paused => {
            let last = owned.iter().max_by_key(|(_, set)| get_revision(set));
            (last.map(|(name, _)| name.clone()), None)
        }
        None if name.is_empty() => (None, None),
        None => {
            let revised = highest.saturating_add(1);
            rollout.create = Some(new_set(deployment, &name, revised));
            (Some(name), Some(revised))
        }
    };
    for (name, set) in &owned {
        let mut wanted = set.clone();
        if Some(name) == current.as_ref() {
            if let Some(revised) = revised {
                copy_annotations(deployment, &mut wanted);
                set_revision(&mut wanted, revised);
            }
            set_replicas(&mut wanted, deployment, get_replicas(deployment));
        } else if get_replicas(set) != 0 {
            set_replicas(&mut wanted, deployment, 0);
        }
        if wanted != *set && !is_deleting(set) {
            rollout.change.push(wanted);
        }
    }
    let mut old: Vec<&Value> = owned
        .iter()
        .filter(|(name, set)| Some(*name) != current.as_ref() && get_replicas(set) == 0 && !is_deleting(set))
        .map(|(_, set)| set)
        .collect();
    old.sort_by_key(|set| get_revision(set));
    let limit = deployment.pointer("/spec/revisionHistoryLimit").and_then(Value::as_i64);
    let kept = usize::try_from(limit.unwrap_or(KEPT)).unwrap_or_default();
    let surplus = old.len().saturating_sub(kept);
    rollout.delete = old.into_iter().take(surplus).cloned().collect();
    if let Some(revised) = revised {
        let mut wanted = deployment.clone();
        set_annotation(&mut wanted, REVISION, &revised.to_string());
        rollout.deployment = (wanted != *deployment).then_some(wanted);
    }
    rollout
}

/// Returns the name of a ReplicaSet's Deployment.
pub(crate) fn deployment_of(set: &Value) -> Option<&str> {
    let controller = find_controller(set)?;
    let is_deployment =
        get_text(controller, "/kind") == "Deployment" && get_text(controller, "/apiVersion").starts_with("apps/");
    is_deployment.then(|| get_text(controller, "/name"))
}

fn find_controller(object: &Value) -> Option<&Value> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    owners
        .iter()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)))
}

fn is_controlled(set: &Value, deployment: &Value) -> bool {
    find_controller(set).is_some_and(|controller| get_text(controller, "/uid") == get_text(deployment, "/metadata/uid"))
}

/// Returns the ReplicaSet of a template; the oldest, if several match.
fn find(owned: &BTreeMap<String, Value>, template: &Value) -> Option<String> {
    let of_template = owned.iter().filter(|(_, set)| is_of(set, template));
    let first = of_template.min_by_key(|(_, set)| get_text(set, "/metadata/creationTimestamp").to_owned());
    first.map(|(name, _)| name.clone())
}

/// Checks whether a ReplicaSet was made from a template. The label `pod-template-hash`, which only the ReplicaSet's
/// template has, is ignored.
fn is_of(set: &Value, template: &Value) -> bool {
    set.pointer("/spec/template")
        .is_some_and(|own| without_hash(own) == without_hash(template))
}

fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(metadata) = template.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove(HASH);
        }
        metadata.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|object| !object.is_empty()));
    }
    template
}

/// Returns a short text for a template, of letters that form no words (as Kubernetes' `SafeEncodeString`). Each
/// collision gives another text.
fn hash(template: &Value, collisions: u32) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let text = without_hash(template).to_string();
    // FNV-1a, of 32 bits.
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    let hash = text.bytes().chain(collisions.to_le_bytes()).fold(2_166_136_261, step);
    hash.to_string()
        .bytes()
        .filter_map(|digit| LETTERS.get(usize::from(digit) % LETTERS.len()))
        .map(|letter| char::from(*letter))
        .collect()
}

fn get_replicas(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

fn get_revision(set: &Value) -> i64 {
    let annotations = set.pointer("/metadata/annotations");
    let text = annotations.and_then(|annotations| annotations.get(REVISION)?.as_str());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn new_set(deployment: &Value, name: &str, revised: i64) -> Value {
    let mut template = deployment.pointer("/spec/template").cloned().unwrap_or_default();
    let hash = name.rsplit('-').next().unwrap_or_default();
    insert_under(&mut template, &["metadata", "labels"], HASH, json!(hash));
    let mut selector = deployment.pointer("/spec/selector").cloned().unwrap_or_default();
    insert_under(&mut selector, &["matchLabels"], HASH, json!(hash));
    let labels = template.pointer("/metadata/labels").cloned().unwrap_or_default();
    let mut spec = json!({ "replicas": get_replicas(deployment), "selector": selector, "template": template });
    if let (Some(seconds), Some(spec)) = (deployment.pointer("/spec/minReadySeconds"), spec.as_object_mut()) {
        spec.insert("minReadySeconds".to_owned(), seconds.clone());
    }
    let mut set = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": get_text(deployment, "/metadata/namespace"),
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": get_text(deployment, "/metadata/name"),
                "uid": get_text(deployment, "/metadata/uid"),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
    });
    copy_annotations(deployment, &mut set);
    set_revision(&mut set, revised);
    set_replicas(&mut set, deployment, get_replicas(deployment));
    set
}

fn copy_annotations(deployment: &Value, set: &mut Value) {
    let annotations = deployment.pointer("/metadata/annotations").and_then(Value::as_object);
    for (key, value) in annotations.into_iter().flatten() {
        if !NOT_COPIED.contains(&key.as_str()) {
            insert_under(set, &["metadata", "annotations"], key, value.clone());
        }
    }
}

/// Sets a ReplicaSet's revision, and adds the previous one to its history.
fn set_revision(set: &mut Value, revised: i64) {
    let before = get_revision(set);
    if before == revised {
        return;
    }
    if before != 0 {
        let history = set
            .pointer("/metadata/annotations")
            .and_then(|annotations| annotations.get(REVISION_HISTORY)?.as_str())
            .map(|history| format!("{history},{before}"));
        set_annotation(set, REVISION_HISTORY, &history.unwrap_or_else(|| before.to_string()));
    }
    set_annotation(set, REVISION, &revised.to_string());
}

fn set_replicas(set: &mut Value, deployment: &Value, count: i64) {
    if let Some(spec) = set.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("replicas").and_then(Value::as_i64) != Some(count)
    {
        spec.insert("replicas".to_owned(), json!(count));
    }
    let desired = get_replicas(deployment);
    set_annotation(set, DESIRED_REPLICAS, &desired.to_string());
    let most = desired.saturating_add(max_surge(deployment, desired));
    set_annotation(set, MAX_REPLICAS, &most.to_string());
}

/// Returns how many extra replicas a rollout may have. Percentages are rounded up.
fn max_surge(deployment: &Value, replicas: i64) -> i64 {
    let surge = deployment.pointer("/spec/strategy/rollingUpdate/maxSurge");
    let share = |text: &str| {
        let share: i64 = text.strip_suffix('%')?.parse().ok()?;
        Some(replicas.saturating_mul(share).saturating_add(99) / 100)
    };
    match surge {
        Some(Value::String(text)) => share(text).unwrap_or(0),
        Some(number) => number.as_i64().unwrap_or(0),
        None => 0,
    }
}

fn set_annotation(object: &mut Value, key: &str, value: &str) {
    insert_under(object, &["metadata", "annotations"], key, json!(value));
}

/// Inserts into a map within an object, and creates the map if it is missing.
fn insert_under(object: &mut Value, path: &[&str], key: &str, value: Value) {
    let mut at = object;
    for step in path {
        let Some(fields) = at.as_object_mut() else { return };
        let next = fields.entry((*step).to_owned()).or_insert(Value::Null);
        if next.is_null() {
            *next = Value::Object(Map::new());
        }
        at = next;
    }
    if let Some(fields) = at.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that applies the writes of a rollout until nothing is left to do.
    struct SimulatedRollout {
        deployment: Value,
        sets: BTreeMap<String, Value>,
        clock: u32,
    }

    impl SimulatedRollout {
        fn new(deployment: Value) -> Self {
            let mut rollout = Self {
                deployment,
                sets: BTreeMap::new(),
                clock: 0,
            };
            rollout.run_until_stable();
            rollout
        }

        fn run_until_stable(&mut self) {
            for round in 0.. {
                let sets = self.sets.values().cloned().collect();
                let named = |name: &str| self.sets.get(name).cloned().map(Arc::new);
                let rollout = roll_out(&self.deployment, sets, named);
                if rollout == Rollout::default() {
                    break;
                }
                assert!(round < 4, "{rollout:?}");
                for mut set in rollout.create.into_iter().chain(rollout.change) {
                    let name = get_text(&set, "/metadata/name").to_owned();
                    self.clock += 1;
                    let created = format!("2026-01-01T00:00:{:02}Z", self.clock);
                    let known = self.sets.contains_key(&name);
                    if !known {
                        insert_under(&mut set, &["metadata"], "creationTimestamp", json!(created));
                    }
                    self.sets.insert(name, set);
                }
                for set in rollout.delete {
                    self.sets.remove(get_text(&set, "/metadata/name"));
                }
                if let Some(deployment) = rollout.deployment {
                    self.deployment = deployment;
                }
            }
        }

        fn change(&mut self, pointer: &str, value: Value) {
            *self.deployment.pointer_mut(pointer).unwrap() = value;
            self.run_until_stable();
        }

        /// Returns image, revision and replicas of each ReplicaSet, by revision.
        fn list_replicas(&self) -> Vec<(String, i64, i64)> {
            let mut shown: Vec<_> = self
                .sets
                .values()
                .map(|set| {
                    let image = get_text(set, "/spec/template/spec/containers/0/image").to_owned();
                    (image, get_revision(set), get_replicas(set))
                })
                .collect();
            shown.sort_by_key(|(_, revision, _)| *revision);
            shown
        }
    }

    fn deployment() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "web", "namespace": "team", "uid": "u1", "annotations": { "team": "a" } },
            "spec": {
                "replicas": 3, "paused": false, "revisionHistoryLimit": 2,
                "selector": { "matchLabels": { "app": "web" } },
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{ "name": "c", "image": "i:1" }] },
                },
            },
        })
    }

    const IMAGE: &str = "/spec/template/spec/containers/0/image";

    fn assert_sets(rollout: &SimulatedRollout, expected: &[(&str, i64, i64)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(image, revision, replicas)| ((*image).to_owned(), *revision, *replicas))
            .collect();
        assert_eq!(rollout.list_replicas(), expected);
    }

    #[test]
    fn each_template_has_a_replica_set() {
        let mut rollout = SimulatedRollout::new(deployment());
        assert_sets(&rollout, &[("i:1", 1, 3)]);
        let set = rollout.sets.values().next().unwrap();
        let hash = get_text(set, "/metadata/labels/pod-template-hash");
        assert_eq!(get_text(set, "/metadata/name"), format!("web-{hash}"));
        assert_eq!(get_text(set, "/spec/selector/matchLabels/pod-template-hash"), hash);
        let annotations = &set["metadata"]["annotations"];
        assert_eq!(
            *annotations,
            json!({ "team": "a", REVISION: "1", DESIRED_REPLICAS: "3", MAX_REPLICAS: "4" })
        );
        rollout.change(IMAGE, json!("i:2"));
        assert_sets(&rollout, &[("i:1", 1, 0), ("i:2", 2, 3)]);
        rollout.change("/spec/replicas", json!(5));
        assert_sets(&rollout, &[("i:1", 1, 0), ("i:2", 2, 5)]);
        // Back to the first template: its ReplicaSet becomes the newest again.
        rollout.change(IMAGE, json!("i:1"));
        assert_sets(&rollout, &[("i:2", 2, 0), ("i:1", 3, 5)]);
        let first = rollout.sets.values().find(|set| get_revision(set) == 3).unwrap();
        assert_eq!(first["metadata"]["annotations"][REVISION_HISTORY], "1");
        assert_eq!(rollout.deployment["metadata"]["annotations"][REVISION], "3");
    }

    #[test]
    fn only_as_many_as_wanted_are_kept() {
        let mut rollout = SimulatedRollout::new(deployment());
        for number in 2..6 {
            rollout.change(IMAGE, json!(format!("i:{number}")));
        }
        assert_sets(&rollout, &[("i:3", 3, 0), ("i:4", 4, 0), ("i:5", 5, 3)]);
    }

    #[test]
    fn paused_deployment_is_only_scaled() {
        let mut rollout = SimulatedRollout::new(deployment());
        rollout.change("/spec/paused", json!(true));
        rollout.change(IMAGE, json!("i:2"));
        rollout.change("/spec/replicas", json!(7));
        assert_sets(&rollout, &[("i:1", 1, 7)]);
        rollout.change("/spec/paused", json!(false));
        assert_sets(&rollout, &[("i:1", 1, 0), ("i:2", 2, 7)]);
    }

    #[test]
    fn foreign_replica_sets_are_left_alone() {
        let foreign = json!({ "kind": "ReplicaSet", "metadata": { "name": "x" }, "spec": { "replicas": 2 } });
        let taken = FirstName::default();
        let rollout = roll_out(&deployment(), vec![foreign.clone()], |name| {
            // The first name is taken by a foreign ReplicaSet.
            taken.is_first(name).then(|| Arc::new(foreign.clone()))
        });
        assert!(rollout.change.is_empty() && rollout.delete.is_empty());
        let name = get_text(rollout.create.as_ref().unwrap(), "/metadata/name").to_owned();
        assert!(!taken.is_first(&name), "{name}");
    }

    /// Stores the first name that was looked up.
    #[derive(Default)]
    struct FirstName(std::cell::RefCell<Option<String>>);

    impl FirstName {
        fn is_first(&self, name: &str) -> bool {
            self.0.borrow_mut().get_or_insert_with(|| name.to_owned()) == name
        }
    }
}
