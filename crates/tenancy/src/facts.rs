//! The known Tenants and namespaces, with an index for each lookup. The change of one object is one change here, however many other
//! objects exist.
//!
//! This module also decides whom a change concerns. [`crate::placement`] alone decides whose a namespace is. Only data that tenancy needs
//! for decisions is stored.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tenure_api::names::NamespaceName;

use crate::placement::{
    self, Holder, NamespaceFacts, Placement, TenancyFacts, TenantFacts, TenantOwnerFacts, TenantOwnerReference,
};
use crate::settings::Settings;
use crate::termination::{self, Termination};

/// The Tenants and namespaces that a change concerns. The placement of all other namespaces, and the
/// namespaces of all other Tenants, stay the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffectedObjects {
    /// The names of Tenants that may have a new namespace now, or may take one.
    pub tenants: BTreeSet<String>,
    /// The names of namespaces whose placement may differ now, or which may be ending.
    pub namespaces: BTreeSet<String>,
    /// True if a namespace was created, removed or began its deletion. Writers from other namespaces may have waited
    /// for this.
    pub has_come_or_gone: bool,
}

impl AffectedObjects {
    /// Checks whether the change concerns none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds those that another change concerns.
    pub fn extend(&mut self, other: Self) {
        self.tenants.extend(other.tenants);
        self.namespaces.extend(other.namespaces);
        self.has_come_or_gone |= other.has_come_or_gone;
    }
}

/// The known Tenants and namespaces, indexed by name, by owner and by home.
#[derive(Clone, Debug, Default)]
pub struct FactIndex {
    settings: Settings,
    tenants: HashMap<String, Arc<TenantFacts>>,
    namespaces: HashMap<String, NamespaceFacts>,
    /// The Tenants of namespaces, by the namespace's name. Every write in a namespace needs this lookup.
    found: HashMap<String, Arc<TenantFacts>>,
    /// The names of the Tenants for which a namespace is, or would be, the home.
    homes: HashMap<String, BTreeSet<String>>,
    /// The names of the Tenants of an owner.
    owned: HashMap<TenantOwnerFacts, BTreeSet<String>>,
    /// The names of the namespaces that name a Tenant by their label or an ownerReference. The Tenant need not have them.
    claims: HashMap<String, BTreeSet<String>>,
    /// The names of the Tenants that have recorded a namespace with this name, in whatever state
    /// the namespace is now.
    recorders: HashMap<String, BTreeSet<String>>,
    /// The names of the Tenants that let no two Ingresses share a host and path.
    colliding: BTreeSet<String>,
}

impl FactIndex {
    /// Returns facts without any Tenant or namespace.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Returns the index of all facts.
    #[must_use]
    pub fn from_facts(tenancy: &TenancyFacts) -> Self {
        let mut facts = Self::new(tenancy.settings.clone());
        tenancy
            .tenants
            .iter()
            .cloned()
            .for_each(|tenant| facts.set_tenant(tenant));
        tenancy
            .namespaces
            .iter()
            .cloned()
            .for_each(|namespace| facts.set_namespace(namespace));
        facts
    }

    /// Returns the administrator's settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Records the current state of a Tenant.
    pub fn set_tenant(&mut self, tenant: TenantFacts) {
        self.unlist_tenant(&tenant.name);
        insert(&mut self.homes, tenant.home().to_owned(), &tenant.name);
        for owner in &tenant.owners {
            insert(&mut self.owned, owner.clone(), &tenant.name);
        }
        for namespace in tenant.recorded.keys() {
            insert(&mut self.recorders, namespace.clone(), &tenant.name);
        }
        if tenant.bounds.collision_scope().is_some() {
            self.colliding.insert(tenant.name.clone());
        }
        let name = tenant.name.clone();
        self.tenants.insert(name.clone(), Arc::new(tenant));
        self.find_again(&name);
    }

    /// Removes a Tenant.
    pub fn remove_tenant(&mut self, name: &str) {
        self.unlist_tenant(name);
        self.find_again(name);
    }

    /// Removes a Tenant from the indexes, except those of its namespaces. The caller [updates these](Self::find_again) once afterwards.
    fn unlist_tenant(&mut self, name: &str) {
        let Some(tenant) = self.tenants.remove(name) else {
            return;
        };
        self.colliding.remove(name);
        remove(&mut self.homes, tenant.home(), name);
        for owner in &tenant.owners {
            remove(&mut self.owned, owner, name);
        }
        for namespace in tenant.recorded.keys() {
            remove(&mut self.recorders, namespace, name);
        }
    }

    /// Updates `found` for each namespace that names this Tenant.
    fn find_again(&mut self, tenant: &str) {
        for namespace in self.claims.get(tenant).into_iter().flatten() {
            match find_tenant_of(&self.settings, &self.tenants, self.namespaces.get(namespace)) {
                Some(tenant) => self.found.insert(namespace.clone(), tenant),
                None => self.found.remove(namespace),
            };
        }
    }

    /// Records the current state of a namespace.
    pub fn set_namespace(&mut self, namespace: NamespaceFacts) {
        self.remove_namespace(&namespace.name);
        for tenant in named_tenants(&namespace) {
            insert(&mut self.claims, tenant.to_owned(), &namespace.name);
        }
        if let Some(tenant) = find_tenant_of(&self.settings, &self.tenants, Some(&namespace)) {
            self.found.insert(namespace.name.clone(), tenant);
        }
        self.namespaces.insert(namespace.name.clone(), namespace);
    }

    /// Removes a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        let Some(namespace) = self.namespaces.remove(name) else {
            return;
        };
        for tenant in named_tenants(&namespace) {
            remove(&mut self.claims, tenant, name);
        }
        self.found.remove(name);
    }

    /// Records the current state of a namespace, or its removal. The change concerns the Tenants that it names or named, and those that have
    /// their home there or have recorded it. It also concerns all namespaces of the named Tenants, since the placement of each lists the
    /// others.
    pub fn change_namespace(&mut self, name: &str, new: Option<NamespaceFacts>) -> AffectedObjects {
        let old = self.namespaces.get(name).cloned();
        if old == new {
            return AffectedObjects::default();
        }
        let going = |facts: &Option<NamespaceFacts>| facts.as_ref().map(|facts| facts.deleting);
        let mut concerned = AffectedObjects {
            has_come_or_gone: going(&old) != going(&new),
            ..AffectedObjects::default()
        };
        for facts in old.iter().chain(&new) {
            concerned.tenants.extend(named_tenants(facts).map(str::to_owned));
        }
        concerned
            .tenants
            .extend(self.homes.get(name).into_iter().flatten().cloned());
        match new {
            Some(facts) => self.set_namespace(facts),
            None => self.remove_namespace(name),
        }
        concerned.namespaces.insert(name.to_owned());
        let claimed = concerned.tenants.iter().filter_map(|tenant| self.claims.get(tenant));
        concerned.namespaces.extend(claimed.flatten().cloned());
        // A Tenant that has recorded the namespace is reconciled too: it drops recorded namespaces that no longer
        // exist.
        let recorders = self.recorders.get(name).into_iter().flatten().cloned();
        concerned.tenants.extend(recorders);
        concerned
    }

    /// Records the current state of a Tenant, or its removal. The change concerns this Tenant, its namespaces, and the Tenants that share its home or
    /// that its home namespace names.
    pub fn change_tenant(&mut self, name: &str, new: Option<TenantFacts>) -> AffectedObjects {
        let old = self.find_tenant(name).cloned();
        if old == new {
            return AffectedObjects::default();
        }
        let mut concerned = AffectedObjects::default();
        concerned.tenants.insert(name.to_owned());
        for home in old.iter().chain(&new).map(TenantFacts::home) {
            concerned.namespaces.insert(home.to_owned());
            concerned
                .tenants
                .extend(self.homes.get(home).into_iter().flatten().cloned());
            let there = self.namespaces.get(home).into_iter();
            concerned
                .tenants
                .extend(there.flat_map(named_tenants).map(str::to_owned));
        }
        concerned
            .namespaces
            .extend(self.claims.get(name).into_iter().flatten().cloned());
        match new {
            Some(facts) => self.set_tenant(facts),
            None => self.remove_tenant(name),
        }
        concerned
    }

    /// Returns the part of the facts that decides one Tenant: its namespaces, those that it might take or has recorded, and some other Tenants.
    /// These have their home in a namespace of the first two groups. The size of this part doesn't depend on the number of other Tenants.
    #[must_use]
    pub fn extract(&self, tenant: &TenantFacts) -> TenancyFacts {
        let mut names: BTreeSet<&str> = self
            .claims
            .get(&tenant.name)
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        names.insert(tenant.home());
        let at_home = names.iter().filter_map(|name| self.homes.get(*name)).flatten();
        let mut tenants: BTreeMap<&str, &TenantFacts> = at_home
            .filter_map(|name| self.find_tenant(name))
            .map(|tenant| (tenant.name.as_str(), tenant))
            .collect();
        tenants.insert(&tenant.name, tenant);
        names.extend(tenant.recorded.keys().map(String::as_str));
        TenancyFacts {
            settings: self.settings.clone(),
            tenants: tenants.into_values().cloned().collect(),
            namespaces: names
                .into_iter()
                .filter_map(|name| self.namespaces.get(name))
                .cloned()
                .collect(),
        }
    }

    /// Returns all facts, sorted by name.
    #[must_use]
    pub fn to_tenancy_facts(&self) -> TenancyFacts {
        let tenants: BTreeMap<&String, &Arc<TenantFacts>> = self.tenants.iter().collect();
        let namespaces: BTreeMap<&String, &NamespaceFacts> = self.namespaces.iter().collect();
        TenancyFacts {
            settings: self.settings.clone(),
            tenants: tenants.into_values().map(|tenant| tenant.as_ref().clone()).collect(),
            namespaces: namespaces.into_values().cloned().collect(),
        }
    }

    /// Returns whether a namespace or its Tenant is ending. Returns none if neither is known to end.
    #[must_use]
    pub fn find_termination(&self, namespace: &str) -> Option<Termination> {
        let is_there = |owner: &TenantOwnerReference| {
            let found = self.find_tenant(&owner.name);
            found.is_some_and(|tenant| tenant.uid == owner.uid && !tenant.deleting)
        };
        termination::find_termination(
            self.namespaces.get(namespace)?,
            |label| self.find_tenant(label).is_some_and(|tenant| !tenant.deleting),
            is_there,
        )
    }

    /// Checks whether a namespace names a Tenant, so that it belongs to one or may do so later.
    #[must_use]
    pub fn names_tenant(&self, namespace: &str) -> bool {
        let facts = self.namespaces.get(namespace);
        facts.is_some_and(|facts| named_tenants(facts).next().is_some())
    }

    /// Returns a Tenant by its name.
    #[must_use]
    pub fn find_tenant(&self, name: &str) -> Option<&TenantFacts> {
        self.tenants.get(name).map(Arc::as_ref)
    }

    /// Returns the Tenant that a namespace is named after. Its name is the longest one that equals the namespace's name, or precedes a
    /// hyphen in it.
    #[must_use]
    pub fn find_namesake(&self, namespace: &str) -> Option<&TenantFacts> {
        let hyphens = namespace.rmatch_indices('-').map(|(position, _)| position);
        let mut beginnings = std::iter::once(namespace.len()).chain(hyphens);
        beginnings.find_map(|end| self.find_tenant(namespace.get(..end)?))
    }

    /// Returns a namespace by its name.
    #[must_use]
    pub fn find_namespace(&self, name: &str) -> Option<&NamespaceFacts> {
        self.namespaces.get(name)
    }

    /// Checks whether a Tenant needs the index of Ingresses.
    #[must_use]
    pub fn needs_ingresses(&self) -> bool {
        !self.colliding.is_empty()
    }

    /// Returns the Tenants of an owner, by name.
    pub fn tenants_of<'a>(&'a self, owner: &TenantOwnerFacts) -> impl Iterator<Item = &'a TenantFacts> {
        let names = self.owned.get(owner).into_iter().flatten();
        names.filter_map(|name| self.find_tenant(name))
    }

    /// Returns the Tenants for which the namespace is the home, or would be if it existed.
    pub fn tenants_at_home<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a TenantFacts> {
        let names = self.homes.get(namespace).into_iter().flatten();
        names.filter_map(|name| self.find_tenant(name))
    }

    /// Returns the Tenant whose rules bound writes in a namespace: the one that the namespace names by its label, whether the Tenant has recorded
    /// it or not. Returns none for a namespace of the platform, without a tenant, in dispute or unknown. This lookup grants nothing:
    /// [`FactIndex::find_placement`] decides who may act there, and on which objects.
    #[must_use]
    pub fn tenant_of(&self, namespace: &str) -> Option<&TenantFacts> {
        self.found.get(namespace).map(Arc::as_ref)
    }

    /// Returns the tenant that has recorded a namespace.
    #[must_use]
    pub fn find_holder(&self, namespace: &str) -> Holder {
        let facts = self.namespaces.get(namespace);
        Holder::find(&self.settings, |name| self.find_tenant(name), facts)
    }

    /// Counts the namespaces that belong to a tenant or claim to, including those in deletion.
    #[must_use]
    pub fn count_namespaces(&self, tenant: &TenantFacts) -> usize {
        self.list_namespaces(tenant).count()
    }

    /// Checks whether [`count_namespaces`](Self::count_namespaces) counts the namespace for the Tenant with this uid.
    #[must_use]
    pub fn is_counted(&self, tenant_uid: &str, namespace: &str) -> bool {
        self.tenant_of(namespace).is_some_and(|tenant| tenant.uid == tenant_uid)
    }

    /// Lists the namespaces of a Tenant, as far as they are known.
    pub fn list_namespaces<'a>(&'a self, tenant: &'a TenantFacts) -> impl Iterator<Item = &'a NamespaceFacts> {
        let claims = self.claims.get(&tenant.name).into_iter().flatten();
        let known = claims.filter_map(|name| self.namespaces.get(name));
        known.filter(|facts| self.tenant_of(&facts.name).is_some_and(|owner| owner.uid == tenant.uid))
    }

    /// Returns the placement of a namespace.
    #[must_use]
    pub fn find_placement(&self, namespace: &str) -> Placement {
        let find_tenant = |name: &str| self.find_tenant(name);
        let owned = |tenant: &TenantFacts| {
            let recorded = self.list_namespaces(tenant).filter(|facts| tenant.has_recorded(facts));
            let names = recorded.map(|facts| facts.name.clone());
            names.filter_map(|name| NamespaceName::new(name).ok()).collect()
        };
        placement::find_placement(
            &self.settings,
            namespace,
            self.namespaces.get(namespace),
            find_tenant,
            owned,
        )
    }
}

/// Returns the Tenant that a namespace names.
fn find_tenant_of(
    settings: &Settings,
    tenants: &HashMap<String, Arc<TenantFacts>>,
    namespace: Option<&NamespaceFacts>,
) -> Option<Arc<TenantFacts>> {
    let named = |name: &str| tenants.get(name).map(Arc::as_ref);
    let found = placement::find_owner(settings, named, namespace?).ok().flatten()?;
    tenants.get(&found.name).cloned()
}

/// Returns the Tenants that a namespace names, by its label and its ownerReferences.
fn named_tenants(namespace: &NamespaceFacts) -> impl Iterator<Item = &str> {
    let owners = namespace.tenant_owners.iter().map(|owner| owner.name.as_str());
    namespace.tenant_label.as_deref().into_iter().chain(owners)
}

fn insert<K: std::hash::Hash + Eq>(index: &mut HashMap<K, BTreeSet<String>>, key: K, name: &str) {
    index.entry(key).or_default().insert(name.to_owned());
}

/// Removes a name from the set of a key, and the key if its set is empty.
fn remove<K, Q>(index: &mut HashMap<K, BTreeSet<String>>, key: &Q, name: &str)
where
    K: std::hash::Hash + Eq + std::borrow::Borrow<Q>,
    Q: std::hash::Hash + Eq + ?Sized,
{
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}
