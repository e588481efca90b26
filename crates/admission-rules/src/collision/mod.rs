//! Checks whether another Ingress has a host and path of an Ingress (`ingressOptions.hostnameCollisionScope`, as in Capsule).
//!
//! For all users, only new values are checked, as with hostnames (`super::ingress`): a pair of host and path that the Ingress had before isn't
//! checked again. The index ([`IngressIndex`]) has the Ingresses that were stored up to a moment ago, so admitted ones are reserved in a ledger
//! ([`HostLedger`]).
//!
//! - A Tenant whose scope is the cluster reserves in one of a few ledgers that all such Tenants share, chosen by host, so that they see each other's
//!   reservations.
//! - Every other Tenant reserves in a ledger of its own. It compares with no other Tenant, and no other Tenant needs to see its reservations. If two
//!   take a pair at once, the result is the same as if this one had come last, which is allowed.
//!
//! A message names no Ingress outside of the Tenant. Another rule decides whether a host is allowed at all.

mod reservations;

use std::collections::BTreeMap;

use tenure_api::tenant::CollisionScope;

pub use reservations::HostLedger;

use super::ledger::KEPT;
use super::{Operation, Refusal, Request, Rule, tenant_limits};
use tenure_tenancy::facts::FactIndex;
use tenure_tenancy::ingresses::{
    HostPath, IngressIndex, IngressName, IngressRoutes, MOST_OF_NAMESPACE, MOST_OF_ONE, PairDigest, digest_texts,
};

/// The number of ledgers over which the hosts of a cluster are spread. An Ingress claims in at most as many as it
/// has hosts.
const LEDGERS: u8 = 16;
/// The first advice of every denial.
const REMEDY: &str = "take another host or path";

/// The pairs of host and path that an Ingress adds, which must be free within the scope of its Tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostClaim {
    /// The Tenant's name.
    pub tenant: String,
    /// The uid of the Tenant.
    pub tenant_uid: String,
    /// The scope in which no two Ingresses may share a pair.
    pub scope: CollisionScope,
    /// The namespace.
    pub namespace: String,
    /// The Ingress. Empty until its name is generated.
    pub name: String,
    /// The new pairs.
    pub pairs: Vec<(PairDigest, HostPath)>,
    /// The number of all its pairs, old and new.
    pub total: usize,
}

/// The pairs of a claim that are reserved in one ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPart<'a> {
    /// The claim.
    pub claim: &'a HostClaim,
    /// The number of the shared ledger. None for the Tenant's own ledger.
    pub shared: Option<u8>,
    pairs: Vec<&'a (PairDigest, HostPath)>,
}

/// Returns the claim of an Ingress on new hosts and paths, if its Tenant sets a scope. The object must have its stored form.
///
/// # Errors
/// The Ingress has more pairs than are compared.
pub fn claim_hosts(facts: &FactIndex, request: &Request<'_>) -> Result<Option<HostClaim>, Refusal> {
    if !request.is_about("networking.k8s.io", "ingresses", &[]) || !request.writes() {
        return Ok(None);
    }
    let Some(tenant) = facts.tenant_of(request.namespace) else {
        return Ok(None);
    };
    let (Some(scope), Some(object)) = (tenant.bounds.collision_scope(), request.object) else {
        return Ok(None);
    };
    let old = request.old_object.filter(|_| request.operation == Operation::Update);
    let after = IngressRoutes::read(object);
    let total = after.len();
    let pairs = after.without(&old.map(IngressRoutes::read).unwrap_or_default());
    if pairs.is_empty() {
        return Ok(None);
    }
    if total > MOST_OF_ONE {
        return Err(Refusal {
            rule: Rule::IngressOptions,
            why: format!(
                "spec.rules: {total} hosts and paths, but only {MOST_OF_ONE} of an Ingress can be checked for collisions, as Tenant {} demands",
                tenant.name
            ),
            remedy: "spread them over several Ingresses".to_owned(),
        });
    }
    let named = object.pointer("/metadata/name").and_then(|name| name.as_str());
    Ok(Some(HostClaim {
        tenant: tenant.name.clone(),
        tenant_uid: tenant.uid.clone(),
        scope,
        namespace: request.namespace.to_owned(),
        name: named.filter(|name| !name.is_empty()).unwrap_or(request.name).to_owned(),
        pairs,
        total,
    }))
}

/// Checks whether another known Ingress has a pair of a claim.
///
/// # Errors
/// Another Ingress has one, or the Tenant's own namespaces have more pairs than the index stores. The latter blocks
/// this Tenant, and no other.
pub fn check(facts: &FactIndex, index: &IngressIndex, claim: &HostClaim) -> Result<(), Refusal> {
    let own = (claim.namespace.as_str(), claim.name.as_str());
    let tenant = facts
        .find_tenant(&claim.tenant)
        .filter(|tenant| tenant.uid == claim.tenant_uid);
    let listed = tenant.into_iter().flat_map(|tenant| facts.list_namespaces(tenant));
    let mut namespaces: Vec<&str> = match claim.scope {
        CollisionScope::Namespace => Vec::new(),
        CollisionScope::Tenant | CollisionScope::Cluster => listed.map(|namespace| namespace.name.as_str()).collect(),
    };
    if !namespaces.contains(&own.0) {
        namespaces.push(own.0);
    }
    for namespace in &namespaces {
        let more = if *namespace == own.0 { claim.total } else { 0 };
        let name = if *namespace == own.0 { own.1 } else { "" };
        if index.is_full(namespace, name, more) {
            return Err(claim.refuse_full(namespace));
        }
    }
    for (digest, pair) in &claim.pairs {
        let mut within = namespaces.iter();
        let found = match claim.scope {
            CollisionScope::Cluster => index.find(*digest, own),
            CollisionScope::Tenant | CollisionScope::Namespace => {
                within.find_map(|namespace| index.find_in(namespace, *digest, own))
            }
        };
        if let Some(holder) = found {
            let is_own = namespaces.contains(&holder.namespace.as_str());
            return Err(claim.refuse_taken(pair, Some(&holder).filter(|_| is_own)));
        }
    }
    Ok(())
}

impl HostClaim {
    /// Returns the parts of the claim by ledger, always in the same order.
    #[must_use]
    pub fn parts(&self) -> Vec<HostPart<'_>> {
        let mut parts: BTreeMap<Option<u8>, Vec<&(PairDigest, HostPath)>> = BTreeMap::new();
        for pair in &self.pairs {
            let shared = (self.scope == CollisionScope::Cluster).then(|| choose_ledger(&pair.1.host));
            parts.entry(shared).or_default().push(pair);
        }
        let parts = parts.into_iter();
        parts
            .map(|(shared, pairs)| HostPart {
                claim: self,
                shared,
                pairs,
            })
            .collect()
    }

    fn refuse(&self, why: String, remedy: String) -> Refusal {
        let scope = match self.scope {
            CollisionScope::Cluster => "in the cluster",
            CollisionScope::Tenant => "of its namespaces",
            CollisionScope::Namespace => "of a namespace",
        };
        Refusal {
            rule: Rule::IngressOptions,
            why: format!(
                "spec.rules: {why}, and Tenant {} allows no two Ingresses {scope} with the same host and path (spec.ingressOptions.hostnameCollisionScope: {})",
                self.tenant,
                self.scope.as_str()
            ),
            remedy,
        }
    }

    /// Denies a pair. The message names the other Ingress only within the Tenant.
    fn refuse_taken(&self, pair: &HostPath, holder: Option<&IngressName>) -> Refusal {
        let pair = describe_pair(pair);
        match holder {
            Some(IngressName { namespace, name }) => self.refuse(
                format!("{pair} already belongs to Ingress {namespace}/{name}"),
                format!("{REMEDY}, or take it from that one first"),
            ),
            None => self.refuse(
                format!("{pair} already belongs to an Ingress outside the Tenant"),
                format!("{REMEDY}, or ask an administrator"),
            ),
        }
    }

    fn refuse_being_taken(&self, pair: &HostPath) -> Refusal {
        self.refuse(
            format!(
                "{} is reserved for another Ingress, which is being written or was within the last half minute",
                describe_pair(pair)
            ),
            format!("{REMEDY}, or try again in {} seconds", KEPT.as_secs()),
        )
    }

    fn refuse_full(&self, namespace: &str) -> Refusal {
        self.refuse(
            format!(
                "the Ingresses of namespace {namespace} have more than {MOST_OF_NAMESPACE} hosts and paths, or one of them has more than {MOST_OF_ONE}, so collisions can't be checked"
            ),
            "delete some there, and then write the Ingresses above the limit again".to_owned(),
        )
    }

    fn refuse_crowd(&self) -> Refusal {
        self.refuse(
            "too many hosts and paths are being reserved at this moment".to_owned(),
            format!("create fewer at once: try again in {} seconds", KEPT.as_secs()),
        )
    }
}

fn describe_pair(pair: &HostPath) -> String {
    let host = match pair.host.as_str() {
        "" => "every host",
        host => host,
    };
    format!(
        "host {} with path {}",
        tenant_limits::shorten(host),
        tenant_limits::shorten(&pair.path)
    )
}

fn choose_ledger(host: &str) -> u8 {
    digest_texts(&[host]).first_byte() % LEDGERS
}

#[cfg(test)]
mod tests;
