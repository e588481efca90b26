//! What is known of Tenants and namespaces, by every name that they are looked up by. One object that changes is one change here,
//! however many others there are.
//!
//! Owns the lookups; whose a namespace is follows from [`crate::realm`] alone. Refuses to hold what tenancy doesn't decide by.

use std::collections::{BTreeSet, HashMap};

use tenure_api::names::NamespaceName;

use crate::realm::{self, NamespaceFacts, Placement, Realm, Settings, TenantFacts, TenantOwnerFacts};

/// Tenants and namespaces, looked up by name, by owner and by home.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    settings: Settings,
    tenants: HashMap<String, TenantFacts>,
    namespaces: HashMap<String, NamespaceFacts>,
    /// Names of the Tenants whose home namespace it is, or would be.
    homes: HashMap<String, BTreeSet<String>>,
    /// Names of the Tenants of an owner.
    owned: HashMap<TenantOwnerFacts, BTreeSet<String>>,
    /// Names of the namespaces that name a Tenant as their owner, by its name; whether they are its is another question.
    claims: HashMap<String, BTreeSet<String>>,
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
        self.remove_tenant(&tenant.name);
        insert(&mut self.homes, tenant.home().to_owned(), &tenant.name);
        for owner in &tenant.owners {
            insert(&mut self.owned, owner.clone(), &tenant.name);
        }
        self.tenants.insert(tenant.name.clone(), tenant);
    }

    /// A Tenant is no more.
    pub fn remove_tenant(&mut self, name: &str) {
        let Some(tenant) = self.tenants.remove(name) else {
            return;
        };
        remove(&mut self.homes, tenant.home(), name);
        for owner in &tenant.owners {
            remove(&mut self.owned, owner, name);
        }
    }

    /// A namespace is, from now on, so.
    pub fn set_namespace(&mut self, namespace: NamespaceFacts) {
        self.remove_namespace(&namespace.name);
        for owner in &namespace.tenant_owners {
            insert(&mut self.claims, owner.name.clone(), &namespace.name);
        }
        self.namespaces.insert(namespace.name.clone(), namespace);
    }

    /// A namespace is no more.
    pub fn remove_namespace(&mut self, name: &str) {
        let Some(namespace) = self.namespaces.remove(name) else {
            return;
        };
        for owner in &namespace.tenant_owners {
            remove(&mut self.claims, owner.name.as_str(), name);
        }
    }

    /// A Tenant by its name.
    #[must_use]
    pub fn find_tenant(&self, name: &str) -> Option<&TenantFacts> {
        self.tenants.get(name)
    }

    /// A namespace by its name.
    #[must_use]
    pub fn find_namespace(&self, name: &str) -> Option<&NamespaceFacts> {
        self.namespaces.get(name)
    }

    /// The Tenants that an owner is named in, by name.
    pub fn tenants_of<'a>(&'a self, owner: &TenantOwnerFacts) -> impl Iterator<Item = &'a TenantFacts> {
        let names = self.owned.get(owner).into_iter().flatten();
        names.filter_map(|name| self.tenants.get(name))
    }

    /// The Tenants whose home namespace it is, or would be if it existed.
    pub fn tenants_at_home<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a TenantFacts> {
        let names = self.homes.get(namespace).into_iter().flatten();
        names.filter_map(|name| self.tenants.get(name))
    }

    /// The Tenant that a namespace is a part of: none where it is the platform's, nobody's, in dispute or unknown.
    #[must_use]
    pub fn tenant_of(&self, namespace: &str) -> Option<&TenantFacts> {
        if namespace == self.settings.platform_namespace {
            return None;
        }
        let facts = self.namespaces.get(namespace)?;
        realm::find_owner(|name| self.tenants.get(name), facts).ok().flatten()
    }

    /// How many namespaces are a tenant's, those that are being deleted included.
    #[must_use]
    pub fn count_namespaces(&self, tenant: &TenantFacts) -> usize {
        self.list_namespaces(tenant).count()
    }

    pub(crate) fn list_namespaces<'a>(&'a self, tenant: &'a TenantFacts) -> impl Iterator<Item = &'a NamespaceFacts> {
        let claims = self.claims.get(&tenant.name).into_iter().flatten();
        let known = claims.filter_map(|name| self.namespaces.get(name));
        known.filter(|facts| self.tenant_of(&facts.name).is_some_and(|owner| owner.uid == tenant.uid))
    }

    /// Whose a namespace is.
    #[must_use]
    pub fn place(&self, namespace: &str) -> Placement {
        let find_tenant = |name: &str| self.tenants.get(name);
        let owned = |tenant: &TenantFacts| {
            let names = self.list_namespaces(tenant).map(|facts| facts.name.clone());
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
