//! Plans for objects that are only checked, and that other parts use when something happens: an Alert and a Provider. The status and an event report a problem; nothing
//! is done in the cluster for the object. Each kind checks its own spec.

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

/// A plan that has nothing to do in the cluster.
pub type ValidationPlan<T> = Plan<NoStep, ServiceAccount, T, ()>;

/// A step that cannot exist.
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

/// The reason for which an object is not Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Whether a user has to change the object, so that it is Stalled.
    pub(crate) is_final: bool,
}

impl Refusal {
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

    /// Creates the refusal of an object that waits for another one, without a fault of its own.
    pub(crate) fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            is_final: false,
            ..Self::new(reason, message)
        }
    }
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        Self::new(denial.reason.as_str(), denial.message)
    }
}

/// The input of a plan.
pub(crate) struct ValidatedObject<'a, T> {
    pub(crate) kind: &'static str,
    pub(crate) metadata: &'a ObjectMeta,
    pub(crate) is_suspended: bool,
    pub(crate) status: Option<&'a T>,
    /// The status with this generation observed.
    pub(crate) observe: fn(T, Option<i64>) -> T,
}

impl<T: Status> ValidatedObject<'_, T> {
    /// Makes the plan: `judge` returns the message of Ready, or the reason for which the object is not Ready.
    pub(crate) fn plan(&self, now: Timestamp, judge: impl FnOnce() -> Result<String, Refusal>) -> ValidationPlan<T> {
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
