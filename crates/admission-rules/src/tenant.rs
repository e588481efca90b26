//! The rules for Tenants among each other, and for the records of their namespaces.

use serde_json::Value;
use tenure_api::metadata::HOME_NAMESPACE;
use tenure_api::{ObjectView, condition};

use super::request::read_metadata;
use super::{Case, Findings, Operation, Question, Refusal, Rule};
use tenure_tenancy::placement::TenantFacts;
use tenure_tenancy::rights::ADOPT;

pub(super) fn check(case: Case<'_>, _findings: &mut Findings) -> Result<(), Refusal> {
    let request = case.request;
    if !request.is_about("capsule.clastix.io", "tenants", &["status"]) {
        return Ok(());
    }
    if !request.resource.subresource.is_empty() {
        return judge_record(case);
    }
    if request.operation == Operation::Delete {
        return judge_deletion(case);
    }
    let Some(object) = request.object else { return Ok(()) };
    let metadata = read_metadata(object);
    let name = metadata.name.as_deref().unwrap_or(request.name);
    let annotations = metadata.annotations.unwrap_or_default();
    let home = annotations.get(HOME_NAMESPACE).map_or(name, String::as_str);
    // A Tenant that already had this home is not checked again: its labels, its finalizers and its owners can be changed.
    let was_so = case.facts.find_tenant(name).is_some_and(|known| known.home() == home);
    if was_so {
        return Ok(());
    }
    let refuse = |why: String| {
        Err(Refusal {
            rule: Rule::Tenant,
            why: format!("Tenant {name} can't have {home} as its home namespace: {why}"),
            remedy: format!("name another one in the annotation {HOME_NAMESPACE}"),
        })
    };
    if case.facts.settings().is_protected(home) {
        return refuse("it belongs to Kubernetes or the platform".to_owned());
    }
    let rival = case
        .facts
        .tenants_at_home(home)
        .find(|other| other.name != name && !other.deleting);
    if let Some(rival) = rival {
        return refuse(format!("it is that of Tenant {}", rival.name));
    }
    if let Some(owner) = case.facts.tenant_of(home).filter(|owner| owner.name != name) {
        return refuse(format!("it is a namespace of Tenant {}", owner.name));
    }
    check_mentions(case, name, home)
}

/// Checks the objects that name a new home namespace. The controllers create this namespace, so the Tenant gets every right that already names
/// it. An administrator decides about such a name.
///
/// A namespace that exists counts like a missing one: it may be deleted before the controllers create it.
fn check_mentions(case: Case<'_>, name: &str, home: &str) -> Result<(), Refusal> {
    if case.is_allowed(&Question::about_tenant(ADOPT, name)) {
        return Ok(());
    }
    let refuse = |why: String, remedy: String| {
        Err(Refusal {
            rule: Rule::Tenant,
            why: format!("Tenant {name} can't have {home} as its home namespace: {why}"),
            remedy,
        })
    };
    let remedy = |first: &str| {
        format!(
            "{first}name another one in the annotation {HOME_NAMESPACE}, or ask an administrator to write the Tenant (verb {ADOPT} on tenants/{name})"
        )
    };
    let settings = case.facts.settings();
    if settings.is_reserved(home) {
        return refuse(
            "it has a reserved name (--reserved-namespaces): rights and webhooks of an add-on may refer to it"
                .to_owned(),
            remedy(""),
        );
    }
    if let Some(flag) = settings.find_flag_naming(home, name) {
        return refuse(
            format!("the installation's flag {flag} names namespace {home}"),
            remedy(""),
        );
    }
    // The future Tenant. A new one has no uid, and so no namespaces.
    let tenant = TenantFacts {
        name: name.to_owned(),
        home_namespace: Some(home.to_owned()),
        ..case.facts.find_tenant(name).cloned().unwrap_or_default()
    };
    match case.surroundings.find_mention(case.facts, &tenant, home) {
        Ok(None) => Ok(()),
        Ok(Some(mention)) => refuse(
            format!("{mention} names namespace {home}, so the tenant would get what it grants"),
            remedy("remove that from it, "),
        ),
        Err(why) => refuse(
            format!("can't find out whether an object outside the tenant names namespace {home}: {why}"),
            "try again in a moment".to_owned(),
        ),
    }
}

/// Checks whether the user may change the record of namespaces in a Tenant's status. The record assigns namespaces, so
/// its writer could give them away.
fn judge_record(case: Case<'_>) -> Result<(), Refusal> {
    let request = case.request;
    let (old, new) = (request.old_object.map(read_record), request.object.map(read_record));
    if request.operation != Operation::Update
        || old == new
        || case.is_allowed(&Question::about_tenant(ADOPT, request.name))
    {
        return Ok(());
    }
    Err(Refusal {
        rule: Rule::Tenant,
        why: format!(
            "{} may not change which namespaces Tenant {} has recorded (status.spaces)",
            request.actor.user, request.name
        ),
        remedy: format!(
            "leave that to Tenure, or ask an administrator to do it (verb {ADOPT} on tenants/{})",
            request.name
        ),
    })
}

/// Returns names and uids in their order, and whether the status counts as a record.
fn read_record(tenant: &Value) -> (Vec<(&str, &str)>, bool) {
    let tenant = ObjectView::new(tenant);
    let spaces = tenant.list_views("/status/spaces");
    let has_begun = tenant.find_condition(condition::NAMESPACES_RECORDED).is_some();
    (
        spaces
            .map(|space| (space.read_text("/name"), space.read_text("/uid")))
            .collect(),
        has_begun,
    )
}

/// Denies the deletion of a Tenant with `spec.preventDeletion`.
fn judge_deletion(case: Case<'_>) -> Result<(), Refusal> {
    let stored = case.request.old_object;
    let prevented = stored.and_then(|tenant| tenant.pointer("/spec/preventDeletion")?.as_bool());
    if prevented.unwrap_or_default() {
        return Err(Refusal {
            rule: Rule::Tenant,
            why: format!(
                "Tenant {} may not be deleted: its spec.preventDeletion is true",
                case.request.name
            ),
            remedy: "set it to false first".to_owned(),
        });
    }
    Ok(())
}
