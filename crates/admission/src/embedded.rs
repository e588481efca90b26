//! The admission point of the embedded control plane. It runs in the server's process, and knows every
//! acknowledged write.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tenure_admission_rules::{
    self as rules, Actor, ClusterQueries, Decision, Operation, Question, Refusal, Request, Resource,
};
use tenure_admission_rules::{
    HostClaim, HostLedger, NamespaceClaim, NamespaceLedger, QuotaClaim, QuotaLedger, collision, ledger, quota,
};
use tenure_api::{ObjectMeta, Tenant};
use tenure_apiserver::{
    FollowedResource, Guard, GuardPlace, GuardQueries, GuardQuestion, GuardTarget, Membership, Review, Ruling,
};
use tenure_tenancy::mentions::{MENTIONING_KINDS, Mention, MentionIndex, MentioningKind};
use tenure_tenancy::{
    self as tenancy, FactIndex, IngressIndex, IngressRoutes, NamespaceFacts, Settings, TenantFacts, Usages,
    find_membership,
};

use crate::quota_usage;

const TENANTS: FollowedResource = ("capsule.clastix.io", "tenants");
const NAMESPACES: FollowedResource = ("", "namespaces");
const QUOTAS: FollowedResource = ("", "resourcequotas");
const INGRESSES: FollowedResource = ("networking.k8s.io", "ingresses");
/// The kinds that are followed besides those whose objects name namespaces. A kind that depends on another one comes after
/// it.
const FOLLOWED: [FollowedResource; 4] = [TENANTS, NAMESPACES, QUOTAS, INGRESSES];

/// The admission point of the embedded control plane, with all that it knows of stored objects.
#[derive(Debug)]
pub struct EmbeddedGuard {
    settings: Settings,
    /// The kinds that the guard follows.
    followed: Vec<FollowedResource>,
    /// The objects that name namespaces.
    mentions: RwLock<MentionIndex>,
    /// The facts, changed object by object. A review that still uses an earlier version keeps it, and the next change then copies the facts.
    /// Every write takes this lock. Under it the guard parses, decides and waits for nothing, because the time for these depends on objects
    /// and roles that tenants wrote.
    facts: RwLock<Arc<FactIndex>>,
    /// The reservations for admitted namespaces, by the Tenant's uid. Only Tenants with reservations have an entry.
    ledgers: Mutex<HashMap<String, NamespaceLedger>>,
    /// The use of the namespaces of Tenants that limit the sum over all their namespaces.
    usages: RwLock<Usages>,
    /// The reservations of such Tenants.
    quota_ledgers: Mutex<LedgerStore<QuotaLedger>>,
    /// The hosts and paths of Ingresses, while a Tenant demands that no two Ingresses share them.
    ingresses: RwLock<IngressIndex>,
    /// The reservations of hosts and paths.
    host_ledgers: Mutex<LedgerStore<HostLedger>>,
}

/// A ledger whose reservations expire.
trait ExpiringLedger: Default {
    /// Removes expired reservations. Returns true if others remain.
    fn forget_old(&mut self, now: u64) -> bool;
}

impl ExpiringLedger for QuotaLedger {
    fn forget_old(&mut self, now: u64) -> bool {
        Self::forget_old(self, now)
    }
}

impl ExpiringLedger for HostLedger {
    fn forget_old(&mut self, now: u64) -> bool {
        Self::forget_old(self, now)
    }
}

/// The ledgers of all Tenants, by name (mostly the Tenant's uid), each with a lock of its own. The reservations of one
/// tenant delay no other tenant.
#[derive(Debug, Default)]
struct LedgerStore<L> {
    by_name: BTreeMap<String, Arc<Mutex<L>>>,
    /// The name of the ledger that was last checked for being empty.
    looked_at: String,
}

impl<L: ExpiringLedger> LedgerStore<L> {
    /// Returns a ledger. Each call also removes the expired reservations of one other ledger, so no ledger stays forever and no call cleans
    /// all ledgers at once.
    fn find(&mut self, name: &str, now: u64) -> Arc<Mutex<L>> {
        let after = (Bound::Excluded(self.looked_at.as_str()), Bound::Unbounded);
        let next = self.by_name.range::<str, _>(after).next();
        let next = next.or_else(|| self.by_name.iter().next());
        if let Some((looked_at, ledger)) = next.map(|(name, ledger)| (name.clone(), ledger)) {
            // A caller with a claim shares the ledger, or comes here first.
            let is_idle = Arc::strong_count(ledger) == 1 && !ledger.lock().forget_old(now);
            if is_idle && looked_at != name {
                self.by_name.remove(&looked_at);
            }
            self.looked_at = looked_at;
        }
        Arc::clone(self.by_name.entry(name.to_owned()).or_default())
    }
}

impl EmbeddedGuard {
    /// Returns a guard that knows no objects yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let mentioning = MENTIONING_KINDS.iter().map(|kind| (kind.group, kind.plural));
        let mentioning = mentioning.filter(|followed| !FOLLOWED.contains(followed));
        Self {
            followed: FOLLOWED.into_iter().chain(mentioning).collect(),
            mentions: RwLock::default(),
            facts: RwLock::new(Arc::new(FactIndex::new(settings.clone()))),
            ledgers: Mutex::default(),
            usages: RwLock::default(),
            quota_ledgers: Mutex::default(),
            ingresses: RwLock::default(),
            host_ledgers: Mutex::default(),
            settings,
        }
    }

    /// Returns the current index of Tenants and namespaces.
    fn known(&self) -> Arc<FactIndex> {
        Arc::clone(&self.facts.read())
    }

    /// Records the facts of a Tenant, or its deletion. Most writes of a Tenant, such as those of its status, change no fact.
    fn learn_tenant(&self, name: &str, tenant: Option<TenantFacts>) {
        if self.facts.read().find_tenant(name) != tenant.as_ref() {
            let _concerned = Arc::make_mut(&mut self.facts.write()).change_tenant(name, tenant);
        }
    }

    /// Records the facts of a namespace, or its deletion. Most of the writes of its owner change no
    /// fact, however often they come.
    fn learn_namespace(&self, name: &str, namespace: Option<NamespaceFacts>) {
        if self.facts.read().find_namespace(name) != namespace.as_ref() {
            let _concerned = Arc::make_mut(&mut self.facts.write()).change_namespace(name, namespace);
        }
    }

    /// Reserves a namespace in a Tenant, or denies the request because no capacity is left. A dry
    /// run reserves nothing.
    fn claim_place(&self, mut claim: NamespaceClaim, is_dry_run: bool) -> Result<(), Refusal> {
        let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        let mut ledgers = self.ledgers.lock();
        // A namespace that was created after the decision has no reservation any more and is
        // counted.
        let facts = self.known();
        if let Some(tenant) = facts.find_tenant(&claim.tenant) {
            claim.seen = facts.count_namespaces(tenant);
        }
        let has_been_seen = |namespace: &str| facts.is_counted(&claim.tenant_uid, namespace);
        ledgers.retain(|_, ledger| ledger.forget_old(now));
        let mut ledger = ledgers.get(&claim.tenant_uid).cloned().unwrap_or_default();
        if is_dry_run {
            return ledger.check(&claim, has_been_seen, now);
        }
        ledger.claim(&claim, has_been_seen, now, ledger::KEPT)?;
        if !ledger.is_empty() {
            ledgers.insert(claim.tenant_uid, ledger);
        }
        Ok(())
    }
}

impl EmbeddedGuard {
    /// Claims the hosts of an Ingress, and the capacity of quotas, for an object in its stored form.
    fn claim_rest(&self, facts: &FactIndex, request: &Request<'_>) -> Result<(), Refusal> {
        if let Some(claim) = collision::claim_hosts(facts, request)? {
            self.claim_hosts(&claim, facts, request.is_dry_run)?;
        }
        if let Some(claim) = quota_usage::count_quota_usage(facts, request) {
            self.claim_quota(&claim, facts, request.is_dry_run)?;
        }
        Ok(())
    }

    /// Admits an object that counts against a Tenant's quota, or denies it because no capacity is left. A dry run reserves nothing.
    fn claim_quota(&self, claim: &QuotaClaim, facts: &FactIndex, is_dry_run: bool) -> Result<(), Refusal> {
        let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        let ledger = self.quota_ledgers.lock().find(&claim.tenant_uid, now);
        let mut ledger = ledger.lock();
        // Read under the lock: an object that another request was admitted for is reserved or
        // counted.
        let sums = quota::add_up(facts, &self.usages.read(), claim)?;
        match is_dry_run {
            true => ledger.check(claim, &sums, now),
            false => ledger.claim(claim, &sums, now, ledger::KEPT),
        }
    }

    /// Admits the new hosts and paths of an Ingress, or denies them because another Ingress has them. A dry run
    /// reserves nothing.
    fn claim_hosts(&self, claim: &HostClaim, facts: &FactIndex, is_dry_run: bool) -> Result<(), Refusal> {
        let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        // Ingresses that were stored before this check are known. Reservations of Ingresses admitted meanwhile last longer
        // than this check.
        collision::check(facts, &self.ingresses.read(), claim)?;
        for part in claim.parts() {
            let ledger = match part.shared {
                Some(number) => self.host_ledgers.lock().find(&format!("hosts-{number}"), now),
                None => self.host_ledgers.lock().find(&claim.tenant_uid, now),
            };
            let mut ledger = ledger.lock();
            match is_dry_run {
                true => ledger.check(&part, now)?,
                false => ledger.claim(&part, now, ledger::KEPT)?,
            }
        }
        Ok(())
    }

    /// Records the hosts and paths of an Ingress.
    fn learn_ingress(&self, place: GuardPlace<'_>, ingress: Option<&Value>) {
        // Parsed before the lock is taken, so no other write waits for it.
        let pairs = ingress.map(IngressRoutes::read);
        self.ingresses
            .write()
            .set_ingress(place.namespace, place.name, pairs.as_ref());
    }

    /// Records the contents of a ResourceQuota, if Tenure made it.
    fn learn_quota(&self, place: GuardPlace<'_>, quota: Option<&Value>) {
        let is_unknown = self.usages.read().is_unknown(place.namespace);
        // Most ResourceQuotas are not Tenure's.
        if !(is_unknown && quota.is_none()) {
            self.usages.write().set_quota(place.namespace, place.name, quota);
        }
    }
}

impl Guard for EmbeddedGuard {
    fn follows(&self) -> &[FollowedResource] {
        &self.followed
    }

    fn record_object(&self, resource: (&str, &str), place: GuardPlace<'_>, object: Option<&Value>) {
        if let Some(kind) = MentioningKind::find(resource.0, resource.1) {
            let mut mentions = self.mentions.write();
            mentions.set_object(&self.settings, kind, (place.namespace, place.name), object);
        }
        if !FOLLOWED.contains(&resource) {
            return;
        }
        if resource == QUOTAS {
            return self.learn_quota(place, object);
        }
        if resource == INGRESSES {
            return self.learn_ingress(place, object);
        }
        let name = place.name;
        let metadata = object.and_then(|object| object.get("metadata")).cloned();
        let metadata = metadata.and_then(|metadata| serde_json::from_value::<ObjectMeta>(metadata).ok());
        match (resource == TENANTS, object, metadata) {
            (true, None, _) => self.learn_tenant(name, None),
            (true, Some(object), metadata) => {
                let tenant = serde_json::from_value::<Tenant>(object.clone()).ok();
                // An unreadable Tenant exists, but has no owners.
                let tenant =
                    tenant.map_or_else(|| describe_unread(name, metadata), |tenant| TenantFacts::from(&tenant));
                self.learn_tenant(name, Some(tenant));
            }
            (false, Some(_), Some(metadata)) => self.learn_namespace(name, Some(NamespaceFacts::from(&metadata))),
            (false, _, _) => {
                self.learn_namespace(name, None);
                if !self.usages.read().is_unknown(name) {
                    self.usages.write().forget_namespace(name);
                }
                if !self.ingresses.read().is_empty() {
                    self.ingresses.write().forget_namespace(name);
                }
            }
        }
    }

    fn forget(&self) {
        *self.facts.write() = Arc::new(FactIndex::new(self.settings.clone()));
        *self.usages.write() = Usages::default();
        *self.ingresses.write() = IngressIndex::default();
        *self.mentions.write() = MentionIndex::default();
    }

    fn needs(&self, followed: FollowedResource) -> bool {
        followed != INGRESSES || self.facts.read().needs_ingresses()
    }

    fn forget_one(&self, followed: FollowedResource) {
        if followed == INGRESSES {
            *self.ingresses.write() = IngressIndex::default();
        }
    }

    fn changes(&self, (group, name): (&str, &str)) -> bool {
        rules::changes(group, name)
    }

    fn concerns(&self, asked: &GuardTarget<'_>) -> bool {
        let resource = Resource {
            group: asked.group,
            name: asked.resource,
            subresource: asked.subresource,
        };
        let facts = self.facts.read();
        (asked.is_settled || rules::may_change(&facts, resource, asked.namespace))
            && rules::concerns(&facts, asked.user, resource, asked.namespace, asked.old_object)
    }

    fn find_tenant(&self, user: &str, groups: &[String]) -> Membership {
        match find_membership(&self.facts.read(), user, groups) {
            tenancy::Membership::Tenant(name) => Membership::Tenant(name.to_owned()),
            tenancy::Membership::Nobody => Membership::Nobody,
            tenancy::Membership::Unknown => Membership::Unknown,
        }
    }

    fn judge(&self, review: &Review<'_>, surroundings: &dyn GuardQueries) -> Ruling {
        let Some(request) = describe(review) else {
            return Ruling::Deny("the effect of this request on its object is unknown".to_owned());
        };
        let facts = self.known();
        let decision = rules::decide(&facts, &request, &ServerQueries(surroundings, &self.mentions));
        match decision {
            Decision::Deny(refusal) => Ruling::Deny(refusal.to_string()),
            Decision::Allow {
                changes,
                warnings,
                claim,
            } => {
                let claimed = claim.map(|claim| self.claim_place(claim, request.is_dry_run));
                if let Some(Err(refusal)) = claimed {
                    return Ruling::Deny(refusal.to_string());
                }
                if review.is_settled
                    && changes.is_empty()
                    && let Err(refusal) = self.claim_rest(&facts, &request)
                {
                    return Ruling::Deny(refusal.to_string());
                }
                let object = review.object.filter(|_| !changes.is_empty()).cloned();
                let object = object.map(|mut object| {
                    for change in &changes {
                        change.make(&mut object);
                    }
                    object
                });
                Ruling::Allow { object, warnings }
            }
        }
    }
}

/// Returns the request in the form that rules read. Returns none if its operation is unknown.
fn describe<'a>(review: &Review<'a>) -> Option<Request<'a>> {
    let extra = review.extra.iter();
    Some(Request {
        operation: Operation::read(review.operation)?,
        resource: Resource {
            group: review.group,
            name: review.resource,
            subresource: review.subresource,
        },
        namespace: review.namespace,
        name: review.name,
        actor: Actor {
            user: review.user,
            groups: review.groups.iter().map(String::as_str).collect(),
            extra: extra
                .map(|(key, values)| (key.as_str(), values.iter().map(String::as_str).collect()))
                .collect(),
        },
        is_dry_run: review.is_dry_run,
        object: review.object,
        old_object: review.old_object,
    })
}

/// Returns the facts of an unreadable Tenant.
fn describe_unread(name: &str, metadata: Option<ObjectMeta>) -> TenantFacts {
    TenantFacts {
        name: name.to_owned(),
        uid: metadata.and_then(|metadata| metadata.uid).unwrap_or_default(),
        ..TenantFacts::default()
    }
}

/// Answers the questions of a decision from the server's objects and the index of mentions.
struct ServerQueries<'a>(&'a dyn GuardQueries, &'a RwLock<MentionIndex>);

/// Translates a question into the form of the server.
fn ask<'a>(question: &Question<'a>) -> GuardQuestion<'a> {
    GuardQuestion {
        verb: question.verb,
        group: question.group,
        resource: question.resource,
        namespace: question.namespace,
        name: question.name,
    }
}

impl ClusterQueries for ServerQueries<'_> {
    fn is_allowed(&self, question: &Question<'_>) -> bool {
        self.0.may(&ask(question))
    }

    fn may_account(&self, account: (&str, &str), question: &Question<'_>) -> bool {
        self.0.may_account(account, &ask(question))
    }

    fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.0.find(group, plural, namespace, name)
    }

    fn find_mention(
        &self,
        facts: &FactIndex,
        tenant: &TenantFacts,
        namespace: &str,
    ) -> Result<Option<Mention>, String> {
        Ok(self.1.read().find_outside(facts, tenant, namespace))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn unused_ledgers_are_dropped() {
        let mut ledgers = LedgerStore::<QuotaLedger>::default();
        for number in 0..100 {
            drop(ledgers.find(&format!("t-{number}"), 0));
        }
        for now in 0..200 {
            drop(ledgers.find("t-busy", now));
        }
        assert_eq!(ledgers.by_name.len(), 1, "{ledgers:?}");
        let held = ledgers.find("t-held", 0);
        for now in 0..10 {
            drop(ledgers.find("t-busy", now));
        }
        let again = ledgers.find("t-held", u64::try_from(Duration::from_secs(60).as_millis()).unwrap());
        assert!(Arc::ptr_eq(&held, &again), "whoever claims something keeps it");
    }
}
