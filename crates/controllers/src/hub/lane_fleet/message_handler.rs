//! The hub's side of a lane's questions and reports. The hub believes only statements that it can see itself. A lane gets facts about its own
//! namespaces. About other lanes it gets only the answers of the owners of objects that it wants.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tenure_api::{Kustomization, ObjectId, ObjectView, Receiver};
use tenure_cluster::{EventHistory, EventRecorder};
use tenure_planner::receiver::name_path;
use tenure_planner::{Event, EventPlace};
use tenure_tenancy::lane::decide_lane;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::capacity_grants::GrantedCapacity;
use super::report_limit::ReportLimit;
use super::supervision::LaneHandle;
use super::{HubOverview, LaneFleet};
use crate::cluster_view::key::Key;
use crate::lane::Shard;
use crate::lane::lane_table::name_lane;
use crate::lane_protocol::messages::{Answer, FromLane, Question, ToLane};
use crate::reconcile_loop::object_writer::describe_event;
use crate::reconcile_loop::reconciled::Reconciled as _;
use crate::telemetry::lane_spans::{SpanIntake, TracedAttempt};
use crate::telemetry::metrics::Report;

/// The limit of open questions of one process. More are a violation: a process of Tenure keeps to half of this limit.
const QUESTIONS: usize = 64;
/// The limit of objects in other lanes to which one Kustomization may listen.
const MAX_LISTENED: usize = 1000;
/// The limit of objects in other lanes to which all Kustomizations of one process together may listen.
const MAX_LISTENED_IN_ALL: usize = 20_000;
/// The limit of objects that the Kustomizations of one process together report as gained and dropped.
const ALL_OBJECTS: usize = 200_000;
/// The limit of events per minute of one process that are written where the process may not write. Further events are dropped.
const EVENTS: usize = 30;
/// The size limit of the texts of one such event, in bytes.
const WORDS: usize = 64 << 10;

/// Handles the questions and reports of one process.
pub(super) struct MessageHandler {
    fleet: Arc<LaneFleet>,
    lane: Arc<LaneHandle>,
    /// Running answers. They end with the process.
    work: JoinSet<()>,
    events: VecDeque<Instant>,
    listeners: ReportLimit,
    turnovers: ReportLimit,
    event_history: Arc<Mutex<EventHistory>>,
    spans: SpanIntake,
    /// The shared capacity that the process has. It ends with the process.
    grants: Arc<GrantedCapacity>,
}

impl MessageHandler {
    pub(super) fn new(fleet: &Arc<LaneFleet>, lane: &Arc<LaneHandle>) -> Self {
        Self {
            fleet: Arc::clone(fleet),
            lane: Arc::clone(lane),
            work: JoinSet::new(),
            events: VecDeque::new(),
            listeners: ReportLimit::new(MAX_LISTENED_IN_ALL),
            turnovers: ReportLimit::new(ALL_OBJECTS),
            event_history: Arc::default(),
            spans: SpanIntake::new(Instant::now()),
            grants: lane.reset_grants(),
        }
    }

    /// Handles a frame. The error names the violation, if no lane would send the frame.
    pub(super) fn handle_frame(&mut self, frame: FromLane) -> Result<(), String> {
        while self.work.try_join_next().is_some() {}
        match frame {
            FromLane::Question { number, question } => self.answer(number, question),
            FromLane::Wants {
                room,
                bytes,
                besides,
                waits,
            } => {
                let process = (&self.lane, &self.grants);
                if let Some(waiting) = self.fleet.ask_for_room(process, (room, bytes, besides), waits)? {
                    self.work.spawn(waiting);
                }
                Ok(())
            }
            FromLane::GivesBack { room, bytes } => self.grants.give_back(room, bytes),
            FromLane::Listens {
                kind,
                namespace,
                name,
                to,
            } => {
                if to.len() > MAX_LISTENED {
                    return Err(format!("one {kind} listens to {}", to.len()));
                }
                let keys = self.read_keys(&to)?;
                let own = self.read_key(&kind, &namespace, &name)?;
                if self.find_own_mirror(&own).is_some() && self.listeners.record_if_allowed(&own, to.len()) {
                    self.fleet.context.change_subscriptions.listen(&own, keys);
                    // The other objects may have changed before the subscription, so the listener looks at them again.
                    self.lane.wake(&own);
                }
                Ok(())
            }
            FromLane::Turnover {
                namespace,
                name,
                turnover,
            } => {
                let own = make_key(&namespace, &name);
                if let Some(shard) = self.find_own_mirror(&own)
                    && self
                        .turnovers
                        .record_if_allowed(&own, turnover.gains.len().saturating_add(turnover.drops.len()))
                {
                    shard.take_turnover(&own, turnover);
                }
                Ok(())
            }
            FromLane::Door { namespace, name, path } => {
                if path.as_ref().is_some_and(|path| name_path(path.as_str()).is_none()) {
                    return Err("a path that no Receiver has".to_owned());
                }
                let own = Key::new(Receiver::KIND, &namespace, &name);
                if self.find_own_mirror(&own).is_some() {
                    self.fleet.context.receiver_endpoint.set(&own, path.as_ref());
                }
                Ok(())
            }
            FromLane::Event {
                kind,
                namespace,
                name,
                event,
            } => self.write_event((kind, namespace, name), event),
            FromLane::Metrics(report) => self.take_report(*report),
            FromLane::Spans(attempts) => self.take_spans(attempts),
            FromLane::Gaps(gaps) => self.fleet.report_kernel_gaps(&gaps),
            FromLane::Pong(_) | FromLane::Works | FromLane::Left { .. } | FromLane::Hooked { .. } => Ok(()),
        }
    }

    /// Handles a report of metrics, only of the lane's own objects: otherwise one lane could speak for another.
    fn take_report(&self, report: Report) -> Result<(), String> {
        let metrics = &self.fleet.context.metrics;
        let kinds: Vec<&'static str> = self.fleet.kinds.iter().map(|entry| entry.kind.name).collect();
        metrics.take_from_lane((&self.lane.name, &kinds), report, |attempt| {
            let entry = self.fleet.kinds.iter().find(|entry| entry.kind.name == attempt.kind)?;
            let key = Key::new(entry.kind, &attempt.namespace, &attempt.name);
            self.find_own_mirror(&key).map(|_| key)
        })
    }

    /// Handles spans about the lane's own objects, if spans are exported.
    fn take_spans(&mut self, attempts: Vec<TracedAttempt>) -> Result<(), String> {
        let fleet = Arc::clone(&self.fleet);
        let Some(sink) = &fleet.process_config.config.spans else {
            return Err("spans without a receiver".to_owned());
        };
        let mut intake = std::mem::replace(&mut self.spans, SpanIntake::new(Instant::now()));
        let is_own = |attempt: &TracedAttempt| {
            let key = self.read_key(&attempt.kind, &attempt.namespace, &attempt.name);
            key.is_ok_and(|key| self.find_own_mirror(&key).is_some())
        };
        let taken = intake.pass_attempts(attempts, Instant::now(), is_own, sink);
        self.spans = intake;
        taken
    }

    /// Returns the key of an object of a kind that lanes reconcile.
    fn read_key(&self, kind: &str, namespace: &str, name: &str) -> Result<Key, String> {
        let entry = self.fleet.kinds.iter().find(|entry| entry.kind.name == kind);
        let entry = entry.ok_or("a kind that no lane reconciles")?;
        Ok(Key::new(entry.kind, namespace, name))
    }

    fn read_keys(&self, named: &[(String, String, String)]) -> Result<BTreeSet<Key>, String> {
        let named = named.iter();
        named
            .map(|(kind, namespace, name)| self.read_key(kind, namespace, name))
            .collect()
    }

    fn has(&self, namespace: &str) -> bool {
        self.lane.outgoing.has_namespace(namespace)
    }

    /// Returns the mirror of the object's namespace if the lane has the namespace and the object exists. Otherwise the report is ignored and is no
    /// violation: the lane may have just lost the object.
    fn find_own_mirror(&self, key: &Key) -> Option<Arc<Shard>> {
        let shard = self.fleet.find_mirror(&key.namespace)?;
        (self.has(&key.namespace) && shard.has(key)).then_some(shard)
    }

    /// Starts the answer to a question of the lane. The error names the violation, if no lane would ask this.
    fn answer(&mut self, number: u64, question: Question) -> Result<(), String> {
        if self.work.len().saturating_add(self.lane.outgoing.count_answers()) >= QUESTIONS {
            return Err(format!("more than {QUESTIONS} questions at once"));
        }
        if let Question::Loan(reference) = question {
            if !reference.is_short() {
                return Err("a name that is longer than there are".to_owned());
            }
            self.lane.outgoing.ask_about(number, reference);
            return Ok(());
        }
        let (fleet, lane) = (Arc::clone(&self.fleet), Arc::clone(&self.lane));
        self.work.spawn(async move {
            if let Some(answer) = find_answer(&fleet, &lane, question).await {
                lane.outgoing.answer(ToLane::Answer { number, answer });
            }
        });
        Ok(())
    }

    /// Writes an event about one of the lane's objects where the lane may not write: only in the namespace for such events.
    fn write_event(&mut self, (kind, namespace, name): (String, String, String), event: Event) -> Result<(), String> {
        let notes = event.annotations.iter().map(|(key, value)| key.len() + value.len());
        if event.reason.len() + event.message.len() + notes.sum::<usize>() > WORDS {
            return Err("an event of too many words".to_owned());
        }
        let now = Instant::now();
        let minute = Duration::from_secs(60);
        self.events.retain(|at| now.saturating_duration_since(*at) < minute);
        if self.events.len() >= EVENTS || self.work.len() >= QUESTIONS || !self.has(&namespace) {
            tracing::warn!(
                lane = self.lane.name,
                reason = event.reason,
                "an event of a lane is left out"
            );
            return Ok(());
        }
        self.events.push_back(now);
        let (fleet, event_history) = (Arc::clone(&self.fleet), Arc::clone(&self.event_history));
        self.work.spawn(async move {
            let written = write_event(&fleet, (&kind, &namespace, &name), &event, &event_history).await;
            if written.is_none() {
                tracing::debug!(
                    namespace,
                    name,
                    "an event of a lane is about an object that doesn't exist"
                );
            }
        });
        Ok(())
    }
}

fn make_key(namespace: &str, name: &str) -> Key {
    Key::new(Kustomization::KIND, namespace, name)
}

async fn find_answer(fleet: &LaneFleet, lane: &LaneHandle, question: Question) -> Option<Answer> {
    let hub = fleet.hub.upgrade()?;
    Some(match question {
        Question::Token { .. } if fleet.asks_others() => {
            Answer::Token(Err("a lane in a Pod has a token of its own".to_owned()))
        }
        Question::Token { refused } => {
            let issued = fleet.context.clients.issue_lane_token(&lane.account, refused).await;
            Answer::Token(issued.map(|token| token.hand_over()).map_err(|error| error.to_string()))
        }
        Question::Owner {
            namespace,
            name,
            objects,
            cluster,
        } => {
            let objects: Vec<ObjectId> = objects
                .into_iter()
                .filter(|object| may_hear_of(hub.as_ref(), lane, object, cluster.as_deref()))
                .collect();
            let answer = hub.ask_owner((&namespace, &name), &objects, cluster.as_deref()).await;
            Answer::Owner(answer.map(Box::new))
        }
        Question::Endings(namespaces) => Answer::Endings(hub.find_endings(&namespaces).await),
        Question::Loan(reference) => Answer::Loan(Box::new(fleet.lend(lane, &reference).await)),
    })
}

/// Checks whether a lane may learn who has an object. A tenant's lane may for objects in its own namespaces and for cluster-scoped objects. Other
/// lanes are bounded only by Kubernetes' RBAC. In another cluster the namespace does not show the tenant, so a tenant's lane learns nothing there.
fn may_hear_of(hub: &dyn HubOverview, lane: &LaneHandle, object: &ObjectId, cluster: Option<&str>) -> bool {
    let whose = decide_lane(&hub.place_known(&object.namespace), &object.namespace);
    !lane.is_tenants() || (cluster.is_none() && (object.namespace.is_empty() || name_lane(&whose) == lane.name))
}

async fn write_event(
    fleet: &LaneFleet,
    (kind, namespace, name): (&str, &str, &str),
    event: &Event,
    event_history: &Mutex<EventHistory>,
) -> Option<()> {
    let hub = fleet.hub.upgrade()?;
    let entry = fleet.kinds.iter().find(|entry| entry.kind.name == kind)?;
    let about = fleet.write_object(&Key::new(entry.kind, namespace, name))?;
    let about = ObjectView::new(&about);
    let related = json!({
        "apiVersion": entry.kind.api_version, "kind": entry.kind.name,
        "namespace": namespace, "name": name, "uid": about.read_text("/metadata/uid"),
    });
    let platform = fleet.context.settings.platform_namespace.as_str();
    let (object, place) = match &event.place {
        EventPlace::Beside => return None,
        EventPlace::Platform => {
            let metadata = json!({ "namespace": platform, "name": platform });
            (
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }),
                platform,
            )
        }
        EventPlace::Kustomization { namespace, name, uid } => {
            let other = fleet.write_object(&make_key(namespace, name))?;
            if ObjectView::new(&other).read_text("/metadata/uid") != uid {
                return None;
            }
            let object = json!({
                "apiVersion": Kustomization::KIND.api_version, "kind": Kustomization::KIND.name,
                "metadata": { "namespace": namespace, "name": name, "uid": uid },
            });
            (object, namespace.as_str())
        }
    };
    let recorder = EventRecorder::new(hub.find_bookkeeper(place).await, entry.kind.reporter);
    let mut event_history = event_history.lock().await;
    recorder
        .record(&mut event_history, &object, &describe_event(event, Some(related)))
        .await;
    Some(())
}

impl LaneFleet {
    /// Clears the listeners and reports of an ended process. The next process sends its own.
    pub(super) fn clear_listening(&self, lane: &LaneHandle) {
        for namespace in lane.outgoing.list_namespaces() {
            let shard = self.find_mirror(&namespace);
            for own in shard.iter().flat_map(|shard| shard.list_keys()) {
                self.context.change_subscriptions.listen(&own, BTreeSet::new());
                if let Some(shard) = &shard {
                    shard.turnover_reports.forget(&own);
                }
            }
        }
    }
}
