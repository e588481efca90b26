//! What is known of Tenants and namespaces, by every name that they are looked up by. One object that changes is one change here,
//! however many others there are.
//!
//! Owns the lookups, and whom a change concerns; whose a namespace is follows from [`crate::realm`] alone. Refuses to hold what tenancy
//! doesn't decide by.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tenure_api::names::NamespaceName;

use crate::ending::{self, Ending};
use crate::realm::{
    self, Holder, NamespaceFacts, Placement, Realm, TenantFacts, TenantOwnerFacts, TenantOwnerReference,
};
use crate::settings::Settings;

/// Whom a change concerns: nobody else's placement, and no other Tenant's namespaces, are different after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// Names of the Tenants that may have another namespace now, or may take one.
    pub tenants: BTreeSet<String>,
    /// Names of the namespaces that may be placed in another way now, or may be ending.
    pub namespaces: BTreeSet<String>,
    /// Whether a namespace has come, has gone or is going: who writes to it from elsewhere may have waited for that.
    pub has_come_or_gone: bool,
}

impl Concerned {
    /// Whether nobody is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds whom another change concerns.
    pub fn extend(&mut self, other: Self) {
        self.tenants.extend(other.tenants);
        self.namespaces.extend(other.namespaces);
        self.has_come_or_gone |= other.has_come_or_gone;
    }
}

/// Tenants and namespaces, looked up by name, by owner and by home.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    settings: Settings,
    tenants: HashMap<String, Arc<TenantFacts>>,
    namespaces: HashMap<String, NamespaceFacts>,
    /// The Tenants of namespaces, by the name of the namespace: what every write in one asks, found in one place.
    found: HashMap<String, Arc<TenantFacts>>,
    /// Names of the Tenants whose home namespace it is, or would be.
    homes: HashMap<String, BTreeSet<String>>,
    /// Names of the Tenants of an owner.
    owned: HashMap<TenantOwnerFacts, BTreeSet<String>>,
    /// Names of the namespaces that name a Tenant by their label or as an owner, by its name; whether they are its is another question.
    claims: HashMap<String, BTreeSet<String>>,
    /// Names of the Tenants that have recorded a namespace of this name, whatever it is now.
    recorders: HashMap<String, BTreeSet<String>>,
    /// Names of the Tenants that let Ingresses not collide.
    colliding: BTreeSet<String>,
}

impl Facts {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Everything that a realm has.
    #[must_use]
    pub fn of(realm: &Realm) -> Self {
        let mut facts = Self::new(realm.settings.clone());
        realm
            .tenants
            .iter()
            .cloned()
            .for_each(|tenant| facts.set_tenant(tenant));
        realm
            .namespaces
            .iter()
            .cloned()
            .for_each(|namespace| facts.set_namespace(namespace));
        facts
    }

    /// What an administrator set.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A Tenant is, from now on, so.
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

    /// A Tenant is no more.
    pub fn remove_tenant(&mut self, name: &str) {
        self.unlist_tenant(name);
        self.find_again(name);
    }

    /// Takes a Tenant out of what it is looked up by, but for its namespaces: those are [said anew](Self::find_again) by whoever calls this, once.
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

    /// Says anew of each namespace that names a Tenant whose it is.
    fn find_again(&mut self, tenant: &str) {
        for namespace in self.claims.get(tenant).into_iter().flatten() {
            match find_tenant_of(&self.settings, &self.tenants, self.namespaces.get(namespace)) {
                Some(tenant) => self.found.insert(namespace.clone(), tenant),
                None => self.found.remove(namespace),
            };
        }
    }

    /// A namespace is, from now on, so.
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

    /// A namespace is no more.
    pub fn remove_namespace(&mut self, name: &str) {
        let Some(namespace) = self.namespaces.remove(name) else {
            return;
        };
        for tenant in named_tenants(&namespace) {
            remove(&mut self.claims, tenant, name);
        }
        self.found.remove(name);
    }

    /// A namespace is, from now on, so, or is no more. Who is concerned: those that it names or named, those who have their home there or have
    /// recorded it, and the namespaces of those that it names, since each of them tells of the others.
    pub fn change_namespace(&mut self, name: &str, new: Option<NamespaceFacts>) -> Concerned {
        let old = self.namespaces.get(name).cloned();
        if old == new {
            return Concerned::default();
        }
        let going = |facts: &Option<NamespaceFacts>| facts.as_ref().map(|facts| facts.deleting);
        let mut concerned = Concerned {
            has_come_or_gone: going(&old) != going(&new),
            ..Concerned::default()
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
        // Who has recorded it looks at it, and is left with the namespaces that it has.
        let recorders = self.recorders.get(name).into_iter().flatten().cloned();
        concerned.tenants.extend(recorders);
        concerned
    }

    /// A Tenant is, from now on, so, or is no more. Who is concerned: itself, its namespaces, and whoever has the same home, or a namespace that is its.
    pub fn change_tenant(&mut self, name: &str, new: Option<TenantFacts>) -> Concerned {
        let old = self.find_tenant(name).cloned();
        if old == new {
            return Concerned::default();
        }
        let mut concerned = Concerned::default();
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

    /// What there is for one Tenant to be decided by: its namespaces, those that it might take and those that it has recorded, and the Tenants that
    /// have their home in one of the first two. However many others there are, it is no larger.
    #[must_use]
    pub fn extract(&self, tenant: &TenantFacts) -> Realm {
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
        Realm {
            settings: self.settings.clone(),
            tenants: tenants.into_values().cloned().collect(),
            namespaces: names
                .into_iter()
                .filter_map(|name| self.namespaces.get(name))
                .cloned()
                .collect(),
        }
    }

    /// Everything, by name.
    #[must_use]
    pub fn to_realm(&self) -> Realm {
        let tenants: BTreeMap<&String, &Arc<TenantFacts>> = self.tenants.iter().collect();
        let namespaces: BTreeMap<&String, &NamespaceFacts> = self.namespaces.iter().collect();
        Realm {
            settings: self.settings.clone(),
            tenants: tenants.into_values().map(|tenant| tenant.as_ref().clone()).collect(),
            namespaces: namespaces.into_values().cloned().collect(),
        }
    }

    /// What is ending about a namespace, if anything is known to be.
    #[must_use]
    pub fn ending(&self, namespace: &str) -> Option<Ending> {
        let is_there = |owner: &TenantOwnerReference| {
            let found = self.find_tenant(&owner.name);
            found.is_some_and(|tenant| tenant.uid == owner.uid && !tenant.deleting)
        };
        ending::judge(
            self.namespaces.get(namespace)?,
            |label| self.find_tenant(label).is_some_and(|tenant| !tenant.deleting),
            is_there,
        )
    }

    /// Whether a namespace is a tenant's, or may become one's: of those that are not, nobody's Tenant tells.
    #[must_use]
    pub fn names_tenant(&self, namespace: &str) -> bool {
        let facts = self.namespaces.get(namespace);
        facts.is_some_and(|facts| named_tenants(facts).next().is_some())
    }

    /// A Tenant by its name.
    #[must_use]
    pub fn find_tenant(&self, name: &str) -> Option<&TenantFacts> {
        self.tenants.get(name).map(Arc::as_ref)
    }

    /// The Tenant that a namespace is named after: the one with the longest name that the namespace has, or begins with before a hyphen.
    #[must_use]
    pub fn find_namesake(&self, namespace: &str) -> Option<&TenantFacts> {
        let hyphens = namespace.rmatch_indices('-').map(|(position, _)| position);
        let mut beginnings = std::iter::once(namespace.len()).chain(hyphens);
        beginnings.find_map(|end| self.find_tenant(namespace.get(..end)?))
    }

    /// A namespace by its name.
    #[must_use]
    pub fn find_namespace(&self, name: &str) -> Option<&NamespaceFacts> {
        self.namespaces.get(name)
    }

    /// Whether a Tenant asks which Ingresses there are.
    #[must_use]
    pub fn needs_ingresses(&self) -> bool {
        !self.colliding.is_empty()
    }

    /// The Tenants that an owner is named in, by name.
    pub fn tenants_of<'a>(&'a self, owner: &TenantOwnerFacts) -> impl Iterator<Item = &'a TenantFacts> {
        let names = self.owned.get(owner).into_iter().flatten();
        names.filter_map(|name| self.find_tenant(name))
    }

    /// The Tenants whose home namespace it is, or would be if it existed.
    pub fn tenants_at_home<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a TenantFacts> {
        let names = self.homes.get(namespace).into_iter().flatten();
        names.filter_map(|name| self.find_tenant(name))
    }

    /// The Tenant whose rules bound what is written in a namespace: the one that it names by its label and with its uid, whether that one has
    /// recorded it or not. None where it is the platform's, nobody's, in dispute or unknown. Nothing is granted by it: who may act there, and what
    /// is within reach, says [`Facts::place`].
    #[must_use]
    pub fn tenant_of(&self, namespace: &str) -> Option<&TenantFacts> {
        self.found.get(namespace).map(Arc::as_ref)
    }

    /// The tenant that has recorded a namespace.
    #[must_use]
    pub fn find_holder(&self, namespace: &str) -> Holder {
        let facts = self.namespaces.get(namespace);
        Holder::of(&self.settings, |name| self.find_tenant(name), facts)
    }

    /// How many namespaces are a tenant's, or say so, those that are being deleted included.
    #[must_use]
    pub fn count_namespaces(&self, tenant: &TenantFacts) -> usize {
        self.list_namespaces(tenant).count()
    }

    /// Whether a namespace is among those that [`count_namespaces`](Self::count_namespaces) counts of the Tenant with this uid.
    #[must_use]
    pub fn is_counted(&self, tenant_uid: &str, namespace: &str) -> bool {
        self.tenant_of(namespace).is_some_and(|tenant| tenant.uid == tenant_uid)
    }

    pub(crate) fn list_namespaces<'a>(&'a self, tenant: &'a TenantFacts) -> impl Iterator<Item = &'a NamespaceFacts> {
        let claims = self.claims.get(&tenant.name).into_iter().flatten();
        let known = claims.filter_map(|name| self.namespaces.get(name));
        known.filter(|facts| self.tenant_of(&facts.name).is_some_and(|owner| owner.uid == tenant.uid))
    }

    /// Whose a namespace is.
    #[must_use]
    pub fn place(&self, namespace: &str) -> Placement {
        let find_tenant = |name: &str| self.find_tenant(name);
        let owned = |tenant: &TenantFacts| {
            let recorded = self.list_namespaces(tenant).filter(|facts| tenant.has_recorded(facts));
            let names = recorded.map(|facts| facts.name.clone());
            names.filter_map(|name| NamespaceName::new(name).ok()).collect()
        };
        realm::place(
            &self.settings,
            namespace,
            self.namespaces.get(namespace),
            find_tenant,
            owned,
        )
    }
}

/// Whose a namespace is.
fn find_tenant_of(
    settings: &Settings,
    tenants: &HashMap<String, Arc<TenantFacts>>,
    namespace: Option<&NamespaceFacts>,
) -> Option<Arc<TenantFacts>> {
    let named = |name: &str| tenants.get(name).map(Arc::as_ref);
    let found = realm::find_owner(settings, named, namespace?).ok().flatten()?;
    tenants.get(&found.name).cloned()
}

/// The Tenants that a namespace names, by its label and as its owners.
fn named_tenants(namespace: &NamespaceFacts) -> impl Iterator<Item = &str> {
    let owners = namespace.tenant_owners.iter().map(|owner| owner.name.as_str());
    namespace.tenant_label.as_deref().into_iter().chain(owners)
}

fn insert<K: std::hash::Hash + Eq>(index: &mut HashMap<K, BTreeSet<String>>, key: K, name: &str) {
    index.entry(key).or_default().insert(name.to_owned());
}

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
