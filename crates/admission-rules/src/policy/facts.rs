//! The facts on a namespace that policies read, and the rules while they are missing.
//!
//! Each fact is an annotation, since a label would be too short for most. Only users that may `adopt` every Tenant write facts. Tenure
//! does so, and a policy denies all others. A namespace with a tenant's label that belongs to no tenant has a fact with an empty name:
//! the fact also shows that the controllers have looked at the namespace.

use std::collections::{BTreeMap, BTreeSet};

use super::super::account::account_of;
use super::hand_edit_denials::HandEditDenials;
use super::minting::MintableAccounts;
use super::{
    Policy, PolicyScope, ResourceRule, USER, Validation, namespace_facts, phrase, quote, variable, write_tenant_check,
};
use super::{kubernetes, limits, namespace_metadata};
use crate::Rule;
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, GRANTING_BINDINGS, MINTABLE_FACT, TENANT_LABEL};
use tenure_tenancy::bounds::ForbiddenMetadata;
use tenure_tenancy::facts::FactIndex;
use tenure_tenancy::flux_account::{ActingKind, name_account};
use tenure_tenancy::placement::TenantFacts;
use tenure_tenancy::rights::ADOPT;
use tenure_tenancy::settings::Settings;

/// The prefix of the keys of these annotations.
pub const FACTS_PREFIX: &str = tenure_api::metadata::FACTS_PREFIX;
/// The Tenant. Empty for a namespace without a tenant.
pub(super) const TENANT: &str = "tenant";
/// The Tenant's home namespace.
pub(super) const HOME: &str = "home";
/// The tenant's GitOps account. Empty if it has none.
pub(super) const ACCOUNT: &str = "account";
/// Whether the tenant's GitOps account is exclusive.
pub(super) const EXCLUSIVE: &str = "exclusive";
/// The account with which Kustomizations act in this namespace, and HelmReleases unless these have another one.
pub(super) const ACTS_AS: &str = "acts-as";
/// The account with which HelmReleases act in this namespace, if it differs.
pub(super) const RELEASES_ACT_AS: &str = "releases-act-as";
/// The Tenant's shard, if it has one.
pub(super) const SHARD: &str = "shard";
/// The Tenant's namespaces, separated by commas.
pub(super) const NAMESPACES: &str = "namespaces";
/// Other objects that this namespace may refer to, as `NAMESPACE/KIND/NAME`, separated by commas.
pub(super) const REFERENCES: &str = "references";
/// The owners of a cordoned Tenant, a line each.
pub(super) const CORDONED: &str = "cordoned";
/// The beginning of a line for all ServiceAccounts of a namespace.
pub(super) const ACCOUNTS_OF: &str = "ServiceAccounts";
/// The owners, a line each, if they may not set some labels or annotations of the namespace.
pub(super) const OWNERS: &str = "owners";

/// The Kustomizations that deny hand edits of their objects here, a line each, with the users that may edit.
pub(super) const REFUSING: &str = "refusing";

/// The longest list: an object has capacity for 256 KiB of annotations, and each namespace of a tenant has all of its lists.
pub(super) const LONGEST_LIST: usize = 16 << 10;
/// Stands for all users, if a list would be too long.
pub(super) const EVERYBODY: &str = "*";
/// The value of a fact that is true.
pub(super) const YES: &str = "true";

/// Returns the facts of each of these namespaces, in their order, from the placement and from the objects that deny edits or name accounts there.
/// Lists that namespaces of one tenant share are made once.
#[must_use]
pub fn describe_namespaces<'a>(
    facts: &FactIndex,
    objects: (&HandEditDenials, &MintableAccounts),
    names: impl Iterator<Item = &'a str>,
) -> Vec<BTreeMap<String, String>> {
    let mut lists = BTreeMap::new();
    names.map(|name| describe(facts, objects, name, &mut lists)).collect()
}

/// Returns the facts of a namespace. It has some if it has a label of a tenant and may become this tenant's, or if objects there deny edits
/// or name accounts.
#[must_use]
pub fn describe_namespace(
    facts: &FactIndex,
    objects: (&HandEditDenials, &MintableAccounts),
    namespace: &str,
) -> BTreeMap<String, String> {
    describe(facts, objects, namespace, &mut BTreeMap::new())
}

fn describe(
    facts: &FactIndex,
    (refusing, mintable): (&HandEditDenials, &MintableAccounts),
    namespace: &str,
    lists: &mut BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut written = describe_membership(facts, namespace, lists);
    if let Some(lines) = refusing.describe(facts, namespace) {
        written.insert(format!("{FACTS_PREFIX}{REFUSING}"), lines);
    }
    if let Some(accounts) = mintable.describe(namespace) {
        written.insert(MINTABLE_FACT.to_owned(), accounts);
    }
    written
}

fn describe_membership(
    facts: &FactIndex,
    namespace: &str,
    lists: &mut BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut written = BTreeMap::new();
    let is_labelled = facts
        .find_namespace(namespace)
        .is_some_and(|known| known.tenant_label.is_some());
    if !is_labelled || facts.settings().is_protected(namespace) {
        return written;
    }
    let mut write = |key: &str, value: String| {
        written.insert(format!("{FACTS_PREFIX}{key}"), value);
    };
    let Some(tenant) = facts.tenant_of(namespace) else {
        // A namespace that names an existing Tenant may become that Tenant's: it gets no fact before, and policies refuse writes there.
        if !may_become_a_tenants(facts, namespace) {
            write(TENANT, String::new());
        }
        return written;
    };
    let account = account_of(tenant)
        .map(|(_, account)| account.to_string())
        .unwrap_or_default();
    let settings = facts.settings();
    let own = Some(account.as_str()).filter(|account| !account.is_empty());
    let [acts_as, releases_act_as] = [ActingKind::Kustomization, ActingKind::HelmRelease]
        .map(|kind| name_account(settings, kind, namespace, (tenant.home(), own)).unwrap_or_default());
    write(TENANT, tenant.name.clone());
    write(HOME, tenant.home().to_owned());
    write(ACTS_AS, acts_as.to_owned());
    if releases_act_as != acts_as {
        write(RELEASES_ACT_AS, releases_act_as.to_owned());
    }
    write(ACCOUNT, account);
    let all = lists
        .entry(tenant.name.clone())
        .or_insert_with(|| list_namespaces(facts, tenant))
        .as_str();
    // A too long list is replaced by this namespace alone. A policy then denies references to the
    // others.
    let names = if all.len() <= LONGEST_LIST { all } else { namespace };
    write(NAMESPACES, names.to_owned());
    if tenant.exclusive_account {
        write(EXCLUSIVE, YES.to_owned());
    }
    if let Some(shard) = &tenant.shard {
        write(SHARD, shard.clone());
    }
    if tenant.cordoned {
        write(CORDONED, list_identities(tenant, all));
    }
    if *tenant.bounds.namespaces() != ForbiddenMetadata::default() {
        write(OWNERS, list_identities(tenant, all));
    }
    namespace_metadata::describe(facts.settings(), tenant, namespace, &mut write);
    limits::describe(&tenant.bounds, !settings.is_guarded, &mut write);
    let grants = settings.reference_grants.iter();
    let grants: Vec<String> = grants
        .filter_map(|grant| grant.find_target((namespace, &tenant.name)))
        .collect();
    let grants = grants.join(",");
    if !grants.is_empty() && grants.len() <= LONGEST_LIST {
        write(REFERENCES, grants);
    }
    written
}

/// Checks whether the namespace has the label of a Tenant that exists.
fn may_become_a_tenants(facts: &FactIndex, namespace: &str) -> bool {
    let label = facts
        .find_namespace(namespace)
        .and_then(|known| known.tenant_label.as_deref());
    label.is_some_and(|label| facts.find_tenant(label).is_some())
}

/// Checks by its annotations whether a tenant's namespace has the facts that policies need. Facts from objects other than the Tenant and the
/// namespace aren't compared, nor is the list of the Tenant's namespaces: an old list allows nothing that is another tenant's.
#[must_use]
pub fn has_facts<'a>(
    facts: &FactIndex,
    namespace: &str,
    annotations: impl Iterator<Item = (&'a str, &'a str)>,
) -> bool {
    let is_compared = |key: &str| {
        let fact = key.strip_prefix(FACTS_PREFIX);
        fact.is_some_and(|fact| fact != NAMESPACES && fact != REFUSING) && key != MINTABLE_FACT
    };
    let mut wanted = describe_membership(facts, namespace, &mut BTreeMap::new());
    wanted.retain(|key, _| is_compared(key));
    let borne: BTreeMap<&str, &str> = annotations.filter(|(key, _)| is_compared(key)).collect();
    facts.tenant_of(namespace).is_some()
        && wanted.len() == borne.len()
        && wanted
            .iter()
            .all(|(key, value)| borne.get(key.as_str()) == Some(&value.as_str()))
}

/// Returns all of the tenant's namespaces.
fn list_namespaces(facts: &FactIndex, tenant: &TenantFacts) -> String {
    let mut names: Vec<&str> = facts.list_namespaces(tenant).map(|known| known.name.as_str()).collect();
    names.sort_unstable();
    names.join(",")
}

/// Returns the owners, and the namespaces whose ServiceAccounts are the tenant's. If the list is too long, every ServiceAccount counts
/// as the tenant's.
fn list_identities(tenant: &TenantFacts, namespaces: &str) -> String {
    let owners = list_owners(tenant);
    let recorded = tenant.recorded.keys().map(String::as_str);
    let names: BTreeSet<&str> = namespaces
        .split(',')
        .chain(recorded)
        .filter(|name| !name.is_empty())
        .collect();
    let accounts: String = names.iter().map(|name| format!("\n{ACCOUNTS_OF} {name}")).collect();
    match owners.len() + accounts.len() <= LONGEST_LIST {
        true => format!("{owners}{accounts}"),
        false => format!("{owners}\n{ACCOUNTS_OF} {EVERYBODY}"),
    }
}

/// Returns `User alice`, a line each. A too long list becomes `*`, so all users are denied.
fn list_owners(tenant: &TenantFacts) -> String {
    let owners = tenant.owners.iter();
    // No API server has a user with a line break in its name.
    let owners = owners.filter(|owner| !owner.name.contains('\n') && !owner.kind.contains('\n'));
    let owners: Vec<String> = owners.map(|owner| format!("{} {}", owner.kind, owner.name)).collect();
    let owners = owners.join("\n");
    if owners.len() <= LONGEST_LIST {
        owners
    } else {
        EVERYBODY.to_owned()
    }
}

/// Returns the expression for a fact of the namespace. Empty if the fact is not written.
pub(super) fn read(key: &str) -> String {
    read_of("variables.facts", key)
}

/// Returns the expression for a fact among annotations.
pub(super) fn read_of(annotations: &str, key: &str) -> String {
    format!("{annotations}[?{}].orValue('')", quote(&format!("{FACTS_PREFIX}{key}")))
}

/// Returns the variable for the label by which a namespace names its Tenant. Policies for tenants' namespaces select by that label, so it
/// always exists.
pub(super) fn label_variable() -> (String, String) {
    variable(
        "label",
        format!("namespaceObject.metadata.labels[{}]", quote(TENANT_LABEL)),
    )
}

/// Returns the expression for the Tenant in a Namespace's label. Empty if it has none.
pub(super) fn find_label(namespace: &str) -> String {
    format!(
        "{namespace} == null ? '' : string({namespace}.?metadata.?labels[?{}].orValue(''))",
        quote(TENANT_LABEL)
    )
}

/// Returns the expression that the facts of the namespace are written, and belong to the Tenant in
/// its label.
pub(super) fn are_known() -> String {
    format!(
        "{} in variables.facts && variables.tenant in ['', variables.label] && {}",
        quote(&format!("{FACTS_PREFIX}{TENANT}")),
        namespace_metadata::are_borne()
    )
}

/// Returns the first validation of every policy for tenants' namespaces: without facts, the policy refuses everything that it protects. An API server may learn
/// of a policy late, or know a namespace from an earlier time. Even then no write is allowed that the other policies would refuse. An update that changes no
/// checked field is allowed.
pub(super) fn require_facts() -> Validation {
    let same = |path: &str| format!("object.?{path}.orValue({{}}) == oldObject.?{path}.orValue({{}})");
    let is_unchanged = format!(
        "(request.operation == 'UPDATE' && object.?spec.hasValue() && {} && {} && {})",
        same("spec"),
        same("metadata.?labels"),
        same("metadata.?annotations")
    );
    Validation {
        holds: format!(
            "({}) || {is_unchanged} || {} || {}",
            are_known(),
            kubernetes::write_upkeep(),
            write_tenant_check(ADOPT, Some("variables.label"))
        ),
        rule: Rule::NamespaceMembership,
        why: phrase(
            "{} may not write in namespace {} yet: Tenure hasn't written on it to which tenant it belongs",
            &[USER, "request.namespace"],
        ),
        remedy: quote("try again in a moment, or ask an administrator whether Tenure is running"),
    }
}

/// Policy for a namespace that is labelled for a tenant but bears no facts yet: only users with the verb `adopt`, Tenure, and
/// Kubernetes' own controllers in what they keep in order, may write.
pub(super) fn make_missing_facts_policy(settings: &Settings) -> Policy {
    let mut conditions = vec![("no-event", "request.resource.resource != 'events'".to_owned())];
    conditions.extend(kubernetes::not_api_server_or_tenure(&settings.platform_namespace));
    Policy {
        name: "namespace-facts".to_owned(),
        action: super::Action::Deny,
        place: PolicyScope::InTenants,
        about: vec![ResourceRule {
            groups: vec!["*"],
            resources: vec!["*", "serviceaccounts/token", "pods/ephemeralcontainers"],
            operations: vec!["CREATE", "UPDATE"],
        }],
        conditions,
        variables: namespace_facts(),
        // Every policy for tenants' namespaces has this validation, and this policy consists of
        // nothing else.
        validations: Vec::new(),
    }
}

/// Policy for RoleBindings by which Tenure grants rights in a namespace: an API server accepts one only if it sees the facts of that namespace.
/// So the API server that stores the binding already applies those facts, and any other one denies writes until it has them.
pub(super) fn owners_bound(platform: &str) -> Policy {
    let own = quote(&format!(
        "system:serviceaccount:{platform}:{CONTROLLER_SERVICE_ACCOUNT}"
    ));
    let beginnings = GRANTING_BINDINGS
        .map(|beginning| format!("object.metadata.name.startsWith({})", quote(beginning)))
        .join(" || ");
    Policy {
        name: "owners-bound".to_owned(),
        action: super::Action::Deny,
        place: PolicyScope::InTenants,
        about: vec![ResourceRule {
            groups: vec!["rbac.authorization.k8s.io"],
            resources: vec!["rolebindings"],
            operations: vec!["CREATE"],
        }],
        conditions: vec![
            ("by-the-controller", format!("{USER} == {own}")),
            ("gives-rights", beginnings),
        ],
        variables: namespace_facts(),
        validations: vec![Validation {
            holds: format!("({}) && variables.tenant != ''", are_known()),
            rule: Rule::NamespaceMembership,
            why: phrase(
                "RoleBinding {} gives rights in namespace {}, but this API server doesn't know the facts of the namespace yet",
                &["object.metadata.name", "request.namespace"],
            ),
            remedy: quote("it is tried again"),
        }],
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        clippy::allow_attributes,
        reason = "tests may panic"
    )]

    use super::*;
    use tenure_tenancy::placement::{NamespaceFacts, TenantOwnerFacts, TenantOwnerReference};

    #[test]
    fn overlong_facts_allow_nothing() {
        let mut facts = FactIndex::new(Settings::default());
        let owner = |number: usize| TenantOwnerFacts {
            kind: "User".to_owned(),
            name: format!("{number}-{}", "x".repeat(200)),
        };
        let mut tenant = TenantFacts {
            name: "blue".to_owned(),
            uid: "t".to_owned(),
            cordoned: true,
            owners: (0..3).map(owner).collect(),
            ..TenantFacts::default()
        };
        facts.set_tenant(tenant.clone());
        let name = |number: usize| format!("blue-{number}-{}", "n".repeat(40));
        for number in 0..400 {
            facts.set_namespace(NamespaceFacts {
                name: name(number),
                tenant_label: Some("blue".to_owned()),
                tenant_owners: vec![TenantOwnerReference {
                    name: "blue".to_owned(),
                    uid: "t".to_owned(),
                }],
                ..NamespaceFacts::default()
            });
        }
        let names: Vec<String> = (0..400).map(name).collect();
        let (refusing, mintable) = (HandEditDenials::default(), MintableAccounts::default());
        let nothing = (&refusing, &mintable);
        let all = describe_namespaces(&facts, nothing, names.iter().map(String::as_str));
        assert_eq!(all[7]["facts.tenure.dev/namespaces"], names[7]);
        let cordoned = &all[7]["facts.tenure.dev/cordoned"];
        assert_eq!(
            (cordoned.lines().count(), cordoned.ends_with("ServiceAccounts *")),
            (4, true)
        );
        assert_eq!(all[7], describe_namespace(&facts, nothing, &names[7]));
        tenant.owners = (0..100).map(owner).collect();
        facts.set_tenant(tenant);
        let one = describe_namespace(&facts, nothing, &names[7]);
        assert_eq!(one["facts.tenure.dev/cordoned"], "*\nServiceAccounts *");
        assert!(one.values().map(String::len).sum::<usize>() < 64 << 10);
    }

    #[test]
    fn every_policy_for_tenants_refuses_without_facts() {
        let settings = Settings::default();
        let policies = super::super::list_policies(&settings);
        let mut checked = 0;
        for policy in &policies {
            let expressions = &policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"];
            if policy["kind"] != "ValidatingAdmissionPolicy" || expressions[0]["key"] != TENANT_LABEL {
                continue;
            }
            checked += 1;
            let first = &policy["spec"]["validations"][0];
            let expression = first["expression"].as_str().unwrap();
            assert!(
                expression.contains("'facts.tenure.dev/tenant' in variables.facts"),
                "{policy:#}"
            );
            assert!(
                first["messageExpression"]
                    .as_str()
                    .unwrap()
                    .contains("hasn\\'t written on it to which tenant it belongs")
            );
        }
        assert!(checked >= 20, "{checked}");
    }
}
