//! Messages that wait for a lane's process. A waiting entry is the name of a changed object, not its content. The content is read when the entry is
//! sent. So the mailbox never holds more than the existing objects, however slowly a process reads and however often an object changes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_planner::receiver::{Delivery, Verdict};
use tenure_tenancy::Placement;
use tokio::sync::{Notify, oneshot};

use crate::cluster_view::key::Key;
use crate::lane::lane_references::Reference;
use crate::lane_protocol::messages::{NamespaceFacts, ToLane};
use crate::lane_protocol::shared_capacity::SharedCapacity;

/// The limit of waiting and running requests to Receivers of one lane.
const HOOKS: usize = 16;

/// The messages that wait to be sent to a lane's process, and the namespaces of the lane.
#[derive(Debug, Default)]
pub(super) struct OutgoingMessages {
    state: Mutex<State>,
    /// Notified when a message waits.
    pub(super) news: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a process reads.
    is_open: bool,
    /// Whether the process knows that all objects have been sent.
    is_synced: bool,
    /// The lane's namespaces.
    namespaces: BTreeMap<String, NamespaceFacts>,
    /// Current and former namespaces whose facts wait to be sent.
    changed: BTreeSet<String>,
    /// Changed objects, each with the revision of the deletion if a previous object was deleted.
    objects: BTreeMap<Key, Option<String>>,
    wakes: BTreeSet<Key>,
    answers: VecDeque<ToLane>,
    /// Questions about other lanes, by the number of the question.
    loans: VecDeque<(u64, Reference)>,
    /// Requests to Receivers that wait to be sent, by their numbers.
    hooks: VecDeque<(u64, ToLane)>,
    /// Callers that wait for the answer to a request to a Receiver.
    hooked: HashMap<u64, oneshot::Sender<Verdict>>,
    next_hook: u64,
    /// Capacities of which the hub wants the unused part back.
    wanted_back: BTreeSet<SharedCapacity>,
    ping: Option<u64>,
    stop: bool,
    /// Callers that wait until the process has released a namespace.
    leaving: Vec<(String, oneshot::Sender<()>)>,
}

/// The next message: a short frame as it will be sent, or an object by its name.
#[derive(Debug)]
pub(super) enum NextMessage {
    Frame(ToLane),
    Object { key: Key, gone: Option<String> },
    Loan { number: u64, reference: Reference },
}

impl OutgoingMessages {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the lane a namespace, or changes the facts about it.
    pub(super) fn assign(&self, namespace: &str, facts: NamespaceFacts) {
        let mut state = self.state();
        if state.namespaces.get(namespace) == Some(&facts) {
            return;
        }
        state.namespaces.insert(namespace.to_owned(), facts);
        if state.is_open {
            state.changed.insert(namespace.to_owned());
        }
        drop(state);
        self.news.notify_one();
    }

    /// Takes a namespace from the lane. The returned receiver completes after the process has released the namespace or has ended.
    pub(super) fn revoke(&self, namespace: &str) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state();
        state.namespaces.remove(namespace);
        let left = state.is_open.then(|| {
            let (send, receive) = oneshot::channel();
            state.changed.insert(namespace.to_owned());
            state.leaving.push((namespace.to_owned(), send));
            receive
        });
        drop(state);
        self.news.notify_one();
        left
    }

    /// Handles the lane's message that it has released a namespace.
    pub(super) fn note_released(&self, namespace: &str) {
        // Dropping the sender notifies the waiting caller.
        self.state().leaving.retain(|(left, _)| left != namespace);
    }

    /// Records that an object changed, or was deleted at a revision.
    pub(super) fn queue_change(&self, key: &Key, gone: Option<&str>) {
        let mut state = self.state();
        if !state.is_open {
            return;
        }
        let noted = state.objects.entry(key.clone()).or_default();
        if let Some(revision) = gone {
            *noted = Some(revision.to_owned());
        }
        drop(state);
        self.news.notify_one();
    }

    /// Wakes an object of the lane after a change of an object to which it listens.
    pub(super) fn wake(&self, key: &Key) {
        let mut state = self.state();
        if state.is_open {
            state.wakes.insert(key.clone());
        }
        drop(state);
        self.news.notify_one();
    }

    /// Queues a request to a Receiver of the lane. The returned receiver gets the answer, or completes without one if the process ends first.
    pub(super) fn deliver(&self, receiver: &Key, delivery: &Delivery) -> Result<oneshot::Receiver<Verdict>, Verdict> {
        let mut state = self.state();
        if !state.is_open {
            return Err(Verdict::Unavailable);
        }
        // A caller may have given up on its request.
        state.hooked.retain(|_, waiting| !waiting.is_closed());
        if state.hooked.len() >= HOOKS {
            return Err(Verdict::TooMany);
        }
        let number = state.next_hook;
        state.next_hook = number.wrapping_add(1);
        let (send, receive) = oneshot::channel();
        state.hooked.insert(number, send);
        let frame = ToLane::Hook {
            number,
            namespace: receiver.namespace.clone(),
            name: receiver.name.clone(),
            delivery: Box::new(delivery.clone()),
        };
        state.hooks.push_back((number, frame));
        drop(state);
        self.news.notify_one();
        Ok(receive)
    }

    /// Handles the process's answer to a request. An answer for which no caller waits is ignored.
    pub(super) fn take_hooked(&self, number: u64, verdict: Verdict) {
        let waiting = self.state().hooked.remove(&number);
        if let Some(waiting) = waiting {
            let _given_up = waiting.send(verdict);
        }
    }

    /// Queues an answer. The caller bounds the number of answers.
    pub(super) fn answer(&self, frame: ToLane) {
        self.state().answers.push_back(frame);
        self.news.notify_one();
    }

    /// Queues a question about another lane's object, which is read when the answer is sent. The caller bounds the number of questions.
    pub(super) fn ask_about(&self, number: u64, reference: Reference) {
        self.state().loans.push_back((number, reference));
        self.news.notify_one();
    }

    /// Asks the process to return capacity for which other lanes wait.
    pub(super) fn request_return(&self, room: SharedCapacity) {
        let mut state = self.state();
        if state.is_open {
            state.wanted_back.insert(room);
        }
        drop(state);
        self.news.notify_one();
    }

    /// Counts the answers that have not been sent.
    pub(super) fn count_answers(&self) -> usize {
        let state = self.state();
        state.answers.len().saturating_add(state.loans.len())
    }

    /// Queues a ping.
    pub(super) fn ping(&self, number: u64) {
        self.state().ping = Some(number);
        self.news.notify_one();
    }

    /// Tells the process to stop, after all else.
    pub(super) fn stop(&self) {
        self.state().stop = true;
        self.news.notify_one();
    }

    /// Opens the mailbox for a new process: everything has to be sent.
    pub(super) fn open(&self) {
        let mut state = self.state();
        let namespaces = std::mem::take(&mut state.namespaces);
        *state = State {
            is_open: true,
            changed: namespaces.keys().cloned().collect(),
            namespaces,
            ..State::default()
        };
    }

    /// Closes the mailbox: the process has ended and holds nothing.
    pub(super) fn close(&self) {
        let mut state = self.state();
        let namespaces = std::mem::take(&mut state.namespaces);
        let before = std::mem::replace(
            &mut *state,
            State {
                namespaces,
                ..State::default()
            },
        );
        drop(state);
        drop(before);
    }

    pub(super) fn is_without_namespaces(&self) -> bool {
        self.state().namespaces.is_empty()
    }

    pub(super) fn has_namespace(&self, namespace: &str) -> bool {
        self.state().namespaces.contains_key(namespace)
    }

    pub(super) fn list_namespaces(&self) -> Vec<String> {
        self.state().namespaces.keys().cloned().collect()
    }

    pub(super) fn find_any_namespace(&self) -> Option<(String, Placement)> {
        let state = self.state();
        let (namespace, facts) = state.namespaces.first_key_value()?;
        Some((namespace.clone(), facts.placement.clone()))
    }

    /// Takes the next message, if one waits. Answers and pings come first, then namespaces, then their objects, then the namespaces that the lane no
    /// longer has.
    pub(super) fn take_next(&self) -> Option<NextMessage> {
        let mut guard = self.state();
        let state = &mut *guard;
        if let Some(number) = state.ping.take() {
            return Some(NextMessage::Frame(ToLane::Ping(number)));
        }
        if let Some(answer) = state.answers.pop_front() {
            return Some(NextMessage::Frame(answer));
        }
        if let Some((number, reference)) = state.loans.pop_front() {
            return Some(NextMessage::Loan { number, reference });
        }
        if let Some(room) = state.wanted_back.pop_first() {
            return Some(NextMessage::Frame(ToLane::WantedBack(room)));
        }
        let is_here = |namespace: &&String| state.namespaces.contains_key(*namespace);
        if let Some(name) = state.changed.iter().find(is_here).cloned() {
            state.changed.remove(&name);
            let facts = state.namespaces.get(&name).cloned().map(Box::new);
            return Some(NextMessage::Frame(ToLane::Namespace { name, facts }));
        }
        if let Some((key, gone)) = state.objects.pop_first() {
            return Some(NextMessage::Object { key, gone });
        }
        if !state.is_synced {
            state.is_synced = true;
            return Some(NextMessage::Frame(ToLane::Synced));
        }
        while let Some((number, frame)) = state.hooks.pop_front() {
            if state.hooked.get(&number).is_some_and(|waiting| !waiting.is_closed()) {
                return Some(NextMessage::Frame(frame));
            }
        }
        if let Some(key) = state.wakes.pop_first() {
            return Some(NextMessage::Frame(ToLane::Wake {
                kind: key.kind.name.to_owned(),
                namespace: key.namespace,
                name: key.name,
            }));
        }
        if let Some(name) = state.changed.pop_first() {
            return Some(NextMessage::Frame(ToLane::Namespace { name, facts: None }));
        }
        if std::mem::take(&mut state.stop) {
            return Some(NextMessage::Frame(ToLane::Stop));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile_loop::reconciled::Reconciled as _;

    fn facts(is_admitted: bool) -> NamespaceFacts {
        NamespaceFacts {
            placement: Placement::Unclaimed {
                default_service_account: "default".to_owned(),
                is_protected: false,
            },
            ending: None,
            is_admitted,
        }
    }

    fn key(name: &str) -> Key {
        Key::new(tenure_api::Kustomization::KIND, "team", name)
    }

    fn read_all(outgoing: &OutgoingMessages) -> Vec<String> {
        let letters = std::iter::from_fn(|| outgoing.take_next());
        let read = letters.map(|letter| match letter {
            NextMessage::Frame(ToLane::Namespace { name, facts }) => {
                format!("{name} {:?}", facts.map(|facts| facts.is_admitted))
            }
            NextMessage::Frame(frame) => format!("{frame:?}"),
            NextMessage::Object { key, gone } => format!("{} {gone:?}", key.name),
            NextMessage::Loan { number, reference } => format!("{number} {}", reference.name),
        });
        read.collect()
    }

    #[test]
    fn frequent_changes_are_sent_once_and_in_order() {
        let outgoing = OutgoingMessages::default();
        outgoing.assign("team", facts(false));
        // No process reads. The next process gets everything anyway.
        outgoing.queue_change(&key("a"), None);
        outgoing.open();
        for _ in 0..1000 {
            outgoing.queue_change(&key("a"), None);
            outgoing.queue_change(&key("b"), Some("7"));
            outgoing.assign("team", facts(true));
            outgoing.wake(&key("a"));
        }
        outgoing.stop();
        outgoing.ping(3);
        outgoing.request_return(SharedCapacity::Trees);
        outgoing.request_return(SharedCapacity::Trees);
        let reference = Reference {
            from: "team".to_owned(),
            kind: "GitRepository".to_owned(),
            namespace: "shared".to_owned(),
            name: "app".to_owned(),
        };
        outgoing.ask_about(5, reference);
        assert_eq!(outgoing.count_answers(), 1);
        let expected = [
            "Ping(3)",
            "5 app",
            "WantedBack(Trees)",
            "team Some(true)",
            "a None",
            "b Some(\"7\")",
            "Synced",
            "Wake { kind: \"Kustomization\", namespace: \"team\", name: \"a\" }",
            "Stop",
        ];
        assert_eq!(read_all(&outgoing), expected);
        // Unchanged facts send nothing.
        outgoing.assign("team", facts(true));
        assert_eq!(read_all(&outgoing), Vec::<String>::new());
    }

    #[tokio::test]
    async fn every_receiver_request_gets_answer_or_error() {
        let outgoing = OutgoingMessages::default();
        let path = tenure_planner::receiver::name_path(&format!("/hook/{}", "0".repeat(64))).expect("a path");
        let delivery = Delivery {
            path,
            headers: BTreeMap::new(),
            body: b"sesame".to_vec(),
        };
        let deliver = || outgoing.deliver(&key("hook"), &delivery);
        assert_eq!(deliver().unwrap_err(), Verdict::Unavailable, "nobody reads");
        outgoing.open();
        let (first, second) = (deliver().expect("room"), deliver().expect("room"));
        // A request whose caller gave up is not sent.
        drop(deliver().expect("room"));
        let messages = read_all(&outgoing);
        assert_eq!(messages.len(), 3, "Synced, and two requests: {messages:?}");
        assert!(
            messages[1].contains("number: 0") && messages[2].contains("number: 1"),
            "{messages:?}"
        );
        assert!(!messages[1].contains("sesame"), "{messages:?}");
        outgoing.take_hooked(1, Verdict::Done);
        // An answer to a completed request, and an answer with an unknown number.
        outgoing.take_hooked(1, Verdict::Failed);
        outgoing.take_hooked(77, Verdict::Done);
        assert_eq!(second.await, Ok(Verdict::Done));
        outgoing.close();
        assert!(first.await.is_err());
        outgoing.open();
        let waiting: Vec<_> = (0..HOOKS).map(|_| deliver().expect("room")).collect();
        assert_eq!(deliver().unwrap_err(), Verdict::TooMany);
        drop(waiting);
        assert!(deliver().is_ok());
    }

    #[tokio::test]
    async fn waiter_is_notified_when_lane_releases_namespace() {
        let outgoing = OutgoingMessages::default();
        outgoing.assign("team", facts(true));
        assert!(outgoing.revoke("team").is_none(), "nobody holds it");
        outgoing.assign("team", facts(true));
        outgoing.open();
        let left = outgoing.revoke("team").expect("somebody holds it");
        outgoing.queue_change(&key("a"), Some("9"));
        assert_eq!(read_all(&outgoing), ["a Some(\"9\")", "Synced", "team None"]);
        outgoing.note_released("team");
        assert!(left.await.is_err());
        outgoing.assign("team", facts(true));
        let ended = outgoing.revoke("team").expect("somebody holds it");
        outgoing.close();
        assert!(ended.await.is_err());
        assert!(outgoing.is_without_namespaces());
    }
}
