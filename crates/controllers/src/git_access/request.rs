//! The rounds of one FluxAccessRequest: in each of its namespaces the rotation machine names the next step, until nothing is due. This module stores
//! the answers to steps from round to round, and no value. The plan makes every choice.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use tenure_api::ObjectId;
use tenure_api::access::request::CredentialPhase;
use tenure_api::access::{FluxAccessRequest, FluxAccessRequestStatus, Period};
use tenure_api::condition::Condition;
use tenure_api::metadata::TENURE_FINALIZER;
use tenure_cluster::{ClusterError, EventHistory};
use tenure_git_access::delivery::{
    RequestFacts, choose_username, decide_wanted, find_end, find_grace_end, find_ledger,
};
use tenure_git_access::notice;
use tenure_git_access::pull_secrets::ObservedAccounts;
use tenure_git_access::rotation::{
    Answer, Plan, RotationEvent, SecretState, Snapshot, SourceState, StagingState, Step, WantedState, plan,
};
use tenure_git_access::rotation_order;
use tenure_git_access::status::{
    conclude_request, decide_state, record_history, record_receivers, record_verdict, replace_conditions,
};
use tenure_planner::{Event, EventKind, EventPlace, FinalizerChange, Next};
use tenure_remote_requests::git_host::CredentialKind;
use tenure_tenancy::access::approval::Verdict;
use tokio::sync::Semaphore;

use super::AccessHub;
use super::source_observation::list_sources;
use super::step_facts::{StepFacts, list_namespaces};
use super::steps::{Actor, make_nonce};
use crate::cluster_view::key::Key;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::object_writer::ObjectWriter;

/// The limit of namespaces that proceed at the same time. They share one record, and each order has to be sent soon after it was recorded.
const WIDTH: usize = 4;
/// The delay of the next check if nothing else says when.
const IDLE: SignedDuration = SignedDuration::from_hours(1);

/// The known state of one namespace in which the request delivers: the answers to steps, and when the next step is due.
#[derive(Debug, Default)]
struct NamespaceProgress {
    /// The time before which nothing is due.
    again: Option<Timestamp>,
    /// The time of the next check of accounts and RoleBindings. The Secret is checked more often.
    whole_again: Option<Timestamp>,
    answer: Option<Answer>,
    secret: Option<SecretState>,
    staging: Option<StagingState>,
    accounts: Option<ObservedAccounts>,
    /// Whether no other account can read the Secret, if the request requires that.
    strict: Option<Result<(), String>>,
    /// The sources, as last seen.
    sources: Vec<SourceState>,
    plan: Option<Plan>,
}

impl NamespaceProgress {
    /// Checks whether sources changed in what counts: any change while they are waited for, otherwise the time since when the host refuses them.
    fn has_news(&self, sources: &[SourceState]) -> bool {
        let refusals = |sources: &[SourceState]| -> Vec<Option<Timestamp>> {
            sources.iter().map(|source| source.refused_at).collect()
        };
        match &self.plan {
            Some(plan) if is_unproven(plan) => sources != self.sources,
            Some(plan) if is_followed(plan) => refusals(sources) != refusals(&self.sources),
            Some(_) | None => false,
        }
    }
}

/// The reconciler of one request.
pub(super) struct RequestReconciler {
    pub(super) access_hub: Arc<AccessHub>,
    key: Key,
    pub(super) event_history: EventHistory,
    places: BTreeMap<String, NamespaceProgress>,
    /// The result of the last step about the request's issue.
    pub(super) notice: Option<notice::StepResult>,
    acted: Option<StepFacts>,
    /// The time since when this process reconciles the request.
    begun: Timestamp,
}

impl RequestReconciler {
    pub(super) fn new(access_hub: Arc<AccessHub>, key: Key) -> Self {
        Self {
            access_hub,
            key,
            event_history: EventHistory::default(),
            places: BTreeMap::new(),
            notice: None,
            acted: None,
            begun: Timestamp::now(),
        }
    }

    fn current(&self) -> Option<Arc<FluxAccessRequest>> {
        use crate::reconcile_loop::reconciled::Home as _;
        let caches = self.access_hub.caches();
        caches
            .get::<FluxAccessRequest>()
            .get(&self.key.namespace, &self.key.name)
    }

    /// Reads the current state of one namespace.
    async fn observe_namespace(
        &mut self,
        actor: &Actor,
        (case, circumstances): (RequestFacts<'_>, &StepFacts),
        namespace: &str,
    ) -> Option<Snapshot> {
        let request = case.request;
        let ledger = find_ledger(request, namespace);
        let owner = self.name_owner(namespace);
        if !self.places.contains_key(namespace) {
            actor.host.restore_restraint(&actor.target(), &ledger);
        }
        let place = self.places.entry(namespace.to_owned()).or_default();
        let answer = place.answer.take();
        let secret = match place.secret.take() {
            Some(secret) => secret,
            None => actor.look_at_secret(namespace).await,
        };
        let staging = match place.staging.take() {
            Some(staging) => staging,
            None => actor.look_at_staging(namespace).await,
        };
        place.secret = Some(secret.clone());
        place.staging = Some(staging.clone());
        let mut wanted = decide_wanted(case, namespace);
        if let (WantedState::Delivered, Some(why)) = (&wanted, &actor.obstacle) {
            wanted = WantedState::HeldBack(why.clone());
        }
        if wanted == WantedState::Delivered && request.spec.strict {
            let strict = match place.strict.take() {
                Some(strict) => strict,
                None => actor.check_strict(namespace).await,
            };
            if let Err(why) = &strict {
                wanted = WantedState::HeldBack(why.clone());
            }
            place.strict = Some(strict);
        }
        let is_asked =
            request.spec.image_pull_secrets && (wanted == WantedState::Delivered || ledger.image_pull_secrets);
        let accounts = match place.accounts.take() {
            Some(accounts) => accounts,
            None if is_asked => actor.look_at_accounts(namespace).await,
            None => ObservedAccounts::NotAsked,
        };
        place.accounts = Some(accounts.clone());
        let sources = list_sources(&self.access_hub, &request.spec.secret_name, namespace);
        place.sources.clone_from(&sources);
        let rotate: Period = request.spec.rotate.parse().ok()?;
        let target = actor.target();
        let is_wanted = wanted == WantedState::Delivered;
        let restraint = actor.host.see_restraint(&target, &owner, &ledger, is_wanted);
        Some(Snapshot {
            request_uid: request.metadata.uid.clone().unwrap_or_default(),
            request_name: self.key.name.clone(),
            secret_name: request.spec.secret_name.clone(),
            cluster_uid: request.spec.cluster_uid.clone(),
            authority: actor.find_authority(),
            listing: actor.host.listing(&target, actor.kind),
            target,
            kind: actor.kind,
            capabilities: actor.capabilities(),
            role: actor.role,
            username: choose_username(&request.spec.asked_in),
            rotate,
            wanted,
            predecessors: circumstances.list_predecessors(namespace),
            successor: circumstances.find_successor(namespace),
            order: rotation_order::find(
                request.metadata.annotations.as_ref(),
                namespace,
                ledger.handled_order.as_deref(),
            ),
            ledger,
            namespace: self.access_hub.find_namespace(namespace),
            is_mark_valid: self.access_hub.is_mark_valid(&secret, request, namespace),
            secret,
            staging,
            accounts,
            sources,
            restraint,
            host_ahead: actor.ahead(),
            nonce: make_nonce(),
            answer,
        })
    }

    /// Returns the name under which the limits of the host count the credentials in a namespace.
    fn name_owner(&self, namespace: &str) -> String {
        format!("{}/{namespace}", self.key.name)
    }

    /// Begins the trial of a planned credential, if its target has room for another one.
    fn begin_trial(&self, actor: &Actor, namespace: &str, planned: &Plan) -> bool {
        let owner = self.name_owner(namespace);
        let next = planned.ledger.next.as_ref();
        next.is_some_and(|next| actor.host.begin_trial(&actor.target(), &owner, &next.nonce))
    }

    /// Writes changed ledgers, and reports what happened. Nothing is ordered before it is recorded.
    async fn record(
        &mut self,
        request: &FluxAccessRequest,
        kind: CredentialKind,
        changed: &[(String, Plan)],
        now: Timestamp,
    ) -> Result<(), ClusterError> {
        let mut status = request.status.clone().unwrap_or_default();
        status.credential = Some(kind.name().to_owned());
        for (namespace, plan) in changed {
            set_ledger(&mut status, namespace, plan);
            record_history(&mut status, namespace, &plan.happened, now);
        }
        let writer = ObjectWriter::new(request);
        writer.write_status(&self.access_hub, &status).await?;
        self.access_hub.wake_related_requests(request, &status);
        let happened = changed
            .iter()
            .flat_map(|(namespace, plan)| plan.happened.iter().map(move |happening| (namespace, happening)));
        let mut events = Vec::new();
        for (namespace, happening) in happened {
            let RotationEvent {
                action,
                generation,
                id,
                cause,
            } = happening;
            tracing::info!(
                request = self.key.name,
                namespace,
                action,
                generation,
                id,
                cause,
                "a credential of a host"
            );
            self.access_hub.count(&request.spec.provider, action);
            events.push(describe_event(namespace, happening));
        }
        writer
            .write_events(&self.access_hub, &mut self.event_history, &events)
            .await;
        Ok(())
    }

    /// Writes conditions and state, once nothing is due.
    async fn conclude(
        &mut self,
        request: &FluxAccessRequest,
        circumstances: &StepFacts,
        announced: Option<Condition>,
        now: Timestamp,
    ) -> Result<(), ClusterError> {
        let before = request.status.clone().unwrap_or_default();
        let mut status = before.clone();
        let plans: Vec<(&str, &Plan)> = self
            .places
            .iter()
            .filter_map(|(namespace, place)| Some((namespace.as_str(), place.plan.as_ref()?)))
            .collect();
        status.credentials.retain(|ledger| {
            let place = self.places.get(&ledger.namespace);
            !place
                .and_then(|place| place.plan.as_ref())
                .is_some_and(|plan| plan.is_over)
        });
        let running: Vec<(&str, &Plan)> = plans.iter().filter(|(_, plan)| !plan.is_over).copied().collect();
        let mut conditions = conclude_request(request, &circumstances.verdict, &running, now);
        conditions.extend(announced);
        status.conditions = replace_conditions(&before.conditions, conditions);
        if let Some(reaching) = &circumstances.reaching {
            record_receivers(&mut status, reaching);
        }
        let state = decide_state(&status, &circumstances.verdict);
        if before.state.as_deref() != Some(state) {
            record_verdict(&mut status, &circumstances.verdict, state, now);
            tracing::info!(request = self.key.name, state, "a request for access");
            let made = request.metadata.creation_timestamp.as_ref();
            if let (Verdict::Approved(_), Some(made)) = (&circumstances.verdict, made) {
                let waited = now.duration_since(made.0).as_secs_f64();
                self.access_hub.count_approval(&request.spec.provider, waited.max(0.0));
            }
        }
        status.state = Some(state.to_owned());
        let path = status.credentials.iter().find_map(|ledger| ledger.path.clone());
        status.path = path.or_else(|| Some(request.spec.target.path.clone()));
        if status != before {
            ObjectWriter::new(request)
                .write_status(&self.access_hub, &status)
                .await?;
            self.access_hub.wake_related_requests(request, &status);
        }
        self.places
            .retain(|_, place| !place.plan.as_ref().is_some_and(|plan| plan.is_over));
        Ok(())
    }

    /// Forgets the answers, because the state may have changed.
    fn forget_answers(&mut self) {
        for place in self.places.values_mut() {
            *place = NamespaceProgress::default();
        }
    }
}

fn set_ledger(status: &mut FluxAccessRequestStatus, namespace: &str, plan: &Plan) {
    match status
        .credentials
        .iter_mut()
        .find(|ledger| ledger.namespace == namespace)
    {
        Some(ledger) => ledger.clone_from(&plan.ledger),
        None => status.credentials.push(plan.ledger.clone()),
    }
}

fn describe_event(namespace: &str, happening: &RotationEvent) -> Event {
    let id = happening
        .id
        .map(|id| format!(", number {id} at the host"))
        .unwrap_or_default();
    let is_bad = ["Lost", "Forgotten", "Expired"].contains(&happening.action);
    Event {
        kind: if is_bad { EventKind::Warning } else { EventKind::Normal },
        reason: format!("Credential{}", happening.action),
        message: format!(
            "{namespace}: credential {}{id}: {}",
            happening.generation, happening.cause
        ),
        annotations: BTreeMap::new(),
        place: EventPlace::Beside,
    }
}

impl Reconciler for RequestReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    /// Returns a part of its host's capacity: a slow host delays no other host, and a requester with many requests delays no requester with few.
    async fn permits(&self) -> Arc<Semaphore> {
        let request = self.current();
        let (provider, asker) = request.as_ref().map_or(("", ""), |request| {
            let asked_in = &request.spec.asked_in;
            (
                request.spec.provider.as_str(),
                asked_in.tenant.as_deref().unwrap_or(asked_in.namespace.as_str()),
            )
        });
        self.access_hub.host(provider).share(asker)
    }

    async fn run_round(&mut self) -> Result<Option<Next>, ClusterError> {
        let Some(request) = self.current() else { return Ok(None) };
        let now = Timestamp::now();
        let writer = ObjectWriter::new(request.as_ref());
        let has_finalizer = request
            .finalizers()
            .iter()
            .any(|finalizer| finalizer == TENURE_FINALIZER);
        let is_deleted = request.metadata.deletion_timestamp.is_some();
        if !has_finalizer && !is_deleted {
            writer
                .change_finalizer(&self.access_hub, &FinalizerChange::Add(TENURE_FINALIZER.to_owned()))
                .await?;
            return Ok(Some(Next::Again));
        }
        let circumstances = StepFacts::observe(&self.access_hub, &request);
        // Checked between rounds too: a plan from other circumstances is made again.
        if self.acted.as_ref() != Some(&circumstances) {
            self.restart();
        }
        self.acted = Some(circumstances.clone());
        let provider = self.access_hub.find_provider(&request.spec.provider);
        let case = RequestFacts {
            request: request.as_ref(),
            verdict: &circumstances.verdict,
            provider_state: self.access_hub.find_provider_state(provider.as_deref()),
            judges_writes: self.access_hub.hub.context.settings.judges_writes(),
            deliveries: circumstances.deliveries.as_deref(),
        };
        if let Some(until) = find_grace_end(case, self.begun, now) {
            return Ok(Some(Next::Wait(until)));
        }
        let names = list_namespaces(&request, circumstances.deliveries.as_deref());
        self.places.retain(|namespace, _| names.contains(namespace));
        let is_due = |namespace: &&String| {
            let Some(place) = self.places.get(namespace.as_str()) else {
                return true;
            };
            // The answer to the last step is handled now, not at the time of the next step.
            place.answer.is_some()
                || place.again.is_none_or(|again| again <= now)
                || place.has_news(&list_sources(&self.access_hub, &request.spec.secret_name, namespace))
        };
        let due: Vec<String> = names.iter().filter(is_due).take(WIDTH).cloned().collect();
        if !due.is_empty() {
            let actor = Actor::new(&self.access_hub, Arc::clone(&request)).await;
            let (mut records, mut steps) = (Vec::new(), Vec::new());
            for namespace in due {
                let planned = match actor.is_by_hand() {
                    true => actor.watch(case, &namespace).await,
                    false => {
                        let snapshot = self.observe_namespace(&actor, (case, &circumstances), &namespace).await;
                        snapshot.map(|snapshot| plan(&snapshot, Timestamp::now()))
                    }
                };
                let Some(planned) = planned else {
                    // No controller writes such a period.
                    self.places.entry(namespace).or_default().again = now.checked_add(IDLE).ok();
                    continue;
                };
                if let Some(result) = planned.trial {
                    let owner = self.name_owner(&namespace);
                    actor.host.record_trial(&actor.target(), &owner, result);
                }
                if planned.step == Some(Step::Begin) && !self.begin_trial(&actor, &namespace, &planned) {
                    // Another request was faster. The next plan sees that, and waits.
                    continue;
                }
                let look_again = later_by(now, self.access_hub.choose_look());
                let place = self.places.entry(namespace.clone()).or_default();
                match &planned.step {
                    None => {
                        // No watch reports a change of the Secret, so it is read again soon.
                        let again = planned.again.max(next_second(now));
                        place.again = Some(again.min(look_again));
                        place.secret = None;
                        if place.whole_again.is_none_or(|whole_again| whole_again <= now) {
                            place.accounts = None;
                            place.strict = None;
                            place.whole_again = Some(again);
                        }
                        if matches!(place.staging, Some(StagingState::Unknown(_))) {
                            place.staging = None;
                        }
                        self.access_hub
                            .set_waiting(&namespace, &self.key, is_followed(&planned));
                        place.plan = Some(planned);
                    }
                    Some(Step::Record | Step::Begin) => records.push((namespace, planned)),
                    Some(step) => steps.push((namespace, step.clone(), planned.ledger.clone())),
                }
            }
            if !records.is_empty() {
                if let Err(error) = self.record(&request, actor.kind, &records, now).await {
                    self.forget_answers();
                    return Err(error);
                }
                for (namespace, planned) in &records {
                    let place = self.places.entry(namespace.clone()).or_default();
                    let is_begun = planned.step == Some(Step::Begin);
                    place.answer = Some(if is_begun { Answer::Begun } else { Answer::Recorded });
                }
            }
            let actor = &actor;
            let answers: Vec<(String, Step, Option<Answer>)> = futures::stream::iter(steps)
                .map(|(namespace, step, ledger)| async move {
                    tracing::debug!(
                        request = actor.request.name_any(),
                        namespace,
                        step = step.name(),
                        "carries out a step"
                    );
                    let answer = actor.perform(&namespace, &step, &ledger).await;
                    (namespace, step, answer)
                })
                .buffer_unordered(WIDTH)
                .collect()
                .await;
            for (namespace, step, answer) in answers {
                let place = self.places.entry(namespace).or_default();
                place.answer = answer;
                if changes_secret(&step) {
                    place.secret = None;
                }
                if changes_staging(&step) {
                    place.staging = None;
                }
                if matches!(step, Step::ChangeAccounts(_)) {
                    place.accounts = None;
                }
            }
            return Ok(Some(Next::Again));
        }
        let notice = self.plan_notice(&request, &circumstances, now);
        let concluded = self
            .conclude(&request, &circumstances, notice.condition.clone(), now)
            .await;
        let current = self.current();
        if concluded.is_err() || current.is_none() {
            self.drop_notice(&request, &notice);
        }
        concluded?;
        let Some(request) = current else { return Ok(None) };
        if self.announce(&request, &notice, now).await? {
            return Ok(Some(Next::Again));
        }
        let is_empty = request
            .status
            .as_ref()
            .is_none_or(|status| status.credentials.is_empty() && status.notice.is_none());
        if is_deleted && is_empty {
            writer
                .change_finalizer(&self.access_hub, &FinalizerChange::Remove(TENURE_FINALIZER.to_owned()))
                .await?;
            return Ok(Some(Next::Done(None)));
        }
        let ends = find_end(&circumstances.verdict).map(|end| end.0);
        let again = self
            .places
            .values()
            .filter_map(|place| place.again)
            .chain(ends)
            .chain(notice.again)
            .min();
        let idle = now.checked_add(IDLE).unwrap_or(now);
        Ok(Some(Next::Wait(again.unwrap_or(idle).max(next_second(now)).min(idle))))
    }

    fn restart(&mut self) {
        for place in self.places.values_mut() {
            place.again = None;
            place.secret = None;
            place.accounts = None;
        }
    }

    async fn needs_attempt(&mut self, changed: &HashSet<ObjectId>) -> bool {
        if !changed.is_empty() {
            return true;
        }
        let Some(request) = self.current() else { return true };
        let news = self.acted.as_ref() != Some(&StepFacts::observe(&self.access_hub, &request));
        if news {
            self.restart();
        }
        news
    }

    fn forget(&mut self) {
        for namespace in self.places.keys() {
            self.access_hub.set_waiting(namespace, &self.key, false);
        }
        self.places.clear();
        self.notice = None;
        self.acted = None;
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}

fn later_by(now: Timestamp, span: Duration) -> Timestamp {
    now.checked_add(span).unwrap_or(Timestamp::MAX)
}

fn next_second(now: Timestamp) -> Timestamp {
    now.checked_add(SignedDuration::from_secs(1)).unwrap_or(now)
}

/// Checks whether the request waits for sources.
fn is_unproven(plan: &Plan) -> bool {
    let next = plan.ledger.next.as_ref();
    next.is_some_and(|next| next.phase == CredentialPhase::Distributed)
}

/// Checks whether the plan depends on the state of sources.
fn is_followed(plan: &Plan) -> bool {
    !plan.is_over && (plan.ledger.current.is_some() || is_unproven(plan))
}

fn changes_secret(step: &Step) -> bool {
    matches!(step, Step::Spread(_) | Step::Mark(_) | Step::DeleteSecret(_))
}

fn changes_staging(step: &Step) -> bool {
    matches!(step, Step::MintAndStage(_) | Step::ClearStaging)
}
