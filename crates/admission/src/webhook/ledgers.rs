//! Where it is kept what several webhooks let through in a Tenant, namespaces, what its quotas count, and hosts of Ingresses: a Lease for each Tenant, in the platform's namespace,
//! written only as it was read. Hosts that no two in the cluster may have are in Leases that all Tenants share.
//!
//! Owns how it is read and written, and that within one process the claims of one Tenant come one after the other, and no other Tenant's wait for
//! them; for a Lease that all share, no Tenant waits for more than one claim of each other one. Refuses to say what counts: that is
//! [`tenure_tenancy::admission::ledger`], [`tenure_tenancy::admission::quota`] and [`tenure_tenancy::admission::collision`].

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_api::admission_webhooks::{
    HOST_LEDGER_ANNOTATION, HOST_LEDGER_PREFIX, LEDGER_ANNOTATION, LEDGER_PREFIX, QUOTA_LEDGER_ANNOTATION,
};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE};
use tenure_cluster::{Client, ClusterError, Resource};
use tenure_tenancy::admission::Refusal;
use tenure_tenancy::{Claim, HostClaim, HostLedger, HostPart, Ledger, QuotaClaim, QuotaLedger, Sums};

use super::judge::Unanswered;
use super::written_over::write_over;

/// How often a race may be lost: within one process there is none.
const TRIES: usize = 16;

/// What a claim leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Nothing: it is only asked whether there is room.
    Nothing,
    /// The place, for so long.
    For(Duration),
}

/// What comes of a claim, and what is to be written for it, if anything is.
type Judged = (Result<(), Refusal>, Option<String>);

impl Keep {
    /// Has something judged by a ledger, for so long if it is to be kept.
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

/// Where something is kept.
#[derive(Clone, Debug)]
struct Of<'a> {
    /// The Lease.
    name: String,
    annotation: &'static str,
    /// The Tenant with which it goes, by name and uid, if it is one's.
    owner: Option<(&'a str, &'a str)>,
}

impl<'a> Of<'a> {
    fn tenant(tenant: &'a str, uid: &'a str, annotation: &'static str) -> Self {
        Self {
            name: format!("{LEDGER_PREFIX}{uid}"),
            annotation,
            owner: Some((tenant, uid)),
        }
    }

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

/// Keeps places.
pub(super) struct Ledgers {
    client: Client,
    /// Of what somebody claims something in, by the Lease's name.
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
    /// Keeps them by this client.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            turns: Mutex::default(),
        }
    }

    /// Claims a place, or says that there is none.
    pub(super) async fn claim(
        &self,
        claim: &Claim,
        has_been_seen: impl Fn(&str) -> bool,
        keep: Keep,
    ) -> Result<Result<(), Refusal>, Unanswered> {
        let of = Of::tenant(&claim.tenant, &claim.tenant_uid, LEDGER_ANNOTATION);
        self.write_down(&of, |text, now| {
            Ok(keep.settle(Ledger::read(text), |ledger, time| match time {
                None => ledger.check(claim, &has_been_seen, now),
                Some(time) => ledger.claim(claim, &has_been_seen, now, time),
            }))
        })
        .await
    }

    /// Lets an object through that is counted over a Tenant's namespaces, or says that there is no room. What was counted is asked for after it was
    /// read what is kept: of what was kept too long ago to be still there, it knows.
    pub(super) async fn claim_quota(
        &self,
        claim: &QuotaClaim,
        add_up: impl Fn() -> Result<Result<Sums, Refusal>, Unanswered>,
        keep: Keep,
    ) -> Result<Result<(), Refusal>, Unanswered> {
        let of = Of::tenant(&claim.tenant, &claim.tenant_uid, QUOTA_LEDGER_ANNOTATION);
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

    /// Lets an Ingress through with what is new of it, or says that another one has it. What others have is asked for after it was read what is kept, as
    /// with quotas.
    pub(super) async fn claim_hosts(
        &self,
        claim: &HostClaim,
        collide: impl Fn() -> Result<Result<(), Refusal>, Unanswered>,
        keep: Keep,
    ) -> Result<Result<(), Refusal>, Unanswered> {
        // Of one Tenant one at a time, so that whoever claims much isn't before others in each of the Leases that all share.
        let _turn = self
            .wait_for_turn(&format!("{HOST_LEDGER_PREFIX}of-{}", claim.tenant_uid))
            .await;
        for part in claim.parts() {
            let of = Of::part(&part);
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

    /// Reads what is kept, has it judged, and writes what comes of it, until nobody else has written in between.
    async fn write_down(
        &self,
        of: &Of<'_>,
        judge: impl Fn(&str, u64) -> Result<Judged, Unanswered>,
    ) -> Result<Result<(), Refusal>, Unanswered> {
        let resource = self.client.resource("coordination.k8s.io/v1", "Lease").await?;
        let _turn = self.wait_for_turn(&of.name).await;
        for _ in 0..TRIES {
            let found = self.client.find(&resource, PLATFORM_NAMESPACE, &of.name).await?;
            let kept = found.as_ref().map(|lease| read(lease, of.annotation));
            // By the server's clock, which has just answered: a replica whose own is wrong forgets nothing that another one keeps.
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

    /// Whether it was written, and nobody was faster.
    async fn write(
        &self,
        resource: &Resource,
        found: Option<&Value>,
        of: &Of<'_>,
        text: &str,
    ) -> Result<bool, ClusterError> {
        let annotations = json!({ (of.annotation): text });
        // It goes with its Tenant.
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
        write_over(&self.client, resource, found, &lease, patch).await
    }
}

fn read<'a>(lease: &'a Value, annotation: &str) -> &'a str {
    let annotations = lease.pointer("/metadata/annotations");
    let kept = annotations.and_then(|annotations| annotations.get(annotation));
    kept.and_then(Value::as_str).unwrap_or_default()
}
