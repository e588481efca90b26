//! Decides which instance of the controllers reconciles what: shards, by Flux's label `sharding.fluxcd.io/key`.
//!
//! The key is read from the Tenant, or from a namespace without a tenant, and never from the reconciled object: a writer of that object must
//! not choose the instance that acts for it, nor leave a shard. The platform's namespace, Kubernetes' own and disputed ones belong to the
//! main instance, whatever labels they have.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use tenure_api::metadata::{CONTROLLER_LEASE, SHARD_LEASE_PREFIX, SHARDING_KEY};

use crate::placement::{NamespaceFacts, Placement, TenancyIndex};
use crate::settings::is_kubernetes_own;

/// The longest name of a shard. Names of objects for a shard contain it.
const LONGEST: usize = 40;

/// The name of a shard: a key that an instance can be started for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardName(String);

impl ShardName {
    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShardName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A text that names no shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a shard: up to {LONGEST} lower-case letters, digits and -, such as shard1")]
pub struct InvalidShard(String);

impl FromStr for ShardName {
    type Err = InvalidShard;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        let is_edge = |edge: Option<char>| edge.is_some_and(|edge| edge != '-');
        if text.len() > LONGEST
            || !text.chars().all(known)
            || !is_edge(text.chars().next())
            || !is_edge(text.chars().last())
        {
            return Err(InvalidShard(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

/// The reason why a selector names no shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSelector {
    /// The selector has another form.
    #[error(
        "{0:?} does not select exactly one shard: write {SHARDING_KEY}=NAME for a shard, or !{SHARDING_KEY} for the main instance"
    )]
    Other(String),
    /// The name in the selector is no shard's.
    #[error(transparent)]
    Name(#[from] InvalidShard),
}

/// An instance of the controllers: the only one, the main one, or that of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Instance {
    /// The only instance. Keys have no effect.
    #[default]
    Only,
    /// The instance for everything without a key.
    Main,
    /// The instance for everything with this key.
    Shard(ShardName),
}

impl FromStr for Instance {
    type Err = InvalidSelector;

    /// Reads one of Flux's label selectors. Only a selector of one shard, or of all objects without
    /// a key, is valid.
    fn from_str(selector: &str) -> Result<Self, Self::Err> {
        let other = || InvalidSelector::Other(selector.to_owned());
        let selector = selector.trim();
        if let Some(key) = selector.strip_prefix('!') {
            return if key.trim() == SHARDING_KEY {
                Ok(Self::Main)
            } else {
                Err(other())
            };
        }
        let (key, name) = selector.split_once('=').ok_or_else(other)?;
        if key.trim() != SHARDING_KEY {
            return Err(other());
        }
        Ok(Self::Shard(name.strip_prefix('=').unwrap_or(name).trim().parse()?))
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => formatter.write_str("the only instance"),
            Self::Main => formatter.write_str("the main instance"),
            Self::Shard(name) => write!(formatter, "shard {name}"),
        }
    }
}

impl Instance {
    /// Returns the name of the Lease of this instance's leader.
    #[must_use]
    pub fn lease(&self) -> String {
        match self {
            Self::Only | Self::Main => CONTROLLER_LEASE.to_owned(),
            Self::Shard(name) => format!("{SHARD_LEASE_PREFIX}{name}"),
        }
    }

    /// Returns the key of an instance's Lease. The main instance's Lease has no key. Returns none
    /// for other Leases.
    #[must_use]
    pub fn find_key_of_lease(lease: &str) -> Option<Option<&str>> {
        if lease == CONTROLLER_LEASE {
            return Some(None);
        }
        lease.strip_prefix(SHARD_LEASE_PREFIX).map(Some)
    }

    /// Checks whether the instance reconciles what has this key, or no key.
    #[must_use]
    pub fn reconciles(&self, key: Option<&str>) -> bool {
        match self {
            Self::Only => true,
            Self::Main => key.is_none(),
            Self::Shard(name) => key == Some(name.as_str()),
        }
    }
}

/// The unit that an instance takes and releases as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShardUnit {
    /// A Tenant itself: its namespaces, accounts and rights.
    Tenant(String),
    /// Everything in a namespace.
    Namespace(String),
}

impl fmt::Display for ShardUnit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(name) => write!(formatter, "tenant {name}"),
            Self::Namespace(name) => write!(formatter, "namespace {name}"),
        }
    }
}

/// The Tenants and namespaces that one instance reconciles, and all shard keys in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardAssignment {
    /// The units that the instance reconciles.
    pub own: BTreeSet<ShardUnit>,
    /// All keys in the cluster.
    pub keys: BTreeSet<String>,
}

/// Returns the shard key that decides which instance reconciles a namespace. For a namespace that names a Tenant, this is the Tenant's
/// key, before and after the Tenant records it. So no other instance reconciles it in between.
#[must_use]
pub fn find_key(atlas: &TenancyIndex, facts: &NamespaceFacts) -> Option<String> {
    let tenancy = atlas.tenancy();
    if facts.name == tenancy.settings.platform_namespace || is_kubernetes_own(&facts.name) {
        return None;
    }
    match (atlas.find_claimed(facts), atlas.find_placement(&facts.name)) {
        (Some(tenant), Placement::Tenant(_) | Placement::Disputed { .. }) => tenant.shard.clone(),
        (None, Placement::Unclaimed { .. }) => facts.shard.clone(),
        _ => None,
    }
}

/// Returns the Tenants and namespaces that an instance reconciles.
#[must_use]
pub fn assign_shard(atlas: &TenancyIndex, instance: &Instance) -> ShardAssignment {
    let tenancy = atlas.tenancy();
    let tenants = tenancy
        .tenants
        .iter()
        .map(|tenant| (ShardUnit::Tenant(tenant.name.clone()), tenant.shard.clone()));
    let namespaces = tenancy
        .namespaces
        .iter()
        .map(|facts| (ShardUnit::Namespace(facts.name.clone()), find_key(atlas, facts)));
    let mut domain = ShardAssignment::default();
    for (unit, key) in tenants.chain(namespaces) {
        if instance.reconciles(key.as_deref()) {
            domain.own.insert(unit);
        }
        domain.keys.extend(key);
    }
    // The platform's namespace always counts as existing: reports without another place are written
    // there.
    let platform = ShardUnit::Namespace(tenancy.settings.platform_namespace.clone());
    if instance.reconciles(None) {
        domain.own.insert(platform);
    }
    domain
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::placement::{TenancyFacts, TenantFacts, TenantOwnerReference};
    use crate::settings::Settings;

    fn namespace(name: &str, tenant: Option<&str>, shard: Option<&str>) -> NamespaceFacts {
        let owner = |tenant: &str| TenantOwnerReference {
            name: tenant.to_owned(),
            uid: format!("uid-{tenant}"),
        };
        NamespaceFacts {
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            tenant_label: tenant.map(str::to_owned),
            tenant_owners: tenant.map(owner).into_iter().collect(),
            shard: shard.map(str::to_owned),
            ..NamespaceFacts::default()
        }
    }

    fn tenant(name: &str, shard: Option<&str>) -> TenantFacts {
        TenantFacts {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            shard: shard.map(str::to_owned),
            recorded: [name.to_owned(), format!("{name}-dev")]
                .map(|namespace| (namespace.clone(), format!("uid-of-{namespace}")))
                .into(),
            ..TenantFacts::default()
        }
    }

    #[test]
    fn watch_selector_accepts_only_shard_key() {
        let read = |selector: &str| selector.parse::<Instance>();
        let shard = |name: &str| Instance::Shard(name.parse().unwrap());
        assert_eq!(read("!sharding.fluxcd.io/key"), Ok(Instance::Main));
        assert_eq!(read(" sharding.fluxcd.io/key = shard1 "), Ok(shard("shard1")));
        assert_eq!(read("sharding.fluxcd.io/key==shard1"), Ok(shard("shard1")));
        for odd in [
            "",
            "app=x",
            "!app",
            "sharding.fluxcd.io/key",
            "sharding.fluxcd.io/key!=shard1",
            "sharding.fluxcd.io/key in (a, b)",
            "sharding.fluxcd.io/key=a,app=b",
            "sharding.fluxcd.io/key=",
            "sharding.fluxcd.io/key=-a",
            "sharding.fluxcd.io/key=Shard",
        ] {
            let refused = read(odd).unwrap_err().to_string();
            assert!(
                refused.contains("write ") || refused.contains("such as"),
                "{odd}: {refused}"
            );
        }
        assert_eq!(shard("a").lease(), "tenure-controller-shard-a");
        assert_eq!(
            Instance::find_key_of_lease("tenure-controller-shard-a"),
            Some(Some("a"))
        );
        assert_eq!(Instance::find_key_of_lease("tenure-controller"), Some(None));
        assert_eq!(Instance::find_key_of_lease("other"), None);
    }

    #[test]
    fn shard_of_tenant_ignores_labels_of_its_namespaces() {
        let tenancy = TenancyFacts {
            settings: Settings::default(),
            tenants: vec![
                tenant("green", Some("a")),
                tenant("mauve", None),
                tenant("odd", Some("Not A Name")),
            ],
            namespaces: vec![
                namespace("green", Some("green"), None),
                // An owner of the namespace tries to leave the shard, or to move to another one.
                namespace("green-dev", Some("green"), Some("b")),
                namespace("mauve", Some("mauve"), Some("a")),
                // The Tenant hasn't recorded it yet. Nothing is done there, and later the Tenant's
                // instance reconciles it.
                namespace("green-new", Some("green"), Some("b")),
                namespace("nobodys", None, Some("a")),
                namespace("nobodys-too", None, None),
                namespace("tenure-system", None, Some("a")),
                namespace("kube-system", None, Some("a")),
                // Its ownerReference and its label name two Tenants.
                NamespaceFacts {
                    tenant_owners: vec![TenantOwnerReference {
                        name: "mauve".to_owned(),
                        uid: "uid-mauve".to_owned(),
                    }],
                    ..namespace("claimed", Some("green"), Some("a"))
                },
            ],
        };
        let atlas = TenancyIndex::new(Arc::new(tenancy));
        let own = |instance: &Instance| {
            let own = assign_shard(&atlas, instance)
                .own
                .into_iter()
                .map(|unit| unit.to_string());
            own.collect::<Vec<_>>()
        };
        let shard = |name: &str| Instance::Shard(name.parse().unwrap());
        assert_eq!(
            own(&shard("a")),
            [
                "tenant green",
                "namespace green",
                "namespace green-dev",
                "namespace green-new",
                "namespace nobodys"
            ]
        );
        assert_eq!(own(&shard("b")), Vec::<String>::new());
        assert_eq!(
            own(&Instance::Main),
            [
                "tenant mauve",
                "namespace claimed",
                "namespace kube-system",
                "namespace mauve",
                "namespace nobodys-too",
                "namespace tenure-system"
            ]
        );
        assert_eq!(own(&Instance::Only).len(), 12);
        let keys = assign_shard(&atlas, &Instance::Main).keys;
        assert_eq!(keys.into_iter().collect::<Vec<_>>(), ["Not A Name", "a"]);
    }
}
