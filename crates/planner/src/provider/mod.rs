//! The decisions about Providers: whether a Provider can be used, the objects to read for it, the request, and the meaning of an answer.
//!
//! ```text
//! spec ──[plan]──▶ status          news ──[needs]──▶ Secrets to read ──[write_sending]──▶ Sending ──▶ answer ──[judge]──▶ sent, again, failed
//! ```
//!
//! An address may be a secret, and so may everything in it. Then a message about a Sending names the Secret, and no message ever quotes a receiver's answer. This
//! module opens no connection.

mod access;
mod alertmanager;
mod check;
mod commit;
mod expression;
mod send;
mod slack;
mod teams;
mod verdict;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_api::{Provider, ProviderStatus};
use tenure_tenancy::Placement;

pub use access::SecretContent;
pub use check::{ProviderType, find_problem, find_reported_problem, find_timeout, needs_check};
pub use expression::needs_budget;
pub use send::{Destination, PreparedNotification, RequiredObjects, Secrets, write_sending};
pub use tenure_remote_requests::address::Address;
pub use tenure_remote_requests::notification::{Answer, Method, NotificationRequest, SecretData};
pub use verdict::{ATTEMPTS, LONGEST_PAUSE, NOTIFICATION_RATE, TENANT_NOTIFICATION_RATE, Verdict, find_pause};

use crate::plan::Status;
use crate::receiver::TokenFailure;
use crate::validation_plan::{ValidatedObject, ValidationPlan};

/// A plan for a Provider.
pub type Plan = ValidationPlan<ProviderStatus>;

/// The input of a plan for a Provider: the Provider, its tenancy, and the check of its receiver.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The Provider as last read, status included.
    pub provider: Provider,
    /// The owner of the Provider's namespace.
    pub placement: Placement,
    /// The result of the check of its Secrets and its address.
    #[serde(default)]
    pub receiver: ObservedReceiver,
}

/// The result of the check of a Provider's Secrets and its address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ObservedReceiver {
    /// The check found no problem, or there was no check.
    #[default]
    NoProblem,
    /// A Secret can't be read.
    UnreadableSecret(TokenFailure),
    /// The reason for which no connection to the address is allowed, without any part of a Secret.
    DeniedAddress(String),
}

impl Status for ProviderStatus {
    fn conditions(&self) -> &[tenure_api::Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<tenure_api::Condition> {
        &mut self.conditions
    }
}

/// Plans the next steps for a Provider.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let provider = &snapshot.provider;
    let validated = ValidatedObject {
        kind: "Provider",
        metadata: &provider.metadata,
        is_suspended: provider.spec.suspend,
        status: provider.status.as_ref(),
        observe: |mut status: ProviderStatus, generation| {
            status.observed_generation = generation;
            status
        },
    };
    validated.plan(now, || {
        check::validate(snapshot)?;
        Ok("Provider is Ready".to_owned())
    })
}
