//! The decisions about Receivers: where requests are expected, who sent one, and which objects are reconciled then.
//!
//! ```text
//! spec, Secret ──[plan]──▶ path, status          a request ──[verify]──▶ from the expected sender? ──[filter]──▶ objects to reconcile
//! ```
//!
//! The path follows from the token, and is remembered as the plan found it: a forged status moves no request. A token goes in, and only this digest of it, which is
//! Flux's, comes out. This module doesn't know how a request arrived, nor its cost for the forwarding processes: `rate` bounds the number of requests.

mod check;
mod filter;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hook;
mod rate;
mod types;
mod verify;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::metadata::FLUX_FINALIZER;
use tenure_api::{Receiver, ReceiverStatus, reason};

pub use check::RECONCILED;
pub use filter::{Candidate, SelectedTargets, Target, estimate_work, find_announced, select_targets};
pub use hook::{Delivery, HEADERS, HookTarget, Verdict, WHOLE_BODY, find_token_access, list_sought, name_path};
pub use rate::{RECEIVER_RATE, Rate, TENANT_RATE, TokenBucket};
pub use types::{Attempt, CheckedFilters, HookPath, LastRead, Memory, Plan, Snapshot, Step, TokenFailure};
pub use verify::{is_path_of, verify_request};

use crate::expression::WORK;
use crate::list_limits;
use crate::outcome::{self, ConditionEntry, add_duration};
use crate::plan::{Event, EventKind, EventPlace, FinalizerChange, Next, Withheld};
use check::{Admitted, ReceiverProblem};

/// The common prefix of all Receivers' paths (Flux's).
pub const HOOK_PREFIX: &str = "/hook/";
/// The message of a Receiver that no request can reach.
const NOT_LISTENING: &str = "no listener takes requests to status.webhookPath. An administrator opens one with `tenure install --hooks`, or with --hook-address [ADDRESS:]PORT of `tenure run` and `tenure up`";
/// The first pause after the token could not be read; doubled up to the interval.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The time until the owner of a namespace is looked up again.
const PLACE_PAUSE: Duration = Duration::from_secs(30);

/// Finds the token of a Receiver in its Secret.
///
/// # Errors
/// A message that names the Secret and the key.
pub fn find_token<'a>(data: &'a BTreeMap<String, Vec<u8>>, secret: (&str, &str)) -> Result<&'a [u8], TokenFailure> {
    let (namespace, name) = secret;
    let wrong = |problem: &str| TokenFailure {
        message: format!("invalid '{namespace}/{name}' secret data: {problem}"),
        is_known: true,
    };
    match data.get("token") {
        Some(token) if token.is_empty() => Err(wrong("the field 'token' is empty, and would admit every sender")),
        Some(token) => Ok(token),
        None => Err(wrong("required fields 'token'")),
    }
}

/// Finds the path that follows from a token (Flux's).
#[must_use]
pub fn find_path(token: &[u8], receiver: &Receiver) -> HookPath {
    let mut digest = Sha256::new();
    digest.update(token);
    for name in [&receiver.metadata.name, &receiver.metadata.namespace] {
        digest.update(name.as_deref().unwrap_or_default().as_bytes());
    }
    HookPath(format!("{HOOK_PREFIX}{}", hex::encode(digest.finalize())))
}

impl Snapshot {
    /// Estimates the weight of the expressions in bytes of text, where work is queued by the size of its text.
    #[must_use]
    pub fn estimate_expression_work(&self) -> usize {
        let metadata = &self.receiver.metadata;
        let is_known = self
            .memory
            .checked
            .as_ref()
            .is_some_and(|checked| checked.uid == metadata.uid && checked.generation == metadata.generation);
        if is_known || list_limits::list_filters(&self.receiver.spec).is_empty() {
            0
        } else {
            WORK
        }
    }
}

/// Plans the next steps for a Receiver.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let metadata = &snapshot.receiver.metadata;
    let mut plan = Plan::idle(outcome::name_subject("Receiver", metadata), snapshot.memory.clone());
    if metadata.deletion_timestamp.is_some() {
        // Flux may have set this finalizer.
        if metadata
            .finalizers
            .iter()
            .flatten()
            .any(|finalizer| finalizer == FLUX_FINALIZER)
        {
            plan.finalizer = Some(FinalizerChange::Remove(FLUX_FINALIZER.to_owned()));
        }
        plan.memory.hook_path = None;
        plan.next = Next::Forget;
        return plan;
    }
    if snapshot.receiver.spec.suspend {
        plan.withheld.push(Withheld {
            what: "reconciliation".to_owned(),
            why: "spec.suspend is true".to_owned(),
        });
        return plan;
    }
    let admitted = match check::validate(snapshot, &mut plan.memory) {
        Ok(admitted) => admitted,
        Err(refusal) => return plan_stalled(snapshot, now, &refusal, plan),
    };
    let attempt = &snapshot.attempt;
    if attempt.generation != metadata.generation || attempt.requested_at != crate::read_requested_at(metadata) {
        plan.next = Next::Restart;
        return plan;
    }
    match &attempt.path {
        Some(Ok(path)) => plan_succeeded(snapshot, now, path, &admitted, plan),
        Some(Err(failure)) => plan_failed(snapshot, now, failure, &admitted, plan),
        None => match find_due(snapshot, &admitted).filter(|due| *due > now) {
            Some(due) => {
                plan.withheld.push(Withheld {
                    what: "reading the token".to_owned(),
                    why: format!("not due before {due}"),
                });
                plan.next = Next::Done(Some(due));
                plan
            }
            None => {
                plan.memory.read = Some(LastRead {
                    at: now,
                    uid: metadata.uid.clone(),
                    generation: metadata.generation,
                    requested_at: attempt.requested_at.clone(),
                });
                plan.identity = Some(admitted.identity);
                plan.steps.push(Step::ReadToken {
                    secret: admitted.secret,
                });
                plan.next = Next::Again;
                plan
            }
        },
    }
}

/// Finds the time of the next read of the token; nothing if no earlier read counts.
fn find_due(snapshot: &Snapshot, admitted: &Admitted) -> Option<Timestamp> {
    let (metadata, last) = (&snapshot.receiver.metadata, snapshot.memory.read.as_ref()?);
    let is_same = last.uid == metadata.uid
        && last.generation == metadata.generation
        && last.requested_at == snapshot.attempt.requested_at;
    (is_same && !snapshot.is_outdated).then(|| find_next(&snapshot.memory, last, admitted.interval))
}

/// Finds the time of the next read after the last one.
fn find_next(memory: &Memory, last: &LastRead, interval: Duration) -> Timestamp {
    let pause = match memory.failures {
        0 => tenure_api::jitter::add_jitter(interval, last.uid.as_deref().unwrap_or_default(), last.at),
        failures => FIRST_PAUSE
            .saturating_mul(2_u32.saturating_pow((failures - 1).min(16)))
            .min(interval),
    };
    add_duration(last.at, pause)
}

fn set(status: &mut ReceiverStatus, snapshot: &Snapshot, now: Timestamp, entry: ConditionEntry<'_>) {
    outcome::set_condition(&mut status.conditions, &snapshot.receiver.metadata, now, entry);
}

/// Returns the old status, from which a plan starts its new status.
fn begin_status(snapshot: &Snapshot) -> ReceiverStatus {
    let mut status = snapshot.receiver.status.clone().unwrap_or_default();
    outcome::record_handled_request(
        &mut status.last_handled_reconcile_at,
        snapshot.attempt.requested_at.as_ref(),
    );
    status
}

fn add_warning(snapshot: &Snapshot, plan: &mut Plan, reason: &str, message: &str) {
    let old = snapshot.receiver.status.as_ref();
    let old = old.map(|status| status.conditions.as_slice()).unwrap_or_default();
    plan.events
        .extend(outcome::make_event(old, EventKind::Warning, reason, message));
    plan.withheld.push(Withheld {
        what: "Ready".to_owned(),
        why: message.to_owned(),
    });
}

/// Ends a plan that does nothing until a user changes the object.
fn plan_stalled(snapshot: &Snapshot, now: Timestamp, refusal: &ReceiverProblem, mut plan: Plan) -> Plan {
    let mut status = begin_status(snapshot);
    let (reason, message) = (refusal.reason, refusal.message.as_str());
    condition::remove(&mut status.conditions, condition::RECONCILING);
    for (type_, value) in [
        (condition::READY, ConditionStatus::False),
        (condition::STALLED, ConditionStatus::True),
    ] {
        set(&mut status, snapshot, now, (type_, value, reason, message));
    }
    status.observed_generation = snapshot.receiver.metadata.generation;
    status.webhook_path = None;
    plan.memory = Memory {
        checked: plan.memory.checked.take(),
        ..Memory::default()
    };
    add_warning(snapshot, &mut plan, reason, message);
    if refusal.may_pass {
        plan.next = Next::Done(Some(add_duration(now, PLACE_PAUSE)));
    }
    plan.status = outcome::find_change(snapshot.receiver.status.as_ref(), &status);
    plan
}

/// Reports a missing token, or a missing answer. In the second case requests are still accepted: each reads the token by itself.
fn plan_failed(
    snapshot: &Snapshot,
    now: Timestamp,
    failure: &TokenFailure,
    admitted: &Admitted,
    mut plan: Plan,
) -> Plan {
    let mut status = begin_status(snapshot);
    plan.memory.failures = snapshot.memory.failures.saturating_add(1);
    if failure.is_known {
        status.webhook_path = None;
        plan.memory.hook_path = None;
    }
    condition::remove(&mut status.conditions, condition::STALLED);
    let message = failure.message.as_str();
    let not_ready = (
        condition::READY,
        ConditionStatus::False,
        reason::TOKEN_NOT_FOUND,
        message,
    );
    set(&mut status, snapshot, now, not_ready);
    let retrying = (
        condition::RECONCILING,
        ConditionStatus::True,
        reason::PROGRESSING_WITH_RETRY,
        "The last attempt failed; see Ready",
    );
    set(&mut status, snapshot, now, retrying);
    add_warning(snapshot, &mut plan, reason::TOKEN_NOT_FOUND, message);
    plan.next = Next::Done(find_next_look(&plan.memory, admitted));
    plan.status = outcome::find_change(snapshot.receiver.status.as_ref(), &status);
    plan
}

fn plan_succeeded(snapshot: &Snapshot, now: Timestamp, path: &HookPath, admitted: &Admitted, mut plan: Plan) -> Plan {
    let mut status = begin_status(snapshot);
    plan.memory.failures = 0;
    plan.memory.hook_path = Some(path.clone());
    for type_ in [condition::RECONCILING, condition::STALLED] {
        condition::remove(&mut status.conditions, type_);
    }
    let message = if snapshot.has_listener {
        format!("Receiver initialized for path: {}", path.as_str())
    } else {
        NOT_LISTENING.to_owned()
    };
    let (value, reason) = match snapshot.has_listener {
        true => (ConditionStatus::True, reason::SUCCEEDED),
        false => (ConditionStatus::False, reason::NO_LISTENER),
    };
    let is_news = !outcome::has_same_condition(&status.conditions, condition::READY, reason, &message);
    set(
        &mut status,
        snapshot,
        now,
        (condition::READY, value, reason, message.as_str()),
    );
    status.webhook_path = Some(path.as_str().to_owned());
    status.observed_generation = snapshot.receiver.metadata.generation;
    if !snapshot.has_listener {
        add_warning(snapshot, &mut plan, reason, &message);
    } else if is_news {
        // The event leaves out the path: a client that knows the path of a generic Receiver needs nothing else.
        plan.events.push(Event {
            kind: EventKind::Normal,
            reason: reason::SUCCEEDED.to_owned(),
            message: "Reconciliation finished: requests are taken at the path in status.webhookPath".to_owned(),
            annotations: BTreeMap::new(),
            place: EventPlace::default(),
        });
    }
    plan.next = Next::Done(find_next_look(&plan.memory, admitted));
    plan.status = outcome::find_change(snapshot.receiver.status.as_ref(), &status);
    plan
}

fn find_next_look(memory: &Memory, admitted: &Admitted) -> Option<Timestamp> {
    let last = memory.read.as_ref()?;
    Some(find_next(memory, last, admitted.interval))
}
