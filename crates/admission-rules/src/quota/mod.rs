//! Checks whether the quotas of a Tenant have capacity for an object, over all of its namespaces (`resourceQuotas` with scope `Tenant`).
//!
//! Kubernetes counts the use of each namespace, and no namespace alone exceeds the Tenant's limit, since its ResourceQuota has the same one.
//! This module checks the sum. Admission knows the counts of a moment ago, so objects that were admitted meanwhile are reserved in a ledger
//! ([`QuotaLedger`]).
//!
//! The caller supplies the amounts of an object ([`QuotaClaim`]). An object whose resource has not been counted yet is denied.

mod reservations;

use std::collections::BTreeMap;
use std::time::Duration;

use go_words::quantity::Quantity;

pub use reservations::QuotaLedger;

use super::ledger::KEPT;
use super::{Refusal, Rule};
use tenure_tenancy::facts::FactIndex;
use tenure_tenancy::quotas::{QuotaItem, QuotaUse, Usages, name_content};

/// The advice if no capacity is left.
const REMEDY: &str =
    "delete unneeded objects in any of its namespaces, or ask an administrator for more (spec.resourceQuotas)";
/// The part of the time by which a reservation may be shorter, so that not every repeated claim causes a write.
const COARSE: u32 = 5;

/// An object that is created, or grows, in a namespace of a Tenant with quotas.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaClaim {
    /// The Tenant's name.
    pub tenant: String,
    /// The uid of the Tenant.
    pub tenant_uid: String,
    /// The namespace.
    pub namespace: String,
    /// The object, `pods/web-1`. Empty until its name is generated.
    pub object: String,
    /// The amount of the object in each resource that a quota limits, before and after the request.
    pub amounts: Vec<QuotaAmount>,
}

/// How much one object uses of one resource of a quota, before and after a request.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaAmount {
    /// The item of the Tenant's `resourceQuotas`.
    pub quota: QuotaItem,
    /// The quota's name for the resource.
    pub resource: String,
    /// The amount of the stored object.
    pub before: Quantity,
    /// The amount of the new object.
    pub after: Quantity,
}

impl QuotaAmount {
    /// Returns the key of the amount in the ledger: the index of the quota, and the resource.
    fn key(&self) -> String {
        format!("{}/{}", self.quota.index, self.resource)
    }
}

/// The counted use of a Tenant's namespaces: for each amount of a claim, in its order, the use by namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums(Vec<BTreeMap<String, Quantity>>);

/// Returns the counted use of all namespaces of the claim's Tenant.
///
/// # Errors
/// Kubernetes must count first. Namespaces that claim the Tenant and that it hasn't recorded don't count, and no counted object is created there.
pub fn add_up(facts: &FactIndex, usages: &Usages, claim: &QuotaClaim) -> Result<Sums, Refusal> {
    let mut sums = Sums::default();
    let tenant = facts.find_tenant(&claim.tenant);
    let tenant = tenant.filter(|tenant| tenant.uid == claim.tenant_uid);
    for amount in &claim.amounts {
        let mut used = BTreeMap::new();
        for namespace in tenant.into_iter().flat_map(|tenant| facts.list_namespaces(tenant)) {
            let name = namespace.name.as_str();
            let (tenant_name, uid) = (claim.tenant.as_str(), claim.tenant_uid.as_str());
            let is_ending = namespace.deleting;
            match usages.find(name, (tenant_name, uid), &amount.quota, &amount.resource, is_ending) {
                QuotaUse::Counted(counted) => {
                    used.insert(name.to_owned(), counted);
                }
                QuotaUse::Uncounted => {
                    if name == claim.namespace || tenant.is_some_and(|tenant| tenant.has_recorded(namespace)) {
                        return Err(claim.refuse_uncounted(amount, name));
                    }
                }
            }
        }
        if !used.contains_key(&claim.namespace) {
            return Err(claim.refuse_uncounted(amount, &claim.namespace));
        }
        sums.0.push(used);
    }
    Ok(sums)
}

impl QuotaClaim {
    fn refuse(&self, why: String, remedy: String) -> Refusal {
        Refusal {
            rule: Rule::ResourceQuotas,
            why,
            remedy,
        }
    }

    fn refuse_uncounted(&self, amount: &QuotaAmount, namespace: &str) -> Refusal {
        let Self { tenant, .. } = self;
        let name = name_content(tenant, amount.quota.index);
        self.refuse(
            format!(
                "the use of {} in namespace {namespace} isn't known, because ResourceQuota {name} is missing or not counted yet, and Tenant {tenant} limits the sum of all its namespaces",
                amount.resource
            ),
            "try again in a moment; if that doesn't help, ask an administrator to look at the Tenant's Ready condition".to_owned(),
        )
    }

    /// Returns the denial for missing capacity: `used` is the sum without this object, and `open` the part of it that is
    /// admitted and may not have been counted.
    fn refuse_excess(&self, amount: &QuotaAmount, used: Quantity, open: Quantity) -> Refusal {
        let Self { tenant, .. } = self;
        let resource = &amount.resource;
        let limit = amount.quota.limit(resource);
        let asked = amount.after.minus(amount.before).canonical();
        let mut why = format!(
            "exceeded quota: Tenant {tenant}, requested: {resource}={asked}, used: {resource}={}, limited: {resource}={}, in all its namespaces \
             together",
            used.canonical(),
            limit.canonical()
        );
        let mut remedy = REMEDY.to_owned();
        if !open.is_zero() && !open.is_negative() {
            why.push_str(&format!(
                "; of this, {resource}={} is reserved for objects that are being created, or were within the last half minute",
                open.canonical()
            ));
            remedy = format!("try again in {} seconds, {remedy}", KEPT.as_secs());
        }
        self.refuse(why, remedy)
    }

    fn refuse_crowd(&self) -> Refusal {
        self.refuse(
            format!(
                "too many objects under quotas are being created in Tenant {} at this moment",
                self.tenant
            ),
            format!("create fewer at once: try again in {} seconds", KEPT.as_secs()),
        )
    }
}

/// Returns the part of `kept` by which a reservation may be shorter.
fn coarse(kept: Duration) -> Duration {
    kept / COARSE
}

#[cfg(test)]
mod tests;
