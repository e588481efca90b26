//! The writes of one attempt: the generator is created, replaced or deleted, once its record is stored.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tenure_api::artifact_generator::OutputArtifact;
use tenure_api::digest::digest_value;
use tenure_api::package_source::RecordedGenerator;
use tenure_api::{ObjectId, ObjectView, PackageSourceStatus, reason};

use super::generator::{OWN_KEYS, make_generator, make_id, watch_generator};
use super::{Plan, Problem, Snapshot, status};
use crate::answer::{DeleteAnswer, Failure, Live};
use crate::object::Object;
use crate::outcome::add_duration;
use crate::package_settings::{Settings, describe_refusal};
use crate::plan::{Delete, Next, Propagation, Request, Withheld};
use crate::recorded_objects::{
    Ownership, Record, Replace, Step, add_digest, derive_proof, find_drift, judge_ownership, make_creation,
    make_replacement,
};

/// The time until a changed object is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Plans the next writes, or the status if nothing is left to write.
pub(super) fn plan_writes(snapshot: &Snapshot, now: Timestamp, artifacts: &[OutputArtifact], mut plan: Plan) -> Plan {
    let id = make_id(snapshot);
    let Some(live) = snapshot.live.get(&id) else {
        plan.steps = vec![Step::Request(Request::Read(watch_generator(snapshot)))];
        plan.next = Next::Again;
        return plan;
    };
    let stored = snapshot
        .source
        .status
        .as_ref()
        .and_then(|status| status.generator.clone());
    // A record for another namespace is of earlier settings. Its generator is collected with the PackageSource.
    let mut record = stored
        .clone()
        .filter(|record| record.namespace == id.namespace && record.name == id.name);
    let ownership = judge_ownership(
        record.as_ref().map(|record| Record {
            uid: record.uid.as_deref(),
            proof_digests: &record.proof_digests,
        }),
        Some(live),
    );
    if let (Ownership::Ours(uid), Some(record)) = (ownership, &mut record) {
        if record.uid.is_none() {
            plan.memory.created = Some(uid.to_owned());
        }
        record.uid = Some(uid.to_owned());
        record.proof_digests.clear();
    }
    let wanted = snapshot
        .source
        .spec
        .source_ref
        .as_ref()
        .filter(|_| !artifacts.is_empty());
    let wanted = wanted.map(|reference| make_generator(&snapshot.source, &id, reference, artifacts));
    let mut writer = Writer {
        snapshot,
        now,
        id,
        plan,
    };
    let outcome = match (wanted, ownership) {
        (_, Ownership::Unread) => Ok(None),
        (_, Ownership::Unknown(failure)) => Err(describe_request(&snapshot.settings, &writer.id, "read", failure)),
        (Some(wanted), Ownership::Missing) => writer.create(&wanted, stored.as_ref(), &mut record),
        (Some(wanted), Ownership::Ours(_)) => writer.replace(live, &wanted),
        (Some(_), Ownership::Foreign) => Err(Problem {
            reason: reason::packages::GENERATOR_CONFLICT,
            message: format!(
                "{} exists and was not created by this PackageSource: delete it, or rename the PackageSource",
                writer.id.subject()
            ),
        }),
        (None, Ownership::Ours(uid)) => writer.delete(live, uid),
        (None, Ownership::Missing | Ownership::Foreign) => {
            record = None;
            Ok(None)
        }
    };
    let mut plan = writer.plan;
    match outcome {
        Ok(None) => status::report_result(snapshot, now, plan, record, artifacts.is_empty()),
        Err(problem) => status::report_failure(snapshot, now, plan, record, problem),
        Ok(Some((step, needs_record))) => {
            if needs_record {
                let mut status: PackageSourceStatus = snapshot.source.status.clone().unwrap_or_default();
                status.generator = record;
                plan.status = Some(status);
                plan.status_first = true;
            }
            plan.steps = vec![step];
            plan.next = Next::Again;
            plan
        }
    }
}

/// A step, and whether the record is stored before it; or nothing to do.
type NextStep = Result<Option<(Step, bool)>, Problem>;

struct Writer<'a> {
    snapshot: &'a Snapshot,
    now: Timestamp,
    id: ObjectId,
    plan: Plan,
}

fn describe_request(settings: &Settings, id: &ObjectId, verb: &str, failure: &Failure) -> Problem {
    let (reason, message) = describe_refusal(settings, id, (verb, failure), reason::RECONCILIATION_FAILED);
    Problem { reason, message }
}

impl Writer<'_> {
    /// Checks whether a request may be sent. A failure of this attempt, or one whose pause is not over, is the problem.
    fn check_failures(&mut self, asked: &str) -> Result<(), Problem> {
        let (id, attempt) = (&self.id, &self.snapshot.attempt);
        if let Some((verb, failure)) = attempt.find_failed_write(id) {
            let times = (attempt.started, self.now);
            self.plan
                .memory
                .retries
                .record_failure(id, (verb, asked.to_owned()), failure, times);
            return Err(describe_request(&self.snapshot.settings, id, verb, failure));
        }
        match self.plan.memory.retries.find_pending(id, asked, self.now) {
            Some(failed) => {
                let settings = &self.snapshot.settings;
                Err(describe_request(settings, id, &failed.verb, &failed.failure))
            }
            None => Ok(()),
        }
    }

    fn describe_input(&self, object: &Value) -> String {
        let attempt = &self.snapshot.attempt;
        let requested_at = attempt.requested_at.as_deref().unwrap_or_default();
        format!(
            "{} {requested_at} {}",
            attempt.generation.unwrap_or_default(),
            digest_value(object)
        )
    }

    fn create(
        &mut self,
        wanted: &Value,
        stored: Option<&RecordedGenerator>,
        record: &mut Option<RecordedGenerator>,
    ) -> NextStep {
        if self.snapshot.attempt.has_written(&self.id) {
            return Ok(None);
        }
        self.check_failures(&self.describe_input(wanted))?;
        let earlier = self.plan.memory.created.clone().unwrap_or_default();
        let proof = derive_proof(&[&self.snapshot.creation_proof, &earlier], &self.id);
        let mut intent = RecordedGenerator {
            name: self.id.name.clone(),
            namespace: self.id.namespace.clone(),
            proof_digests: record.take().map(|record| record.proof_digests).unwrap_or_default(),
            uid: None,
        };
        add_digest(&mut intent.proof_digests, &proof);
        let digest = intent.proof_digests.last().cloned().unwrap_or_default();
        let is_stored = stored == Some(&intent);
        *record = Some(intent);
        if is_stored {
            self.plan.memory.sent_records.remove(&digest);
            return Ok(Some((make_creation(&self.id, wanted, &proof, "PackageSource"), false)));
        }
        if self.plan.memory.sent_records.remove(&digest) {
            // The next attempt sends the record again: the definition may be another one then.
            *record = None;
            return Err(Problem {
                reason: reason::packages::RECORD_NOT_STORED,
                message: format!(
                    "the definition of packagesources.cozystack.io drops status.generator, so {} is not created: install Tenure's \
                     definition (tenure install --packages)",
                    self.id.subject()
                ),
            });
        }
        self.plan.memory.sent_records.insert(digest);
        Ok(Some((
            Step::Request(Request::Read(watch_generator(self.snapshot))),
            true,
        )))
    }

    fn replace(&mut self, live: &Live, wanted: &Value) -> NextStep {
        let Some(live) = live.object() else { return Ok(None) };
        let digest = digest_value(wanted);
        let digest_spec = |object: &Value| digest_value(object.get("spec").unwrap_or(&Value::Null));
        if let Some(written) = self.snapshot.attempt.find_written(&self.id) {
            self.plan.memory.retries.forget(&self.id);
            self.plan.memory.settled = Some((digest, digest_spec(written)));
            return Ok(None);
        }
        if ObjectView::new(live).is_being_deleted() {
            self.plan.withheld.push(Withheld {
                what: self.id.subject(),
                why: "it is being deleted: it is re-created when it is gone".to_owned(),
            });
            return Ok(None);
        }
        let Some(path) = find_drift(live, wanted, &OWN_KEYS) else {
            self.plan.memory.retries.forget(&self.id);
            return Ok(None);
        };
        if path.starts_with("spec") && self.plan.memory.settled == Some((digest, digest_spec(live))) {
            return Ok(None);
        }
        self.check_failures(&self.describe_input(wanted))?;
        let step = Step::Replace(Replace {
            target: watch_generator(self.snapshot),
            object: Object(make_replacement(live, wanted, &OWN_KEYS)),
            manager: tenure_api::package::PACKAGE_CONTROLLER.to_owned(),
            why: format!("{path} differs"),
        });
        Ok(Some((step, false)))
    }

    fn delete(&mut self, live: &Live, uid: &str) -> NextStep {
        let Some(live) = live.object().map(ObjectView::new) else {
            return Ok(None);
        };
        if live.is_being_deleted() {
            return Ok(None);
        }
        match self.snapshot.attempt.deleted.get(&self.id) {
            Some(DeleteAnswer::Accepted | DeleteAnswer::Absent) => return Ok(None),
            Some(DeleteAnswer::Changed { .. }) => {
                self.plan.next = Next::Done(Some(add_duration(self.now, LOOK_AGAIN)));
                return Ok(None);
            }
            Some(DeleteAnswer::Failed(failure)) => {
                let times = (self.snapshot.attempt.started, self.now);
                let retries = &mut self.plan.memory.retries;
                retries.record_failure(&self.id, ("delete", "delete".to_owned()), failure, times);
                return Err(describe_request(&self.snapshot.settings, &self.id, "delete", failure));
            }
            None => self.check_failures("delete")?,
        }
        let delete = Delete {
            target: watch_generator(self.snapshot),
            uid: Some(uid.to_owned()),
            resource_version: live.find_text("/metadata/resourceVersion").map(str::to_owned),
            propagation: Propagation::Background,
            why: "the PackageSource makes no artifacts any more".to_owned(),
        };
        Ok(Some((Step::Request(Request::Delete(delete)), false)))
    }
}
