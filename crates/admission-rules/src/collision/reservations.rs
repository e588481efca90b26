//! Reservations of hosts and paths that were admitted and may not have been seen yet.
//!
//! A reservation belongs to its Ingress for half a minute, whether the Ingress has been seen meanwhile or not. If another check denied the
//! Ingress, or it was deleted, the reservation expires by then. This module bounds the bytes that one tenant makes others store. The caller
//! supplies the time.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::tenant::CollisionScope;

use super::HostPart;
use crate::Refusal;
use crate::ledger::{KEPT, count_milliseconds};
use tenure_tenancy::ingresses::{PairDigest, digest_texts};

/// The greatest number of reserved pairs at one time: for one Tenant, and in one ledger.
const MOST_OF_TENANT: usize = 256;
const MOST: usize = 1024;
/// The part of the time by which a reservation may be shorter, so that not every repeated claim causes a write.
const COARSE: u32 = 5;
/// The number of letters of a Tenant's digest. A Tenant can choose its uid no more than other users can.
const TENANT_LETTERS: usize = 16;

/// The reservations of one ledger, by the digest of host and path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostLedger(BTreeMap<String, Reservation>);

/// A reservation: its end in milliseconds since 1970, and the digests of its Tenant and its Ingress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Reservation(u64, String, String);

impl HostLedger {
    /// Reads the text of [`Display`](fmt::Display). An unreadable text reserves nothing: at most the reservations of
    /// half a minute are lost.
    #[must_use]
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Checks whether no other Ingress has a reservation of these pairs. `now` is in milliseconds
    /// since 1970.
    ///
    /// # Errors
    /// Another Ingress has one.
    pub fn check(&mut self, part: &HostPart<'_>, now: u64) -> Result<(), Refusal> {
        self.forget_old(now);
        let own = tell_holder(part);
        for (digest, pair) in &part.pairs {
            let known = self.0.get(&write_key(part, *digest));
            if known.is_some_and(|Reservation(_, _, holder)| *holder != own) {
                return Err(part.claim.refuse_being_taken(pair));
            }
        }
        Ok(())
    }

    /// Reserves the pairs for an Ingress. For an Ingress without a name the pairs are only checked: it is checked again with its name.
    ///
    /// # Errors
    /// As [`check`](Self::check), or the ledger has no capacity left.
    pub fn claim(&mut self, part: &HostPart<'_>, now: u64, kept: Duration) -> Result<(), Refusal> {
        self.check(part, now)?;
        if part.claim.name.is_empty() {
            return Ok(());
        }
        let (own, tenant) = (tell_holder(part), tell_tenant(part));
        let until = now.saturating_add(count_milliseconds(kept));
        let enough = until.saturating_sub(count_milliseconds(kept / COARSE));
        let keys: Vec<String> = part.pairs.iter().map(|(digest, _)| write_key(part, *digest)).collect();
        let more = keys.iter().filter(|key| !self.0.contains_key(*key)).count();
        let of_tenant = self.0.values().filter(|Reservation(_, of, _)| *of == tenant).count();
        if more > 0 && (of_tenant.saturating_add(more) > MOST_OF_TENANT || self.0.len().saturating_add(more) > MOST) {
            return Err(part.claim.refuse_crowd());
        }
        for key in keys {
            let known = self.0.entry(key);
            let known = known.or_insert_with(|| Reservation(0, tenant.clone(), own.clone()));
            if known.0 < enough {
                known.0 = until;
            }
        }
        Ok(())
    }

    /// Checks whether nothing is reserved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes expired reservations. Returns true if others remain.
    pub fn forget_old(&mut self, now: u64) -> bool {
        self.0.retain(|_, Reservation(until, _, _)| *until > now);
        // Another process's clock may be ahead. No reservation lasts longer than it would by this
        // clock.
        let latest = now.saturating_add(count_milliseconds(KEPT));
        for Reservation(until, _, _) in self.0.values_mut() {
            *until = latest.min(*until);
        }
        !self.0.is_empty()
    }
}

impl fmt::Display for HostLedger {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&serde_json::to_string(self).unwrap_or_default())
    }
}

/// Returns the key of a pair. If namespaces are compared separately, the key contains the
/// namespace.
fn write_key(part: &HostPart<'_>, digest: PairDigest) -> String {
    match part.claim.scope {
        CollisionScope::Namespace => digest_texts(&[&part.claim.namespace, &digest.to_hex()]).to_hex(),
        CollisionScope::Tenant | CollisionScope::Cluster => digest.to_hex(),
    }
}

/// Returns the digest of the Ingress of a claim.
fn tell_holder(part: &HostPart<'_>) -> String {
    digest_texts(&[&part.claim.namespace, &part.claim.name]).to_hex()
}

/// Returns the digest of the Tenant of a claim.
fn tell_tenant(part: &HostPart<'_>) -> String {
    let mut digest = digest_texts(&[&part.claim.tenant_uid]).to_hex();
    digest.truncate(TENANT_LETTERS);
    digest
}
