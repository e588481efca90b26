//! What stands on a namespace for policies to read, and what holds as long as it doesn't.
//!
//! Each is an annotation, since a label would be too short for most. Only who may `adopt` every Tenant writes them, which is Tenure, and
//! a policy keeps it so. A namespace that is labelled for a tenant and is nobody's bears an empty name: that it has been looked at is
//! a fact, too.

use std::collections::BTreeMap;

use super::super::account::account_of;
use super::kubernetes;
use super::limits;
use super::minting::Mintable;
use super::refusing::Refusing;
use super::{About, Policy, USER, Validation, Where, may, namespace_facts, phrase, quote, variable};
use crate::admission::Rule;
use crate::admission::rights::ADOPT;
use crate::bounds::ForbiddenMetadata;
use crate::facts::Facts;
use crate::flux_account::{ActingKind, name_account};
use crate::realm::TenantFacts;
use crate::settings::Settings;
use tenure_api::metadata::{MINTABLE_FACT, TENANT_LABEL};

/// How the keys of these annotations begin.
pub const FACTS_PREFIX: &str = tenure_api::metadata::FACTS_PREFIX;
/// The Tenant; empty where the namespace is nobody's.
pub(super) const TENANT: &str = "tenant";
/// Its home namespace.
pub(super) const HOME: &str = "home";
/// The account that its surfaces act as; empty where it has none.
pub(super) const ACCOUNT: &str = "account";
/// Whether that account is kept from everybody else.
pub(super) const EXCLUSIVE: &str = "exclusive";
/// The account that Kustomizations act as in this namespace, and HelmReleases, unless there is another one for them.
pub(super) const ACTS_AS: &str = "acts-as";
/// The account that HelmReleases act as in this namespace, if that is another one.
pub(super) const RELEASES_ACT_AS: &str = "releases-act-as";
/// The Tenant's shard, if it is in one.
pub(super) const SHARD: &str = "shard";
/// The Tenant's namespaces, with commas between them.
pub(super) const NAMESPACES: &str = "namespaces";
/// What objects of this namespace may refer to besides, as `NAMESPACE/KIND/NAME`, with commas between them.
pub(super) const REFERENCES: &str = "references";
/// Where the Tenant is cordoned, its owners, a line each.
pub(super) const CORDONED: &str = "cordoned";
/// Where owners may not set all labels and annotations of the namespace, they, a line each.
pub(super) const OWNERS: &str = "owners";

/// The Kustomizations that refuse edits by hand of what they applied here, and who may edit it, a line each.
pub(super) const REFUSING: &str = "refusing";

/// How long a list may get: an object has room for 256 KiB of annotations, and each namespace of a tenant has all of its lists.
pub(super) const LONGEST_LIST: usize = 16 << 10;
/// Stands for everybody, where those whom it stands for are too many.
pub(super) const EVERYBODY: &str = "*";
/// What is written for a thing that is so.
pub(super) const YES: &str = "true";

/// What is to stand on each of these namespaces, in their order, by what objects refuse and name there. What namespaces of one tenant have in common
/// is put together once.
#[must_use]
pub fn describe_namespaces<'a>(
    facts: &Facts,
    said: (&Refusing, &Mintable),
    names: impl Iterator<Item = &'a str>,
) -> Vec<BTreeMap<String, String>> {
    let mut lists = BTreeMap::new();
    names.map(|name| describe(facts, said, name, &mut lists)).collect()
}

/// What is to stand on a namespace: whose it is, where it is labelled for a tenant and may be one's, and what objects refuse and name there.
#[must_use]
pub fn describe_namespace(facts: &Facts, said: (&Refusing, &Mintable), namespace: &str) -> BTreeMap<String, String> {
    describe(facts, said, namespace, &mut BTreeMap::new())
}

fn describe(
    facts: &Facts,
    (refusing, mintable): (&Refusing, &Mintable),
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
    facts: &Facts,
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
        write(TENANT, String::new());
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
    let names = lists
        .entry(tenant.name.clone())
        .or_insert_with(|| list_namespaces(facts, tenant));
    // Where they are too many, this one alone: then a policy refuses what leads to the others.
    let names = if names.len() <= LONGEST_LIST {
        names.as_str()
    } else {
        namespace
    };
    write(NAMESPACES, names.to_owned());
    if tenant.exclusive_account {
        write(EXCLUSIVE, YES.to_owned());
    }
    if let Some(shard) = &tenant.shard {
        write(SHARD, shard.clone());
    }
    if tenant.cordoned {
        write(CORDONED, list_owners(tenant));
    }
    if *tenant.bounds.namespaces() != ForbiddenMetadata::default() {
        write(OWNERS, list_owners(tenant));
    }
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

/// All of the tenant's namespaces.
fn list_namespaces(facts: &Facts, tenant: &TenantFacts) -> String {
    let mut names: Vec<&str> = facts.list_namespaces(tenant).map(|known| known.name.as_str()).collect();
    names.sort_unstable();
    names.join(",")
}

/// `User alice`, a line each. Where they are too many, everybody is kept out.
fn list_owners(tenant: &TenantFacts) -> String {
    let owners = tenant.owners.iter();
    // Whose name has a line's end in it is nobody that a server would know.
    let owners = owners.filter(|owner| !owner.name.contains('\n') && !owner.kind.contains('\n'));
    let owners: Vec<String> = owners.map(|owner| format!("{} {}", owner.kind, owner.name)).collect();
    let owners = owners.join("\n");
    if owners.len() <= LONGEST_LIST {
        owners
    } else {
        EVERYBODY.to_owned()
    }
}

/// A fact of the namespace, empty where it isn't written.
pub(super) fn read(key: &str) -> String {
    read_of("variables.facts", key)
}

/// A fact among annotations.
pub(super) fn read_of(annotations: &str, key: &str) -> String {
    format!("{annotations}[?{}].orValue('')", quote(&format!("{FACTS_PREFIX}{key}")))
}

/// The policy for a namespace that is labelled for a tenant and has no facts yet: only Tenure and users who may adopt the Tenant write there. Kubernetes' controllers update what exists, and create what every namespace has.
pub(super) fn unwritten(settings: &Settings) -> Policy {
    let mut variables = namespace_facts();
    let label = format!("namespaceObject.metadata.labels[{}]", quote(TENANT_LABEL));
    variables.push(variable("label", label));
    let is_known = format!(
        "{} in variables.facts && variables.tenant in ['', variables.label]",
        quote(&format!("{FACTS_PREFIX}{TENANT}"))
    );
    let mut conditions = vec![("no-event", "request.resource.resource != 'events'".to_owned())];
    conditions.extend(kubernetes::not_api_server_or_tenure(&settings.platform_namespace));
    conditions.push(("not-kubernetes-upkeep", format!("!({})", kubernetes::write_upkeep())));
    Policy {
        name: "namespace-facts".to_owned(),
        action: super::Action::Deny,
        place: Where::InTenants,
        about: vec![About {
            groups: vec!["*"],
            resources: vec!["*", "serviceaccounts/token", "pods/ephemeralcontainers"],
            operations: vec!["CREATE", "UPDATE"],
        }],
        conditions,
        variables,
        validations: vec![Validation {
            holds: format!("({is_known}) || {}", may(ADOPT, Some("variables.label"))),
            rule: Rule::NamespaceMembership,
            why: phrase(
                "{} may write nothing in namespace {} yet: Tenure hasn't written on it whose it is",
                &[USER, "request.namespace"],
            ),
            remedy: quote("try again in a moment, or let an administrator see whether Tenure runs"),
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
    use crate::realm::{NamespaceFacts, TenantOwnerFacts, TenantOwnerReference};

    #[test]
    fn what_is_too_long_allows_nothing() {
        let mut facts = Facts::new(Settings::default());
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
        let (refusing, mintable) = (Refusing::default(), Mintable::default());
        let nothing = (&refusing, &mintable);
        let all = describe_namespaces(&facts, nothing, names.iter().map(String::as_str));
        assert_eq!(all[7]["facts.tenure.dev/namespaces"], names[7]);
        assert_eq!(all[7]["facts.tenure.dev/cordoned"].lines().count(), 3);
        assert_eq!(all[7], describe_namespace(&facts, nothing, &names[7]));
        tenant.owners = (0..100).map(owner).collect();
        facts.set_tenant(tenant);
        let one = describe_namespace(&facts, nothing, &names[7]);
        assert_eq!(one["facts.tenure.dev/cordoned"], "*");
        assert!(one.values().map(String::len).sum::<usize>() < 64 << 10);
    }
}
