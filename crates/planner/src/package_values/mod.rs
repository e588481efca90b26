//! The reconciliation of a PackageValues: a report on its changes. The plan of the Package applies them ([`crate::package`]).

mod effective;
mod status;

use jiff::Timestamp;
use tenure_api::{Package, PackageSource, PackageValues, PackageValuesStatus};
use tenure_tenancy::{ServiceAccount, identity};

use crate::package_settings::{self, Settings};
use crate::plan::Next;
use crate::recorded_objects::Step;

/// A plan for a PackageValues. It has no steps.
pub type Plan = crate::plan::Plan<Step, ServiceAccount, PackageValuesStatus, ()>;

/// The known facts when a plan is made.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The PackageValues as last read or written, status included.
    pub values: PackageValues,
    /// The Package of the same name, if it exists, status included.
    pub package: Option<Package>,
    /// The PackageSource of the same name, if it exists.
    pub source: Option<PackageSource>,
    /// The settings from the administrator.
    pub settings: Settings,
}

/// Plans the report on a PackageValues.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let metadata = &snapshot.values.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let mut plan = Plan::idle(format!("PackageValues/{name}"), ());
    if metadata.deletion_timestamp.is_some() {
        plan.next = Next::Forget;
        return plan;
    }
    match identity::decide_for_packages(snapshot.settings.service_account.as_deref()) {
        Ok(_) => status::report(snapshot, now, plan),
        // Nothing lays the changes over another controller's Packages, so a report would never become Ready.
        Err(denial) => package_settings::leave_status(snapshot.values.status.as_ref(), denial, plan),
    }
}
