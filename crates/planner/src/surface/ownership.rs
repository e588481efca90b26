//! Whether what a platform's chart has of its Packages is kept from a platform surface that may write them.
//!
//! Owns when that is tried, and what is said until a try has been refused. Refuses to believe a configuration that stands somewhere: a webhook may
//! be dead, and a policy weakened. Known is what refuses, as the account that writes, in a dry run.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_api::SurfaceStatus;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::package::BOOTSTRAP;
use tenure_tenancy::admission::Rule;
use tenure_tenancy::surface::{Tier, decide_tier};
use tenure_tenancy::{ServiceAccount, identity};

use super::Snapshot;
use crate::ending::{self, add_duration};
use crate::named_rights::list_names;

/// How soon it is tried again, when it was refused, and when it wasn't.
const AFTER_REFUSAL: Duration = Duration::from_secs(3600);
const OTHERWISE: Duration = Duration::from_secs(300);
/// The Package that is tried to make where there is none.
const NEW: &str = "cozystack.tenure-trial";
/// How many Packages are looked at that somebody may write by their names.
const MOST_NAMED: usize = 32;
/// How long an answer may be that a condition repeats.
const LONGEST_TOLD: usize = 512;

/// What came of a try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tried {
    /// When.
    pub at: Timestamp,
    /// As whom.
    pub account: String,
    /// What was answered.
    pub answer: TrialAnswer,
}

/// What the API server answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TrialAnswer {
    /// There are no Packages, or the account may not write them.
    WritesNone,
    /// Of a dry run that takes this Package's variant: why it was refused, if it was.
    Answered {
        /// The Package.
        package: String,
        /// The API server's message.
        refusal: Option<String>,
    },
    /// It couldn't be tried.
    Failed {
        /// Why.
        why: String,
    },
}

/// As whom it is to be tried now, if it is: a platform surface's account, at first, when it is another one, and now and again.
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

/// When it is tried again.
#[must_use]
pub(super) fn find_next(tried: &Tried) -> Timestamp {
    let interval = match &tried.answer {
        answer if is_kept(answer) => AFTER_REFUSAL,
        TrialAnswer::WritesNone => AFTER_REFUSAL,
        _ => OTHERWISE,
    };
    add_duration(tried.at, interval)
}

/// Which Package it is tried on: one that a chart may have rendered, else one that is not there.
pub fn choose_package<'a>(names: impl Iterator<Item = &'a str>) -> &'a str {
    names.filter(|name| *name != BOOTSTRAP).min().unwrap_or(NEW)
}

/// Asks whether an account may write Packages, or this one.
#[must_use]
pub fn write_question(name: Option<&str>) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": { "verb": "patch", "group": "cozystack.io", "resource": "packages", "name": name } }
    })
}

/// The Packages that somebody who may not write all of them may write by their names, as a SelfSubjectRulesReview tells it: the first of them, without the
/// one that is free.
#[must_use]
pub fn list_named(review: &Value) -> BTreeSet<String> {
    let names = list_names(review, ("cozystack.io", "packages"), "patch").into_iter();
    names.filter(|name| name != BOOTSTRAP).take(MOST_NAMED).collect()
}

/// What is applied by force, and must be refused.
#[must_use]
pub fn write_trial(package: &str) -> Value {
    json!({
        "apiVersion": "cozystack.io/v1alpha1", "kind": "Package", "metadata": { "name": package },
        "spec": { "variant": "tenure-trial" }
    })
}

/// Whether the rule refused.
fn is_kept(answer: &TrialAnswer) -> bool {
    let rule = format!("({})", Rule::FieldOwnership);
    matches!(answer, TrialAnswer::Answered { refusal: Some(message), .. } if message.contains(&rule))
}

/// Says it in the status, as long as nothing refuses.
pub(super) fn tell(status: &mut SurfaceStatus, snapshot: &Snapshot, now: Timestamp) {
    let Some(tried) = &snapshot.ownership else { return };
    let short = |message: &str| -> String { message.chars().take(LONGEST_TOLD).collect() };
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
    ending::set_condition(
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
