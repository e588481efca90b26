//! One stream: what its watch, and the answers to requests, told of the objects of a kind in a namespace, and who wants to hear of them.
//! Refuses to go back: what is older never replaces what is newer, whoever tells of it.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tenure_api::metadata::OWNER_NAME;
use tenure_api::{ObjectId, ObjectView};
use tenure_cluster::{Seen, WatchEvent, WatchKey};
use tenure_planner::answer::Reason;
use tenure_planner::{Failure, Live, Object};
use tenure_sources::{ByteBudget, Held};

use crate::cache::parse_revision;
use crate::key::Key;
use crate::mailbox::MailboxTable;

#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) synced: bool,
    /// Everything up to this revision has been delivered.
    pub(super) revision: u64,
    pub(super) objects: HashMap<String, Entry>,
    pub(super) interested: HashMap<String, HashSet<Key>>,
    /// Where objects of another cluster take room.
    kept: Option<Arc<KeptRoom>>,
    others: Others,
}

/// The objects that the watch has told of and that are not kept: enough to know that there is none of a name. Eight bytes each, and a little more.
#[derive(Debug, Default)]
struct Others {
    /// Whether they are all there are, once everything was told. What is listed anew tells what has changed and what is gone.
    complete: bool,
    names: HashSet<u64>,
    /// With a key of its own, so that nobody can choose names that are taken for each other.
    hasher: RandomState,
}

impl Others {
    fn note(&mut self, name: &str, is_there: bool) {
        let name = self.hasher.hash_one(name);
        if is_there {
            self.names.insert(name);
        } else {
            self.names.remove(&name);
        }
    }

    fn lack(&self, name: &str) -> bool {
        self.complete && !self.names.contains(&self.hasher.hash_one(name))
    }
}

/// The room for objects of another cluster, and whose it is.
#[derive(Debug)]
pub(crate) struct KeptRoom {
    pub(crate) budget: ByteBudget,
    pub(crate) lane: String,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) revision: u64,
    /// What is known of it.
    pub(super) state: State,
    /// Whether the watch itself told of this state; if not, it comes from an answer to a request.
    pub(super) told: bool,
}

/// What is known of an object.
#[derive(Debug)]
pub(super) enum State {
    Present(Arc<[u8]>, #[expect(dead_code, reason = "it is dropped")] Option<Held>),
    Absent,
    /// It is there, and there was no room for it: it has to be read.
    Unkept,
}

impl State {
    /// Keeps an object if there is room for it.
    fn keep(json: Arc<[u8]>, room: Option<&KeptRoom>) -> Self {
        let held = room.map(|room| room.budget.try_acquire(&room.lane, json.len() as u64));
        match held.transpose() {
            Ok(held) => Self::Present(json, held),
            Err(_) => Self::Unkept,
        }
    }
}

impl Entry {
    /// Whether it says what the object is.
    pub(super) fn is_kept(&self) -> bool {
        !matches!(self.state, State::Unkept)
    }

    pub(super) fn known(&self) -> Known {
        match &self.state {
            State::Present(json, _) => Known::Object(Arc::clone(json)),
            State::Absent | State::Unkept => Known::Told(Live::Absent),
        }
    }
}

/// What is known of an object while nobody looks at it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// It is there, as this text.
    Object(Arc<[u8]>),
    /// It is not there, or nothing is known of it; never [`Live::Present`].
    Told(Live),
}

impl Known {
    /// Keeps what an answer told of an object.
    pub(crate) fn keep(live: Live) -> Self {
        match live.object() {
            Some(object) => Self::Object(write_json(object)),
            None => Self::Told(live),
        }
    }

    /// The object parsed, or why there is none.
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
            Self::Told(live) => live.clone(),
        }
    }

    /// How long its text is, in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Object(json) => json.len(),
            Self::Told(_) => 0,
        }
    }

    /// Whether it is the same to the last byte.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Object(one), Self::Object(other)) => Arc::ptr_eq(one, other) || one == other,
            (Self::Told(one), Self::Told(other)) => one == other,
            _ => false,
        }
    }
}

impl Stream {
    /// One that knows of nothing.
    pub(super) fn new(kept: Option<Arc<KeptRoom>>) -> Self {
        Self {
            kept,
            ..Self::default()
        }
    }

    /// Whether nothing as new as this revision is known of an object.
    fn is_news(&self, name: &str, revision: u64) -> bool {
        self.objects.get(name).is_none_or(|entry| entry.revision < revision)
    }

    /// The watch told of an object that is there and not kept, or of one that is neither. What another cluster has of names is bounded by nobody here.
    fn note_other(&mut self, name: &str, is_there: bool) {
        if self.kept.is_none() {
            self.others.note(name, is_there);
        }
    }

    /// Somebody wants to hear of an object. That it is not there is known already, if everything was told and it was not.
    pub(super) fn begin_interest(&mut self, name: &str, key: &Key) {
        self.interested.entry(name.to_owned()).or_default().insert(key.clone());
        if self.synced && !self.objects.contains_key(name) && self.others.lack(name) {
            let entry = Entry {
                revision: self.revision,
                state: State::Absent,
                told: true,
            };
            self.objects.insert(name.to_owned(), entry);
        }
    }

    /// Takes a state of an object that an answer to one of them told of; answers who else has to be told.
    pub(super) fn answered(&mut self, name: &str, revision: u64, json: Arc<[u8]>, by: &Key) -> Vec<Key> {
        if !self.is_news(name, revision) {
            return Vec::new();
        }
        let entry = Entry {
            revision,
            state: State::keep(json, self.kept.as_deref()),
            told: false,
        };
        self.objects.insert(name.to_owned(), entry);
        let interested = self.interested.get(name).into_iter().flatten();
        interested.filter(|key| *key != by).cloned().collect()
    }

    /// Takes a state of an object of which the watch told; answers who has to be told. What is as new is confirmed, what is newer stays.
    fn told(&mut self, name: &str, revision: u64, json: Option<Arc<[u8]>>, keep: bool) -> Vec<Key> {
        self.revision = self.revision.max(revision);
        if let Some(entry) = self.objects.get_mut(name)
            && entry.revision >= revision
        {
            entry.told |= entry.revision == revision;
            return Vec::new();
        }
        if keep {
            let entry = Entry {
                revision,
                state: json.map_or(State::Absent, |json| State::keep(json, self.kept.as_deref())),
                told: true,
            };
            self.objects.insert(name.to_owned(), entry);
        } else {
            self.objects.remove(name);
        }
        self.interested.get(name).into_iter().flatten().cloned().collect()
    }

    /// Takes that everything up to a revision was told: what was asked for and not told of is absent, and so is what only an answer told
    /// of that is older. Answers who has to be told of which object.
    fn synced(&mut self, revision: u64) -> Vec<(Key, String)> {
        self.revision = self.revision.max(revision);
        self.synced = true;
        self.others.complete = self.kept.is_none();
        let Self {
            objects, interested, ..
        } = self;
        let unknown = interested.keys().filter(|name| !objects.contains_key(*name));
        let vanished = objects
            .iter()
            .filter(|(_, entry)| !entry.told && entry.revision <= revision)
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
                told: true,
            };
            objects.insert(name, entry);
        }
        news
    }
}

/// Takes what a watch saw into its stream, and tells those who are interested.
pub(super) fn feed(stream: &Mutex<Stream>, key: &WatchKey, event: WatchEvent, mailboxes: &MailboxTable) {
    let id = |name: String| ObjectId {
        namespace: key.namespace.clone().unwrap_or_default(),
        name,
        group: key.resource.group.clone(),
        kind: key.resource.kind.clone(),
    };
    let tell = |keys: Vec<Key>, name: String| {
        let id = id(name);
        for key in keys {
            mailboxes.object_changed(&key, &id);
        }
    };
    match event {
        WatchEvent::Changed(Seen {
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
                stream.note_other(&name, !keep);
                stream.told(&name, parse_revision(&revision), keep.then_some(text), keep)
            };
            tell(keys, name);
        }
        WatchEvent::Deleted { name, revision, .. } => {
            let keys = {
                let mut stream = lock(stream);
                let keep = stream.interested.contains_key(&name);
                stream.note_other(&name, false);
                stream.told(&name, parse_revision(&revision), None, keep)
            };
            tell(keys, name);
        }
        WatchEvent::Synced { revision } => {
            let news = lock(stream).synced(parse_revision(&revision));
            for (key, name) in news {
                tell(vec![key], name);
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

/// The revision of an object.
pub(crate) fn read_revision(object: &Value) -> u64 {
    parse_revision(ObjectView::of(object).read_text("/metadata/resourceVersion"))
}

pub(super) fn lock(stream: &Mutex<Stream>) -> std::sync::MutexGuard<'_, Stream> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use tenure_cluster::{ClusterError, Resource, ServiceAccount};

    use super::*;
    use crate::mailbox::Mailbox;
    use crate::reconciled::Reconciled as _;

    /// A stream of ConfigMaps, and a reconciler that is interested in one named `a`.
    struct Stage {
        stream: Mutex<Stream>,
        mailboxes: MailboxTable,
        mailbox: Arc<Mailbox>,
        watch: WatchKey,
    }

    impl Stage {
        fn set() -> Self {
            let key = Key::new(tenure_api::Kustomization::KIND, "team", "apps");
            let mut stream = Stream::default();
            stream.interested.insert("a".to_owned(), HashSet::from([key.clone()]));
            let mailboxes = MailboxTable::default();
            let (mailbox, _) = mailboxes.get_or_add(&key);
            Self {
                stream: Mutex::new(stream),
                mailboxes,
                mailbox,
                watch: WatchKey {
                    account: account(),
                    lane: lane(),
                    resource: Resource {
                        group: String::new(),
                        version: "v1".to_owned(),
                        kind: "ConfigMap".to_owned(),
                        plural: "configmaps".to_owned(),
                        namespaced: true,
                        watchable: true,
                    },
                    namespace: Some("team".to_owned()),
                    labels: None,
                },
            }
        }

        fn feed(&self, event: WatchEvent) {
            feed(&self.stream, &self.watch, event, &self.mailboxes);
        }

        fn changed(&self, revision: u64, value: &str) {
            self.feed(WatchEvent::Changed(Seen {
                namespace: "team".to_owned(),
                name: "a".to_owned(),
                revision: revision.to_string(),
                labels: BTreeMap::new(),
                text: write_json(&json!({ "value": value })),
            }));
        }

        fn deleted(&self, revision: u64) {
            self.feed(WatchEvent::Deleted {
                namespace: "team".to_owned(),
                name: "a".to_owned(),
                revision: revision.to_string(),
            });
        }

        fn synced(&self, revision: u64) {
            self.feed(WatchEvent::Synced {
                revision: revision.to_string(),
            });
        }

        /// An answer to a request of the reconciler's own told of it, beside the watch.
        fn answered(&self, revision: u64, value: &str) {
            let own = Key::new(tenure_api::Kustomization::KIND, "team", "apps");
            self.answered_to(&own, revision, value);
        }

        /// An answer to a request told of it.
        fn answered_to(&self, key: &Key, revision: u64, value: &str) {
            let json = write_json(&json!({ "value": value }));
            let others = lock(&self.stream).answered("a", revision, json, key);
            for other in others {
                self.mailboxes.object_changed(&other, &id());
            }
        }

        /// What is known, and whether the reconciler was told of something since this was last called.
        fn check(&self, known: Option<&str>, told: bool) {
            let json = lock(&self.stream).objects.get("a").map(Entry::known);
            let json = json.and_then(|known| match known {
                Known::Object(json) => Some(json),
                Known::Told(_) => None,
            });
            let value = json.map(|json| serde_json::from_slice::<Value>(&json).unwrap()["value"].clone());
            assert_eq!(value, known.map(Value::from));
            assert_eq!(!self.mailbox.take_changed().is_empty(), told);
        }
    }

    fn lane() -> tenure_tenancy::LaneAccount {
        let nobody = tenure_tenancy::Placement::Unclaimed {
            default_service_account: "default".to_owned(),
        };
        tenure_tenancy::identity::decide_for_lane(&nobody, "team")
    }

    fn account() -> ServiceAccount {
        let nobodys = tenure_tenancy::Placement::Unclaimed {
            default_service_account: "default".to_owned(),
        };
        tenure_tenancy::identity::decide_for_source(&nobodys, "team").unwrap()
    }

    fn id() -> ObjectId {
        "team_a__ConfigMap".parse().unwrap()
    }

    fn seen(name: &str, revision: u64) -> WatchEvent {
        WatchEvent::Changed(Seen {
            namespace: "team".to_owned(),
            name: name.to_owned(),
            revision: revision.to_string(),
            labels: BTreeMap::new(),
            text: write_json(&json!({ "value": name })),
        })
    }

    fn is_known_absent(stage: &Stage, name: &str) -> bool {
        let other = Key::new(tenure_api::Kustomization::KIND, "team", "other");
        let mut stream = lock(&stage.stream);
        stream.begin_interest(name, &other);
        let is_absent = stream
            .objects
            .get(name)
            .is_some_and(|entry| matches!(entry.state, State::Absent));
        stream.interested.remove(name);
        stream.objects.retain(|known, _| known != name);
        is_absent
    }

    #[test]
    fn what_a_watch_of_everything_has_not_told_of_is_not_there() {
        let stage = Stage::set();
        stage.feed(WatchEvent::Listing);
        stage.feed(seen("theirs", 3));
        assert!(!is_known_absent(&stage, "new"), "the rest of the list may have it");
        stage.synced(5);
        assert!(is_known_absent(&stage, "new"));
        assert!(!is_known_absent(&stage, "theirs"), "it is there, and isn't kept");
        // What comes and goes meanwhile is known as well.
        stage.feed(seen("new", 6));
        assert!(!is_known_absent(&stage, "new"));
        stage.feed(WatchEvent::Deleted {
            namespace: "team".to_owned(),
            name: "theirs".to_owned(),
            revision: "7".to_owned(),
        });
        assert!(is_known_absent(&stage, "theirs"));
        // A watch that broke knows nothing until it goes on, or everything was listed: what is as it was isn't told again.
        stage.feed(WatchEvent::Failed(ClusterError::Timeout {
            after: std::time::Duration::from_secs(1),
        }));
        assert!(!is_known_absent(&stage, "theirs"));
        stage.feed(WatchEvent::Listing);
        assert!(!is_known_absent(&stage, "theirs"));
        stage.synced(9);
        assert!(is_known_absent(&stage, "theirs"));
        assert!(!is_known_absent(&stage, "new"));
    }

    #[test]
    fn of_another_cluster_names_are_not_kept() {
        let room = tenure_sources::Room {
            what: "objects",
            lane: 1 << 20,
            all: 1 << 20,
            lane_setting: "--lane",
            all_setting: "--all",
        };
        let mut stage = Stage::set();
        let kept = KeptRoom {
            budget: ByteBudget::new(room),
            lane: "green".to_owned(),
        };
        stage.stream = Mutex::new(Stream::new(Some(Arc::new(kept))));
        stage.feed(seen("theirs", 3));
        stage.synced(5);
        assert!(!is_known_absent(&stage, "new"));
        assert!(lock(&stage.stream).others.names.is_empty());
    }

    /// A Kustomization once waited until its timeout for another one to take an object over, which had happened: the other's answer
    /// was known to the stream that both share before the watch told of it.
    #[test]
    fn what_one_is_answered_others_are_told() {
        let stage = Stage::set();
        let other = Key::new(tenure_api::Kustomization::KIND, "team", "other");
        stage.answered_to(&other, 5, "five");
        stage.check(Some("five"), true);
        stage.changed(5, "five");
        stage.check(Some("five"), false);
        // What is no news to the stream is none to anybody, and nobody is told what it was answered itself.
        stage.answered_to(&other, 5, "five");
        stage.check(Some("five"), false);
        stage.answered(6, "six");
        stage.check(Some("six"), false);
    }

    #[test]
    fn a_stream_never_goes_back() {
        let stage = Stage::set();
        stage.changed(5, "five");
        stage.check(Some("five"), true);
        // What was written here is known before the watch tells of it, and of what was before it.
        stage.answered(9, "nine");
        stage.changed(7, "seven");
        stage.check(Some("nine"), false);
        stage.deleted(8);
        stage.check(Some("nine"), false);
        stage.changed(9, "nine");
        stage.check(Some("nine"), false);
        // Listed again, at an older state of a namesake.
        stage.changed(6, "six");
        stage.check(Some("nine"), false);
        stage.deleted(10);
        stage.check(None, true);
        stage.changed(9, "nine");
        stage.check(None, false);
        stage.changed(11, "eleven");
        stage.check(Some("eleven"), true);
    }

    #[test]
    fn what_only_an_answer_told_of_vanishes_with_the_next_list() {
        let stage = Stage::set();
        stage.synced(4);
        stage.check(None, true);
        stage.answered(5, "five");
        // The watch broke; meanwhile it was deleted, and no event will tell.
        stage.synced(6);
        stage.check(None, true);
        // A list from before the answer knows nothing of it.
        stage.answered(9, "nine");
        stage.synced(8);
        stage.check(Some("nine"), false);
        // What the watch has told of itself stays until it tells otherwise.
        stage.changed(9, "nine");
        stage.synced(12);
        stage.check(Some("nine"), false);
    }

    #[test]
    fn a_change_is_known_although_its_stream_breaks() {
        let stage = Stage::set();
        stage.changed(5, "five");
        stage.synced(5);
        stage.check(Some("five"), true);
        stage.changed(6, "six");
        let problem = "cut".to_owned();
        stage.feed(WatchEvent::Failed(ClusterError::Unreachable { problem }));
        assert!(!lock(&stage.stream).synced);
        stage.check(Some("six"), true);
        stage.feed(WatchEvent::Resumed);
        assert!(lock(&stage.stream).synced);
    }
}
