//! Which hosts and paths were let through and may not have been seen yet.
//!
//! What was let through is its Ingress's from then on until half a minute later, whether it has been seen meanwhile or not; what was
//! refused behind this door after all, or deleted, is given back by then. Owns what is kept, and how many bytes one tenant makes others store.
//! Refuses to know the time.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::tenant::CollisionScope;

use super::HostPart;
use crate::admission::Refusal;
use crate::admission::ledger::{KEPT, count_milliseconds};
use crate::ingresses::{PairDigest, digest_of};

/// How many hosts and paths are kept at the same time: of one Tenant, and in one ledger.
const MOST_OF_TENANT: usize = 256;
const MOST: usize = 1024;
/// By which part of the time that something is kept it may be kept for less, so that not each time that it is asked about again is written.
const COARSE: u32 = 5;
/// How many letters of its digest stand for a Tenant, which chooses its uid no more than anybody else does.
const TENANT_LETTERS: usize = 16;

/// What was let through, by host and path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostLedger(BTreeMap<String, Kept>);

/// For whom, and until when, in milliseconds since 1970; Tenant and Ingress by their digests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept(u64, String, String);

impl HostLedger {
    /// Reads what [`Display`](fmt::Display) wrote. What can't be read keeps nothing: half a minute's, at most, is lost.
    #[must_use]
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Whether nobody else was let through with it. `now` is in milliseconds since 1970.
    ///
    /// # Errors
    /// Somebody was.
    pub fn check(&mut self, part: &HostPart<'_>, now: u64) -> Result<(), Refusal> {
        self.forget_old(now);
        let own = tell_holder(part);
        for (digest, pair) in &part.pairs {
            let known = self.0.get(&write_key(part, *digest));
            if known.is_some_and(|Kept(_, _, holder)| *holder != own) {
                return Err(part.claim.refuse_being_taken(pair));
            }
        }
        Ok(())
    }

    /// Lets an Ingress through. Of one whose name is still to be made it is only said whether nobody else was: it is asked about again with its
    /// name.
    ///
    /// # Errors
    /// As [`check`](Self::check), or so much is kept that there is no room for more.
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
        let of_tenant = self.0.values().filter(|Kept(_, of, _)| *of == tenant).count();
        if more > 0 && (of_tenant.saturating_add(more) > MOST_OF_TENANT || self.0.len().saturating_add(more) > MOST) {
            return Err(part.claim.refuse_crowd());
        }
        for key in keys {
            let known = self.0.entry(key);
            let known = known.or_insert_with(|| Kept(0, tenant.clone(), own.clone()));
            if known.0 < enough {
                known.0 = until;
            }
        }
        Ok(())
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets what was kept long enough. Returns whether anything else is kept.
    pub fn forget_old(&mut self, now: u64) -> bool {
        self.0.retain(|_, Kept(until, _, _)| *until > now);
        // Of somebody whose clock is ahead: nothing is kept for longer than it would be by this one.
        let latest = now.saturating_add(count_milliseconds(KEPT));
        for Kept(until, _, _) in self.0.values_mut() {
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

/// By what it is known: where each namespace is by itself, with that.
fn write_key(part: &HostPart<'_>, digest: PairDigest) -> String {
    match part.claim.scope {
        CollisionScope::Namespace => digest_of(&[&part.claim.namespace, &digest.to_hex()]).to_hex(),
        CollisionScope::Tenant | CollisionScope::Cluster => digest.to_hex(),
    }
}

fn tell_holder(part: &HostPart<'_>) -> String {
    digest_of(&[&part.claim.namespace, &part.claim.name]).to_hex()
}

fn tell_tenant(part: &HostPart<'_>) -> String {
    let mut digest = digest_of(&[&part.claim.tenant_uid]).to_hex();
    digest.truncate(TENANT_LETTERS);
    digest
}
