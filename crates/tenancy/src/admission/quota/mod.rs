//! Whether a Tenant has room for an object, over all of its namespaces (`resourceQuotas` with scope `Tenant`).
//!
//! Kubernetes counts what each namespace uses, and no namespace alone passes what the Tenant has, since the ResourceQuota there says the same.
//! What is judged here is the sum. Whoever judges knows what was counted a moment ago, so what was let through meanwhile is kept in a ledger
//! ([`QuotaLedger`]).
//!
//! Owns the sum, and what is said of it. Refuses to know how much an object is: whoever asks says so ([`QuotaClaim`]); and refuses what
//! nobody has counted yet.

mod book;

use std::collections::BTreeMap;
use std::time::Duration;

use go_words::quantity::Quantity;

pub use book::QuotaLedger;

use super::ledger::KEPT;
use super::{Refusal, Rule};
use crate::facts::Facts;
use crate::quotas::{QuotaItem, Usages, Used, name_content};

/// What to do where there is no room.
const REMEDY: &str =
    "delete what isn't needed in any of its namespaces, or ask an administrator for more (spec.resourceQuotas)";
/// By which part of the time that something is kept it may be kept for less, so that not each time that it is asked about again is written.
const COARSE: u32 = 5;

/// An object that is to be made, or to grow, in a namespace of a Tenant with quotas.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaClaim {
    /// The Tenant's name.
    pub tenant: String,
    /// Its uid.
    pub tenant_uid: String,
    /// The namespace.
    pub namespace: String,
    /// The object, `pods/web-1`; empty as long as its name is still to be made.
    pub object: String,
    /// What it comes to use more of.
    pub amounts: Vec<QuotaAmount>,
}

/// How much an object is to one resource of one quota.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaAmount {
    /// The item of the Tenant's `resourceQuotas`.
    pub quota: QuotaItem,
    /// The quota's name for what is counted.
    pub resource: String,
    /// As the object is stored.
    pub before: Quantity,
    /// As it is to be.
    pub after: Quantity,
}

impl QuotaAmount {
    /// By what a ledger knows it.
    fn key(&self) -> String {
        format!("{}/{}", self.quota.index, self.resource)
    }
}

/// What the namespaces of a Tenant were seen to use of what a claim is about: by namespace, in the order of its amounts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums(Vec<BTreeMap<String, Quantity>>);

/// What was counted of what a claim is about.
///
/// # Errors
/// Somebody has to count first. Namespaces that claim the Tenant and that it hasn't recorded count for nothing, and nothing that is counted is made
/// there.
pub fn add_up(facts: &Facts, usages: &Usages, claim: &QuotaClaim) -> Result<Sums, Refusal> {
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
                Used::Counted(counted) => {
                    used.insert(name.to_owned(), counted);
                }
                Used::Uncounted => {
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
                "how much {} namespace {namespace} uses isn't known, as ResourceQuota {name} isn't there or hasn't been counted yet, and Tenant \
                 {tenant} bounds it in all its namespaces together",
                amount.resource
            ),
            "try again in a moment; while it stays so, an administrator looks at the Tenant's Ready condition".to_owned(),
        )
    }

    /// Says that there is no room: `used` without this object, `open` of which is let through and may not have been counted.
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
                "; of what is used, {resource}={} is being made, or was within the last half minute",
                open.canonical()
            ));
            remedy = format!("try again in {} seconds, {remedy}", KEPT.as_secs());
        }
        self.refuse(why, remedy)
    }

    fn refuse_crowd(&self) -> Refusal {
        self.refuse(
            format!(
                "too many objects that quotas count are being made in Tenant {} at this moment",
                self.tenant
            ),
            format!("make fewer at once: try again in {} seconds", KEPT.as_secs()),
        )
    }
}

/// By how much less than `kept` something may be kept.
fn coarse(kept: Duration) -> Duration {
    kept / COARSE
}

#[cfg(test)]
mod tests;
