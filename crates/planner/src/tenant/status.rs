//! The status of a Tenant.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::reason;
use tenure_api::tenant::{ByPolicies, TenantSpace, TenantStatus};
use tenure_api::text::count_of;
use tenure_tenancy::{RecordState, TenantFacts};

use super::namespaces::TenantNamespaces;
use super::shares::UncountedNamespaces;
use super::{Plan, RETRY_INTERVAL, Snapshot};
use super::{account_access, labels, owners};
use crate::outcome::{self, ConditionEntry, add_duration};
use crate::plan::{Event, EventKind, EventPlace, Next, Withheld};

/// The maximum of bytes for names in a message about namespaces.
pub(super) const LONGEST_LIST: usize = 512;

/// Reasons of conditions in their normal state. A change to one of them sends no event.
const USUAL: [&str; 4] = [
    reason::RECORDED,
    reason::OWNERS_THERE,
    reason::ACCOUNT_EXCLUSIVE,
    reason::ACCOUNT_NOT_LOOKED_AT,
];

/// Returns the word for `status.state`: `Cordoned` if the Tenant is cordoned and admission enforces that, otherwise `Active`.
pub(super) fn name_state(snapshot: &Snapshot) -> &'static str {
    let is_cordoned = snapshot.tenant.spec.cordoned.unwrap_or_default();
    let settings = &snapshot.tenancy.settings;
    match is_cordoned && settings.judges_writes() {
        true => "Cordoned",
        false => "Active",
    }
}

/// Lists the set fields of a Tenant that limit the objects or metadata of its namespaces, and that neither webhooks nor policies enforce in this installation.
fn list_unbounded(snapshot: &Snapshot) -> Vec<String> {
    let (spec, settings) = (&snapshot.tenant.spec, &snapshot.tenancy.settings);
    let mut unbounded = spec.bounds.list_unknown();
    if settings.is_guarded {
        return unbounded;
    }
    let unenforced = match settings.has_policies {
        true => ByPolicies::Left,
        false => ByPolicies::Judged,
    };
    let set = spec.bounds.list_set().into_iter();
    let set = set.filter(|(_, by_policies)| *by_policies == unenforced);
    unbounded.extend(set.map(|(name, _)| name.to_owned()));
    if let Some(options) = &spec.namespace_options {
        let fields = [
            ("forbiddenLabels", &options.forbidden_labels),
            ("forbiddenAnnotations", &options.forbidden_annotations),
        ];
        let set = fields.into_iter().filter(|(_, names)| names.is_some());
        // A policy reads these names from the facts on a namespace. A new namespace has no facts yet, so its creation is not checked.
        let unchecked = if settings.has_policies {
            " (of new namespaces)"
        } else {
            ""
        };
        unbounded.extend(set.map(|(name, _)| format!("namespaceOptions.{name}{unchecked}")));
    }
    unbounded
}

/// Lists the set fields of which policies refuse every use, because a policy can't evaluate the field's conditions. Webhooks can, so the list is empty if webhooks
/// check writes.
fn list_refused(snapshot: &Snapshot) -> Vec<String> {
    let (spec, settings) = (&snapshot.tenant.spec, &snapshot.tenancy.settings);
    if settings.is_guarded || !settings.has_policies {
        return Vec::new();
    }
    let set = spec.bounds.list_set().into_iter();
    let set = set.filter(|(_, by_policies)| *by_policies == ByPolicies::Refused);
    set.map(|(name, _)| format!("spec.{name}")).collect()
}

/// Lists the set fields `cordoned`, `forceTenantPrefix` and `preventDeletion` that have no effect, because no admission enforces them in this installation.
fn list_unguarded(snapshot: &Snapshot) -> impl Iterator<Item = &'static str> {
    let spec = &snapshot.tenant.spec;
    let settings = &snapshot.tenancy.settings;
    let (is_guarded, has_policies) = (settings.is_guarded, settings.has_policies);
    // Each entry: the field's name, its value, and whether admission policies enforce the field where no webhook does.
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

/// Sets the condition `NamespacesRecorded`: whether the Tenant's status records its namespaces. An event reports once which existing namespaces the Tenant took
/// over.
fn tell_record(
    snapshot: &Snapshot,
    now: Timestamp,
    taken: &TenantNamespaces,
    status: &mut TenantStatus,
    plan: &mut Plan,
) {
    let old = condition::find(&status.conditions, condition::NAMESPACES_RECORDED);
    let owned: Vec<String> = taken.owned.keys().map(ToString::to_string).collect();
    let is_taken_over = taken.state == RecordState::Earlier && !owned.is_empty();
    let entry = if !taken.unbelieved.is_empty() {
        let names: Vec<String> = taken.unbelieved.iter().cloned().collect();
        let (some, tenant) = (
            outcome::join_names(&names, LONGEST_LIST),
            snapshot.tenant.metadata.name.as_deref(),
        );
        (
            ConditionStatus::False,
            reason::ADOPTION_NEEDED,
            format!(
                "not taken: {some}. Each names the Tenant, which any writer of namespaces can set. Where that is right, an administrator assigns the namespace: tenure adopt {} NAMESPACE...",
                tenant.unwrap_or_default()
            ),
        )
    } else if is_taken_over {
        let names = outcome::join_names(&owned, LONGEST_LIST);
        (
            ConditionStatus::True,
            reason::TAKEN_OVER,
            format!("taken over, since they existed before namespaces were recorded: {names}"),
        )
    } else if let Some(old) = old.filter(|old| old.reason == reason::TAKEN_OVER) {
        // The message stays readable until another message replaces it.
        (ConditionStatus::True, reason::TAKEN_OVER, old.message.clone())
    } else {
        (
            ConditionStatus::True,
            reason::RECORDED,
            "the namespaces in status.spaces are the Tenant's".to_owned(),
        )
    };
    let (value, reason, message) = entry;
    let entry = (condition::NAMESPACES_RECORDED, value, reason, message.as_str());
    set_condition_with_event(snapshot, now, entry, status, plan);
}

/// Sets a condition, and sends one event for a change, except for the normal reasons.
pub(super) fn set_condition_with_event(
    snapshot: &Snapshot,
    now: Timestamp,
    entry: ConditionEntry<'_>,
    status: &mut TenantStatus,
    plan: &mut Plan,
) {
    let (type_, value, reason, message) = entry;
    let kind = match value {
        ConditionStatus::True => EventKind::Normal,
        _ => EventKind::Warning,
    };
    let is_new = !outcome::has_same_condition(&status.conditions, type_, reason, message);
    if is_new && !USUAL.contains(&reason) {
        plan.events.push(Event {
            kind,
            reason: reason.to_owned(),
            message: message.to_owned(),
            annotations: BTreeMap::new(),
            place: EventPlace::default(),
        });
    }
    outcome::set_condition(&mut status.conditions, &snapshot.tenant.metadata, now, entry);
}

/// Ends a plan with the Tenant's status and the time of the next plan.
pub(super) fn end_attempt(
    snapshot: &Snapshot,
    facts: &TenantFacts,
    now: Timestamp,
    (taken, uncounted, unjudged): (&TenantNamespaces, &UncountedNamespaces, &BTreeSet<String>),
    (problems, mut plan): (Vec<String>, Plan),
) -> Plan {
    let old = snapshot.tenant.status.clone().unwrap_or_default();
    let mut status = TenantStatus {
        conditions: old.conditions.clone(),
        namespaces: taken.owned.keys().map(ToString::to_string).collect(),
        // A recorded namespace no longer needs a proof.
        creating: old
            .creating
            .iter()
            .filter(|intent| !taken.list_recorded().keys().any(|name| name.as_str() == intent.name))
            .cloned()
            .collect(),
        observed_generation: snapshot.tenant.metadata.generation,
        namespace_quota: facts
            .find_namespace_quota(&snapshot.tenancy.settings)
            .and_then(|quota| i64::try_from(quota).ok()),
        size: i64::try_from(taken.owned.len()).unwrap_or(i64::MAX),
        spaces: taken
            .list_recorded()
            .into_iter()
            .map(|(name, uid)| TenantSpace {
                name: name.to_string(),
                uid: (!uid.is_empty()).then(|| uid.clone()),
                metadata: labels::report_metadata(snapshot, &plan.memory, name),
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
        let namespaces = count_of(taken.owned.len(), "namespace");
        let mut note = String::new();
        if !unacted.is_empty() {
            note = format!("; stored, but without effect: {}", unacted.join(", "));
        }
        let refused = list_refused(snapshot);
        if !refused.is_empty() {
            let refused = refused.join(", ");
            note.push_str(&format!(
                "; refused, since no policy can decide what these would allow: {refused}"
            ));
        }
        let list = |names: &BTreeSet<String>| {
            let names: Vec<String> = names.iter().cloned().collect();
            outcome::join_names(&names, LONGEST_LIST)
        };
        if !uncounted.new.is_empty() {
            note.push_str(&format!(
                "; no owner gets rights before kube-controller-manager has counted the ResourceQuotas, in {}",
                list(&uncounted.new)
            ));
        }
        if !unjudged.is_empty() {
            note.push_str(&format!(
                "; owners get their RoleBindings as soon as policies enforce the Tenant's rules in namespaces {}",
                list(unjudged)
            ));
        }
        if !uncounted.leaving.is_empty() {
            note.push_str(&format!(
                "; no namespace's share of the Tenant's quotas grows before these are gone, whose remaining use is unknown: {}",
                list(&uncounted.leaving)
            ));
        }
        let (value, reason) = match unjudged.is_empty() {
            true => (ConditionStatus::True, reason::RECONCILIATION_SUCCEEDED),
            // Clients that wait for the Tenant wait for its owners' rights.
            false => (ConditionStatus::Unknown, reason::PROGRESSING),
        };
        (value, reason, format!("{namespaces}{note}"))
    } else {
        (
            ConditionStatus::False,
            reason::RECONCILIATION_FAILED,
            problems.join("\n"),
        )
    };
    if value == ConditionStatus::False {
        plan.events.extend(outcome::make_event(
            &old.conditions,
            EventKind::Warning,
            reason,
            &message,
        ));
    }
    tell_record(snapshot, now, taken, &mut status, &mut plan);
    let look_for_owners = owners::report_owners(snapshot, now, &mut status, &mut plan);
    let look_at_account = account_access::report_access(snapshot, facts, now, taken, (&mut status, &mut plan));
    let entry = (condition::READY, value, reason, message.as_str());
    outcome::set_condition(&mut status.conditions, &snapshot.tenant.metadata, now, entry);
    plan.status = outcome::find_change(snapshot.tenant.status.as_ref(), &status);
    let retry = (!problems.is_empty()).then(|| {
        let at = add_duration(now, RETRY_INTERVAL);
        plan.memory.next().map_or(at, |next| next.min(at))
    });
    let times = retry
        .into_iter()
        .chain(taken.look_again)
        .chain(look_for_owners)
        .chain(look_at_account);
    plan.next = Next::Done(times.min());
    for problem in problems {
        plan.withheld.push(Withheld {
            what: "Ready".to_owned(),
            why: problem,
        });
    }
    plan
}
