//! The known facts about Tenants and namespaces, and the notifications about their changes. This module decides how soon. Tenancy decides whom a
//! change concerns, so that a change for a few objects does not wake all.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tenure_api::{Package, Tenant};
use tenure_tenancy::{AffectedObjects, FactIndex, Placement, TenancyFacts, TenantFacts};

use super::Hub;
use crate::reconcile_loop::reconciled::Reconciled as _;

/// How long changes of Tenants and namespaces are gathered before the affected objects are notified.
const GATHERED: Duration = Duration::from_millis(10);
/// How long created and deleted namespaces are gathered before writers from other namespaces are notified.
const GATHERED_ELSEWHERE: Duration = Duration::from_secs(1);

impl Hub {
    /// Returns a copy of all facts about Tenants and namespaces.
    pub(crate) fn copy_facts(&self) -> FactIndex {
        self.placements.copy()
    }

    /// Returns whose a namespace is, from the seen facts.
    pub(crate) fn place_seen(&self, namespace: &str) -> Placement {
        self.placements.find_placement(namespace)
    }

    /// Checks whether the namespace's annotations allow lanes to request tokens of an account there.
    pub(crate) fn is_mintable(&self, namespace: &str, account: &str) -> bool {
        self.placements.is_mintable(namespace, account)
    }

    /// Returns the facts about Tenants and namespaces that decide one Tenant.
    pub(crate) fn extract_tenancy(&self, tenant: &Tenant) -> Arc<TenancyFacts> {
        Arc::new(self.placements.extract(&TenantFacts::from(tenant)))
    }

    /// Checks whether the plan of a Tenant also uses its namespaces' quota usage.
    pub(crate) fn shares_quotas(&self, tenant: &str) -> bool {
        let tenant = self.caches.get::<Tenant>().get("", tenant);
        tenant.is_some_and(|tenant| self.placements.shares_quotas(&tenant.spec))
    }

    /// Handles a namespace whose tenant may have changed. Returns whether it has.
    pub(crate) fn take_namespace(&self, name: &str) -> bool {
        let concerned = self.placements.take_namespace(name, &self.namespaces);
        self.wake_concerned(concerned)
    }

    /// Handles a Tenant whose namespaces may have changed.
    pub(crate) fn take_tenant(&self, name: &str) {
        let concerned = self.placements.take_tenant(name, &self.caches.get::<Tenant>());
        self.wake_concerned(concerned);
    }

    /// Checks whether the API server has applied the current policies to a request.
    pub(crate) fn are_policies_in_force(&self) -> bool {
        self.policies_in_force.load(Ordering::Acquire)
    }

    /// Sets whether policies are in force. Tenants wait for this: before that, their owners get no rights in new namespaces.
    pub(crate) fn set_policies_in_force(&self, are_in_force: bool) {
        if self.policies_in_force.swap(are_in_force, Ordering::AcqRel) != are_in_force && are_in_force {
            self.context.mailboxes.wake_where(|key| key.kind == Tenant::KIND);
        }
    }

    /// Wakes everything that depends on the tenant of a namespace, once after all objects are known.
    pub(crate) fn announce_all(&self) {
        self.tenancy_changed.notify_one();
        self.policy_news.notify_one();
        self.context.mailboxes.wake_all();
        if let Some(fleet) = self.fleet() {
            fleet.place_all();
        }
    }

    /// Notifies the objects that a change concerns. Returns whether any exist.
    ///
    /// The notification comes a moment later, so that a hundred namespaces created together are one change. Must be called inside a tokio runtime.
    fn wake_concerned(&self, concerned: AffectedObjects) -> bool {
        if concerned.is_empty() {
            return false;
        }
        if concerned.has_come_or_gone {
            self.wake_outside_tenants();
        }
        let mut news = self.pending_wakeups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(news) = news.as_mut() {
            news.extend(concerned);
            return true;
        }
        *news = Some(concerned);
        drop(news);
        let (context, news, fleet) = (
            Arc::clone(&self.context),
            Arc::clone(&self.pending_wakeups),
            self.fleet().cloned(),
        );
        let (changed, policy_news) = (Arc::clone(&self.tenancy_changed), Arc::clone(&self.policy_news));
        let packages = Arc::clone(&self.packages);
        tokio::spawn(async move {
            tokio::time::sleep(GATHERED).await;
            let affected = news.lock().unwrap_or_else(PoisonError::into_inner).take();
            let AffectedObjects {
                tenants, namespaces, ..
            } = affected.unwrap_or_default();
            changed.notify_one();
            policy_news.notify_one();
            let users: BTreeSet<String> = namespaces.iter().flat_map(|name| packages.list_users(name)).collect();
            context.mailboxes.wake_where(|key| match key.find_namespace() {
                None if key.kind == Package::KIND => users.contains(&key.name),
                None => tenants.contains(&key.name),
                Some(namespace) => namespaces.contains(namespace),
            });
            if let Some(fleet) = fleet {
                fleet.place_where(|namespace| namespaces.contains(namespace));
            }
        });
        true
    }

    /// Notifies the objects in namespaces without a tenant, which may write to any namespace and wait for its creation or deletion. The rate is
    /// limited, however many namespaces a tenant creates and deletes.
    fn wake_outside_tenants(&self) {
        if self.is_wakeup_pending.swap(true, Ordering::AcqRel) {
            return;
        }
        let (context, placements, news) = (
            Arc::clone(&self.context),
            Arc::clone(&self.placements),
            Arc::clone(&self.is_wakeup_pending),
        );
        let fleet = self.fleet().cloned();
        tokio::spawn(async move {
            tokio::time::sleep(GATHERED_ELSEWHERE).await;
            news.store(false, Ordering::Release);
            let is_without_tenant = |namespace: &str| !namespace.is_empty() && placements.is_without_tenant(namespace);
            context.mailboxes.wake_where(|key| is_without_tenant(&key.namespace));
            if let Some(fleet) = fleet {
                fleet.place_where(is_without_tenant);
            }
        });
    }
}
