//! The settings of Packages, PackageSources and PackageValues, from the administrator who runs the program, their common limits, and their plan without an account.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::package::SUPPLY_NAMESPACE;
use tenure_api::{ObjectId, reason};
use tenure_tenancy::{Denial, ServiceAccount};

use crate::dependents::describe_failure;
use crate::outcome;
use crate::plan::{EventKind, Next, Plan, Status, Withheld};
use crate::recorded_objects::Step;
use crate::refusal::{Failure, Reason};

/// Components of one variant.
pub const COMPONENTS: usize = 200;
/// Packages that a variant depends on, and components that a component depends on.
pub const DEPENDENCIES: usize = 200;

/// The settings of Packages and PackageSources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// ServiceAccount of the platform namespace that writes HelmReleases, Namespaces and ArtifactGenerators. Without one, nothing is written.
    pub service_account: Option<String>,
    /// `spec.serviceAccountName` of the HelmReleases: the account of their namespace that helm-controller acts as. Default: its own.
    pub release_account: Option<String>,
    /// Namespace of the ArtifactGenerators and of the charts that they make.
    pub artifact_namespace: String,
    /// `spec.interval` of the HelmReleases.
    pub interval: Duration,
    /// Pause after a failed installation or upgrade.
    pub retry_interval: Duration,
    /// Timeout of an installation.
    pub install_timeout: Duration,
    /// Timeout of an upgrade.
    pub upgrade_timeout: Duration,
    /// `spec.maxHistory` of the HelmReleases; 0 for no limit.
    pub max_history: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            service_account: None,
            release_account: None,
            artifact_namespace: SUPPLY_NAMESPACE.to_owned(),
            interval: Duration::from_secs(300),
            retry_interval: Duration::from_secs(30),
            install_timeout: Duration::from_secs(600),
            upgrade_timeout: Duration::from_secs(600),
            max_history: 5,
        }
    }
}

/// Describes a failed request, with the reason of its problem: the account for Packages doesn't exist, or `otherwise`.
pub(crate) fn describe_refusal(
    settings: &Settings,
    id: &ObjectId,
    (verb, failure): (&str, &Failure),
    otherwise: &'static str,
) -> (&'static str, String) {
    match (&failure.reason, &settings.service_account) {
        (Reason::IdentityMissing, Some(name)) => {
            let message = format!(
                "ServiceAccount {PLATFORM_NAMESPACE}/{name} (--packages-service-account) does not exist, so nothing is read or written for Packages: create it with \
                 its rights by `tenure install --packages -- --packages-service-account {name}`, or name another one"
            );
            (reason::IDENTITY_MISSING, message)
        }
        _ => (otherwise, describe_failure(id, verb, failure)),
    }
}

/// Leaves the present status unchanged where no account is set. Cozystack's operator may reconcile Packages there, and two controllers that report different things would
/// write a status for ever. An event has the reason, unless a controller has reported already.
pub(crate) fn leave_status<T: Status, M>(
    present: Option<&T>,
    denial: Denial,
    mut plan: Plan<Step, ServiceAccount, T, M>,
) -> Plan<Step, ServiceAccount, T, M> {
    let conditions = present.map(T::conditions).unwrap_or_default();
    if conditions.is_empty() {
        let event = outcome::make_event(conditions, EventKind::Warning, denial.reason.as_str(), &denial.message);
        plan.events.extend(event);
    }
    plan.withheld.push(Withheld {
        what: "everything".to_owned(),
        why: denial.message,
    });
    plan.next = Next::Done(None);
    plan
}
