//! The check that a platform surface with rights on Packages can't take over the fields of a platform's chart in them.
//!
//! The module decides when the check runs, and what is reported until a trial was refused. A stored configuration is no proof: a webhook may be dead, and a policy
//! weakened. The proof is a refused dry run of the writing account.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_admission_rules::Rule;
use tenure_api::SurfaceStatus;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::package::BOOTSTRAP;
use tenure_tenancy::surface::{Tier, decide_tier};
use tenure_tenancy::{ServiceAccount, identity};

use super::Snapshot;
use crate::named_rights::list_names;
use crate::outcome::{self, add_duration};

/// The time until the next trial: after a trial that was refused as it should be, and after any other result.
const AFTER_REFUSAL: Duration = Duration::from_secs(3600);
const OTHERWISE: Duration = Duration::from_secs(300);
/// The name of the Package that a trial creates if no other exists.
const NEW: &str = "cozystack.tenure-trial";
/// The most candidates of [`list_package_candidates`].
const MOST_NAMED: usize = 32;
/// The longest answer that a condition repeats.
const LONGEST_ANSWER: usize = 512;

/// The result of a trial: a dry-run apply with which a platform surface's account would take over a field of a Package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialResult {
    /// The time of the trial.
    pub at: Timestamp,
    /// The account of the trial.
    pub account: String,
    /// The answer.
    pub answer: TrialAnswer,
}

/// The API server's answer to a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TrialAnswer {
    /// The cluster has no Packages, or the account may write none. No trial was sent.
    WritesNone,
    /// The API server answered the dry run that would take over `spec.variant` of this Package.
    Answered {
        /// The Package.
        package: String,
        /// The API server's message if it refused the dry run. Unset if it accepted the dry run.
        refusal: Option<String>,
    },
    /// The trial couldn't run.
    Failed {
        /// The reason.
        why: String,
    },
}

/// Finds the account for a trial that is due: a platform surface's account. A trial is due at the start, after a change of the account, and from time to time.
#[must_use]
pub fn find_due(snapshot: &Snapshot, now: Timestamp) -> Option<ServiceAccount> {
    let surface = &snapshot.surface;
    let namespace = surface.metadata.namespace.as_deref()?;
    let is_platforms = matches!(decide_tier(&snapshot.placement, namespace), Ok(Tier::Platform));
    if !is_platforms || surface.metadata.deletion_timestamp.is_some() || surface.spec.suspend {
        return None;
    }
    let named = surface.spec.service_account_name.as_deref();
    let account = identity::decide_for_surface(&snapshot.placement, namespace, named).ok()?;
    let before = snapshot.ownership.as_ref();
    let before = before.filter(|tried| tried.account == account.to_string());
    let is_due = before.is_none_or(|tried| find_next(tried) <= now);
    is_due.then_some(account)
}

/// Returns the time of the next trial.
#[must_use]
pub(super) fn find_next(tried: &TrialResult) -> Timestamp {
    let interval = match &tried.answer {
        answer if is_kept(answer) => AFTER_REFUSAL,
        TrialAnswer::WritesNone => AFTER_REFUSAL,
        _ => OTHERWISE,
    };
    add_duration(tried.at, interval)
}

/// Chooses the Package for the trial: one that a chart may have rendered, or else one that doesn't exist.
pub fn choose_package<'a>(names: impl Iterator<Item = &'a str>) -> &'a str {
    names.filter(|name| *name != BOOTSTRAP).min().unwrap_or(NEW)
}

/// Writes the SelfSubjectAccessReview that asks whether an account may patch this Package, or without a name all Packages.
#[must_use]
pub fn write_question(name: Option<&str>) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": { "verb": "patch", "group": "cozystack.io", "resource": "packages", "name": name } }
    })
}

/// Lists Packages that rules of a SelfSubjectRulesReview name with the verb `patch`: at most `MOST_NAMED`, without [`BOOTSTRAP`]. They are only candidates, because
/// the review also lists rules of RoleBindings, which grant nothing on Packages. The caller checks each candidate with an access review.
#[must_use]
pub fn list_package_candidates(review: &Value) -> BTreeSet<String> {
    let names = list_names(review, ("cozystack.io", "packages"), "patch").into_iter();
    names.filter(|name| name != BOOTSTRAP).take(MOST_NAMED).collect()
}

/// Writes the content of the trial's forced apply, which admission must refuse.
#[must_use]
pub fn write_trial(package: &str) -> Value {
    json!({
        "apiVersion": "cozystack.io/v1alpha1", "kind": "Package", "metadata": { "name": package },
        "spec": { "variant": "tenure-trial" }
    })
}

/// Checks whether the rule `FieldOwnership` refused the trial, and not another rule or a missing right.
fn is_kept(answer: &TrialAnswer) -> bool {
    let rule = format!("({})", Rule::FieldOwnership);
    matches!(answer, TrialAnswer::Answered { refusal: Some(message), .. } if message.contains(&rule))
}

/// Sets the condition `OwnershipNotEnforced` from the last trial, or removes the condition if the rule refused the trial.
pub(super) fn report_trial(status: &mut SurfaceStatus, snapshot: &Snapshot, now: Timestamp) {
    let Some(tried) = &snapshot.ownership else { return };
    let short = |message: &str| -> String { message.chars().take(LONGEST_ANSWER).collect() };
    let (reason, what) = match &tried.answer {
        TrialAnswer::WritesNone => {
            condition::remove(&mut status.conditions, condition::OWNERSHIP_NOT_ENFORCED);
            return;
        }
        answer if is_kept(answer) => {
            condition::remove(&mut status.conditions, condition::OWNERSHIP_NOT_ENFORCED);
            return;
        }
        TrialAnswer::Answered { package, refusal: None } => (
            "TrialAllowed",
            format!("a dry run that takes spec.variant of Package {package} was not refused"),
        ),
        TrialAnswer::Answered {
            package,
            refusal: Some(message),
        } => (
            "Untried",
            format!(
                "a dry run that takes spec.variant of Package {package} met something else: {}",
                short(message)
            ),
        ),
        TrialAnswer::Failed { why } => ("Untried", format!("it can't be tried: {}", short(why))),
    };
    let message = format!(
        "{} may write Packages, and nothing is known to keep the fields of the platform's chart from it: {what}; see docs/reference/field-ownership.md",
        tried.account
    );
    outcome::set_condition(
        &mut status.conditions,
        &snapshot.surface.metadata,
        now,
        (
            condition::OWNERSHIP_NOT_ENFORCED,
            ConditionStatus::True,
            reason,
            &message,
        ),
    );
}
