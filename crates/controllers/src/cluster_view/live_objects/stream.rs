//! One stream: the objects of a kind in a namespace, as its watch and the answers to requests reported them, and the interested reconcilers. A stream
//! never goes back: older state does not replace newer state, from any source.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tenure_api::metadata::OWNER_NAME;
use tenure_api::{ObjectId, ObjectView};
use tenure_cluster::{RawObject, WatchEvent, WatchKey};
use tenure_planner::answer::Reason;
use tenure_planner::{Failure, Live, Object};
use tenure_sources::{ByteBudget, HeldBytes};

use crate::cluster_view::cache::parse_revision;
use crate::cluster_view::key::Key;
use crate::cluster_view::mailbox::MailboxTable;

/// The known objects of one watch, by name, and the reconcilers that are interested in each.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) synced: bool,
    /// Everything up to this revision has been delivered.
    pub(super) revision: u64,
    pub(super) objects: HashMap<String, Entry>,
    pub(super) interested: HashMap<String, HashSet<Key>>,
    /// The memory budget for stored objects, if they are of another cluster.
    kept: Option<Arc<RemoteObjectBudget>>,
}

/// The memory budget for objects of other clusters, and the lane that is charged.
#[derive(Debug)]
pub(crate) struct RemoteObjectBudget {
    pub(crate) budget: ByteBudget,
    pub(crate) lane: String,
}

/// The known state of one object, and its revision.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) revision: u64,
    /// The known state of the object.
    pub(super) state: State,
    /// Whether the watch itself reported this state. If not, it comes from an answer to a request.
    pub(super) is_from_watch: bool,
}

/// The known state of an object.
#[derive(Debug)]
pub(super) enum State {
    Present(
        Arc<[u8]>,
        #[expect(dead_code, reason = "it is dropped")] Option<HeldBytes>,
    ),
    Absent,
    /// The object exists, but there was no memory for it: it has to be read.
    Unkept,
}

impl State {
    /// Stores an object if memory for it is available.
    fn store_json(json: Arc<[u8]>, room: Option<&RemoteObjectBudget>) -> Self {
        let held = room.map(|room| room.budget.try_acquire(&room.lane, json.len() as u64));
        match held.transpose() {
            Ok(held) => Self::Present(json, held),
            Err(_) => Self::Unkept,
        }
    }
}

impl Entry {
    /// Checks whether the content of the object is known.
    pub(super) fn is_kept(&self) -> bool {
        !matches!(self.state, State::Unkept)
    }

    pub(super) fn observed_state(&self) -> ObservedState {
        match &self.state {
            State::Present(json, _) => ObservedState::Object(Arc::clone(json)),
            State::Absent | State::Unkept => ObservedState::Objectless(Live::Absent),
        }
    }
}

/// The known state of an object that no reconciler uses at the moment. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum ObservedState {
    /// The object exists, with this text.
    Object(Arc<[u8]>),
    /// The object is absent or unknown; never [`Live::Present`].
    Objectless(Live),
}

impl ObservedState {
    /// Stores the state of an object from an answer.
    pub(crate) fn from_answer(live: Live) -> Self {
        match live.object() {
            Some(object) => Self::Object(write_json(object)),
            None => Self::Objectless(live),
        }
    }

    /// Returns the parsed object, or why it is missing.
    pub(crate) fn read(&self) -> Live {
        match self {
            Self::Object(json) => match serde_json::from_slice(json) {
                Ok(object) => Live::Present(Object(object)),
                Err(error) => Live::Failed(Failure {
                    reason: Reason::BadAnswer,
                    message: error.to_string(),
                    ..Failure::default()
                }),
            },
            Self::Objectless(live) => live.clone(),
        }
    }

    /// Returns the size of the text in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Object(json) => json.len(),
            Self::Objectless(_) => 0,
        }
    }

    /// Checks whether both are the same to the last byte.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Object(one), Self::Object(other)) => Arc::ptr_eq(one, other) || one == other,
            (Self::Objectless(one), Self::Objectless(other)) => one == other,
            _ => false,
        }
    }
}

impl Stream {
    /// Creates a stream that knows no object.
    pub(super) fn new(kept: Option<Arc<RemoteObjectBudget>>) -> Self {
        Self {
            kept,
            ..Self::default()
        }
    }

    /// Checks whether no state of this revision or newer is known of an object.
    fn is_news(&self, name: &str, revision: u64) -> bool {
        self.objects.get(name).is_none_or(|entry| entry.revision < revision)
    }

    /// Stores the state of an object from an answer to a request by `by`. Returns the other reconcilers to notify.
    pub(super) fn record_answer(&mut self, name: &str, revision: u64, json: Arc<[u8]>, by: &Key) -> Vec<Key> {
        if !self.is_news(name, revision) {
            return Vec::new();
        }
        let entry = Entry {
            revision,
            state: State::store_json(json, self.kept.as_deref()),
            is_from_watch: false,
        };
        self.objects.insert(name.to_owned(), entry);
        let interested = self.interested.get(name).into_iter().flatten();
        interested.filter(|key| *key != by).cloned().collect()
    }

    /// Stores the state of an object from the watch. Returns the reconcilers to notify. A state of the same revision is confirmed, and a newer state
    /// stays.
    fn record_event(&mut self, name: &str, revision: u64, json: Option<Arc<[u8]>>, keep: bool) -> Vec<Key> {
        self.revision = self.revision.max(revision);
        if let Some(entry) = self.objects.get_mut(name)
            && entry.revision >= revision
        {
            entry.is_from_watch |= entry.revision == revision;
            return Vec::new();
        }
        if keep {
            let entry = Entry {
                revision,
                state: json.map_or(State::Absent, |json| State::store_json(json, self.kept.as_deref())),
                is_from_watch: true,
            };
            self.objects.insert(name.to_owned(), entry);
        } else {
            self.objects.remove(name);
        }
        self.interested.get(name).into_iter().flatten().cloned().collect()
    }

    /// Marks everything up to a revision as delivered. A requested object that was not reported is absent, and so is an older object known only from
    /// an answer. Returns the reconcilers to notify, each with its object.
    fn mark_delivered(&mut self, revision: u64) -> Vec<(Key, String)> {
        self.revision = self.revision.max(revision);
        self.synced = true;
        let Self {
            objects, interested, ..
        } = self;
        let unknown = interested.keys().filter(|name| !objects.contains_key(*name));
        let vanished = objects
            .iter()
            .filter(|(_, entry)| !entry.is_from_watch && entry.revision <= revision)
            .map(|(name, _)| name);
        let absent: Vec<String> = unknown.chain(vanished).cloned().collect();
        let mut news = Vec::new();
        for name in absent {
            news.extend(
                interested
                    .get(&name)
                    .into_iter()
                    .flatten()
                    .map(|key| (key.clone(), name.clone())),
            );
            let entry = Entry {
                revision,
                state: State::Absent,
                is_from_watch: true,
            };
            objects.insert(name, entry);
        }
        news
    }
}

/// Stores a watch event in its stream, and notifies the interested reconcilers.
pub(super) fn store_event(stream: &Mutex<Stream>, key: &WatchKey, event: WatchEvent, mailboxes: &MailboxTable) {
    let id = |name: String| ObjectId {
        namespace: key.namespace.clone().unwrap_or_default(),
        name,
        group: key.resource.group.clone(),
        kind: key.resource.kind.clone(),
    };
    let notify = |keys: Vec<Key>, name: String| {
        let id = id(name);
        for key in keys {
            mailboxes.object_changed(&key, &id);
        }
    };
    match event {
        WatchEvent::Changed(RawObject {
            name,
            revision,
            labels,
            text,
            ..
        }) => {
            let keys = {
                let mut stream = lock(stream);
                let is_labelled = stream.kept.is_none() && labels.contains_key(OWNER_NAME);
                let keep = is_labelled || stream.interested.contains_key(&name);
                stream.record_event(&name, parse_revision(&revision), keep.then_some(text), keep)
            };
            notify(keys, name);
        }
        WatchEvent::Deleted { name, revision, .. } => {
            let keys = {
                let mut stream = lock(stream);
                let keep = stream.interested.contains_key(&name);
                stream.record_event(&name, parse_revision(&revision), None, keep)
            };
            notify(keys, name);
        }
        WatchEvent::Synced { revision } => {
            let news = lock(stream).mark_delivered(parse_revision(&revision));
            for (key, name) in news {
                notify(vec![key], name);
            }
        }
        WatchEvent::Listing => {}
        WatchEvent::Resumed => lock(stream).synced = true,
        WatchEvent::Progress { revision } => {
            let mut stream = lock(stream);
            stream.revision = stream.revision.max(parse_revision(&revision));
        }
        WatchEvent::Failed(error) => {
            tracing::debug!(%error, account = %key.account, resource = %key.resource.plural, "a watch broke");
            lock(stream).synced = false;
        }
    }
}

fn write_json(object: &Value) -> Arc<[u8]> {
    object.to_string().into_bytes().into()
}

/// Returns the revision of an object.
pub(crate) fn read_revision(object: &Value) -> u64 {
    parse_revision(ObjectView::new(object).read_text("/metadata/resourceVersion"))
}

pub(super) fn lock(stream: &Mutex<Stream>) -> std::sync::MutexGuard<'_, Stream> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
