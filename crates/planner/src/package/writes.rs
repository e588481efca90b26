//! The writes of one attempt: namespaces, then new and changed HelmReleases, and allowed removals.
//!
//! Dependencies hold up creations only. So a release is put back, and a component is disabled, while a dependency is not ready.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::metadata::TENURE_FINALIZER;
use tenure_api::package::PackageRelease;
use tenure_api::{ObjectId, ObjectView, digest::digest_value, reason};

use super::desired::{Desired, DesiredRelease};
use super::records::{self, Records};
use super::release::{OWN_KEYS, lacks_literal};
use super::selection::{HELM_VERSION, Problem};
use super::{Plan, PutBack, SettledWrite, Snapshot, namespaces, removal, status};
use crate::answer::{DeleteAnswer, Failure, Live};
use crate::object::Object;
use crate::outcome::add_duration;
use crate::plan::{Delete, FinalizerChange, Next, Request, Watched, Withheld};
use crate::recorded_objects::{
    Ownership, Replace, Step, add_digest, derive_proof, find_drift, list_added_managers, make_apply, make_creation,
    make_replacement,
};

/// Changes of one HelmRelease by others that are put back at once, within [`CONTEST`]. Later ones wait for its end.
const PUT_BACK_AT_ONCE: u32 = 5;
/// The period in which changes by others are counted.
const CONTEST: Duration = Duration::from_secs(60);

/// The state of an attempt while it is planned.
pub(super) struct Work<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) now: Timestamp,
    pub(super) plan: Plan,
    pub(super) records: Records,
    pub(super) problems: Vec<Problem>,
    /// Other field managers that keep changing a HelmRelease.
    pub(super) contested: BTreeMap<ObjectId, Vec<String>>,
    /// The first time at which something can be tried again.
    pub(super) retry: Option<Timestamp>,
}

/// Returns a HelmRelease to read and watch.
pub(super) fn watch_release(id: &ObjectId) -> Watched {
    Watched {
        id: id.clone(),
        version: HELM_VERSION.to_owned(),
    }
}

/// Lists the objects to watch: wanted and recorded HelmReleases, and their Namespaces.
pub(super) fn list_watched(snapshot: &Snapshot, desired: &Desired) -> Vec<Watched> {
    let recorded = records::read_records(&snapshot.package).into_keys();
    let releases: BTreeSet<ObjectId> = recorded
        .chain(desired.releases.iter().map(|desired| desired.id.clone()))
        .collect();
    let namespaces = desired
        .namespaces
        .iter()
        .map(|(name, _)| namespaces::watch_namespace(name));
    namespaces.chain(releases.iter().map(watch_release)).collect()
}

/// Plans the next writes, or the status if nothing is left to write.
pub(super) fn plan_writes(snapshot: &Snapshot, now: Timestamp, desired: &Desired, mut plan: Plan) -> Plan {
    let unread = plan
        .watch
        .iter()
        .filter(|watched| !snapshot.live.contains_key(&watched.id));
    let reads: Vec<Step> = unread
        .map(|watched| Step::Request(Request::Read(watched.clone())))
        .collect();
    if !reads.is_empty() {
        plan.steps = reads;
        plan.next = Next::Again;
        return plan;
    }
    let is_watched: BTreeSet<&ObjectId> = plan.watch.iter().map(|watched| &watched.id).collect();
    plan.memory.retries.retain(|id| is_watched.contains(id));
    plan.memory.settled.retain(|id, _| is_watched.contains(id));
    plan.memory
        .put_back
        .retain(|id, put_back| is_watched.contains(id) && now < add_duration(put_back.since, CONTEST));
    let mut work = Work {
        snapshot,
        now,
        plan,
        records: records::update_records(snapshot, |id| desired.find(id).is_some()),
        problems: Vec::new(),
        contested: BTreeMap::new(),
        retry: None,
    };
    work.remember_results(desired);
    let mut ready_namespaces = BTreeSet::new();
    match &desired.hold {
        Some(problem) => work.hold_everything(problem),
        None => {
            let steps = work.write_namespaces(desired, &mut ready_namespaces);
            if !steps.is_empty() {
                work.plan.steps = steps;
                work.plan.next = Next::Again;
                return work.plan;
            }
        }
    }
    let mut reads = Vec::new();
    let mut steps = Vec::new();
    if desired.hold.is_none() {
        for release in &desired.releases {
            if ready_namespaces.contains(&release.release.namespace) {
                work.write_release(release, desired.wait.as_ref(), &mut reads, &mut steps);
            }
        }
    }
    let leftovers = removal::list_leftovers(&work, |id| desired.find(id).is_some());
    let removal = removal::plan_removal(&mut work, leftovers, &desired.disabled);
    let deletes = work.delete(&removal.deletes);
    let is_marked = !deletes.is_empty();
    steps.extend(deletes);
    let needs_record = !reads.is_empty();
    let steps: Vec<Step> = reads.into_iter().chain(steps).collect();
    if steps.is_empty() {
        return status::report_result(work, desired, &removal);
    }
    if needs_record || is_marked {
        work.store_records_first();
    }
    work.plan.steps = steps;
    work.plan.next = Next::Again;
    work.plan
}

impl Work<'_> {
    /// Stores the records before the steps of this plan, unless the status has them already.
    pub(super) fn store_records_first(&mut self) {
        let stored = self.snapshot.package.status.clone().unwrap_or_default();
        let mut status = stored.clone();
        status.releases = records::list_records(&self.records);
        if status == stored {
            return;
        }
        let finalizers = self.snapshot.package.metadata.finalizers.as_deref().unwrap_or_default();
        let is_going = self.snapshot.package.metadata.deletion_timestamp.is_some();
        if !is_going && !status.releases.is_empty() && !finalizers.iter().any(|finalizer| finalizer == TENURE_FINALIZER)
        {
            self.plan.finalizer = Some(FinalizerChange::Add(TENURE_FINALIZER.to_owned()));
        }
        self.plan.status = Some(status);
        self.plan.status_first = true;
    }

    fn withhold(&mut self, what: String, why: impl Into<String>) {
        self.plan.withheld.push(Withheld { what, why: why.into() });
    }

    fn report(&mut self, what: String, problem: Problem) {
        self.withhold(what, problem.message.clone());
        self.problems.push(problem);
    }

    fn hold_everything(&mut self, problem: &Problem) {
        self.report("HelmReleases".to_owned(), problem.clone());
    }

    pub(super) fn try_again_at(&mut self, at: Timestamp) {
        self.retry = Some(self.retry.map_or(at, |retry| retry.min(at)));
    }

    /// Reports a failed request, and notes its next try.
    fn report_failure(&mut self, id: &ObjectId, (verb, asked): (&str, String), failure: &Failure) {
        let times = (self.snapshot.attempt.started, self.now);
        self.plan
            .memory
            .retries
            .record_failure(id, (verb, asked), failure, times);
        let problem = Problem::of_failure(&self.snapshot.settings, id, verb, failure);
        self.report(id.subject(), problem);
    }

    /// Checks whether a request may be sent. A failure of this attempt, or one whose pause is not over, is reported.
    fn may_send(&mut self, id: &ObjectId, asked: &str) -> bool {
        if let Some((verb, failure)) = self.snapshot.attempt.find_failed_write(id) {
            self.report_failure(id, (verb, asked.to_owned()), &failure.clone());
            return false;
        }
        if let Some(failed) = self.plan.memory.retries.find_pending(id, asked, self.now).cloned() {
            let problem = Problem::of_failure(&self.snapshot.settings, id, &failed.verb, &failed.failure);
            self.report(id.subject(), problem);
            return false;
        }
        true
    }

    fn describe_input(&self, object: &Value) -> String {
        let attempt = &self.snapshot.attempt;
        format!(
            "{} {} {}",
            attempt.generation.unwrap_or_default(),
            attempt.requested_at.as_deref().unwrap_or_default(),
            digest_value(object)
        )
    }

    /// Remembers the results of successful writes.
    fn remember_results(&mut self, desired: &Desired) {
        let stored = records::read_records(&self.snapshot.package);
        for (id, record) in &self.records {
            let is_new = stored.get(id).is_none_or(|stored| stored.uid.is_none());
            if let Some(uid) = record.uid.clone().filter(|_| is_new) {
                self.plan.memory.created.insert(id.clone(), uid);
            }
        }
        for release in &desired.releases {
            let Ok(planned) = &release.object else { continue };
            let Some(written) = self.snapshot.attempt.find_written(&release.id) else {
                continue;
            };
            self.plan.memory.retries.forget(&release.id);
            let settled = SettledWrite {
                planned: digest_value(planned),
                stored: digest_stored(written),
            };
            self.plan.memory.settled.insert(release.id.clone(), settled);
        }
    }

    /// Returns the applies of namespaces, and names those that releases can be written in.
    fn write_namespaces(&mut self, desired: &Desired, ready: &mut BTreeSet<String>) -> Vec<Step> {
        let mut steps = Vec::new();
        for (name, is_privileged) in &desired.namespaces {
            let id = namespaces::make_namespace_id(name);
            let applied = namespaces::make_namespace(name, *is_privileged);
            match self.snapshot.live.get(&id) {
                Some(Live::Failed(failure)) => {
                    let problem = Problem::of_failure(&self.snapshot.settings, &id, "read", failure);
                    self.report(id.subject(), problem);
                }
                Some(Live::Present(live)) if live.view().is_being_deleted() => {
                    let message = format!(
                        "{} is being deleted: its releases are created when it is gone",
                        id.subject()
                    );
                    self.report(
                        id.subject(),
                        Problem::new(reason::packages::HELM_RELEASE_FAILED, message),
                    );
                }
                // The labels of a Tenant's namespace are the Tenant's.
                Some(Live::Present(_)) if self.snapshot.tenants.contains_key(name) => {
                    ready.insert(name.clone());
                }
                Some(Live::Present(live))
                    if namespaces::is_as_applied(&live.0, &applied) || self.snapshot.attempt.has_written(&id) =>
                {
                    self.plan.memory.retries.forget(&id);
                    ready.insert(name.clone());
                }
                _ => {
                    let asked = self.describe_input(&applied);
                    if self.may_send(&id, &asked) {
                        steps.push(Step::Request(Request::Apply(make_apply(&id, applied, "Package"))));
                    }
                }
            }
        }
        steps
    }

    /// Adds the write of a wanted release: a read while its record is stored, a creation or a replacement.
    fn write_release(
        &mut self,
        desired: &DesiredRelease,
        wait: Option<&Problem>,
        reads: &mut Vec<Step>,
        steps: &mut Vec<Step>,
    ) {
        let id = &desired.id;
        let planned = match &desired.object {
            Ok(planned) => planned,
            Err(problem) => return self.report(id.subject(), problem.clone()),
        };
        match records::judge(&self.records, id, &self.snapshot.live) {
            Ownership::Unread => {}
            Ownership::Unknown(failure) => {
                let problem = Problem::of_failure(&self.snapshot.settings, id, "read", failure);
                self.report(id.subject(), problem);
                self.try_again_at(add_duration(self.now, Duration::from_secs(30)));
            }
            Ownership::Foreign => {
                let message = format!(
                    "{} exists and was not created by this Package: delete it, or give component {} another install.releaseName",
                    id.subject(),
                    desired.component
                );
                self.report(id.subject(), Problem::new(reason::packages::RELEASE_CONFLICT, message));
            }
            Ownership::Missing => match wait {
                _ if self.snapshot.attempt.has_written(id) => {}
                Some(problem) => self.withhold(id.subject(), problem.message.clone()),
                None => self.create(desired, planned, reads, steps),
            },
            Ownership::Ours(_) => {
                if let Some(live) = self.snapshot.live.get(id).and_then(Live::object) {
                    self.put_back(id, live, planned, steps);
                }
            }
        }
    }

    /// Adds the creation of a release, or the read after which its record is stored.
    fn create(&mut self, desired: &DesiredRelease, planned: &Value, reads: &mut Vec<Step>, steps: &mut Vec<Step>) {
        let id = &desired.id;
        let asked = self.describe_input(planned);
        if !self.may_send(id, &asked) {
            return;
        }
        // A later object of this name has another proof, since readers of the first one know its proof.
        let earlier = self.plan.memory.created.get(id).map(String::as_str).unwrap_or_default();
        let proof = derive_proof(&[&self.snapshot.creation_proof, earlier], id);
        let mut record = PackageRelease {
            component: desired.component.clone(),
            name: desired.release.name.clone(),
            namespace: desired.release.namespace.clone(),
            // Digests stay while no uid is known: a request of a killed process may still arrive.
            proof_digests: self
                .records
                .get(id)
                .map(|known| known.proof_digests.clone())
                .unwrap_or_default(),
            removing: false,
            uid: None,
        };
        add_digest(&mut record.proof_digests, &proof);
        let digest = record.proof_digests.last().cloned().unwrap_or_default();
        let stored = records::read_records(&self.snapshot.package);
        self.records.insert(id.clone(), record.clone());
        if stored.get(id) == Some(&record) {
            self.plan.memory.sent_records.remove(&digest);
            steps.push(make_creation(id, planned, &proof, "Package"));
            return;
        }
        if self.plan.memory.sent_records.remove(&digest) {
            // The next attempt sends the record again: the definition may be another one then.
            self.records.remove(id);
            let message = format!(
                "the definition of packages.cozystack.io drops status.releases, so {} is not created: install Tenure's definition \
                 (tenure install --packages)",
                id.subject()
            );
            return self.report(id.subject(), Problem::new(reason::packages::RECORD_NOT_STORED, message));
        }
        self.plan.memory.sent_records.insert(digest);
        reads.push(Step::Request(Request::Read(watch_release(id))));
    }

    /// Adds the replacement of a release that differs from its plan.
    fn put_back(&mut self, id: &ObjectId, live: &Value, planned: &Value, steps: &mut Vec<Step>) {
        if ObjectView::new(live).is_being_deleted() {
            return self.withhold(id.subject(), "it is being deleted: it is re-created when it is gone");
        }
        let Some(path) = find_drift(live, planned, &OWN_KEYS) else {
            self.plan.memory.retries.forget(id);
            return;
        };
        let digest = digest_value(planned);
        let settled = self.plan.memory.settled.get(id);
        let is_by_others = settled.is_some_and(|settled| settled.planned == digest);
        let is_settled = is_by_others && settled.is_some_and(|settled| settled.stored == digest_stored(live));
        if is_settled && lacks_literal(live, planned) {
            let message = format!(
                "{}: the definition of HelmReleases drops spec.valuesFrom[].literal, so a value from a Secret or ConfigMap is read as helm --set reads it: \
                 install helm-controller 1.6 or later",
                id.subject()
            );
            self.report(
                id.subject(),
                Problem::new(reason::packages::HELM_RELEASE_FAILED, message),
            );
        }
        if is_settled || self.snapshot.attempt.has_written(id) {
            return;
        }
        let asked = self.describe_input(planned);
        if !self.may_send(id, &asked) {
            return;
        }
        if is_by_others && !self.count_put_back(id, live, &path) {
            return;
        }
        steps.push(Step::Replace(Replace {
            target: watch_release(id),
            object: Object(make_replacement(live, planned, &OWN_KEYS)),
            manager: tenure_api::package::PACKAGE_CONTROLLER.to_owned(),
            why: format!("{path} differs"),
        }));
    }

    /// Counts a change of another client. Returns whether it is put back now.
    fn count_put_back(&mut self, id: &ObjectId, live: &Value, path: &str) -> bool {
        let first = PutBack {
            since: self.now,
            times: 0,
        };
        let put_back = self.plan.memory.put_back.entry(id.clone()).or_insert(first);
        if put_back.times >= PUT_BACK_AT_ONCE {
            let until = add_duration(put_back.since, CONTEST);
            self.contested.insert(id.clone(), list_added_managers(live));
            self.withhold(
                id.subject(),
                format!("{path} was changed by another client again and again: it is put back at {until}"),
            );
            self.try_again_at(until);
            return false;
        }
        put_back.times += 1;
        true
    }

    /// Returns the deletions that this attempt has not made yet.
    pub(super) fn delete(&mut self, deletes: &[Delete]) -> Vec<Step> {
        let mut steps = Vec::new();
        for delete in deletes {
            let id = &delete.target.id;
            match self.snapshot.attempt.deleted.get(id) {
                None => {
                    if self.may_send(id, "delete") {
                        steps.push(Step::Request(Request::Delete(delete.clone())));
                    }
                }
                Some(DeleteAnswer::Accepted | DeleteAnswer::Absent) => self.plan.memory.retries.forget(id),
                // The object has another version: the next attempt examines it again.
                Some(DeleteAnswer::Changed { .. }) => self.try_again_at(add_duration(self.now, Duration::from_secs(1))),
                Some(DeleteAnswer::Failed(failure)) => {
                    self.report_failure(id, ("delete", "delete".to_owned()), &failure.clone());
                }
            }
        }
        steps
    }
}

/// Returns the digest of the parts of a live object that a plan decides.
fn digest_stored(live: &Value) -> String {
    let metadata = |key: &str| live.pointer(&format!("/metadata/{key}")).cloned().unwrap_or_default();
    let mut spec = live.get("spec").cloned().unwrap_or_default();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("suspend");
    }
    digest_value(&json!([
        spec,
        metadata("labels"),
        metadata("annotations"),
        metadata("ownerReferences")
    ]))
}
