//! The reconciliation of a Package: it generates a HelmRelease for each enabled component of the selected variant, in namespaces that it makes.
//!
//! The account that an administrator names for Packages writes them. The status records each HelmRelease by uid before anything changes it ([`crate::recorded_objects`]),
//! so a HelmRelease that merely has the right name or label stays untouched. A release that is not planned any more stays until an administrator allows its removal.

mod deletion;
mod dependencies;
mod desired;
mod namespaces;
mod neighbours;
mod overrides;
mod records;
mod release;
mod removal;
mod selection;
mod status;
mod validation;
mod writes;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_api::{ObjectId, Package, PackageSource, PackageStatus};
use tenure_tenancy::{ServiceAccount, identity};

use crate::answer::Live;
use crate::package_settings::{self, Settings};
use crate::plan::Next;
pub use crate::recorded_objects::{Attempt, Replace, Retries, Step};
pub use neighbours::{DependencyFacts, Neighbours, PackageFacts, PackageIndex};
pub use overrides::{ComponentOverride, Overrides, ReleaseValues, merge_values};
pub use selection::ReleaseName;
pub(crate) use selection::{Problem, Selection, select_variant};

/// A plan for a Package, carried out by the account that an administrator names for Packages.
pub type Plan = crate::plan::Plan<Step, ServiceAccount, PackageStatus, Memory>;

/// The known facts when a plan is made.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The Package as last read or written, status included.
    pub package: Package,
    /// The PackageSource of the same name, if it exists.
    pub source: Option<PackageSource>,
    /// The changes of the PackageValues of the same name, if it exists. Without one, the values of the Package are used as they are.
    pub overrides: Option<Overrides>,
    /// The facts about other Packages.
    pub neighbours: Neighbours,
    /// The settings from the administrator.
    pub settings: Settings,
    /// The Tenants of the namespaces that belong to one. Their labels are the Tenant's.
    pub tenants: BTreeMap<String, String>,
    /// The recorded and wanted HelmReleases, and their Namespaces. One that is missing here is requested with [`crate::Request::Read`].
    pub live: BTreeMap<ObjectId, Live>,
    /// A random text of the process. The proofs of new objects are derived from it.
    pub creation_proof: String,
    /// The current attempt, and the answers to its steps.
    pub attempt: Attempt,
    /// The state that the last plan left.
    pub memory: Memory,
}

impl Snapshot {
    /// Checks whether something besides the generated objects has changed so that another plan could differ.
    #[must_use]
    pub fn is_overtaken(
        &self,
        package: &Package,
        source: Option<&PackageSource>,
        overrides: Option<&Overrides>,
        neighbours: &Neighbours,
    ) -> bool {
        let (known, metadata) = (&self.package.metadata, &package.metadata);
        let spec = |source: &PackageSource| (source.spec.clone(), source.metadata.annotations.clone());
        self.attempt.is_overtaken(metadata)
            || known.uid != metadata.uid
            || known.deletion_timestamp != metadata.deletion_timestamp
            || known.annotations != metadata.annotations
            || self.source.as_ref().map(spec) != source.map(spec)
            || self.overrides.as_ref() != overrides
            || self.neighbours != *neighbours
    }

    /// Returns the name of the Package.
    fn name(&self) -> &str {
        self.package.metadata.name.as_deref().unwrap_or_default()
    }
}

/// The state that the shell carries from plan to plan. Its loss costs a request for each object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// The requests that failed.
    pub retries: Retries,
    /// The result of writing a HelmRelease, with the server's additions. While plan and object are unchanged, the object is as planned.
    pub settled: BTreeMap<ObjectId, SettledWrite>,
    /// The changes of other clients that were put back.
    pub put_back: BTreeMap<ObjectId, PutBack>,
    /// The uids of the HelmReleases that this process created last.
    pub created: BTreeMap<ObjectId, String>,
    /// The digests of proofs whose records were sent to be stored.
    pub sent_records: BTreeSet<String>,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SettledWrite {
    /// Digest of the planned object.
    pub planned: String,
    /// Digest of the spec, labels, annotations and ownerReferences in the server's answer.
    pub stored: String,
}

/// Changes of one HelmRelease that were put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PutBack {
    /// The first change of the period.
    pub since: Timestamp,
    /// The number of changes in the period.
    pub times: u32,
}

/// Plans the next steps for a Package.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let package = &snapshot.package;
    let metadata = &package.metadata;
    let mut plan = Plan::idle(format!("Package/{}", snapshot.name()), snapshot.memory.clone());
    if metadata.deletion_timestamp.is_some() {
        return deletion::plan_deletion(snapshot, now, plan);
    }
    let account = match identity::decide_for_packages(snapshot.settings.service_account.as_deref()) {
        Ok(account) => account,
        Err(denial) => {
            if !status::has_records(package) {
                return package_settings::leave_status(package.status.as_ref(), denial, plan);
            }
            let problem = selection::Problem::new(denial.reason.as_str(), denial.message);
            return status::report_refusal(snapshot, now, plan, &problem);
        }
    };
    let overrides = snapshot.overrides.as_ref();
    let selection = match selection::select_variant(package, snapshot.source.as_ref(), overrides) {
        Ok(selection) => selection,
        Err(problem) => return status::report_refusal(snapshot, now, plan, &problem),
    };
    if let Err(problem) = validation::check_selection(package, &selection) {
        return status::report_refusal(snapshot, now, plan, &problem);
    }
    if snapshot.attempt.is_overtaken(metadata) {
        plan.next = Next::Restart;
        return plan;
    }
    let desired = desired::list_desired(snapshot, &selection);
    plan.identity = Some(account);
    plan.watch = writes::list_watched(snapshot, &desired);
    writes::plan_writes(snapshot, now, &desired, plan)
}
