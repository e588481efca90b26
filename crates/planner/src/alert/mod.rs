//! The decisions about Alerts: whether an Alert can be used, which events it wants, and the metadata that it adds.
//!
//! ```text
//! an event of a lane ──[AlertEvent::new]──▶ news ──[RecentEvents]──▶ sent lately? ──[select_alerts]──▶ for which Alerts, with which metadata
//! ```
//!
//! An Alert gets events about objects of its own namespace and of the same tenant's other namespaces, and about no others. This module doesn't send anything; Providers
//! do.

mod check;
mod deduplication;
mod metadata;
mod pattern;
mod selection;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_api::{Alert, AlertStatus, Provider};
use tenure_tenancy::Placement;

pub use deduplication::{RECENT, RecentEvents, SAME_FOR};
pub use metadata::{CombinedMetadata, combine_metadata};
pub use selection::{
    Candidate, SelectedAlerts, estimate_glance, estimate_work, is_about, list_release_namespaces, may_name,
    needs_release_labels, select_alerts,
};

use crate::plan::Status;
use crate::validation_plan::{ValidatedObject, ValidationPlan};

/// A plan for an Alert.
pub type Plan = ValidationPlan<AlertStatus>;

/// The input of a plan for an Alert: the Alert, its tenancy, and its Provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The Alert as last read, status included.
    pub alert: Alert,
    /// The owner of the Alert's namespace.
    pub placement: Placement,
    /// The Provider that the Alert names, if it exists.
    #[serde(default)]
    pub provider: Option<Provider>,
}

impl Status for AlertStatus {
    fn conditions(&self) -> &[tenure_api::Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<tenure_api::Condition> {
        &mut self.conditions
    }
}

/// Plans the next steps for an Alert.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let alert = &snapshot.alert;
    let validated = ValidatedObject {
        kind: "Alert",
        metadata: &alert.metadata,
        is_suspended: alert.spec.suspend,
        status: alert.status.as_ref(),
        observe: |mut status: AlertStatus, generation| {
            status.observed_generation = generation;
            status
        },
    };
    validated.plan(now, || check::validate(snapshot))
}

/// Estimates the cost of [`plan`] in bytes of text, since the plan compiles the Alert's regular expressions.
#[must_use]
pub fn estimate_plan(alert: &Alert) -> usize {
    check::list_patterns(&alert.spec)
        .count()
        .saturating_mul(pattern::COMPILED)
}
