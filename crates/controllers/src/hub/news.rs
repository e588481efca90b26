//! What is known of Tenants and namespaces, and who is told when it changes. Owns how soon; whom a change concerns is tenancy's to say. Refuses to
//! wake everybody for what concerns a few.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tenure_api::Tenant;
use tenure_tenancy::{Concerned, Facts, Placement, Realm, TenantFacts};

use super::Hub;
use crate::reconciled::Reconciled as _;

/// How long changes of Tenants and namespaces are gathered before those whom they concern are told.
const GATHERED: Duration = Duration::from_millis(10);
/// The same, of namespaces that came or went, for who may write to them from elsewhere.
const GATHERED_ELSEWHERE: Duration = Duration::from_secs(1);

impl Hub {
    /// All that is known of Tenants and namespaces.
    pub(crate) fn copy_facts(&self) -> Facts {
        self.known.copy()
    }

    /// Whose a namespace is, by what has been seen.
    pub(crate) fn place_seen(&self, namespace: &str) -> Placement {
        self.known.place(namespace)
    }

    /// Whether it stands on a namespace that lanes may ask for tokens of an account there.
    pub(crate) fn is_mintable(&self, namespace: &str, account: &str) -> bool {
        self.known.is_mintable(namespace, account)
    }

    /// What is known of Tenants and namespaces that one Tenant can be decided by.
    pub(crate) fn extract_realm(&self, tenant: &Tenant) -> Arc<Realm> {
        Arc::new(self.known.extract(&TenantFacts::from(tenant)))
    }

    /// Whether a Tenant is planned by what its namespaces use, too.
    pub(crate) fn shares_quotas(&self, tenant: &str) -> bool {
        let tenant = self.caches.of::<Tenant>().get("", tenant);
        tenant.is_some_and(|tenant| self.known.shares_quotas(&tenant.spec))
    }

    /// A namespace may have changed in what tells whose it is; whether it has.
    pub(crate) fn take_namespace(&self, name: &str) -> bool {
        let concerned = self.known.take_namespace(name, &self.namespaces);
        self.tell_concerned(concerned)
    }

    /// A Tenant may have changed in what tells which namespaces are its.
    pub(crate) fn take_tenant(&self, name: &str) {
        let concerned = self.known.take_tenant(name, &self.caches.of::<Tenant>());
        self.tell_concerned(concerned);
    }

    /// Whether a request has met the policies as they are now.
    pub(crate) fn are_policies_in_force(&self) -> bool {
        self.policies_in_force.load(Ordering::Acquire)
    }

    /// Sets whether policies are in force. Tenants wait for it: their owners get no rights in new namespaces before.
    pub(crate) fn set_policies_in_force(&self, are_in_force: bool) {
        if self.policies_in_force.swap(are_in_force, Ordering::AcqRel) != are_in_force && are_in_force {
            self.means.mailboxes.wake_where(|key| key.kind == Tenant::KIND);
        }
    }

    /// Everything that depends on whose a namespace is has to look again, once: everything is known.
    pub(crate) fn tell_all(&self) {
        self.realm_changed.notify_one();
        self.policy_news.notify_one();
        self.means.mailboxes.wake_all();
        if let Some(fleet) = self.fleet() {
            fleet.place_all();
        }
    }

    /// Those whom a change concerns have to look again; whether there are any.
    ///
    /// They are told a moment later, so that a hundred namespaces made at once are one change. Must be called inside a tokio runtime.
    fn tell_concerned(&self, concerned: Concerned) -> bool {
        if concerned.is_empty() {
            return false;
        }
        if concerned.has_come_or_gone {
            self.tell_elsewhere();
        }
        let mut news = self.realm_news.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(news) = news.as_mut() {
            news.extend(concerned);
            return true;
        }
        *news = Some(concerned);
        drop(news);
        let (means, news, fleet) = (
            Arc::clone(&self.means),
            Arc::clone(&self.realm_news),
            self.fleet().cloned(),
        );
        let (changed, policy_news) = (Arc::clone(&self.realm_changed), Arc::clone(&self.policy_news));
        tokio::spawn(async move {
            tokio::time::sleep(GATHERED).await;
            let told = news.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Concerned {
                tenants, namespaces, ..
            } = told.unwrap_or_default();
            changed.notify_one();
            policy_news.notify_one();
            means.mailboxes.wake_where(|key| match key.find_namespace() {
                None => tenants.contains(&key.name),
                Some(namespace) => namespaces.contains(namespace),
            });
            if let Some(fleet) = fleet {
                fleet.place_where(|namespace| namespaces.contains(namespace));
            }
        });
        true
    }

    /// What is nobody's may write to any namespace, and wait for one to come or to go: it is told, and not more often than in a while, however
    /// many a tenant makes and deletes.
    fn tell_elsewhere(&self) {
        if self.news_elsewhere.swap(true, Ordering::AcqRel) {
            return;
        }
        let (means, known, news) = (
            Arc::clone(&self.means),
            Arc::clone(&self.known),
            Arc::clone(&self.news_elsewhere),
        );
        let fleet = self.fleet().cloned();
        tokio::spawn(async move {
            tokio::time::sleep(GATHERED_ELSEWHERE).await;
            news.store(false, Ordering::Release);
            let is_nobodys = |namespace: &str| !namespace.is_empty() && known.is_nobodys(namespace);
            means.mailboxes.wake_where(|key| is_nobodys(&key.namespace));
            if let Some(fleet) = fleet {
                fleet.place_where(is_nobodys);
            }
        });
    }
}
