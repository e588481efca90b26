//! The door of the embedded control plane: asked in its process, with everything known that was acknowledged.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tenure_api::{ObjectMeta, Tenant};
use tenure_apiserver::{
    Asked, Followed, Guard, GuardPlace, GuardQuestion, GuardSurroundings, Membership, Review, Ruling,
};
use tenure_tenancy::admission::{self, Actor, Decision, Operation, Question, Refusal, Request, Resource, Surroundings};
use tenure_tenancy::admission::{collision, quota};
use tenure_tenancy::mentions::{MENTIONING_KINDS, Mention, MentionIndex, MentioningKind};
use tenure_tenancy::{
    self as tenancy, Claim, Facts, HostClaim, HostLedger, IngressIndex, IngressRoutes, Ledger, NamespaceFacts,
    QuotaClaim, QuotaLedger, Settings, TenantFacts, Usages, find_membership, ledger,
};

use crate::counting;

const TENANTS: Followed = ("capsule.clastix.io", "tenants");
const NAMESPACES: Followed = ("", "namespaces");
const QUOTAS: Followed = ("", "resourcequotas");
const INGRESSES: Followed = ("networking.k8s.io", "ingresses");
/// Kinds that are followed besides those whose objects name namespaces. A kind that depends on another one comes after it.
const FOLLOWED: [Followed; 4] = [TENANTS, NAMESPACES, QUOTAS, INGRESSES];

/// Judges what is written to the embedded control plane.
#[derive(Debug)]
pub struct EmbeddedGuard {
    settings: Settings,
    /// The kinds that the guard follows.
    followed: Vec<Followed>,
    /// The objects that name namespaces.
    mentions: RwLock<MentionIndex>,
    /// Changed object by object; who still judges by what was known keeps it, and then what changes is made anew. Whoever writes passes here:
    /// nothing is parsed, judged or waited for under it, as how long that takes depends on objects and roles that tenants wrote.
    facts: RwLock<Arc<Facts>>,
    /// Places that are kept in Tenants for namespaces which were let through, by uid; of those alone that keep any.
    ledgers: Mutex<HashMap<String, Ledger>>,
    /// What the namespaces of Tenants use, as far as Tenants bound it for all of theirs together.
    usages: RwLock<Usages>,
    /// What was let through in such Tenants.
    quota_ledgers: Mutex<Shelf<QuotaLedger>>,
    /// Which hosts and paths Ingresses have, as long as a Tenant wants no two to have the same.
    ingresses: RwLock<IngressIndex>,
    /// What was let through of them.
    host_ledgers: Mutex<Shelf<HostLedger>>,
}

/// What keeps for a while what was let through.
trait Passing: Default {
    /// Forgets what was kept long enough. Returns whether anything else is kept.
    fn forget_old(&mut self, now: u64) -> bool;
}

impl Passing for QuotaLedger {
    fn forget_old(&mut self, now: u64) -> bool {
        Self::forget_old(self, now)
    }
}

impl Passing for HostLedger {
    fn forget_old(&mut self, now: u64) -> bool {
        Self::forget_old(self, now)
    }
}

/// Ledgers by name, mostly a Tenant's uid, each with a lock of its own: what one tenant keeps makes no other one wait.
#[derive(Debug, Default)]
struct Shelf<L> {
    by_name: BTreeMap<String, Arc<Mutex<L>>>,
    /// Which ledger was looked at last, for having nothing in it any more.
    looked_at: String,
}

impl<L: Passing> Shelf<L> {
    /// A ledger. Of one other each time it is forgotten what was kept long enough, so that nothing stays for good, and nobody works for all at
    /// once.
    fn find(&mut self, name: &str, now: u64) -> Arc<Mutex<L>> {
        let after = (Bound::Excluded(self.looked_at.as_str()), Bound::Unbounded);
        let next = self.by_name.range::<str, _>(after).next();
        let next = next.or_else(|| self.by_name.iter().next());
        if let Some((looked_at, ledger)) = next.map(|(name, ledger)| (name.clone(), ledger)) {
            // Whoever claims something has a share in it, or comes here first.
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
    /// A guard that knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let mentioning = MENTIONING_KINDS.iter().map(|kind| (kind.group, kind.plural));
        let mentioning = mentioning.filter(|followed| !FOLLOWED.contains(followed));
        Self {
            followed: FOLLOWED.into_iter().chain(mentioning).collect(),
            mentions: RwLock::default(),
            facts: RwLock::new(Arc::new(Facts::new(settings.clone()))),
            ledgers: Mutex::default(),
            usages: RwLock::default(),
            quota_ledgers: Mutex::default(),
            ingresses: RwLock::default(),
            host_ledgers: Mutex::default(),
            settings,
        }
    }

    /// What is known now.
    fn known(&self) -> Arc<Facts> {
        Arc::clone(&self.facts.read())
    }

    /// A Tenant is, from now on, so, or is no more. Most of what is written to one, as its status, changes nothing of what is known.
    fn learn_tenant(&self, name: &str, tenant: Option<TenantFacts>) {
        if self.facts.read().find_tenant(name) != tenant.as_ref() {
            let _told_by_watches = Arc::make_mut(&mut self.facts.write()).change_tenant(name, tenant);
        }
    }

    /// The same of a namespace: what its owner writes to it, how often ever, mostly concerns nobody.
    fn learn_namespace(&self, name: &str, namespace: Option<NamespaceFacts>) {
        if self.facts.read().find_namespace(name) != namespace.as_ref() {
            let _told_by_watches = Arc::make_mut(&mut self.facts.write()).change_namespace(name, namespace);
        }
    }

    /// Keeps a place, or says that there is none. Nothing is kept for what is a dry run.
    fn claim_place(&self, mut claim: Claim, is_dry_run: bool) -> Result<(), Refusal> {
        let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        let mut ledgers = self.ledgers.lock();
        // What has been made since this was judged has its place no more, and is counted.
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
    /// Claims what takes others to tell, of an object as it would be stored.
    fn claim_rest(&self, facts: &Facts, request: &Request<'_>) -> Result<(), Refusal> {
        if let Some(claim) = collision::reckon(facts, request)? {
            self.claim_hosts(&claim, facts, request.is_dry_run)?;
        }
        if let Some(claim) = counting::reckon(facts, request) {
            self.claim_quota(&claim, facts, request.is_dry_run)?;
        }
        Ok(())
    }

    /// Lets an object through that is counted over a Tenant's namespaces, or says that there is no room. Nothing is kept of a dry run.
    fn claim_quota(&self, claim: &QuotaClaim, facts: &Facts, is_dry_run: bool) -> Result<(), Refusal> {
        let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        let ledger = self.quota_ledgers.lock().find(&claim.tenant_uid, now);
        let mut ledger = ledger.lock();
        // Read under the lock: what another one was let through for is kept, or counted.
        let sums = quota::add_up(facts, &self.usages.read(), claim)?;
        match is_dry_run {
            true => ledger.check(claim, &sums, now),
            false => ledger.claim(claim, &sums, now, ledger::KEPT),
        }
    }

    /// Lets an Ingress through with what is new of it, or says that another one has it. Nothing is kept of a dry run.
    fn claim_hosts(&self, claim: &HostClaim, facts: &Facts, is_dry_run: bool) -> Result<(), Refusal> {
        let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        // What was stored before this was asked is known; what is let through meanwhile is kept for longer than this takes.
        collision::judge(facts, &self.ingresses.read(), claim)?;
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

    /// What an Ingress has.
    fn learn_ingress(&self, place: GuardPlace<'_>, ingress: Option<&Value>) {
        // Read before anybody has to wait for it.
        let pairs = ingress.map(IngressRoutes::of);
        self.ingresses
            .write()
            .learn(place.namespace, place.name, pairs.as_ref());
    }

    /// What a ResourceQuota says, if it is one of Tenure's.
    fn learn_quota(&self, place: GuardPlace<'_>, quota: Option<&Value>) {
        let is_unknown = self.usages.read().is_unknown(place.namespace);
        // Most of them are nobody's here.
        if !(is_unknown && quota.is_none()) {
            self.usages.write().learn(place.namespace, place.name, quota);
        }
    }
}

impl Guard for EmbeddedGuard {
    fn follows(&self) -> &[Followed] {
        &self.followed
    }

    fn learn(&self, resource: (&str, &str), place: GuardPlace<'_>, object: Option<&Value>) {
        if let Some(kind) = MentioningKind::find(resource.0, resource.1) {
            let mut mentions = self.mentions.write();
            mentions.learn(&self.settings, kind, (place.namespace, place.name), object);
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
                // One that can't be read is there, and nobody owns it.
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
        *self.facts.write() = Arc::new(Facts::new(self.settings.clone()));
        *self.usages.write() = Usages::default();
        *self.ingresses.write() = IngressIndex::default();
        *self.mentions.write() = MentionIndex::default();
    }

    fn needs(&self, followed: Followed) -> bool {
        followed != INGRESSES || self.facts.read().needs_ingresses()
    }

    fn forget_one(&self, followed: Followed) {
        if followed == INGRESSES {
            *self.ingresses.write() = IngressIndex::default();
        }
    }

    fn changes(&self, (group, name): (&str, &str)) -> bool {
        admission::changes(group, name)
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        let resource = Resource {
            group: asked.group,
            name: asked.resource,
            subresource: asked.subresource,
        };
        let facts = self.facts.read();
        (asked.is_settled || admission::may_change(&facts, resource, asked.namespace))
            && admission::concerns(&facts, asked.user, resource, asked.namespace, asked.old_object)
    }

    fn find_tenant(&self, user: &str, groups: &[String]) -> Membership {
        match find_membership(&self.facts.read(), user, groups) {
            tenancy::Membership::Tenant(name) => Membership::Tenant(name.to_owned()),
            tenancy::Membership::Nobody => Membership::Nobody,
            tenancy::Membership::Unknown => Membership::Unknown,
        }
    }

    fn judge(&self, review: &Review<'_>, surroundings: &dyn GuardSurroundings) -> Ruling {
        let Some(request) = describe(review) else {
            return Ruling::Deny("nobody knows what this request does to its object".to_owned());
        };
        let facts = self.known();
        let decision = admission::decide(&facts, &request, &Server(surroundings, &self.mentions));
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

/// A request as rules read it; nothing where it is not known what it does.
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

/// What is known of a Tenant that can't be read.
fn describe_unread(name: &str, metadata: Option<ObjectMeta>) -> TenantFacts {
    TenantFacts {
        name: name.to_owned(),
        uid: metadata.and_then(|metadata| metadata.uid).unwrap_or_default(),
        ..TenantFacts::default()
    }
}

/// The server, as rules ask it.
struct Server<'a>(&'a dyn GuardSurroundings, &'a RwLock<MentionIndex>);

/// A question as the server reads it.
fn ask<'a>(question: &Question<'a>) -> GuardQuestion<'a> {
    GuardQuestion {
        verb: question.verb,
        group: question.group,
        resource: question.resource,
        namespace: question.namespace,
        name: question.name,
    }
}

impl Surroundings for Server<'_> {
    fn may(&self, question: &Question<'_>) -> bool {
        self.0.may(&ask(question))
    }

    fn may_account(&self, account: (&str, &str), question: &Question<'_>) -> bool {
        self.0.may_account(account, &ask(question))
    }

    fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.0.find(group, plural, namespace, name)
    }

    fn find_mention(&self, facts: &Facts, tenant: &TenantFacts, namespace: &str) -> Result<Option<Mention>, String> {
        Ok(self.1.read().find_outside(facts, tenant, namespace))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn of_tenants_that_keep_nothing_no_ledger_stays() {
        let mut ledgers = Shelf::<QuotaLedger>::default();
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
