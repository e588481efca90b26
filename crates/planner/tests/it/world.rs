//! A cluster small enough to read: it applies, dry-runs, deletes and refuses as the test says, and keeps the owners of fields. It replaces an API server, so that whole
//! reconciliations can be written as data. Other tests cover the merge of a real server.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tenure_api::ObjectId;
use tenure_planner::answer::{ClaimOwner, ClaimsAnswer, DeleteAnswer, Failure, KindAnswer, Live, Reason, WriteAnswer};
use tenure_planner::kustomization::list_owners;
use tenure_planner::object::{Object, Origin, RenderedObject};
use tenure_planner::plan::{Apply, Delete, KindReference};
use tenure_tenancy::write_scope::Scope;

/// The form of a refused request.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Refusal {
    /// `read`, `dryRun`, `try`, `create`, `apply`, `tryDelete` or `delete`.
    pub(crate) verb: String,
    pub(crate) id: ObjectId,
    pub(crate) failure: Failure,
    /// The number of refusals; without it, there is no end.
    #[serde(default)]
    pub(crate) times: Option<u32>,
}

#[derive(Default)]
pub(crate) struct World {
    objects: BTreeMap<ObjectId, Stored>,
    pub(crate) refusals: Vec<Refusal>,
    /// Whether the definition of HelmReleases is older than `spec.valuesFrom[].literal`.
    pub(crate) drops_literals: bool,
    /// Kinds that are not served.
    pub(crate) unknown_kinds: Vec<String>,
    version: u64,
    /// Writes that changed something.
    pub(crate) writes: u64,
}

#[derive(Clone)]
struct Stored {
    value: Value,
    managers: BTreeMap<(String, String), (Value, String)>,
}

const CLUSTER_KINDS: [&str; 9] = [
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "StorageClass",
    "Tenant",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];

fn already_exists(apply: &Apply) -> Failure {
    Failure {
        code: 409,
        reason: Reason::AlreadyExists,
        message: format!("{} already exists", apply.id.subject()),
        ..Failure::default()
    }
}

impl World {
    pub(crate) fn find_kind(&self, kind: &KindReference) -> KindAnswer {
        if self.unknown_kinds.contains(&kind.kind) {
            return KindAnswer::Unknown;
        }
        KindAnswer::Served(if CLUSTER_KINDS.contains(&kind.kind.as_str()) {
            Scope::Cluster
        } else {
            Scope::Namespaced
        })
    }

    pub(crate) fn read(&mut self, id: &ObjectId) -> Live {
        if let Some(failure) = self.find_refusal("read", id) {
            return Live::Failed(failure);
        }
        match self.objects.get(id) {
            Some(stored) => Live::Present(Object(stored.value.clone())),
            None if self.unknown_kinds.contains(&id.kind) => Live::Unserved,
            None => Live::Absent,
        }
    }

    pub(crate) fn dry_run(&mut self, apply: &Apply) -> WriteAnswer {
        if let Some(failure) = self.find_refusal("dryRun", &apply.id) {
            return WriteAnswer::Failed(failure);
        }
        let stored = self.merge_apply(apply, Timestamp::UNIX_EPOCH);
        WriteAnswer::Done(Object(stored.value))
    }

    pub(crate) fn try_creation(&mut self, apply: &Apply) -> WriteAnswer {
        let is_there = self.objects.contains_key(&apply.id)
            && apply.object.view().find_text("/metadata/name") == Some(apply.id.name.as_str());
        match self
            .find_refusal("try", &apply.id)
            .or(is_there.then(|| already_exists(apply)))
        {
            Some(failure) => WriteAnswer::Failed(failure),
            None => WriteAnswer::Done(apply.object.clone()),
        }
    }

    pub(crate) fn create(&mut self, apply: &Apply, now: Timestamp) -> WriteAnswer {
        let existing = self.objects.contains_key(&apply.id).then(|| already_exists(apply));
        if let Some(failure) = self.find_refusal("create", &apply.id).or(existing) {
            return WriteAnswer::Failed(failure);
        }
        let managers = BTreeMap::from([(
            (apply.manager.clone(), "Update".to_owned()),
            (apply.object.0.clone(), now.to_string()),
        )]);
        let mut value = json!({ "metadata": { "uid": format!("uid-{}", self.version + 1) } });
        merge_values(&mut value, &apply.object.0);
        WriteAnswer::Done(Object(self.store(&apply.id, Stored { value, managers })))
    }

    pub(crate) fn apply(&mut self, apply: &Apply, now: Timestamp) -> WriteAnswer {
        if let Some(failure) = self.find_refusal("apply", &apply.id) {
            return WriteAnswer::Failed(failure);
        }
        let stored = self.merge_apply(apply, now);
        WriteAnswer::Done(Object(self.store(&apply.id, stored)))
    }

    /// Replaces an object (PUT), if it has the uid and the version that the new one carries. Its status stays.
    pub(crate) fn replace(&mut self, id: &ObjectId, object: &Object, manager: &str, now: Timestamp) -> WriteAnswer {
        let fail = |code: u16, reason: Reason, message: &str| {
            WriteAnswer::Failed(Failure {
                code,
                reason,
                message: format!("{} {message}", id.subject()),
                ..Failure::default()
            })
        };
        if let Some(failure) = self.find_refusal("replace", id) {
            return WriteAnswer::Failed(failure);
        }
        let Some(mut stored) = self.objects.get(id).cloned() else {
            return fail(404, Reason::NotFound, "not found");
        };
        let is_examined = ["uid", "resourceVersion"]
            .iter()
            .all(|key| stored.value["metadata"][key] == object.0["metadata"][key]);
        if !is_examined {
            return fail(409, Reason::Conflict, "has been modified");
        }
        let before = std::mem::replace(&mut stored.value, object.0.clone());
        if self.drops_literals {
            let entries = stored
                .value
                .pointer_mut("/spec/valuesFrom")
                .and_then(Value::as_array_mut);
            for entry in entries.into_iter().flatten() {
                entry.as_object_mut().unwrap().remove("literal");
            }
        }
        stored.value["metadata"]["generation"] = before["metadata"]["generation"].clone();
        if let Some(status) = before.get("status") {
            stored.value["status"] = status.clone();
        }
        let key = (manager.to_owned(), "Update".to_owned());
        stored.managers.insert(key, (object.0.clone(), now.to_string()));
        WriteAnswer::Done(Object(self.store(id, stored)))
    }

    pub(crate) fn take_over(&mut self, id: &ObjectId, from: &[String], patch: &Value, now: Timestamp) -> WriteAnswer {
        let Some(mut stored) = self.objects.get(id).cloned() else {
            panic!("take-over of what is not there")
        };
        let ours = ("kustomize-controller".to_owned(), "Apply".to_owned());
        let mut config = stored
            .managers
            .get(&ours)
            .map_or(json!({}), |(config, _)| config.clone());
        let theirs: Vec<_> = stored
            .managers
            .keys()
            .filter(|(name, _)| from.contains(name))
            .cloned()
            .collect();
        let still = |manager: &str| {
            let operations = patch.as_array().unwrap().iter();
            let mut entries = operations.flat_map(|operation| operation["value"].as_array().into_iter().flatten());
            entries.any(|entry| entry["manager"] == manager)
        };
        for key in theirs {
            let (mut other, time) = stored.managers.remove(&key).unwrap();
            if still(&key.0) {
                // The only field that is ever left to another manager.
                let annotations = other.pointer_mut("/spec/template/metadata/annotations").unwrap();
                let left = annotations
                    .as_object_mut()
                    .unwrap()
                    .remove("kubectl.kubernetes.io/restartedAt")
                    .unwrap();
                let left = json!({ "spec": { "template": { "metadata": { "annotations": {
                    "kubectl.kubernetes.io/restartedAt": left
                } } } } });
                stored.managers.insert(key, (left, time));
            }
            merge_values(&mut config, &other);
        }
        stored.managers.insert(ours, (config, now.to_string()));
        if let Some(annotations) = stored
            .value
            .pointer_mut("/metadata/annotations")
            .and_then(Value::as_object_mut)
        {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
        WriteAnswer::Done(Object(self.store(id, stored)))
    }

    pub(crate) fn try_deletion(&mut self, delete: &Delete) -> DeleteAnswer {
        match self.find_refusal("tryDelete", &delete.target.id) {
            Some(failure) => DeleteAnswer::Failed(failure),
            None => DeleteAnswer::Accepted,
        }
    }

    pub(crate) fn delete(&mut self, delete: &Delete) -> DeleteAnswer {
        let id = &delete.target.id;
        let changed = DeleteAnswer::Changed {
            resource_version: delete.resource_version.clone(),
            times: 1,
            looked_again: false,
        };
        if let Some(failure) = self.find_refusal("delete", id) {
            // A conflict is answered in this form, whatever it is about.
            return if failure.reason == Reason::Conflict {
                changed
            } else {
                DeleteAnswer::Failed(failure)
            };
        }
        let Some(stored) = self.objects.get(id) else {
            return DeleteAnswer::Absent;
        };
        let found = |key: &str| stored.value["metadata"][key].as_str();
        if found("uid") != delete.uid.as_deref() || found("resourceVersion") != delete.resource_version.as_deref() {
            return changed;
        }
        self.writes += 1;
        if stored.value.pointer("/metadata/finalizers").is_some() {
            let mut stored = stored.clone();
            stored.value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            self.store(id, stored);
            return DeleteAnswer::Accepted;
        }
        self.objects.remove(id);
        DeleteAnswer::Absent
    }

    /// Writes a merge patch as another field manager.
    pub(crate) fn change(&mut self, id: &ObjectId, patch: &Value, manager: &str, now: Timestamp) {
        self.change_by(id, patch, (manager, "Update"), now);
    }

    /// Lists the owners of the claims of a namespace. A refusal of the verb `findClaims` names the id of any claim.
    pub(crate) fn find_claims(&mut self, namespace: &str) -> ClaimsAnswer {
        let id = ObjectId {
            namespace: namespace.to_owned(),
            name: "claims".to_owned(),
            group: String::new(),
            kind: "PersistentVolumeClaim".to_owned(),
        };
        if let Some(failure) = self.find_refusal("findClaims", &id) {
            return ClaimsAnswer::Failed(failure);
        }
        let claims = self.objects.iter();
        let claims = claims.filter(|(id, _)| id.kind == "PersistentVolumeClaim" && id.namespace == namespace);
        let mut owners: Vec<ClaimOwner> = claims.flat_map(|(_, claim)| list_owners(&claim.value)).collect();
        owners.dedup();
        ClaimsAnswer::Found { owners, more: false }
    }

    /// Writes a merge patch with a manager and an operation.
    pub(crate) fn change_by(
        &mut self,
        id: &ObjectId,
        patch: &Value,
        (manager, operation): (&str, &str),
        now: Timestamp,
    ) {
        let mut stored = self.objects.get(id).cloned().unwrap_or_else(|| Stored {
            value: json!({ "apiVersion": "v1", "kind": id.kind, "metadata": { "name": id.name, "namespace": id.namespace } }),
            managers: BTreeMap::new(),
        });
        merge_patch(&mut stored.value, patch);
        let status_only = patch
            .as_object()
            .is_some_and(|patch| patch.keys().all(|key| key == "status"));
        if !status_only {
            let entry = stored
                .managers
                .entry((manager.to_owned(), operation.to_owned()))
                .or_insert((json!({}), String::new()));
            merge_values(&mut entry.0, patch);
            entry.1 = now.to_string();
        }
        self.store(id, stored);
    }

    /// Deletes an object as another client.
    pub(crate) fn remove(&mut self, id: &ObjectId) {
        assert!(self.objects.remove(id).is_some(), "{id} is not there");
    }

    /// Removes the definitions of these kinds, and their objects.
    pub(crate) fn undefine_kinds(&mut self, kinds: Vec<String>) {
        self.objects.retain(|id, _| !kinds.contains(&id.kind));
        self.unknown_kinds = kinds;
    }

    pub(crate) fn list_names(&self) -> Vec<String> {
        self.objects.keys().map(ObjectId::subject).collect()
    }

    fn find_refusal(&mut self, verb: &str, id: &ObjectId) -> Option<Failure> {
        let refusal = self
            .refusals
            .iter_mut()
            .find(|refusal| refusal.verb == verb && refusal.id == *id && refusal.times != Some(0))?;
        if let Some(times) = &mut refusal.times {
            *times -= 1;
        }
        Some(refusal.failure.clone())
    }

    fn merge_apply(&self, apply: &Apply, now: Timestamp) -> Stored {
        let key = (apply.manager.clone(), "Apply".to_owned());
        let mut stored = self.objects.get(&apply.id).cloned().unwrap_or_else(|| Stored {
            value: json!({ "metadata": { "uid": format!("uid-{}", self.version + 1) } }),
            managers: BTreeMap::new(),
        });
        if let Some((before, _)) = stored.managers.get(&key).cloned() {
            let others: Vec<&Value> = stored
                .managers
                .iter()
                .filter(|(other, _)| **other != key)
                .map(|(_, (config, _))| config)
                .collect();
            remove_dropped(&mut stored.value, &before, &apply.object.0, &others);
        }
        merge_values(&mut stored.value, &apply.object.0);
        stored.managers.insert(key, (apply.object.0.clone(), now.to_string()));
        stored
    }

    fn store(&mut self, id: &ObjectId, mut stored: Stored) -> Value {
        let spec_changed = self
            .objects
            .get(id)
            .is_none_or(|old| old.value.get("spec") != stored.value.get("spec"));
        self.version += 1;
        self.writes += 1;
        let managed: Vec<Value> = stored
            .managers
            .iter()
            .map(|((manager, operation), (config, time))| {
                json!({ "manager": manager, "operation": operation, "time": time, "fieldsV1": list_fields(config) })
            })
            .collect();
        let metadata = stored.value["metadata"].as_object_mut().unwrap();
        metadata.insert("managedFields".to_owned(), Value::Array(managed));
        metadata.insert("resourceVersion".to_owned(), json!(self.version.to_string()));
        if spec_changed {
            let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0) + 1;
            metadata.insert("generation".to_owned(), json!(generation));
        }
        self.objects.insert(id.clone(), stored.clone());
        stored.value
    }
}

fn has_names(list: &[Value]) -> bool {
    !list.is_empty() && list.iter().all(|item| item.get("name").is_some())
}

fn merge_values(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge_values(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) if has_names(into) && has_names(from) => {
            for item in from {
                match into.iter_mut().find(|old| old["name"] == item["name"]) {
                    Some(old) => merge_values(old, item),
                    None => into.push(item.clone()),
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn merge_patch(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge_patch(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(into), Value::Array(patch)) if has_names(into) && has_names(patch) => {
            merge_values(&mut Value::Array(into.clone()), &Value::Array(patch.clone()));
            let mut merged = Value::Array(std::mem::take(into));
            merge_values(&mut merged, &Value::Array(patch.clone()));
            *into = merged.as_array().unwrap().clone();
        }
        (into, patch) => *into = patch.clone(),
    }
}

/// Removes the fields that this manager had applied and no longer applies, unless another manager has them too.
fn remove_dropped(value: &mut Value, before: &Value, after: &Value, others: &[&Value]) {
    let (Value::Object(value), Value::Object(before)) = (value, before) else {
        return;
    };
    for (key, old) in before {
        let others: Vec<&Value> = others.iter().filter_map(|other| other.get(key)).collect();
        match after.get(key) {
            None if others.is_empty() => {
                value.remove(key);
            }
            None => {}
            Some(new) => {
                if let Some(value) = value.get_mut(key) {
                    remove_dropped(value, old, new, &others);
                }
            }
        }
    }
}

fn list_fields(config: &Value) -> Value {
    match config {
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, value)| (format!("f:{key}"), list_fields(value)))
                .collect(),
        ),
        Value::Array(items) if has_names(items) => {
            let entries: Map<String, Value> = items
                .iter()
                .map(|item| (format!("k:{}", json!({ "name": item["name"] })), list_fields(item)))
                .collect();
            Value::Object(entries)
        }
        _ => json!({}),
    }
}

/// An object as a build gives it.
pub(crate) fn make_rendered(object: &Value, index: usize, target_namespace: Option<&str>) -> RenderedObject {
    let mut object = object.clone();
    let cluster = CLUSTER_KINDS.contains(&object["kind"].as_str().unwrap_or_default());
    if let Some(namespace) = target_namespace.filter(|_| !cluster) {
        object["metadata"]["namespace"] = json!(namespace);
    }
    RenderedObject {
        confidential: false,
        object: Object(object),
        origin: Origin {
            path: "app.yaml".to_owned(),
            line: u32::try_from(index * 10 + 1).unwrap(),
        },
    }
}
