//! Where places in Tenants are kept that several webhooks give out: a Lease for each Tenant, in the platform's namespace, written only as it was read.
//!
//! Owns how it is read and written, and that within one process the claims of one Tenant come one after the other, and no other Tenant's wait for
//! them. Refuses to say what counts: that is [`tenure_tenancy::admission::ledger`].

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_api::admission_webhooks::{LEDGER_ANNOTATION, LEDGER_PREFIX};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE};
use tenure_cluster::{Client, ClusterError, Resource};
use tenure_tenancy::admission::Refusal;
use tenure_tenancy::{Claim, Ledger};

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
        let resource = self.client.resource("coordination.k8s.io/v1", "Lease").await?;
        let name = format!("{LEDGER_PREFIX}{}", claim.tenant_uid);
        let _turn = self.wait_for_turn(&claim.tenant_uid).await;
        for _ in 0..TRIES {
            let found = self.client.find(&resource, PLATFORM_NAMESPACE, &name).await?;
            let before = Ledger::read(found.as_ref().map(read).unwrap_or_default());
            let mut ledger = before.clone();
            let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
            let (claimed, is_kept) = match keep {
                Keep::Nothing => (ledger.check(claim, &has_been_seen, now), false),
                Keep::For(time) => (ledger.claim(claim, &has_been_seen, now, time), true),
            };
            if !is_kept || ledger == before || self.write(&resource, found.as_ref(), (&name, claim), &ledger).await? {
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
        (name, claim): (&str, &Claim),
        ledger: &Ledger,
    ) -> Result<bool, ClusterError> {
        let annotations = json!({ LEDGER_ANNOTATION: ledger.to_string() });
        // It goes with its Tenant.
        let owner = json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": claim.tenant, "uid": claim.tenant_uid
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

fn read(lease: &Value) -> &str {
    let annotations = lease.pointer("/metadata/annotations");
    let kept = annotations.and_then(|annotations| annotations.get(LEDGER_ANNOTATION));
    kept.and_then(Value::as_str).unwrap_or_default()
}
