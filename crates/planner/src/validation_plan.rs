//! Plans for kinds that are only validated: Alert and Provider. The notifier uses these objects when an event occurs. A plan reports a problem in the status and in an
//! event, and takes no other action in the cluster. Each kind checks its own spec.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use tenure_api::condition::{self, Condition, ConditionStatus};
use tenure_api::metadata::FLUX_FINALIZER;
use tenure_api::{ObjectMeta, reason};
use tenure_tenancy::{Denial, ServiceAccount};

use crate::outcome::{self, add_duration};
use crate::plan::{self, EventKind, FinalizerChange, Next, Plan, Status, Withheld};

/// The time until the next look at a problem that may end by itself.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(30);

/// A plan without steps: it only writes the object's status, events, and the removal of a finalizer.
pub type ValidationPlan<T> = Plan<NoStep, ServiceAccount, T, ()>;

/// The step type of plans without steps. It has no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NoStep {}

impl plan::Step for NoStep {
    fn is_public(&self) -> bool {
        match *self {}
    }
}

impl fmt::Display for NoStep {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// The reason and message of an Alert or a Provider that is not Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotReady {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// True if only a change of the object helps. Then the object is also Stalled.
    pub(crate) is_final: bool,
}

impl NotReady {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            is_final: true,
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(reason::INVALID_SPEC, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(reason::UNSUPPORTED_FIELD, message)
    }

    /// Creates the reason of an object that is valid and waits for another object.
    pub(crate) fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            is_final: false,
            ..Self::new(reason, message)
        }
    }
}

impl From<Denial> for NotReady {
    fn from(denial: Denial) -> Self {
        Self::new(denial.reason.as_str(), denial.message)
    }
}

/// The fields of an Alert or a Provider that [`ValidatedObject::plan`] reads.
pub(crate) struct ValidatedObject<'a, T> {
    pub(crate) kind: &'static str,
    pub(crate) metadata: &'a ObjectMeta,
    pub(crate) is_suspended: bool,
    pub(crate) status: Option<&'a T>,
    /// Sets `observedGeneration` in a status.
    pub(crate) observe: fn(T, Option<i64>) -> T,
}

impl<T: Status> ValidatedObject<'_, T> {
    /// Plans the status of the object. `judge` validates the object and returns the message of Ready, or the reason why the object is not Ready.
    pub(crate) fn plan(&self, now: Timestamp, judge: impl FnOnce() -> Result<String, NotReady>) -> ValidationPlan<T> {
        let mut plan = Plan::idle(outcome::name_subject(self.kind, self.metadata), ());
        if self.metadata.deletion_timestamp.is_some() {
            let finalizers = self.metadata.finalizers.iter().flatten();
            // Flux may have set this finalizer.
            if finalizers.into_iter().any(|finalizer| finalizer == FLUX_FINALIZER) {
                plan.finalizer = Some(FinalizerChange::Remove(FLUX_FINALIZER.to_owned()));
            }
            plan.next = Next::Forget;
            return plan;
        }
        if self.is_suspended {
            plan.withheld.push(Withheld {
                what: "everything".to_owned(),
                why: "spec.suspend is true".to_owned(),
            });
            return plan;
        }
        let old = self.status.map(Status::conditions).unwrap_or_default();
        let mut status = (self.observe)(self.status.cloned().unwrap_or_default(), self.metadata.generation);
        let conditions = status.conditions_mut();
        condition::remove(conditions, condition::STALLED);
        match judge() {
            Ok(message) => {
                self.set(
                    conditions,
                    now,
                    (condition::READY, ConditionStatus::True, reason::SUCCEEDED, &message),
                );
            }
            Err(refusal) => {
                let (reason, message) = (refusal.reason, refusal.message.as_str());
                self.set(
                    conditions,
                    now,
                    (condition::READY, ConditionStatus::False, reason, message),
                );
                if refusal.is_final {
                    self.set(
                        conditions,
                        now,
                        (condition::STALLED, ConditionStatus::True, reason, message),
                    );
                }
                plan.events
                    .extend(outcome::make_event(old, EventKind::Warning, reason, message));
                plan.withheld.push(Withheld {
                    what: "Ready".to_owned(),
                    why: message.to_owned(),
                });
                // Without a change of the object, the owner of a namespace may become known, a name may get another address, and a Secret may be created.
                let may_end = [
                    reason::ACCESS_DENIED,
                    reason::IDENTITY_MISSING,
                    reason::ADDRESS_DENIED,
                    reason::AUTHENTICATION_FAILED,
                ];
                if may_end.contains(&reason) {
                    plan.next = Next::Done(Some(add_duration(now, PAUSE)));
                }
            }
        }
        plan.status = outcome::find_change(self.status, &status);
        plan
    }

    fn set(&self, conditions: &mut Vec<Condition>, now: Timestamp, entry: outcome::ConditionEntry<'_>) {
        outcome::set_condition(conditions, self.metadata, now, entry);
    }
}
