//! The applied objects as watches see them, and who wants to hear of which.
//!
//! Each Kustomization watches as its own identity; the objects of one watch are never offered to another identity. Kept as JSON text,
//! an eighth of the size of a parsed tree, and only for objects that somebody watches or that carry an owner label.
//! Refuses to answer when it does not know: an object that no synced watch has told of is not absent, it has to be read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tenure_api::ObjectId;
use tenure_api::metadata::OWNER_NAME;
use tenure_cluster::{Clients, Identity, Signal, WatchEvent, WatchKey, Watches};
use tenure_planner::plan::Watched;
use tenure_planner::{Live, Object};

use crate::cache::number;
use crate::key::Key;
use crate::mailbox::Mailboxes;

/// The applied objects as watches see them.
#[derive(Debug)]
pub(crate) struct LiveObjects {
    state: Arc<Mutex<State>>,
    watches: Watches,
}

#[derive(Debug, Default)]
struct State {
    streams: HashMap<WatchKey, Stream>,
    /// What each reconciler watches, and by which stream.
    held: HashMap<Key, BTreeMap<ObjectId, WatchKey>>,
}

#[derive(Debug, Default)]
struct Stream {
    synced: bool,
    /// Everything up to this revision has been delivered.
    revision: u64,
    objects: HashMap<String, Entry>,
    interested: HashMap<String, HashSet<Key>>,
}

#[derive(Debug)]
struct Entry {
    revision: u64,
    /// Nothing when the object is known to be absent.
    json: Option<Box<[u8]>>,
}

impl LiveObjects {
    pub(crate) fn new(clients: Clients, mailboxes: Arc<Mailboxes>) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let sink = {
            let state = Arc::clone(&state);
            move |signal: Signal| {
                let told = lock(&state).signal(signal);
                for (key, id) in told {
                    mailboxes.object_changed(&key, &id);
                }
            }
        };
        Self {
            state,
            watches: Watches::new(clients, sink),
        }
    }

    /// Sets what a reconciler watches, as whom. Kinds that the cluster does not serve are left out.
    pub(crate) async fn hold(&self, key: &Key, clients: &Clients, identity: &Identity, watched: &[Watched]) {
        if self.holds_exactly(key, identity, watched) {
            return;
        }
        let controller = clients.controller();
        let mut wanted = BTreeMap::new();
        for watched in watched {
            let Ok(resource) = controller.resource(&watched.api_version(), &watched.id.kind).await else {
                continue;
            };
            if !resource.watchable {
                continue;
            }
            let namespace = resource.scope(&watched.id.namespace).map(str::to_owned);
            let watch = WatchKey {
                identity: identity.clone(),
                resource,
                namespace,
                labels: None,
            };
            wanted.insert(watched.id.clone(), watch);
        }
        let watches: HashSet<WatchKey> = wanted.values().cloned().collect();
        lock(&self.state).hold(key, wanted);
        // The streams exist before the watches that feed them.
        self.watches.hold(&key.to_string(), watches);
        lock(&self.state).drop_unused();
    }

    /// Watches nothing any more for a reconciler.
    pub(crate) fn release(&self, key: &Key) {
        lock(&self.state).hold(key, BTreeMap::new());
        self.watches.hold(&key.to_string(), HashSet::new());
        lock(&self.state).drop_unused();
    }

    fn holds_exactly(&self, key: &Key, identity: &Identity, watched: &[Watched]) -> bool {
        let state = lock(&self.state);
        let held = state.held.get(key);
        let count = held.map_or(0, BTreeMap::len);
        count == watched.len()
            && watched.iter().all(|watched| {
                held.and_then(|held| held.get(&watched.id))
                    .is_some_and(|watch| watch.identity == *identity && watch.resource.version == watched.version)
            })
    }

    /// What is known of an object that a reconciler watches, unless `than` is a revision that the watch has not reached yet: then
    /// an answer of that revision is newer.
    pub(crate) fn newer(&self, key: &Key, id: &ObjectId, than: Option<u64>) -> Option<Live> {
        let json = {
            let state = lock(&self.state);
            let watch = state.held.get(key)?.get(id)?;
            let stream = state.streams.get(watch).filter(|stream| stream.synced)?;
            let entry = stream.objects.get(&id.name)?;
            if than.is_some_and(|than| stream.revision.max(entry.revision) < than) {
                return None;
            }
            entry.json.clone()
        };
        match json {
            None => Some(Live::Absent),
            Some(json) => serde_json::from_slice(&json)
                .ok()
                .map(|object| Live::Present(Object(object))),
        }
    }

    /// The ids that a reconciler watches.
    pub(crate) fn watched(&self, key: &Key) -> Vec<ObjectId> {
        lock(&self.state)
            .held
            .get(key)
            .map(|held| held.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Whether every watch of a reconciler works: if not, changes have to be looked for.
    pub(crate) fn all_synced(&self, key: &Key) -> bool {
        let state = lock(&self.state);
        state.held.get(key).is_none_or(|held| {
            held.values()
                .all(|watch| state.streams.get(watch).is_some_and(|stream| stream.synced))
        })
    }

    /// Takes over an object that was read or written by a reconciler, for objects that its watch tells of only when they change.
    pub(crate) fn seed(&self, key: &Key, id: &ObjectId, object: &Value) {
        let mut state = lock(&self.state);
        let Some(watch) = state.held.get(key).and_then(|held| held.get(id)).cloned() else {
            return;
        };
        let Some(stream) = state.streams.get_mut(&watch) else {
            return;
        };
        let revision = revision_of(object);
        let newer = stream
            .objects
            .get(&id.name)
            .is_none_or(|entry| entry.revision < revision);
        if newer {
            let json = object.to_string().into_bytes().into_boxed_slice();
            stream.objects.insert(
                id.name.clone(),
                Entry {
                    revision,
                    json: Some(json),
                },
            );
        }
    }
}

impl State {
    fn hold(&mut self, key: &Key, wanted: BTreeMap<ObjectId, WatchKey>) {
        for (id, watch) in self.held.remove(key).unwrap_or_default() {
            if let Some(stream) = self.streams.get_mut(&watch)
                && let Some(keys) = stream.interested.get_mut(&id.name)
            {
                keys.remove(key);
                if keys.is_empty() {
                    stream.interested.remove(&id.name);
                }
            }
        }
        for (id, watch) in &wanted {
            let stream = self.streams.entry(watch.clone()).or_default();
            stream
                .interested
                .entry(id.name.clone())
                .or_default()
                .insert(key.clone());
        }
        if !wanted.is_empty() {
            self.held.insert(key.clone(), wanted);
        }
    }

    fn drop_unused(&mut self) {
        self.streams.retain(|_, stream| !stream.interested.is_empty());
    }

    /// Takes what a watch saw; answers who has to be told of which object.
    fn signal(&mut self, signal: Signal) -> Vec<(Key, ObjectId)> {
        let Some(stream) = self.streams.get_mut(signal.key.as_ref()) else {
            return Vec::new();
        };
        let resource = &signal.key.resource;
        let id = |namespace: &str, name: &str| ObjectId {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            group: resource.group.clone(),
            kind: resource.kind.clone(),
        };
        let namespace = signal.key.namespace.clone().unwrap_or_default();
        match signal.event {
            WatchEvent::Changed(object) => {
                let revision = revision_of(&object);
                stream.revision = stream.revision.max(revision);
                let name = object
                    .pointer("/metadata/name")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned();
                let owned = object
                    .pointer("/metadata/labels")
                    .and_then(|labels| labels.get(OWNER_NAME))
                    .is_some();
                let interested = stream.interested.get(&name);
                if !owned && interested.is_none() {
                    stream.objects.remove(&name);
                    return Vec::new();
                }
                let told = tell(interested, &id(&namespace, &name));
                let json = Some(object.to_string().into_bytes().into_boxed_slice());
                stream.objects.insert(name, Entry { revision, json });
                told
            }
            WatchEvent::Deleted { name, revision, .. } => {
                let revision = number(&revision);
                stream.revision = stream.revision.max(revision);
                let interested = stream.interested.get(&name);
                let told = tell(interested, &id(&namespace, &name));
                if interested.is_some() {
                    stream.objects.insert(name, Entry { revision, json: None });
                } else {
                    stream.objects.remove(&name);
                }
                told
            }
            WatchEvent::Synced { revision } => {
                let revision = number(&revision);
                stream.revision = stream.revision.max(revision);
                stream.synced = true;
                let mut told = Vec::new();
                // What was asked for and not listed is absent.
                for (name, keys) in &stream.interested {
                    if !stream.objects.contains_key(name) {
                        stream.objects.insert(name.clone(), Entry { revision, json: None });
                        told.extend(tell(Some(keys), &id(&namespace, name)));
                    }
                }
                told
            }
            WatchEvent::Resumed => {
                stream.synced = true;
                Vec::new()
            }
            WatchEvent::Progress { revision } => {
                stream.revision = stream.revision.max(number(&revision));
                Vec::new()
            }
            WatchEvent::Failed(error) => {
                tracing::debug!(%error, identity = %signal.key.identity, resource = %resource.plural, "a watch broke");
                stream.synced = false;
                Vec::new()
            }
        }
    }
}

fn tell(interested: Option<&HashSet<Key>>, id: &ObjectId) -> Vec<(Key, ObjectId)> {
    interested
        .into_iter()
        .flatten()
        .map(|key| (key.clone(), id.clone()))
        .collect()
}

/// The revision of an object.
pub(crate) fn revision_of(object: &Value) -> u64 {
    number(
        object
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .unwrap_or_default(),
    )
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
