//! The common data of every phase of a plan: the snapshot, the time, admission's decision, and the memory that the plan hands on.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::kustomization::{DeletionPolicy, KustomizationStatus};
use tenure_api::{KustomizationSpec, ObjectId, reason};
use tenure_tenancy::{Placement, ServiceAccount};

use super::Plan;
use super::apply_mode::{ApplyMode, DetectedDifference};
use super::ignore::Ignored;
use super::remote_cluster;
use super::step::Step;
use super::types::{Memory, Snapshot};
use crate::answer::Live;
use crate::outcome::add_duration;
use crate::overlay::Overlay;
use crate::plan::{Event, Next, Request, Watched, Withheld};
use crate::target::Target;

/// The time for reads after the attempt's deadline.
const LAST_LOOK: Duration = Duration::from_secs(10);

/// The data that the phases of one plan share and fill in.
pub(super) struct Context<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) now: Timestamp,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) identity: ServiceAccount,
    pub(super) interval: Duration,
    pub(super) retry_interval: Duration,
    pub(super) timeout: Duration,
    /// Folder to render, normalised.
    pub(super) path: String,
    /// The overlay that is laid over the folder.
    pub(super) overlay: Overlay,
    /// The part of Git's content that is applied.
    pub(super) mode: ApplyMode,
    /// The differences that [`ApplyMode::DetectOnly`] found.
    pub(super) detected: Vec<DetectedDifference>,
    /// The fields and objects that are left to other writers.
    pub(super) ignored: Arc<Ignored>,
    pub(super) memory: Memory,
    /// The objects that the inventory names, computed at the first use.
    pub(super) named: Arc<OnceLock<HashSet<String>>>,
    pub(super) withheld: Vec<Withheld>,
    pub(super) events: Vec<Event>,
    pub(super) watch: Vec<Watched>,
    /// The cluster to apply to, if it isn't this one and is known already.
    pub(super) target: Option<Arc<Target>>,
    /// Revision of the artifact, once it is known.
    pub(super) revision: Option<String>,
    /// Digest of the build result, once it is known. From then on the history records the end of the attempt.
    pub(super) built: Option<String>,
}

impl<'a> Context<'a> {
    pub(super) fn spec(&self) -> &'a KustomizationSpec {
        &self.snapshot.kustomization.spec
    }

    pub(super) fn status(&self) -> KustomizationStatus {
        self.snapshot.kustomization.status.clone().unwrap_or_default()
    }

    pub(super) fn find_live(&self, id: &ObjectId) -> Option<&'a Live> {
        self.snapshot.live.get(id)
    }

    /// Returns the known state of an object of this cluster.
    pub(super) fn find_here(&self, id: &ObjectId) -> Option<&'a Live> {
        self.snapshot.find_here(id)
    }

    /// Checks whether the stored inventory names an object.
    pub(super) fn is_named(&self, id: &ObjectId) -> bool {
        let named = self.named.get_or_init(|| {
            let status = self.snapshot.kustomization.status.as_ref();
            let inventory = status.and_then(|status| status.inventory.as_ref());
            let entries = inventory.into_iter().flat_map(|inventory| &inventory.entries);
            entries.map(|entry| entry.id.clone()).collect()
        });
        named.contains(&id.to_string())
    }

    /// Returns the placement that bounds the writes.
    pub(super) fn find_bounds(&self) -> Cow<'a, Placement> {
        self.snapshot.find_bounds()
    }

    pub(super) fn withhold(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.withheld.push(Withheld {
            what: what.into(),
            why: why.into(),
        });
    }

    /// Returns a plan with these steps, after whose answers the shell plans again. After the attempt's deadline, returns the end of the attempt instead.
    pub(super) fn plan_again<S: Into<Step>>(self, steps: Vec<S>) -> Box<Plan> {
        let steps: Vec<Step> = steps.into_iter().map(Into::into).collect();
        let deadline = add_duration(self.find_start(), self.timeout);
        let reads_only = steps.iter().all(|step| {
            matches!(
                step,
                Step::Ask(Request::Read(_)) | Step::ReadHere(_) | Step::OrderToken(_)
            )
        });
        if self.now >= deadline && !reads_only {
            let attempt = self.snapshot.attempt.started;
            let mut waits = self.memory.waiting.iter().chain(&self.memory.prune_waiting);
            if waits.any(|waiting| waiting.attempt == attempt) {
                // The attempt had applied everything and was waiting. New steps belong to another attempt, with its own time.
                return Box::new(self.into_plan(Next::Restart));
            }
            let message = super::outcome::describe_timeout(&self, &steps);
            return super::outcome::plan_failed(self, reason::RECONCILIATION_FAILED, message);
        }
        let identity = self.identity.clone();
        let now = self.now;
        let mut plan = self.into_plan(Next::Again);
        plan.identity = Some(identity);
        plan.steps = steps;
        // Reads may still run after the deadline, before the plan reports that something is missing.
        plan.deadline = Some(if reads_only {
            deadline.max(add_duration(now, LAST_LOOK))
        } else {
            deadline
        });
        Box::new(plan)
    }

    /// Returns a plan without steps or status.
    pub(super) fn into_plan(self, next: Next) -> Plan {
        let mut plan = Plan::idle(name_subject(self.snapshot), self.memory);
        plan.identity = Some(self.identity);
        plan.withheld = self.withheld;
        plan.events = self.events;
        plan.watch = self.watch;
        plan.target = self.target;
        plan.watch_here = remote_cluster::list_local_objects(self.snapshot);
        plan.next = next;
        plan
    }

    /// Returns a copy of the gathered data, for a phase that borrows the context and has to end.
    pub(super) fn fork(&self) -> Context<'a> {
        Context {
            snapshot: self.snapshot,
            now: self.now,
            namespace: self.namespace,
            name: self.name,
            identity: self.identity.clone(),
            interval: self.interval,
            retry_interval: self.retry_interval,
            timeout: self.timeout,
            path: self.path.clone(),
            overlay: self.overlay.clone(),
            mode: self.mode,
            detected: self.detected.clone(),
            ignored: Arc::clone(&self.ignored),
            memory: self.memory.clone(),
            named: Arc::clone(&self.named),
            withheld: self.withheld.clone(),
            events: self.events.clone(),
            watch: self.watch.clone(),
            target: self.target.clone(),
            revision: self.revision.clone(),
            built: self.built.clone(),
        }
    }

    /// Returns the end of the attempt, including waits.
    pub(super) fn find_deadline(&self) -> Timestamp {
        let since = match &self.memory.waiting {
            Some(waiting)
                if Some(&waiting.revision) == self.revision.as_ref()
                    && waiting.generation == self.snapshot.kustomization.metadata.generation =>
            {
                waiting.since
            }
            _ => self.find_start(),
        };
        add_duration(since, self.timeout)
    }

    /// Returns the start of the attempt's own time.
    pub(super) fn find_start(&self) -> Timestamp {
        let attempt = &self.snapshot.attempt;
        attempt.rendered_at.unwrap_or(attempt.started)
    }
}

/// Returns `Kustomization/namespace/name`.
pub(super) fn name_subject(snapshot: &Snapshot) -> String {
    crate::outcome::name_subject("Kustomization", &snapshot.kustomization.metadata)
}

/// Checks whether deleting the Kustomization deletes its objects.
pub(super) fn deletes_objects(spec: &KustomizationSpec) -> bool {
    match spec.deletion_policy() {
        Some(DeletionPolicy::MirrorPrune) => spec.prune,
        Some(DeletionPolicy::Delete | DeletionPolicy::WaitForTermination) => true,
        // An invalid policy deletes nothing: remaining objects can still be deleted later, deleted ones are lost.
        Some(DeletionPolicy::Orphan) | None => false,
    }
}
