//! Writes to a reconciled object itself: its finalizer, its status, events about it; always as the controller.
//! Refuses to write what is there already.

use serde_json::{Map, Value, json};
use tenure_api::metadata::{KUSTOMIZE_CONTROLLER_STATUS, SOURCE_CONTROLLER_STATUS, TENURE_CONTROLLER};
use tenure_cluster::{ClusterError, EventKind, ObjectEvent, Resource};
use tenure_planner::{Event, FinalizerChange};

use crate::key::{Key, OwnKind};
use crate::world::World;

/// How often a finalizer is tried again when the object changed meanwhile.
const ATTEMPTS: u32 = 4;

/// A reconciled object as it was when its plan was made.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) finalizers: Vec<String>,
    pub(crate) status: Value,
}

impl Own {
    pub(crate) fn new(key: &Key, metadata: &tenure_api::ObjectMeta, status: Value) -> Self {
        Self {
            key: key.clone(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            status,
        }
    }

    fn target(&self) -> (&str, &str) {
        (&self.key.namespace, &self.key.name)
    }

    fn manager(&self) -> &'static str {
        match self.key.kind {
            OwnKind::GitRepository => SOURCE_CONTROLLER_STATUS,
            OwnKind::Kustomization => KUSTOMIZE_CONTROLLER_STATUS,
            OwnKind::Surface | OwnKind::Tenant => TENURE_CONTROLLER,
        }
    }

    async fn resource(&self, world: &World) -> Result<Resource, ClusterError> {
        world
            .controller
            .resource(self.key.kind.api_version(), self.key.kind.kind())
            .await
    }

    /// Adds or removes a finalizer. That the object is gone is no error.
    pub(crate) async fn change_finalizer(&self, world: &World, change: &FinalizerChange) -> Result<(), ClusterError> {
        let resource = self.resource(world).await?;
        let (mut version, mut finalizers) = (self.resource_version.clone(), self.finalizers.clone());
        for attempt in 1.. {
            let mut wanted = finalizers.clone();
            match change {
                FinalizerChange::Add(name) if !wanted.contains(name) => wanted.push(name.clone()),
                FinalizerChange::Add(_) => return Ok(()),
                FinalizerChange::Remove(name) => wanted.retain(|finalizer| finalizer != name),
            }
            if wanted == finalizers {
                return Ok(());
            }
            // With the resourceVersion, or a finalizer that somebody else added meanwhile would be lost.
            let patch = json!({ "metadata": { "uid": self.uid, "resourceVersion": version, "finalizers": wanted } });
            let patched = world
                .controller
                .merge_patch(&resource, self.target(), None, self.manager(), &patch)
                .await;
            match patched {
                Ok(applied) => {
                    world.written(self.key.kind, applied.object);
                    return Ok(());
                }
                Err(error) if error.absent() => return Ok(()),
                Err(ClusterError::Conflict { .. }) if attempt < ATTEMPTS => {
                    let (namespace, name) = self.target();
                    let Some(fresh) = world.controller.find(&resource, namespace, name).await? else {
                        return Ok(());
                    };
                    if fresh.pointer("/metadata/uid").and_then(Value::as_str) != Some(self.uid.as_str()) {
                        return Ok(());
                    }
                    let text = fresh.pointer("/metadata/resourceVersion").and_then(Value::as_str);
                    version = text.unwrap_or_default().to_owned();
                    finalizers = strings(fresh.pointer("/metadata/finalizers"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the status: only what differs, and nothing when nothing does. That the object is gone is no error.
    pub(crate) async fn write_status(&self, world: &World, status: &Value) -> Result<(), ClusterError> {
        let Some(difference) = difference(&self.status, status) else {
            return Ok(());
        };
        let resource = self.resource(world).await?;
        let patch = json!({ "metadata": { "uid": self.uid }, "status": difference });
        let target = self.target();
        match world
            .controller
            .merge_patch(&resource, target, Some("status"), self.manager(), &patch)
            .await
        {
            Ok(applied) => {
                world.written(self.key.kind, applied.object);
                Ok(())
            }
            // The uid did not match: a namesake was made meanwhile, whose status this is not.
            Err(ClusterError::Conflict { .. }) => Ok(()),
            Err(error) if error.absent() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes events about the object.
    pub(crate) async fn write_events(&self, world: &World, events: &[Event]) {
        let object = json!({
            "apiVersion": self.key.kind.api_version(),
            "kind": self.key.kind.kind(),
            "metadata": {
                "namespace": self.key.namespace,
                "name": self.key.name,
                "uid": self.uid,
                "resourceVersion": self.resource_version,
            }
        });
        for event in events {
            let event = ObjectEvent {
                kind: match event.kind {
                    tenure_planner::EventKind::Normal => EventKind::Normal,
                    tenure_planner::EventKind::Warning => EventKind::Warning,
                },
                reason: event.reason.clone(),
                message: event.message.clone(),
                annotations: event.annotations.clone(),
            };
            world.events(self.key.kind).record(&object, &event).await;
        }
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The JSON merge patch (RFC 7386) that turns one value into another; nothing when they are equal. Lists are replaced whole.
pub(crate) fn difference(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Some(from), Some(to)) = (old.as_object(), new.as_object()) else {
        return Some(new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in to {
        if let Some(change) = difference(from.get(key).unwrap_or(&Value::Null), value) {
            patch.insert(key.clone(), change);
        }
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::difference;

    #[test]
    fn a_difference_is_a_merge_patch() {
        let check = |old: Value, new: Value, expected: Option<Value>| {
            assert_eq!(difference(&old, &new), expected, "{old} to {new}");
        };
        check(json!({ "a": 1 }), json!({ "a": 1 }), None);
        check(json!(null), json!({ "a": 1 }), Some(json!({ "a": 1 })));
        check(json!({ "a": 1, "b": 2 }), json!({ "a": 1 }), Some(json!({ "b": null })));
        check(json!({ "a": [1, 2] }), json!({ "a": [1] }), Some(json!({ "a": [1] })));
        check(
            json!({ "a": { "b": 1, "c": 2 } }),
            json!({ "a": { "b": 1, "c": 3 } }),
            Some(json!({ "a": { "c": 3 } })),
        );
    }
}
