//! What a Tenant's status says.

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::reason;
use tenure_api::tenant::{TenantSpace, TenantStatus};

use super::labels;
use super::namespaces::Taken;
use super::{Plan, RETRY_INTERVAL, Snapshot};
use crate::ending::{self, add_duration};
use crate::plan::{EventKind, Next, Withheld};

/// `Cordoned` where that is acted on.
fn name_state(snapshot: &Snapshot) -> &'static str {
    let is_cordoned = snapshot.tenant.spec.cordoned.unwrap_or_default();
    let settings = &snapshot.realm.settings;
    match is_cordoned && (settings.is_guarded || settings.has_policies) {
        true => "Cordoned",
        false => "Active",
    }
}

/// What the Tenant says of objects in its namespaces, and of its namespaces' metadata, and nobody acts on here. What labels a class bears is
/// in no policy's sight, and neither is who owns a namespace's Tenant.
fn list_unbounded(snapshot: &Snapshot) -> Vec<String> {
    let (spec, settings) = (&snapshot.tenant.spec, &snapshot.realm.settings);
    let mut unbounded = spec.bounds.list_unknown();
    if settings.is_guarded {
        return unbounded;
    }
    let set = spec.bounds.list_set().into_iter();
    let set = set.filter(|(_, is_selector)| *is_selector == settings.has_policies);
    unbounded.extend(set.map(|(name, _)| name.to_owned()));
    if let Some(options) = &spec.namespace_options {
        let fields = [
            ("forbiddenLabels", &options.forbidden_labels),
            ("forbiddenAnnotations", &options.forbidden_annotations),
        ];
        let set = fields.into_iter().filter(|(_, names)| names.is_some());
        unbounded.extend(set.map(|(name, _)| format!("namespaceOptions.{name}")));
    }
    unbounded
}

/// The fields that only admission can act on, where nothing that is written is judged.
fn list_unguarded(snapshot: &Snapshot) -> impl Iterator<Item = &'static str> {
    let spec = &snapshot.tenant.spec;
    let settings = &snapshot.realm.settings;
    let (is_guarded, has_policies) = (settings.is_guarded, settings.has_policies);
    // Whether policies see to it, too.
    let fields = [
        ("cordoned", spec.cordoned, true),
        ("forceTenantPrefix", spec.force_tenant_prefix, false),
        ("preventDeletion", spec.prevent_deletion, true),
    ];
    let set = fields.into_iter().filter(move |(_, value, by_policy)| {
        let is_acted_on = is_guarded || (has_policies && *by_policy);
        !is_acted_on && value.unwrap_or_default()
    });
    set.map(|(name, _, _)| name)
}

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
                metadata: labels::tell_marks(snapshot, &plan.memory, name),
                other: old
                    .spaces
                    .iter()
                    .find(|space| space.name == name.as_str())
                    .map(|space| space.other.clone())
                    .unwrap_or_default(),
            })
            .collect(),
        state: name_state(snapshot).to_owned(),
        other: old.other.clone(),
    };
    let mut unacted: Vec<String> = snapshot
        .tenant
        .spec
        .other
        .keys()
        .map(|key| format!("spec.{key}"))
        .collect();
    unacted.extend(list_unguarded(snapshot).map(|key| format!("spec.{key}")));
    unacted.extend(list_unbounded(snapshot).into_iter().map(|key| format!("spec.{key}")));
    let quotas = snapshot.tenant.spec.resource_quotas.as_ref();
    if quotas.is_some_and(|quotas| !quotas.is_for_each_namespace() && !quotas.items.is_empty()) {
        unacted.push("spec.resourceQuotas (scope Tenant)".to_owned());
    }
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
