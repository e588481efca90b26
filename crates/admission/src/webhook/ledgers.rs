//! Where it is kept what several webhooks let through in a Tenant, namespaces and what its quotas count: a Lease for each Tenant, in the platform's namespace, written only as it was read.
//!
//! Owns how it is read and written, and that within one process the claims of one Tenant come one after the other, and no other Tenant's wait for
//! them. Refuses to say what counts: that is [`tenure_tenancy::admission::ledger`] and [`tenure_tenancy::admission::quota`].

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_api::admission_webhooks::{LEDGER_ANNOTATION, LEDGER_PREFIX, QUOTA_LEDGER_ANNOTATION};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE};
use tenure_cluster::{Client, ClusterError, Resource};
use tenure_tenancy::admission::Refusal;
use tenure_tenancy::{Claim, Ledger, QuotaClaim, QuotaLedger, Sums};

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

/// Of which Tenant something is kept, and where.
#[derive(Clone, Copy)]
struct Of<'a> {
    tenant: &'a str,
    uid: &'a str,
    annotation: &'static str,
}

/// Keeps places.
pub(super) struct Ledgers {
    client: Client,
    /// Of the Tenants that somebody claims a place in, by uid.
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
        let of = Of {
            tenant: &claim.tenant,
            uid: &claim.tenant_uid,
            annotation: LEDGER_ANNOTATION,
        };
        self.write_down(of, |text, now| {
            let mut ledger = Ledger::read(text);
            let claimed = match keep {
                Keep::Nothing => return Ok((ledger.check(claim, &has_been_seen, now), None)),
                Keep::For(time) => {
                    let before = ledger.clone();
                    let claimed = ledger.claim(claim, &has_been_seen, now, time);
                    (claimed, (ledger != before).then(|| ledger.to_string()))
                }
            };
            Ok(claimed)
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
        let of = Of {
            tenant: &claim.tenant,
            uid: &claim.tenant_uid,
            annotation: QUOTA_LEDGER_ANNOTATION,
        };
        self.write_down(of, |text, now| {
            let sums = match add_up()? {
                Ok(sums) => sums,
                Err(refusal) => return Ok((Err(refusal), None)),
            };
            let mut ledger = QuotaLedger::read(text);
            let claimed = match keep {
                Keep::Nothing => return Ok((ledger.check(claim, &sums, now), None)),
                Keep::For(time) => {
                    let before = ledger.clone();
                    let claimed = ledger.claim(claim, &sums, now, time);
                    (claimed, (ledger != before).then(|| ledger.to_string()))
                }
            };
            Ok(claimed)
        })
        .await
    }

    /// Reads what is kept, has it judged, and writes what comes of it, until nobody else has written in between.
    async fn write_down(
        &self,
        of: Of<'_>,
        judge: impl Fn(&str, u64) -> Result<(Result<(), Refusal>, Option<String>), Unanswered>,
    ) -> Result<Result<(), Refusal>, Unanswered> {
        let resource = self.client.resource("coordination.k8s.io/v1", "Lease").await?;
        let name = format!("{LEDGER_PREFIX}{}", of.uid);
        let _turn = self.wait_for_turn(of.uid).await;
        for _ in 0..TRIES {
            let found = self.client.find(&resource, PLATFORM_NAMESPACE, &name).await?;
            let kept = found.as_ref().map(|lease| read(lease, of.annotation));
            let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
            let (claimed, changed) = judge(kept.unwrap_or_default(), now)?;
            let Some(text) = changed else { return Ok(claimed) };
            if self.write(&resource, found.as_ref(), (&name, of), &text).await? {
                return Ok(claimed);
            }
        }
        Err(Unanswered::Contested)
    }

    async fn wait_for_turn(&self, uid: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock();
            let known = turns.get(uid).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                turns.retain(|_, turn| turn.strong_count() > 0);
                let turn = Arc::new(tokio::sync::Mutex::new(()));
                turns.insert(uid.to_owned(), Arc::downgrade(&turn));
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
        (name, of): (&str, Of<'_>),
        text: &str,
    ) -> Result<bool, ClusterError> {
        let annotations = json!({ (of.annotation): text });
        // It goes with its Tenant.
        let owner = json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": of.tenant, "uid": of.uid
        });
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": name, "namespace": PLATFORM_NAMESPACE, "labels": {MANAGED_BY: MANAGED_BY_TENURE},
                "annotations": annotations, "ownerReferences": [owner]
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
