//! The reconciliation of a PackageSource: it generates one ArtifactGenerator, which makes a chart for each component of each variant.
//!
//! The account that an administrator names for Packages writes the generator, and the status records it by uid ([`crate::recorded_objects`]). The generator holds no
//! data, so it is collected with its PackageSource.

mod artifacts;
mod claims;
mod generator;
mod status;
mod writes;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_api::{ObjectId, PackageSource, PackageSourceStatus};
use tenure_tenancy::{ServiceAccount, identity};

use crate::answer::Live;
use crate::package_settings::{self, Settings};
use crate::plan::Next;
pub use crate::recorded_objects::{Attempt, Replace, Retries, Step};
pub use artifacts::{list_artifact_names, name_artifact};
pub use claims::ArtifactIndex;

/// A plan for a PackageSource, carried out by the account that an administrator names for Packages.
pub type Plan = crate::plan::Plan<Step, ServiceAccount, PackageSourceStatus, Memory>;

/// The known facts when a plan is made.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The PackageSource as last read or written, status included.
    pub source: PackageSource,
    /// The artifacts that another PackageSource makes, with the name of that PackageSource.
    pub claimed: BTreeMap<String, String>,
    /// The settings from the administrator.
    pub settings: Settings,
    /// The ArtifactGenerator. If it is missing here, it is requested with [`crate::Request::Read`].
    pub live: BTreeMap<ObjectId, Live>,
    /// A random text of the process. The proof of the new generator is derived from it.
    pub creation_proof: String,
    /// The current attempt, and the answers to its steps.
    pub attempt: Attempt,
    /// The state that the last plan left.
    pub memory: Memory,
}

impl Snapshot {
    /// Checks whether something besides the generator has changed so that another plan could differ.
    #[must_use]
    pub fn is_overtaken(&self, source: &PackageSource, claimed: &BTreeMap<String, String>) -> bool {
        let (known, metadata) = (&self.source.metadata, &source.metadata);
        self.attempt.is_overtaken(metadata)
            || known.uid != metadata.uid
            || known.deletion_timestamp != metadata.deletion_timestamp
            || self.claimed != *claimed
    }

    /// Returns the name of the PackageSource.
    fn name(&self) -> &str {
        self.source.metadata.name.as_deref().unwrap_or_default()
    }
}

/// The state that the shell carries from plan to plan. Its loss costs one request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// The requests that failed.
    pub retries: Retries,
    /// The uid of the generator that this process created last.
    pub created: Option<String>,
    /// Digest of the planned generator at its last write, and digest of the spec in the server's answer.
    pub settled: Option<(String, String)>,
    /// The digests of proofs whose record was sent to be stored.
    pub sent_records: BTreeSet<String>,
    /// The generation of the generator that has no result yet, and since when.
    pub waiting: Option<(i64, Timestamp)>,
}

/// A reason for which the generator is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    reason: &'static str,
    message: String,
}

/// Plans the next steps for a PackageSource.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let metadata = &snapshot.source.metadata;
    let mut plan = Plan::idle(format!("PackageSource/{}", snapshot.name()), snapshot.memory.clone());
    if metadata.deletion_timestamp.is_some() {
        plan.next = Next::Forget;
        return plan;
    }
    let account = match identity::decide_for_packages(snapshot.settings.service_account.as_deref()) {
        Ok(account) => account,
        Err(denial) => {
            if !status::has_records(&snapshot.source) {
                return package_settings::leave_status(snapshot.source.status.as_ref(), denial, plan);
            }
            let problem = Problem {
                reason: denial.reason.as_str(),
                message: denial.message,
            };
            return status::report_refusal(snapshot, now, plan, problem);
        }
    };
    let artifacts = match artifacts::list_artifacts(&snapshot.source, &snapshot.claimed) {
        Ok(artifacts) => artifacts,
        Err(problem) => return status::report_refusal(snapshot, now, plan, problem),
    };
    if snapshot.attempt.is_overtaken(metadata) {
        plan.next = Next::Restart;
        return plan;
    }
    plan.identity = Some(account);
    plan.watch = vec![generator::watch_generator(snapshot)];
    writes::plan_writes(snapshot, now, &artifacts, plan)
}
