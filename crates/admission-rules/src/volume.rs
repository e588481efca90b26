//! The rules for volumes that claims in a tenant's namespaces name. PersistentVolumes have no namespace, and the next user of a volume can read the data that
//! another tenant left in it.
//!
//! As in Capsule, a volume is a tenant's by its label, and a claim that selects volumes must select the tenant's. A volume that was given to a claim of the
//! tenant before is the tenant's, too. A volume without such a sign is not.

use serde_json::Value;
use tenure_api::metadata::TENANT_LABEL;

use super::kubernetes::{is_api_server_or_tenure, may_change};
use super::{Case, Findings, Question, Refusal, Rule, tenant_limits};
use tenure_tenancy::placement::TenantFacts;
use tenure_tenancy::rights::ADOPT;

/// The field of a claim's spec that names a volume, and the one that selects some.
pub(super) const NAME: &str = "volumeName";
/// The JSON pointer of [`NAME`], for the exemptions of controllers.
pub(super) const NAME_FIELD: &str = "/spec/volumeName";
/// See [`NAME`].
pub(super) const SELECTOR: &str = "selector";

pub(super) fn check(case: Case<'_>, _: &mut Findings) -> Result<(), Refusal> {
    judge_claim(case)?;
    judge_volume(case)
}

/// Checks that a volume with a tenant's label is given only to that tenant's claims. The volume binder has no exemption: otherwise it would give the
/// volume to a claim that names no volume and selects none.
fn judge_volume(case: Case<'_>) -> Result<(), Refusal> {
    let request = case.request;
    if !request.is_about("", "persistentvolumes", &[]) || !request.writes() {
        return Ok(());
    }
    let (new, old) = (request.object, request.old_object);
    let claimed = |object: Option<&Value>| {
        let namespace = object?.pointer("/spec/claimRef/namespace")?.as_str()?;
        Some(namespace.to_owned())
    };
    let label = |object: Option<&Value>| {
        let labels = object?.pointer("/metadata/labels")?;
        labels.get(TENANT_LABEL)?.as_str().map(str::to_owned)
    };
    let Some(namespace) = claimed(new).filter(|namespace| claimed(old).as_ref() != Some(namespace)) else {
        return Ok(());
    };
    // Read from the old object: a removal of the label at the same time hides nothing.
    let Some(tenant) = label(old).or_else(|| label(new)) else {
        return Ok(());
    };
    let owner = case.facts.tenant_of(&namespace);
    let is_own = owner.is_some_and(|owner| owner.name == tenant);
    if is_own || is_api_server_or_tenure(case) || case.is_allowed(&Question::about_tenant(ADOPT, &tenant)) {
        return Ok(());
    }
    Err(Refusal {
        rule: Rule::PersistentVolumes,
        why: format!(
            "spec.claimRef: the volume belongs to Tenant {}, and namespace {} doesn't",
            tenant_limits::shorten(&tenant),
            tenant_limits::shorten(&namespace)
        ),
        remedy: format!("claim another volume, or ask an administrator to change the volume's label {TENANT_LABEL}"),
    })
}

fn judge_claim(case: Case<'_>) -> Result<(), Refusal> {
    if !case.request.is_about("", "persistentvolumeclaims", &[]) {
        return Ok(());
    }
    let Some((tenant, object)) = tenant_limits::find_tenant(case) else {
        return Ok(());
    };
    let old = case.request.old_object;
    let field = |object: &Value, field: &str| object.pointer("/spec")?.get(field).cloned();
    let changed = |name: &str| {
        let new = field(object, name);
        new.filter(|new| old.and_then(|old| field(old, name)).as_ref() != Some(new))
    };
    let (named, selector) = (changed(NAME), changed(SELECTOR));
    let named = named.as_ref().and_then(Value::as_str).filter(|name| !name.is_empty());
    let selector = selector.filter(|selector| !selector.is_null());
    // The volume binder names a volume by an update. A volume in a StatefulSet's template is checked like one that its author
    // names.
    let named = named.filter(|_| !may_change(case, Rule::PersistentVolumes, NAME_FIELD));
    let is_free = || is_api_server_or_tenure(case) || case.is_allowed(&Question::about_tenant(ADOPT, &tenant.name));
    if named.is_none() && selector.is_none() || is_free() {
        return Ok(());
    }
    if let Some(selector) = selector {
        let labels = selector.get("matchLabels").and_then(|labels| labels.get(TENANT_LABEL));
        if labels.and_then(Value::as_str) != Some(tenant.name.as_str()) {
            return Err(Refusal {
                rule: Rule::PersistentVolumes,
                why: format!("spec.{SELECTOR}: it may select another tenant's PersistentVolumes"),
                remedy: format!("add {TENANT_LABEL}: {} to its matchLabels", tenant.name),
            });
        }
    }
    let Some(name) = named else { return Ok(()) };
    let volume = case.find("", "persistentvolumes", "", name);
    match volume.is_some_and(|volume| is_of(case, tenant, &volume)) {
        true => Ok(()),
        false => Err(Refusal {
            rule: Rule::PersistentVolumes,
            why: format!(
                "spec.{NAME}: PersistentVolume {} is not known to belong to Tenant {}",
                tenant_limits::shorten(name),
                tenant.name
            ),
            remedy: format!(
                "remove it, or ask an administrator to label the volume {TENANT_LABEL}={}",
                tenant.name
            ),
        }),
    }
}

/// Checks whether a volume has the tenant's label, or has no label and was given to a claim of the
/// tenant.
fn is_of(case: Case<'_>, tenant: &TenantFacts, volume: &Value) -> bool {
    let label = volume
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(TENANT_LABEL));
    let claimed = volume.pointer("/spec/claimRef/namespace").and_then(Value::as_str);
    let is_own = |namespace: &str| {
        let owner = case.facts.tenant_of(namespace);
        owner.is_some_and(|owner| owner.uid == tenant.uid)
    };
    match label {
        Some(label) => label.as_str() == Some(tenant.name.as_str()) && claimed.is_none_or(is_own),
        None => claimed.is_some_and(is_own),
    }
}
