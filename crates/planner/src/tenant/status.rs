//! What a Tenant's status says.

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::reason;
use tenure_api::tenant::{TenantSpace, TenantStatus};

use super::namespaces::Taken;
use super::{Plan, RETRY_INTERVAL, Snapshot};
use crate::ending::{self, add_duration};
use crate::plan::{EventKind, Next, Withheld};

/// The end of a plan: the status, and when to look again.
pub(super) fn end_attempt(
    snapshot: &Snapshot,
    now: Timestamp,
    taken: &Taken,
    problems: Vec<String>,
    mut plan: Plan,
) -> Plan {
    let old = snapshot.tenant.status.clone().unwrap_or_default();
    let mut status = TenantStatus {
        conditions: old.conditions.clone(),
        namespaces: taken.owned.keys().map(ToString::to_string).collect(),
        observed_generation: snapshot.tenant.metadata.generation,
        size: i64::try_from(taken.owned.len()).unwrap_or(i64::MAX),
        spaces: taken
            .owned
            .iter()
            .map(|(name, uid)| TenantSpace {
                name: name.to_string(),
                uid: (!uid.is_empty()).then(|| uid.clone()),
                other: old
                    .spaces
                    .iter()
                    .find(|space| space.name == name.as_str())
                    .map(|space| space.other.clone())
                    .unwrap_or_default(),
            })
            .collect(),
        state: "Active".to_owned(),
        other: old.other.clone(),
    };
    let mut unacted: Vec<String> = snapshot
        .tenant
        .spec
        .other
        .keys()
        .map(|key| format!("spec.{key}"))
        .collect();
    if let Some(options) = &snapshot.tenant.spec.namespace_options {
        unacted.extend(options.other.keys().map(|key| format!("spec.namespaceOptions.{key}")));
    }
    for owner in &snapshot.tenant.spec.owners {
        unacted.extend(
            owner
                .other
                .keys()
                .map(|key| format!("spec.owners[{}].{key}", owner.name)),
        );
    }
    for field in &unacted {
        plan.withheld.push(Withheld {
            what: field.clone(),
            why: "Tenure keeps this field and does not act on it".to_owned(),
        });
    }
    let (value, reason, message) = if problems.is_empty() {
        let namespaces = match taken.owned.len() {
            1 => "1 namespace".to_owned(),
            count => format!("{count} namespaces"),
        };
        let note = if unacted.is_empty() {
            String::new()
        } else {
            format!("; kept, but not acted on: {}", unacted.join(", "))
        };
        (
            ConditionStatus::True,
            reason::RECONCILIATION_SUCCEEDED,
            format!("{namespaces}{note}"),
        )
    } else {
        (
            ConditionStatus::False,
            reason::RECONCILIATION_FAILED,
            problems.join("\n"),
        )
    };
    if value == ConditionStatus::False {
        plan.events
            .extend(ending::make_news(&old.conditions, EventKind::Warning, reason, &message));
    }
    let entry = (condition::READY, value, reason, message.as_str());
    ending::set_condition(&mut status.conditions, &snapshot.tenant.metadata, now, entry);
    plan.status = ending::find_change(snapshot.tenant.status.as_ref(), &status);
    plan.next = if problems.is_empty() {
        Next::Done(None)
    } else {
        let at = add_duration(now, RETRY_INTERVAL);
        Next::Done(Some(plan.memory.next().map_or(at, |next| next.min(at))))
    };
    for problem in problems {
        plan.withheld.push(Withheld {
            what: "Ready".to_owned(),
            why: problem,
        });
    }
    plan
}
