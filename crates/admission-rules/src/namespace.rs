//! The rules for the tenant of a namespace.
//!
//! RBAC can't restrict values. So every user that may create namespaces could create one for any tenant, and every user that may
//! change one could give it away. Therefore an owner creates namespaces only for the Tenants that name the owner, a GitOps account only
//! for its own Tenant, and only users with the verb `adopt` change a namespace's tenant. Namespaces of Kubernetes or the platform can't be given to a tenant.

use std::collections::BTreeSet;

use tenure_api::metadata::{MINTABLE_ACCOUNTS, TENANT_LABEL};

use super::ledger::NamespaceClaim;
use super::policy::FACTS_PREFIX;
use super::request::read_metadata;
use super::{
    Case, Change, Findings, Operation, Question, Refusal, Rule, account, cordon, finalizers, metadata,
    namespace_metadata,
};
use tenure_tenancy::facts::FactIndex;
use tenure_tenancy::placement::{NamespaceFacts, TenantFacts, TenantOwnerFacts};
use tenure_tenancy::rights::{ADOPT, OWN, PROVISION};

/// Subresources of a Namespace with which its metadata can be written.
const PARTS: [&str; 2] = ["status", "finalize"];
/// The greatest number of names in one message.
const MAX_LISTED_NAMES: usize = 8;

pub(super) fn check(case: Case<'_>, findings: &mut Findings) -> Result<(), Refusal> {
    if !case.request.is_about("", "namespaces", &PARTS) {
        return Ok(());
    }
    let read = |object: Option<&serde_json::Value>| {
        let metadata = object.map(read_metadata).unwrap_or_default();
        let mut facts = NamespaceFacts::from(&metadata);
        if facts.name.is_empty() {
            // The prefix of a generated name. The complete name is checked when the name exists.
            facts.name = metadata.generate_name.unwrap_or_default();
        }
        facts
    };
    let (old, new) = (read(case.request.old_object), read(case.request.object));
    check_marks(case, &old, &new)?;
    match case.request.operation {
        Operation::Create => judge_new(case, &new, findings),
        Operation::Update => {
            check_applier(case, name_of(case, &new))?;
            if claims_of(&old) != claims_of(&new) {
                judge_change(case, &old, &new)?;
            }
            match case.tenant {
                Some(tenant) => {
                    metadata::check_namespace(case, tenant)?;
                    namespace_metadata::check(case, tenant, name_of(case, &new))?;
                    finalizers::check_namespace(case, tenant, name_of(case, &new))
                }
                None => Ok(()),
            }
        }
        Operation::Delete | Operation::Connect => Ok(()),
    }
}

/// Denies changes of facts, which the controllers write, and of the annotation in which an administrator names accounts whose tokens may be
/// requested.
fn check_marks(case: Case<'_>, old: &NamespaceFacts, new: &NamespaceFacts) -> Result<(), Refusal> {
    if !case.request.writes() {
        return Ok(());
    }
    let marks = |object: Option<&serde_json::Value>| {
        let metadata = object.map(read_metadata).unwrap_or_default();
        let mut facts = metadata.annotations.unwrap_or_default();
        let accounts = facts.remove(MINTABLE_ACCOUNTS);
        facts.retain(|key, _| key.starts_with(FACTS_PREFIX));
        (facts, accounts)
    };
    let ((old_facts, old_accounts), (new_facts, new_accounts)) =
        (marks(case.request.old_object), marks(case.request.object));
    let user = case.request.actor.user;
    let name = if new.name.is_empty() { &old.name } else { &new.name };
    if case.request.operation == Operation::Create && !new_facts.is_empty() {
        return refuse(
            Rule::NamespaceMembership,
            format!(
                "namespace {name} can't be created with annotations {FACTS_PREFIX}*: policies read from them to which tenant it belongs"
            ),
            "remove them: Tenure writes them",
        );
    }
    let may_adopt_all = || case.is_allowed(&Question::about_tenant(ADOPT, ""));
    if old_facts != new_facts && !may_adopt_all() {
        return refuse(
            Rule::NamespaceMembership,
            format!(
                "{user} may not change the annotations {FACTS_PREFIX}* of namespace {name}: policies read from them to which tenant it belongs"
            ),
            "leave them as they are: Tenure writes them",
        );
    }
    if old_accounts != new_accounts && !may_adopt_all() {
        return refuse(
            Rule::NamespaceMembership,
            format!(
                "{user} may not set the annotation {MINTABLE_ACCOUNTS}, which selects the ServiceAccounts for Tenure's token requests, in namespace {name}"
            ),
            format!("ask an administrator to do it (verb {ADOPT} on tenants)"),
        );
    }
    Ok(())
}

/// Denies an owner's update of an existing namespace, if the owner has only the right to apply new ones. RBAC can't
/// limit that right to new namespaces.
fn check_applier(case: Case<'_>, name: &str) -> Result<(), Refusal> {
    let is_covered = case.is_allowed(&Question::about_namespace_update(name))
        || !case.is_allowed(&Question::about_tenant(PROVISION, ""))
        || case.is_allowed(&Question::about_tenant(ADOPT, ""));
    if is_covered {
        return Ok(());
    }
    refuse(
        Rule::NamespaceMembership,
        format!(
            "{} may not change namespace {name}: an owner may apply new namespaces, and change those of its own Tenant",
            case.request.actor.user
        ),
        format!("choose another name, or ask an administrator to do it (verb update on namespaces/{name})"),
    )
}

/// Returns the tenant label and the ownerReferences to Tenants of a namespace.
fn claims_of(facts: &NamespaceFacts) -> (Option<&str>, BTreeSet<(&str, &str)>) {
    let owners = facts.tenant_owners.iter();
    let owners = owners.map(|owner| (owner.name.as_str(), owner.uid.as_str()));
    (facts.tenant_label.as_deref(), owners.collect())
}

/// Returns the names of the Tenants that a namespace names, by its label or ownerReferences.
fn names_of(facts: &NamespaceFacts) -> BTreeSet<&str> {
    let owners = facts.tenant_owners.iter().map(|owner| owner.name.as_str());
    owners.chain(facts.tenant_label.as_deref()).collect()
}

fn refuse(rule: Rule, why: String, remedy: impl Into<String>) -> Result<(), Refusal> {
    Err(Refusal {
        rule,
        why,
        remedy: remedy.into(),
    })
}

fn refuse_two(name: &str, one: &str, other: &str) -> Result<(), Refusal> {
    refuse(
        Rule::NamespaceMembership,
        format!("namespace {name} can't belong to two Tenants, {one} and {other}"),
        format!("let its label {TENANT_LABEL} and its ownerReference name the same Tenant"),
    )
}

fn judge_new(case: Case<'_>, new: &NamespaceFacts, findings: &mut Findings) -> Result<(), Refusal> {
    let name = name_of(case, new);
    let named = names_of(new);
    let mut named = named.into_iter();
    let tenant = match (named.next(), named.next()) {
        (None, _) => match choose_tenant(case, name)? {
            Some(tenant) => tenant,
            None => return Ok(()),
        },
        (Some(one), Some(other)) => {
            return refuse_two(name, one, other);
        }
        (Some(named), None) => {
            check_giveable(case.facts, name)?;
            match case.facts.find_tenant(named) {
                Some(tenant) => tenant,
                // The garbage collector would delete the namespace at once, since its owner doesn't
                // exist.
                None if !new.tenant_owners.is_empty() && case.is_allowed(&Question::about_tenant(OWN, named)) => {
                    return refuse(
                        Rule::NamespaceMembership,
                        format!(
                            "namespace {name} has an ownerReference to Tenant {named}, which doesn't exist: the garbage collector would delete the namespace"
                        ),
                        "remove the ownerReference: the label is enough",
                    );
                }
                // The Tenant doesn't exist yet. A user with the right may create the namespace
                // first, and the Tenant gets it later.
                None if case.is_allowed(&Question::about_tenant(OWN, named)) => return Ok(()),
                None => return refuse_stranger(case, name, named),
            }
        }
    };
    let is_creator = is_owner(case, tenant) || account::is_account_of(case, tenant);
    if !is_creator && !case.is_allowed(&Question::about_tenant(OWN, &tenant.name)) {
        return refuse_stranger(case, name, &tenant.name);
    }
    check_giveable(case.facts, name)?;
    check_claim(tenant, new)?;
    check_home(case.facts, tenant, name)?;
    check_name(case, tenant, name)?;
    check_options(case, tenant, name)?;
    metadata::check_namespace(case, tenant)?;
    namespace_metadata::check(case, tenant, name)?;
    finalizers::check_namespace(case, tenant, name)?;
    findings.claim = claim_place(case, tenant)?;
    if new.tenant_label.is_none() {
        findings.changes.push(Change::Label {
            key: TENANT_LABEL,
            value: tenant.name.clone(),
        });
    }
    Ok(())
}

fn judge_change(case: Case<'_>, old: &NamespaceFacts, new: &NamespaceFacts) -> Result<(), Refusal> {
    let name = name_of(case, new);
    let (before, after) = (names_of(old), names_of(new));
    // The label and owners that an earlier state left on a protected namespace can be removed one
    // by one.
    let gains_owner = new.tenant_owners.iter().any(|owner| !old.tenant_owners.contains(owner));
    let gains_label = new.tenant_label.is_some() && new.tenant_label != old.tenant_label;
    if gains_owner || gains_label {
        check_giveable(case.facts, name)?;
    }
    for named in before.union(&after) {
        let is_gone = case.facts.find_tenant(named).is_none() && !after.contains(named);
        if is_gone || case.is_allowed(&Question::about_tenant(ADOPT, named)) {
            continue;
        }
        return refuse(
            Rule::NamespaceMembership,
            format!(
                "{} may not change the tenant of namespace {name}: its label {TENANT_LABEL} and its ownerReferences to Tenants",
                case.request.actor.user
            ),
            format!("leave them as they are, or ask an administrator to do it (verb {ADOPT} on tenants/{named})"),
        );
    }
    let mut after = after.into_iter();
    let (Some(named), other) = (after.next(), after.next()) else {
        return Ok(());
    };
    if let Some(other) = other {
        return refuse_two(name, named, other);
    }
    if let Some(tenant) = case.facts.find_tenant(named) {
        check_claim(tenant, new)?;
        check_home(case.facts, tenant, name)?;
    }
    Ok(())
}

/// Returns the name of a namespace, or the prefix of its generated name.
fn name_of<'a>(case: Case<'a>, facts: &'a NamespaceFacts) -> &'a str {
    match (facts.name.as_str(), case.request.name) {
        ("", "") => "(of a generated name)",
        ("", name) | (name, _) => name,
    }
}

/// Returns the Tenant of a new namespace that names none. Returns none for users that may create namespaces without a tenant. For
/// owners, returns the only Tenant of the user, or the one whose name begins the namespace's name.
fn choose_tenant<'a>(case: Case<'a>, name: &str) -> Result<Option<&'a TenantFacts>, Refusal> {
    let owned: Vec<&TenantFacts> = list_owned(case);
    if owned.is_empty() || case.is_allowed(&Question::about_tenant(OWN, "")) {
        return Ok(None);
    }
    if let [only] = owned.as_slice() {
        return Ok(Some(only));
    }
    let begins = |tenant: &&&TenantFacts| {
        let rest = name.strip_prefix(tenant.name.as_str());
        rest.is_some_and(|rest| rest.starts_with('-'))
    };
    if let Some(tenant) = owned.iter().filter(begins).max_by_key(|tenant| tenant.name.len()) {
        return Ok(Some(tenant));
    }
    let names: Vec<&str> = owned.iter().map(|tenant| tenant.name.as_str()).collect();
    refuse(
        Rule::NamespaceMembership,
        format!(
            "{} owns several Tenants ({}), and namespace {name} names none",
            case.request.actor.user,
            join_names(&names)
        ),
        format!("label it {TENANT_LABEL}=<tenant>, or let its name begin with the Tenant's and a hyphen"),
    )
    .map(|()| None)
}

fn join_names(names: &[&str]) -> String {
    let joined = names
        .iter()
        .take(MAX_LISTED_NAMES)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(MAX_LISTED_NAMES) {
        0 => joined,
        more => format!("{joined} and {more} more"),
    }
}

/// Lists the Tenants that name the user as an owner, or whose GitOps account it is, by name.
fn list_owned<'a>(case: Case<'a>) -> Vec<&'a TenantFacts> {
    let names = list_names(case);
    let named = names.iter().flat_map(|owner| case.facts.tenants_of(owner));
    let mut owned: Vec<&TenantFacts> = named
        .chain(account::find_tenant_of_account(case))
        .filter(|tenant| !tenant.deleting)
        .collect();
    owned.sort_by(|one, other| one.name.cmp(&other.name));
    owned.dedup_by(|one, other| one.name == other.name);
    owned
}

/// Lists the forms in which a Tenant may name this user as an owner: user, groups and ServiceAccount.
fn list_names(case: Case<'_>) -> Vec<TenantOwnerFacts> {
    let actor = &case.request.actor;
    let own = |kind: &str, name: &str| TenantOwnerFacts {
        kind: kind.to_owned(),
        name: name.to_owned(),
    };
    let mut names = vec![own("User", actor.user)];
    if actor.user.starts_with(super::request::SERVICE_ACCOUNT_PREFIX) {
        names.push(own("ServiceAccount", actor.user));
    }
    names.extend(actor.groups.iter().map(|group| own("Group", group)));
    names
}

/// Checks whether a Tenant names the user as an owner.
pub(super) fn is_owner(case: Case<'_>, tenant: &TenantFacts) -> bool {
    let actor = &case.request.actor;
    tenant.owners.iter().any(|owner| match owner.kind.as_str() {
        "User" | "ServiceAccount" => owner.name == actor.user,
        "Group" => actor.groups.contains(&owner.name.as_str()),
        _ => false,
    })
}

/// Denies with the same message whether the Tenant exists or not: a user that is no owner learns
/// nothing about other tenants.
fn refuse_stranger(case: Case<'_>, name: &str, tenant: &str) -> Result<(), Refusal> {
    refuse(
        Rule::NamespaceMembership,
        format!(
            "{} may not create namespace {name} for Tenant {tenant}: no Tenant of this name has it as an owner",
            case.request.actor.user
        ),
        "name a Tenant that lists you in spec.owners",
    )
}

/// Denies a namespace that can't be a tenant's: of Kubernetes, of the platform, or protected.
fn check_giveable(facts: &FactIndex, name: &str) -> Result<(), Refusal> {
    if facts.settings().is_protected(name) {
        return refuse(
            Rule::NamespaceMembership,
            format!("namespace {name} belongs to Kubernetes or the platform, and can't belong to a tenant"),
            format!("remove the label {TENANT_LABEL} and the ownerReferences to Tenants"),
        );
    }
    Ok(())
}

/// Checks that label and ownerReferences, if set, name exactly this Tenant.
fn check_claim(tenant: &TenantFacts, new: &NamespaceFacts) -> Result<(), Refusal> {
    let is_another = new.tenant_owners.iter().any(|owner| owner.uid != tenant.uid);
    if is_another || new.tenant_owners.len() > 1 {
        return refuse(
            Rule::NamespaceMembership,
            format!(
                "the uid in an ownerReference to Tenant {} is not the uid of the Tenant",
                tenant.name
            ),
            "remove the ownerReference: the label is enough",
        );
    }
    if tenant.deleting {
        return refuse(
            Rule::NamespaceMembership,
            format!("Tenant {} is being deleted", tenant.name),
            "wait until it has gone",
        );
    }
    Ok(())
}

/// Denies a name that is another Tenant's home, or will be.
fn check_home(facts: &FactIndex, tenant: &TenantFacts, name: &str) -> Result<(), Refusal> {
    let rival = facts
        .tenants_at_home(name)
        .find(|other| other.uid != tenant.uid && !other.deleting);
    match rival {
        Some(_) => refuse(
            Rule::NamespaceMembership,
            format!("namespace {name} is the home namespace of another Tenant"),
            "take another name",
        ),
        None => Ok(()),
    }
}

/// Checks whether no object outside the tenant names the namespace. An owner may then use the name. An
/// administrator decides about other names.
fn check_name(case: Case<'_>, tenant: &TenantFacts, name: &str) -> Result<(), Refusal> {
    let is_generated = case.request.name.is_empty() && case.request.object.is_some_and(has_no_name);
    if is_generated || case.is_allowed(&Question::about_tenant(ADOPT, &tenant.name)) {
        return Ok(());
    }
    let remedy = || {
        format!(
            "choose another name, or ask an administrator to create it (verb {ADOPT} on tenants/{})",
            tenant.name
        )
    };
    if case.facts.settings().is_reserved(name) && tenant.home() != name {
        return refuse(
            Rule::NamespaceMembership,
            format!(
                "namespace {name} has a reserved name (--reserved-namespaces): rights and webhooks of an add-on may refer to it"
            ),
            remedy(),
        );
    }
    if let Some(flag) = case.facts.settings().find_flag_naming(name, &tenant.name) {
        return refuse(
            Rule::NamespaceMembership,
            format!("the installation's flag {flag} names namespace {name}"),
            remedy(),
        );
    }
    match case.surroundings.find_mention(case.facts, tenant, name) {
        Ok(None) => Ok(()),
        Ok(Some(mention)) => refuse(
            Rule::NamespaceMembership,
            format!("{mention} names namespace {name}, so the tenant would get what it grants"),
            remedy(),
        ),
        Err(why) => refuse(
            Rule::NamespaceMembership,
            format!("can't find out whether an object outside the tenant names namespace {name}: {why}"),
            "try again in a moment",
        ),
    }
}

/// Checks whether an object has no name yet. It is checked again with its name.
fn has_no_name(object: &serde_json::Value) -> bool {
    object
        .pointer("/metadata/name")
        .and_then(serde_json::Value::as_str)
        .is_none_or(str::is_empty)
}

/// Checks the Tenant's options for its namespaces.
fn check_options(case: Case<'_>, tenant: &TenantFacts, name: &str) -> Result<(), Refusal> {
    let is_home = tenant.home() == name;
    if tenant.cordoned && cordon::is_identity_of(case, tenant) {
        return refuse(
            Rule::Cordoned,
            format!(
                "Tenant {} is cordoned: its owners can't create namespaces in it",
                tenant.name
            ),
            "ask an administrator to remove spec.cordoned",
        );
    }
    let has_prefix = name
        .strip_prefix(tenant.name.as_str())
        .is_some_and(|rest| rest.starts_with('-'));
    if !tenant.force_prefix || is_home {
        return Ok(());
    }
    if !has_prefix {
        return refuse(
            Rule::NamespaceOptions,
            format!(
                "names of namespaces of Tenant {} begin with {}-",
                tenant.name, tenant.name
            ),
            format!("name it {}-{name}", tenant.name),
        );
    }
    // Of Tenants `a` and `a-b`, the second has the names that begin with `a-b-`.
    match case.facts.find_namesake(name) {
        Some(other) if other.uid != tenant.uid => refuse(
            Rule::NamespaceOptions,
            format!("the beginning of the name {name} is reserved for another Tenant"),
            format!("begin the name with {}- and continue differently", tenant.name),
        ),
        _ => Ok(()),
    }
}

/// Returns the claim of a new namespace, if the number of the Tenant's namespaces is limited. The claim has no name
/// while the name is not generated.
fn claim_place(case: Case<'_>, tenant: &TenantFacts) -> Result<Option<NamespaceClaim>, Refusal> {
    let Some(quota) = tenant.find_namespace_quota(case.facts.settings()) else {
        return Ok(None);
    };
    let claim = NamespaceClaim {
        tenant: tenant.name.clone(),
        tenant_uid: tenant.uid.clone(),
        quota,
        seen: case.facts.count_namespaces(tenant),
        namespace: case
            .request
            .object
            .map(read_metadata)
            .and_then(|metadata| metadata.name)
            .unwrap_or_default(),
    };
    if claim.seen >= claim.quota {
        return Err(claim.refuse(0));
    }
    Ok(Some(claim))
}
