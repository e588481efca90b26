//! Whether another Ingress has a host and path that an Ingress is to have (`ingressOptions.hostnameCollisionScope`, Capsule's words).
//!
//! Judged is what is new, of everybody, as with hostnames (`super::ingress`): a pair of host and path that the Ingress had before isn't judged
//! again. Whoever judges knows the Ingresses that were stored a moment ago ([`IngressIndex`]), so what was let through meanwhile is kept in a
//! ledger ([`HostLedger`]): of a Tenant whose scope is the cluster in one of a few that all such Tenants share, by host, so that they see each
//! other's; else in the Tenant's own. A Tenant with a narrower scope, or none, looks at no other one's and needs to be seen by none: what it takes
//! while another one takes the same is as if it had come last, which it may.
//!
//! Owns when two collide, and what is said of it: of an Ingress outside of the Tenant nothing but that it is there. Refuses to say whether a host is
//! allowed at all.

mod book;

use std::collections::BTreeMap;

use tenure_api::tenant::CollisionScope;

pub use book::HostLedger;

use super::ledger::KEPT;
use super::{Operation, Refusal, Request, Rule, limited};
use crate::facts::Facts;
use crate::ingresses::{
    Holder, HostPath, IngressIndex, IngressRoutes, MOST_OF_NAMESPACE, MOST_OF_ONE, PairDigest, digest_of,
};

/// Over how many ledgers the hosts of a cluster are spread. An Ingress claims in as many as it has hosts, at most.
const LEDGERS: u8 = 16;
/// What every refusal advises first.
const REMEDY: &str = "take another host or path";

/// An Ingress that is to have hosts and paths which it didn't have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostClaim {
    /// The Tenant's name.
    pub tenant: String,
    /// Its uid.
    pub tenant_uid: String,
    /// Among which Ingresses no two may have the same.
    pub scope: CollisionScope,
    /// The namespace.
    pub namespace: String,
    /// The Ingress; empty as long as its name is still to be made.
    pub name: String,
    /// What is new of what it has.
    pub pairs: Vec<(PairDigest, HostPath)>,
    /// How many hosts and paths it has with those that it had before.
    pub total: usize,
}

/// What of a claim is claimed in one ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPart<'a> {
    /// The claim.
    pub claim: &'a HostClaim,
    /// Which ledger it is of those that all share; the Tenant's own, without one.
    pub shared: Option<u8>,
    pairs: Vec<&'a (PairDigest, HostPath)>,
}

/// What an Ingress is to have that it didn't have, if its Tenant wants no two to have the same. Its object has to be as it would be stored.
///
/// # Errors
/// It has more than is compared.
pub fn reckon(facts: &Facts, request: &Request<'_>) -> Result<Option<HostClaim>, Refusal> {
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
    let after = IngressRoutes::of(object);
    let total = after.len();
    let pairs = after.without(&old.map(IngressRoutes::of).unwrap_or_default());
    if pairs.is_empty() {
        return Ok(None);
    }
    if total > MOST_OF_ONE {
        return Err(Refusal {
            rule: Rule::IngressOptions,
            why: format!(
                "spec.rules: {total} hosts and paths, and of at most {MOST_OF_ONE} of an Ingress it is known whether another one has them, as Tenant \
                 {} wants",
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

/// Whether any of it is known to be another Ingress's.
///
/// # Errors
/// It is, or there are more in the Tenant's own namespaces than is known of: that closes this Tenant, and no other one.
pub fn judge(facts: &Facts, index: &IngressIndex, claim: &HostClaim) -> Result<(), Refusal> {
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
    /// It, ledger by ledger, always in the same order.
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
                "spec.rules: {why}, and Tenant {} wants no two Ingresses {scope} to have the same \
                 (spec.ingressOptions.hostnameCollisionScope: {})",
                self.tenant,
                self.scope.as_str()
            ),
            remedy,
        }
    }

    /// Whose it is, is said within the Tenant only.
    fn refuse_taken(&self, pair: &HostPath, holder: Option<&Holder>) -> Refusal {
        let pair = tell(pair);
        match holder {
            Some(Holder { namespace, name }) => self.refuse(
                format!("{pair} is Ingress {namespace}/{name}'s already"),
                format!("{REMEDY}, or take it from that one first"),
            ),
            None => self.refuse(
                format!("{pair} is already that of an Ingress which isn't the Tenant's"),
                format!("{REMEDY}, or ask an administrator"),
            ),
        }
    }

    fn refuse_being_taken(&self, pair: &HostPath) -> Refusal {
        self.refuse(
            format!(
                "{} is being taken by another Ingress, or was within the last half minute",
                tell(pair)
            ),
            format!("{REMEDY}, or try again in {} seconds", KEPT.as_secs()),
        )
    }

    fn refuse_full(&self, namespace: &str) -> Refusal {
        self.refuse(
            format!(
                "the Ingresses of namespace {namespace} have more hosts and paths than the {MOST_OF_NAMESPACE} of which it is known whether \
                 another one has them, or one of them has more than {MOST_OF_ONE}"
            ),
            "delete some there, and then write those anew that are too many, or that have too many".to_owned(),
        )
    }

    fn refuse_crowd(&self) -> Refusal {
        self.refuse(
            "too many hosts and paths are being taken at this moment".to_owned(),
            format!("make fewer at once: try again in {} seconds", KEPT.as_secs()),
        )
    }
}

fn tell(pair: &HostPath) -> String {
    let host = match pair.host.as_str() {
        "" => "every host",
        host => host,
    };
    format!(
        "host {} with path {}",
        limited::shorten(host),
        limited::shorten(&pair.path)
    )
}

fn choose_ledger(host: &str) -> u8 {
    digest_of(&[host]).first_byte() % LEDGERS
}

#[cfg(test)]
mod tests;
