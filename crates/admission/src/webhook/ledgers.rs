//! Stores the reservations that several webhooks make for a Tenant: namespaces, counts under its quotas, and hosts of Ingresses. Each Tenant has a Lease in the
//! platform's namespace. A write of a Lease succeeds only if the Lease is unchanged since it was read. Hosts that must be unique in the cluster are in Leases
//! that all Tenants share.
//!
//! Within one process, claims of one Tenant run one after another, and no other Tenant waits for them. At a Lease that all share, a Tenant waits for at most
//! one claim of each other Tenant. The rules of counting are in [`tenure_admission_rules::ledger`], [`tenure_admission_rules::quota`] and
//! [`tenure_admission_rules::collision`].

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_admission_rules::Refusal;
use tenure_admission_rules::{
    HostClaim, HostLedger, HostPart, NamespaceClaim, NamespaceLedger, QuotaClaim, QuotaLedger, Sums,
};
use tenure_api::admission_webhooks::{
    HOST_LEDGER_ANNOTATION, HOST_LEDGER_PREFIX, LEDGER_ANNOTATION, LEDGER_PREFIX, QUOTA_LEDGER_ANNOTATION,
};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE};
use tenure_cluster::{Client, ClusterError, Resource};

use super::decider::Unanswered;
use super::shared_objects::write_if_unchanged;

/// The greatest number of attempts after a lost race. Within one process no race occurs.
const TRIES: usize = 16;

/// Whether an admitted claim is reserved, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReservationKind {
    /// No reservation: the caller only asks whether capacity is left.
    Nothing,
    /// A reservation for this time.
    For(Duration),
}

/// The decision about a claim, and the ledger to write, if it changed.
type Judged = (Result<(), Refusal>, Option<String>);

impl ReservationKind {
    /// Decides a claim with a ledger. If a reservation should be stored, it is stored for the given
    /// time.
    fn settle<L: Clone + PartialEq + Display>(
        self,
        mut ledger: L,
        judge: impl FnOnce(&mut L, Option<Duration>) -> Result<(), Refusal>,
    ) -> Judged {
        let before = ledger.clone();
        match self {
            Self::Nothing => (judge(&mut ledger, None), None),
            Self::For(time) => {
                let claimed = judge(&mut ledger, Some(time));
                (claimed, (ledger != before).then(|| ledger.to_string()))
            }
        }
    }
}

/// The Lease that stores a ledger: its name, the annotation with the ledger, and its owner.
#[derive(Clone, Debug)]
struct LedgerLease<'a> {
    /// The name of the Lease.
    name: String,
    annotation: &'static str,
    /// The Tenant that owns the Lease, by name and uid. Shared Leases have none.
    owner: Option<(&'a str, &'a str)>,
}

impl<'a> LedgerLease<'a> {
    /// Returns the Lease of a Tenant, for one of its ledgers.
    fn tenant(tenant: &'a str, uid: &'a str, annotation: &'static str) -> Self {
        Self {
            name: format!("{LEDGER_PREFIX}{uid}"),
            annotation,
            owner: Some((tenant, uid)),
        }
    }

    /// Returns the Lease with the ledger for a part of a claim on hosts.
    fn part(part: &HostPart<'a>) -> Self {
        let annotation = HOST_LEDGER_ANNOTATION;
        match part.shared {
            Some(number) => Self {
                name: format!("{HOST_LEDGER_PREFIX}{number}"),
                annotation,
                owner: None,
            },
            None => Self::tenant(&part.claim.tenant, &part.claim.tenant_uid, annotation),
        }
    }
}

/// The ledgers of reservations, stored in Leases.
pub(super) struct Ledgers {
    client: Client,
    /// One lock for each group of claims, by the Lease's name.
    turns: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl std::fmt::Debug for Ledgers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Ledgers")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl Ledgers {
    /// Returns ledgers that are stored with this client.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            turns: Mutex::default(),
        }
    }

    /// Claims a namespace for a Tenant, or denies it because no capacity is left.
    pub(super) async fn claim(
        &self,
        claim: &NamespaceClaim,
        has_been_seen: impl Fn(&str) -> bool,
        keep: ReservationKind,
    ) -> Result<Result<(), Refusal>, Unanswered> {
        let of = LedgerLease::tenant(&claim.tenant, &claim.tenant_uid, LEDGER_ANNOTATION);
        self.write_down(&of, |text, now| {
            Ok(keep.settle(NamespaceLedger::read(text), |ledger, time| match time {
                None => ledger.check(claim, &has_been_seen, now),
                Some(time) => ledger.claim(claim, &has_been_seen, now, time),
            }))
        })
        .await
    }

    /// Admits an object that counts against a Tenant's quota, or denies it because no capacity is left. The counted use is requested after the
    /// reservations were read: this count includes objects whose reservation has already expired.
    pub(super) async fn claim_quota(
        &self,
        claim: &QuotaClaim,
        add_up: impl Fn() -> Result<Result<Sums, Refusal>, Unanswered>,
        keep: ReservationKind,
    ) -> Result<Result<(), Refusal>, Unanswered> {
        let of = LedgerLease::tenant(&claim.tenant, &claim.tenant_uid, QUOTA_LEDGER_ANNOTATION);
        self.write_down(&of, |text, now| {
            let sums = match add_up()? {
                Ok(sums) => sums,
                Err(refusal) => return Ok((Err(refusal), None)),
            };
            Ok(keep.settle(QuotaLedger::read(text), |ledger, time| match time {
                None => ledger.check(claim, &sums, now),
                Some(time) => ledger.claim(claim, &sums, now, time),
            }))
        })
        .await
    }

    /// Admits the new hosts and paths of an Ingress, or denies them because another Ingress has them. As with quotas, the hosts of other Ingresses are
    /// requested after the reservations were read.
    pub(super) async fn claim_hosts(
        &self,
        claim: &HostClaim,
        collide: impl Fn() -> Result<Result<(), Refusal>, Unanswered>,
        keep: ReservationKind,
    ) -> Result<Result<(), Refusal>, Unanswered> {
        // One claim of a Tenant at a time, so that a Tenant with many claims isn't before others in each of the shared
        // Leases.
        let _turn = self
            .wait_for_turn(&format!("{HOST_LEDGER_PREFIX}of-{}", claim.tenant_uid))
            .await;
        for part in claim.parts() {
            let of = LedgerLease::part(&part);
            let claimed = self.write_down(&of, |text, now| {
                if let Err(refusal) = collide()? {
                    return Ok((Err(refusal), None));
                }
                Ok(keep.settle(HostLedger::read(text), |ledger, time| match time {
                    None => ledger.check(&part, now),
                    Some(time) => ledger.claim(&part, now, time),
                }))
            });
            if let Err(refusal) = claimed.await? {
                return Ok(Err(refusal));
            }
        }
        Ok(Ok(()))
    }

    /// Reads a ledger, decides the claim and writes the result. Repeats this until no other writer has changed
    /// the ledger in between.
    async fn write_down(
        &self,
        of: &LedgerLease<'_>,
        judge: impl Fn(&str, u64) -> Result<Judged, Unanswered>,
    ) -> Result<Result<(), Refusal>, Unanswered> {
        let resource = self.client.resource("coordination.k8s.io/v1", "Lease").await?;
        let _turn = self.wait_for_turn(&of.name).await;
        for _ in 0..TRIES {
            let found = self.client.find(&resource, PLATFORM_NAMESPACE, &of.name).await?;
            let kept = found.as_ref().map(|lease| read(lease, of.annotation));
            // The time of the server that has just answered: a replica with a wrong clock then removes no reservation of another
            // replica.
            let now = u64::try_from(self.client.server_time().as_millisecond()).unwrap_or_default();
            let (claimed, changed) = judge(kept.unwrap_or_default(), now)?;
            let Some(text) = changed else { return Ok(claimed) };
            if self.write(&resource, found.as_ref(), of, &text).await? {
                return Ok(claimed);
            }
        }
        Err(Unanswered::Contested)
    }

    async fn wait_for_turn(&self, name: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock();
            let known = turns.get(name).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                turns.retain(|_, turn| turn.strong_count() > 0);
                let turn = Arc::new(tokio::sync::Mutex::new(()));
                turns.insert(name.to_owned(), Arc::downgrade(&turn));
                turn
            })
        };
        turn.lock_owned().await
    }

    /// Writes the Lease. Returns true if the write succeeded and no other writer was faster.
    async fn write(
        &self,
        resource: &Resource,
        found: Option<&Value>,
        of: &LedgerLease<'_>,
        text: &str,
    ) -> Result<bool, ClusterError> {
        let annotations = json!({ (of.annotation): text });
        // The Lease is deleted together with its Tenant.
        let owners: Vec<Value> = of
            .owner
            .iter()
            .map(|(name, uid)| json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": name, "uid": uid }))
            .collect();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": of.name, "namespace": PLATFORM_NAMESPACE, "labels": {MANAGED_BY: MANAGED_BY_TENURE},
                "annotations": annotations, "ownerReferences": owners
            }
        });
        let patch = json!({ "metadata": { "annotations": annotations } });
        write_if_unchanged(&self.client, resource, found, &lease, patch).await
    }
}

/// Returns the text of a ledger in a Lease. Empty if the Lease has none.
fn read<'a>(lease: &'a Value, annotation: &str) -> &'a str {
    let annotations = lease.pointer("/metadata/annotations");
    let kept = annotations.and_then(|annotations| annotations.get(annotation));
    kept.and_then(Value::as_str).unwrap_or_default()
}
