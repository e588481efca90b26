//! Tests what a stream reports after each order of watch events and answers.

use std::collections::BTreeMap;

use serde_json::json;
use tenure_cluster::{ClusterError, Resource, ServiceAccount};

use super::*;
use crate::cluster_view::mailbox::Mailbox;
use crate::reconcile_loop::reconciled::Reconciled as _;

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

    fn send(&self, event: WatchEvent) {
        store_event(&self.stream, &self.watch, event, &self.mailboxes);
    }

    fn send_changed(&self, revision: u64, value: &str) {
        self.send(WatchEvent::Changed(RawObject {
            namespace: "team".to_owned(),
            name: "a".to_owned(),
            revision: revision.to_string(),
            labels: BTreeMap::new(),
            text: write_json(&json!({ "value": value })),
        }));
    }

    fn send_deleted(&self, revision: u64) {
        self.send(WatchEvent::Deleted {
            namespace: "team".to_owned(),
            name: "a".to_owned(),
            revision: revision.to_string(),
        });
    }

    fn send_synced(&self, revision: u64) {
        self.send(WatchEvent::Synced {
            revision: revision.to_string(),
        });
    }

    /// Feeds an answer to the reconciler's own request, besides the watch.
    fn record_answer(&self, revision: u64, value: &str) {
        let own = Key::new(tenure_api::Kustomization::KIND, "team", "apps");
        self.answered_to(&own, revision, value);
    }

    /// Feeds an answer to a request.
    fn answered_to(&self, key: &Key, revision: u64, value: &str) {
        let json = write_json(&json!({ "value": value }));
        let others = lock(&self.stream).record_answer("a", revision, json, key);
        for other in others {
            self.mailboxes.object_changed(&other, &id());
        }
    }

    /// Checks the known state, and whether the reconciler was notified since the previous call.
    fn check(&self, known: Option<&str>, is_notified: bool) {
        let json = lock(&self.stream).objects.get("a").map(Entry::observed_state);
        let json = json.and_then(|known| match known {
            ObservedState::Object(json) => Some(json),
            ObservedState::Objectless(_) => None,
        });
        let value = json.map(|json| serde_json::from_slice::<Value>(&json).unwrap()["value"].clone());
        assert_eq!(value, known.map(Value::from));
        assert_eq!(!self.mailbox.take_changed().is_empty(), is_notified);
    }
}

fn lane() -> tenure_tenancy::LaneAccount {
    let unclaimed = tenure_tenancy::Placement::Unclaimed {
        default_service_account: "default".to_owned(),
        is_protected: false,
    };
    tenure_tenancy::identity::decide_for_lane(&unclaimed, "team")
}

fn account() -> ServiceAccount {
    let nobodys = tenure_tenancy::Placement::Unclaimed {
        default_service_account: "default".to_owned(),
        is_protected: false,
    };
    tenure_tenancy::identity::decide_for_source(&nobodys, "team").unwrap()
}

fn id() -> ObjectId {
    "team_a__ConfigMap".parse().unwrap()
}

/// Regression: a Kustomization waited until its timeout for another one to take an object over, although that had happened. The other's answer was
/// known to the stream that both share before the watch reported it.
#[test]
fn an_answer_to_one_reconciler_notifies_the_others() {
    let stage = Stage::set();
    let other = Key::new(tenure_api::Kustomization::KIND, "team", "other");
    stage.answered_to(&other, 5, "five");
    stage.check(Some("five"), true);
    stage.send_changed(5, "five");
    stage.check(Some("five"), false);
    // Duplicate events notify nobody. A reconciler is not notified of its own writes.
    stage.answered_to(&other, 5, "five");
    stage.check(Some("five"), false);
    stage.record_answer(6, "six");
    stage.check(Some("six"), false);
}

#[test]
fn late_events_leave_stream_unchanged() {
    let stage = Stage::set();
    stage.send_changed(5, "five");
    stage.check(Some("five"), true);
    // An own write is known before the watch reports it, and before the watch reports earlier states.
    stage.record_answer(9, "nine");
    stage.send_changed(7, "seven");
    stage.check(Some("nine"), false);
    stage.send_deleted(8);
    stage.check(Some("nine"), false);
    stage.send_changed(9, "nine");
    stage.check(Some("nine"), false);
    // A new list has an older state of a re-created object.
    stage.send_changed(6, "six");
    stage.check(Some("nine"), false);
    stage.send_deleted(10);
    stage.check(None, true);
    stage.send_changed(9, "nine");
    stage.check(None, false);
    stage.send_changed(11, "eleven");
    stage.check(Some("eleven"), true);
}

#[test]
fn next_list_removes_object_known_only_from_answer() {
    let stage = Stage::set();
    stage.send_synced(4);
    stage.check(None, true);
    stage.record_answer(5, "five");
    // The watch broke. Meanwhile the object was deleted, and no event will report it.
    stage.send_synced(6);
    stage.check(None, true);
    // A list from before the answer does not contain the answer.
    stage.record_answer(9, "nine");
    stage.send_synced(8);
    stage.check(Some("nine"), false);
    // A state that the watch itself reported stays until the watch reports another.
    stage.send_changed(9, "nine");
    stage.send_synced(12);
    stage.check(Some("nine"), false);
}

#[test]
fn a_change_is_known_although_its_stream_breaks() {
    let stage = Stage::set();
    stage.send_changed(5, "five");
    stage.send_synced(5);
    stage.check(Some("five"), true);
    stage.send_changed(6, "six");
    let problem = "cut".to_owned();
    stage.send(WatchEvent::Failed(ClusterError::Unreachable { problem }));
    assert!(!lock(&stage.stream).synced);
    stage.check(Some("six"), true);
    stage.send(WatchEvent::Resumed);
    assert!(lock(&stage.stream).synced);
}
