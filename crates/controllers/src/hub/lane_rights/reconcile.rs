//! A lane's rights in one namespace. The attempt stays from round to round. The plan makes every choice.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_api::metadata::{LANE_BINDING, TENURE_CONTROLLER};
use tenure_api::{ObjectId, Tenant};
use tenure_cluster::{Client, ClusterError, EventHistory, EventRecorder, LaneAccess, LaneAccount};
use tenure_planner::answer::WriteAnswer;
use tenure_planner::plan::{Event, EventPlace};
use tenure_planner::rights::{
    Attempt, LaneOwner, Memory, NamespaceState, Release, Snapshot, Step, plan, read_minting_review, read_review,
    write_minting_review, write_review,
};
use tenure_planner::{Failure, KnownObjects, Live, Next, Object};
use tenure_tenancy::{Placement, identity};
use tokio::sync::Semaphore;

use crate::cluster_view::cache::Cache;
use crate::cluster_view::key::Key;
use crate::hub::Hub;
use crate::lane::HubApi as _;
use crate::reconcile_loop::cluster_answers;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::object_writer::describe_event;
use crate::reconcile_loop::reconciled::Home as _;
use crate::reconcile_loop::step_executor::execute_steps;

/// The reconciler of a lane's rights in one namespace.
pub(super) struct RightsReconciler {
    hub: Arc<Hub>,
    key: Key,
    namespace: String,
    attempt: Attempt,
    memory: Memory,
    /// The facts from which the last plan was made.
    seen: Option<(NamespaceState, bool, Placement)>,
    answered: KnownObjects,
    event_history: EventHistory,
}

impl RightsReconciler {
    pub(super) fn new(hub: Arc<Hub>, namespace: &str) -> Self {
        Self {
            hub,
            key: Key::of_rights(namespace),
            namespace: namespace.to_owned(),
            attempt: Attempt::new(Timestamp::now()),
            memory: Memory::default(),
            seen: None,
            answered: KnownObjects::default(),
            event_history: EventHistory::default(),
        }
    }

    async fn observe_namespace(&self) -> (NamespaceState, bool, Placement) {
        let placement = self.hub.read_placement(&self.namespace).await;
        let state = match self.hub.namespaces.get("", &self.namespace) {
            None => NamespaceState::Unknown,
            Some(found) if found.metadata.deletion_timestamp.is_some() => NamespaceState::Ending,
            Some(_) => NamespaceState::Present,
        };
        (state, self.hub.is_worked_in(&self.namespace), placement)
    }

    /// Returns the lane's account and RoleBinding, as watches report them.
    fn list_live(&self, placement: &Placement) -> BTreeMap<ObjectId, Live> {
        let account = identity::decide_for_lane(placement, &self.namespace);
        let find = |cache: &Cache<DynamicObject>, namespace: &str, name: &str| {
            let object = serde_json::to_value(cache.get(namespace, name)?.as_ref()).ok()?;
            Some((ObjectId::from_object(&object).ok()?, Live::Present(Object(object))))
        };
        let account = find(&self.hub.lane_accounts, account.namespace(), account.name());
        let binding = find(&self.hub.lane_bindings, &self.namespace, LANE_BINDING);
        account.into_iter().chain(binding).collect()
    }

    async fn observe(&mut self) -> Snapshot {
        let (state, is_worked_in, placement) = self.observe_namespace().await;
        self.seen = Some((state, is_worked_in, placement.clone()));
        let live = self.list_live(&placement);
        let owner = match &placement {
            Placement::Tenant(tenant) => self.hub.caches.get::<Tenant>().get("", tenant.tenant.as_str()),
            _ => None,
        };
        Snapshot {
            namespace: self.namespace.clone(),
            state,
            is_worked_in,
            placement,
            owner: owner.and_then(|tenant| {
                Some(LaneOwner {
                    name: tenant.metadata.name.clone()?,
                    uid: tenant.metadata.uid.clone()?,
                })
            }),
            judges_writes: self.hub.context.settings.judges_writes(),
            live: self.answered.merge_watched(live),
            attempt: self.attempt.clone(),
            memory: self.memory.clone(),
        }
    }

    async fn perform(&mut self, step: &Step, controller: &Client) {
        match step {
            Step::Request(request) => {
                let clients = &self.hub.context.clients;
                let requests = std::slice::from_ref(request);
                for answer in execute_steps(clients, controller, requests, None, None).await {
                    self.answered.record_answer(&mut self.attempt.asked, answer);
                }
            }
            Step::Release(release) => {
                let released = remove_finalizer(controller, release).await;
                self.attempt.released = Some(match released {
                    Ok(object) => WriteAnswer::Done(Object(object)),
                    Err(error) => WriteAnswer::Failed(Failure::from(&error)),
                });
            }
            Step::Review(account) => {
                let answer = self.ask(account, &write_review(&self.namespace)).await;
                self.attempt.reviewed = Some(answer.map(|answer| read_review(&answer)));
            }
            Step::ReviewMinting(account) => {
                let answer = self.ask(account, &write_minting_review(&self.namespace)).await;
                self.attempt.minting = Some(answer.map(|answer| read_minting_review(&answer)));
            }
        }
    }

    /// Sends a review as the lane.
    async fn ask(&self, account: &LaneAccount, review: &Value) -> Result<Value, String> {
        let lane = self.hub.find_lane(&self.namespace).await;
        let client = self.hub.context.clients.for_lane(&LaneAccess {
            account: account.clone(),
            ..lane.access()
        });
        let answer = client.create(review, TENURE_CONTROLLER).await;
        answer
            .map(|answer| answer.object)
            .map_err(|error| cluster_answers::read_failure(&error).message)
    }

    /// Writes events as the lane of their namespace.
    async fn write_events(&mut self, events: &[Event]) {
        let platform = self.hub.platform_namespace().to_owned();
        // A watch may not have reported it yet.
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "namespace": self.namespace, "name": LANE_BINDING },
        });
        for event in events {
            tracing::warn!(namespace = self.namespace, reason = event.reason, "{}", event.message);
            let related = json!({ "apiVersion": "v1", "kind": "Namespace", "name": self.namespace });
            let (object, related, place) = match &event.place {
                EventPlace::Beside => (binding.clone(), None, self.namespace.as_str()),
                EventPlace::Platform | EventPlace::Kustomization { .. } => {
                    let metadata = json!({ "namespace": platform, "name": platform });
                    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
                    (object, Some(related), platform.as_str())
                }
            };
            let description = describe_event(event, related);
            let recorder = EventRecorder::new(self.hub.bookkeeper_of(place).await, self.key.kind.reporter);
            recorder.record(&mut self.event_history, &object, &description).await;
        }
    }
}

/// Removes the finalizer. A deleted object is no error.
async fn remove_finalizer(controller: &Client, release: &Release) -> Result<Value, ClusterError> {
    let id = &release.target.id;
    let resource = controller.resource(&release.target.api_version(), &id.kind).await?;
    let target = (id.namespace.as_str(), id.name.as_str());
    let patched = controller
        .merge_patch(&resource, target, None, TENURE_CONTROLLER, &release.patch)
        .await;
    match patched {
        Ok(applied) => Ok(applied.object),
        Err(ClusterError::NotFound { .. }) => Ok(Value::Null),
        Err(error) => Err(error),
    }
}

impl Reconciler for RightsReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the hub's own semaphore: no lane waits for this work, and this work waits for no lane.
    async fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.hub.context.rights)
    }

    async fn run_round(&mut self) -> Result<Option<Next>, ClusterError> {
        // observe
        let snapshot = self.observe().await;
        // plan
        let plan = plan(&snapshot, Timestamp::now());
        tracing::debug!(subject = plan.subject, steps = ?plan.steps, next = ?plan.next, withheld = ?plan.withheld, "planned");
        self.memory = plan.memory;
        self.hub.admit(&self.namespace, self.memory.admitted_account());
        self.hub
            .shared_minting
            .store_finding(&self.namespace, self.memory.shared_minting());
        // execute and write
        if let Some(identity) = plan.identity {
            let controller = self.hub.act_as(&identity.into(), "").await?;
            for step in &plan.steps {
                self.perform(step, &controller).await;
            }
        }
        self.write_events(&plan.events).await;
        Ok(Some(self.answered.check_end(
            plan.next,
            &self.attempt.asked,
            Timestamp::now(),
        )))
    }

    fn restart(&mut self) {
        self.answered.clear();
        self.attempt = Attempt::new(Timestamp::now());
    }

    async fn needs_attempt(&mut self, _changed: &HashSet<ObjectId>) -> bool {
        let now = self.observe_namespace().await;
        let news = self.answered.has_news(&self.list_live(&now.2));
        news || self.seen.as_ref() != Some(&now)
    }

    fn forget(&mut self) {
        self.answered.forget();
        self.memory = Memory::default();
        self.attempt = Attempt::new(Timestamp::now());
        self.hub.admit(&self.namespace, None);
        self.hub.shared_minting.store_finding(&self.namespace, None);
    }

    fn exists(&self) -> bool {
        self.hub.is_worked_in(&self.namespace) || self.hub.lane_bindings.get(&self.namespace, LANE_BINDING).is_some()
    }
}
