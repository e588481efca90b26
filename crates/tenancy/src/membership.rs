//! Returns the tenant of a user, to share common resources fairly: tenants share requests, memory and
//! processors.
//!
//! A membership grants nothing: [`crate::identity`] decides who may act in a tenant.

use tenure_api::metadata::LANE_PREFIX;

use crate::facts::FactIndex;
use crate::lane::TENANT_LANE;
use crate::placement::TenantOwnerFacts;

/// The prefix of the user names of ServiceAccounts.
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// The prefix of Kubernetes' own groups, which have more members than any tenant.
const KUBERNETES_PREFIX: &str = "system:";

/// The tenant of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership<'a> {
    /// The user belongs to this Tenant.
    Tenant(&'a str),
    /// The user belongs to no Tenant.
    Nobody,
    /// The user is a ServiceAccount whose namespace is unknown.
    Unknown,
}

impl<'a> Membership<'a> {
    fn from_tenant(tenant: Option<&'a str>) -> Self {
        tenant.map_or(Self::Nobody, Self::Tenant)
    }
}

/// Finds the Tenant of a user. A ServiceAccount has the Tenant of its namespace, and a lane's account has that of the lane. Any other user has
/// the first Tenant by name that lists the user, or one of their groups, as an owner.
#[must_use]
pub fn find_membership<'a>(facts: &'a FactIndex, user: &str, groups: &[String]) -> Membership<'a> {
    let account = user.strip_prefix(ACCOUNT_PREFIX);
    let Some((namespace, name)) = account.and_then(|account| account.split_once(':')) else {
        let own_groups = groups.iter().filter(|group| !group.starts_with(KUBERNETES_PREFIX));
        let owners = own_groups.map(|group| ("Group", group.as_str()));
        let tenants = std::iter::once(("User", user))
            .chain(owners)
            .filter_map(|(kind, name)| {
                let owner = TenantOwnerFacts {
                    kind: kind.to_owned(),
                    name: name.to_owned(),
                };
                // In the order of their names.
                facts.tenants_of(&owner).map(|tenant| tenant.name.as_str()).next()
            });
        return Membership::from_tenant(tenants.min());
    };
    if namespace == facts.settings().platform_namespace {
        let tenant = name
            .strip_prefix(LANE_PREFIX)
            .and_then(|lane| lane.strip_prefix(TENANT_LANE));
        let tenant = tenant.and_then(|tenant| facts.find_tenant(tenant));
        return Membership::from_tenant(tenant.map(|tenant| tenant.name.as_str()));
    }
    match facts.find_namespace(namespace) {
        Some(_) => Membership::from_tenant(facts.tenant_of(namespace).map(|tenant| tenant.name.as_str())),
        None => Membership::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tenant_membership_covers_all_its_identities() {
        let owner = |kind: &str, name: &str| json!({ "kind": kind, "name": name });
        let tenancy = json!({
            "tenants": [
                { "name": "blue", "uid": "blue-uid", "owners": [owner("User", "bea"), owner("Group", "painters"), owner("Group", "system:authenticated")] },
                { "name": "azure", "uid": "azure-uid", "owners": [owner("User", "bea")] },
            ],
            "namespaces": [
                { "name": "blue", "uid": "blue", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "blue-uid" }] },
                { "name": "shop", "uid": "shop", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "blue-uid" }] },
                { "name": "stolen", "uid": "stolen", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "another" }] },
                { "name": "tenure-system", "uid": "t" },
                { "name": "nobodys", "uid": "n" },
            ],
        });
        let facts = FactIndex::from_facts(&serde_json::from_value(tenancy).unwrap());
        let account = |namespace: &str, name: &str| format!("{ACCOUNT_PREFIX}{namespace}:{name}");
        let groups = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let blue = Membership::Tenant("blue");
        for (user, of, expected) in [
            (
                account("shop", "default"),
                groups(&["system:serviceaccounts:shop"]),
                blue,
            ),
            (account("stolen", "default"), groups(&[]), Membership::Nobody),
            (account("nobodys", "default"), groups(&["painters"]), Membership::Nobody),
            (account("missing", "default"), groups(&[]), Membership::Unknown),
            (account("tenure-system", "tenure-lane-tenant-blue"), groups(&[]), blue),
            (
                account("tenure-system", "tenure-lane-tenant-green"),
                groups(&[]),
                Membership::Nobody,
            ),
            (
                account("tenure-system", "tenure-lane-pool"),
                groups(&[]),
                Membership::Nobody,
            ),
            (
                account("nobodys", "tenure-lane-tenant-blue"),
                groups(&[]),
                Membership::Nobody,
            ),
            ("bea".to_owned(), groups(&["painters"]), Membership::Tenant("azure")),
            ("ben".to_owned(), groups(&["system:authenticated", "painters"]), blue),
            ("ben".to_owned(), groups(&["system:authenticated"]), Membership::Nobody),
        ] {
            assert_eq!(find_membership(&facts, &user, &of), expected, "{user} {of:?}");
        }
    }
}
