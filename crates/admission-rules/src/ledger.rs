//! Reservations for namespaces of a Tenant that were admitted and have not been seen yet, so that several requests at once don't exceed a quota.
//!
//! Admission knows the namespaces that were stored up to a moment ago. Of ten requests at the same time each would find the same capacity. So a
//! reservation by name is noted before a request is answered. It counts for half a minute, however often the request is checked and whether the
//! namespace has been seen meanwhile or not. If another check denied the namespace, or it was deleted, the reservation expires by then.
//!
//! The admission points store the reservations and supply the time: the embedded one in its memory, and the webhook in an object that it writes
//! only if unchanged since it was read.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::text::count_of;

use super::{Refusal, Rule};

/// The time of a reservation: longer than any request takes, and longer than the delay of a sound
/// watch.
pub const KEPT: Duration = Duration::from_secs(30);
/// The time of a reservation for an unproven sender. A sender of invented reviews gets no more than this.
pub const KEPT_UNPROVEN: Duration = Duration::from_secs(5);
/// The greatest number of reservations of one Tenant at the same time. This also bounds the namespaces that are created for it within [`KEPT`],
/// even if they are deleted again, and the bytes that one tenant makes others store.
pub const MOST: usize = 128;

/// A new namespace that counts towards the namespace quota of its Tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceClaim {
    /// The Tenant's name.
    pub tenant: String,
    /// The uid of the Tenant.
    pub tenant_uid: String,
    /// The greatest number of its namespaces (`spec.namespaceOptions.quota`).
    pub quota: usize,
    /// The number of its known namespaces.
    pub seen: usize,
    /// The new namespace. It isn't one of those counted.
    pub namespace: String,
}

impl NamespaceClaim {
    /// Returns the denial for missing capacity: `kept` reservations are for namespaces that have
    /// not been seen yet.
    #[must_use]
    pub fn refuse(&self, kept: usize) -> Refusal {
        let Self {
            tenant, quota, seen, ..
        } = self;
        let being_made = match kept {
            0 => String::new(),
            1 => ", and 1 more is being made".to_owned(),
            kept => format!(", and {kept} more are being made"),
        };
        let remedy = "delete one, or ask an administrator for more (spec.namespaceOptions.quota)";
        Refusal {
            rule: Rule::NamespaceOptions,
            why: format!(
                "Tenant {tenant} has {seen} of at most {}{being_made}",
                count_of(*quota, "namespace")
            ),
            remedy: match kept {
                0 => remedy.to_owned(),
                _ => format!("try again in {} seconds, {remedy}", KEPT.as_secs()),
            },
        }
    }

    /// Returns the denial for more than [`MOST`] reservations at once.
    fn refuse_crowd(&self) -> Refusal {
        Refusal {
            rule: Rule::NamespaceOptions,
            why: format!(
                "{MOST} namespaces of Tenant {} were created in the last {} seconds, which is the limit",
                self.tenant,
                KEPT.as_secs()
            ),
            remedy: format!("try again in {} seconds", KEPT.as_secs()),
        }
    }
}

/// The reserved namespaces of one Tenant: for each name, the end of the reservation in milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NamespaceLedger(BTreeMap<String, u64>);

impl NamespaceLedger {
    /// Reads the text of [`Display`](fmt::Display). An unreadable text reserves nothing: at most the reservations of half
    /// a minute are lost.
    #[must_use]
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Checks whether the quota has capacity for the namespace. `now` is in milliseconds since 1970. `has_been_seen` checks
    /// whether a namespace is already counted in `claim.seen`.
    ///
    /// # Errors
    /// No capacity is left.
    pub fn check(
        &mut self,
        claim: &NamespaceClaim,
        has_been_seen: impl Fn(&str) -> bool,
        now: u64,
    ) -> Result<(), Refusal> {
        self.forget_old(now);
        let others = self
            .0
            .keys()
            .filter(|name| **name != claim.namespace && !has_been_seen(name));
        let others = others.count();
        if claim.seen.saturating_add(others) >= claim.quota {
            return Err(claim.refuse(others));
        }
        if self.0.len() >= MOST && !self.0.contains_key(&claim.namespace) {
            return Err(claim.refuse_crowd());
        }
        Ok(())
    }

    /// Makes a reservation, or extends that of the namespace. For a namespace without a name the capacity is only checked: it is checked again with
    /// its name.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn claim(
        &mut self,
        claim: &NamespaceClaim,
        has_been_seen: impl Fn(&str) -> bool,
        now: u64,
        kept: Duration,
    ) -> Result<(), Refusal> {
        self.check(claim, has_been_seen, now)?;
        if claim.namespace.is_empty() {
            return Ok(());
        }
        let until = now.saturating_add(count_milliseconds(kept));
        let place = self.0.entry(claim.namespace.clone()).or_default();
        *place = until.max(*place);
        Ok(())
    }

    /// Checks whether nothing is reserved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes expired reservations. Returns true if others remain.
    pub fn forget_old(&mut self, now: u64) -> bool {
        self.0.retain(|_, until| *until > now);
        // Another process's clock may be ahead. No reservation lasts longer than it would by this
        // clock.
        let latest = now.saturating_add(count_milliseconds(KEPT));
        for until in self.0.values_mut() {
            *until = latest.min(*until);
        }
        !self.0.is_empty()
    }
}

impl fmt::Display for NamespaceLedger {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&serde_json::to_string(self).unwrap_or_default())
    }
}

pub(super) fn count_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn claim(namespace: &str, seen: usize) -> NamespaceClaim {
        NamespaceClaim {
            tenant: "blue".to_owned(),
            tenant_uid: "t-blue".to_owned(),
            quota: 5,
            seen,
            namespace: namespace.to_owned(),
        }
    }

    fn nobody(_: &str) -> bool {
        false
    }

    #[test]
    fn ten_simultaneous_namespaces_fill_quota_of_five() {
        let mut ledger = NamespaceLedger::default();
        let taken: Vec<bool> = (0..10)
            .map(|number| {
                let claim = claim(&format!("blue-{number}"), 0);
                ledger.claim(&claim, nobody, NOW, KEPT).is_ok()
            })
            .collect();
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 5, "{taken:?}");
        let refusal = ledger.claim(&claim("blue-9", 0), nobody, NOW, KEPT).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "Tenant blue has 0 of at most 5 namespaces, and 5 more are being made: try again in 30 seconds, delete one, or ask an administrator for \
             more (spec.namespaceOptions.quota) (namespace-options)"
        );
    }

    /// A claim without proof doesn't shorten the reservation.
    #[test]
    fn repeated_namespace_claim_counts_once() {
        let mut ledger = NamespaceLedger::default();
        for _ in 0..10 {
            ledger.claim(&claim("blue-1", 4), nobody, NOW, KEPT).unwrap();
        }
        let before = ledger.clone();
        ledger.claim(&claim("blue-1", 4), nobody, NOW, KEPT_UNPROVEN).unwrap();
        assert_eq!(ledger, before, "who makes reviews up gives nobody's place back");
        ledger.claim(&claim("blue-2", 4), nobody, NOW, KEPT).unwrap_err();
    }

    /// The limit also holds if the namespaces are deleted again.
    #[test]
    fn namespace_creations_are_limited_per_half_minute() {
        let mut ledger = NamespaceLedger::default();
        let claims = (0..MOST + 1).map(|number| claim(&format!("blue-{number}"), 1));
        let answers: Vec<_> = claims.map(|claim| ledger.claim(&claim, |_| true, NOW, KEPT)).collect();
        let (last, others) = answers.split_last().unwrap();
        assert!(others.iter().all(Result::is_ok));
        assert_eq!(
            last.as_ref().unwrap_err().to_string(),
            "128 namespaces of Tenant blue were created in the last 30 seconds, which is the limit: try again in 30 seconds (namespace-options)"
        );
        let later = NOW + count_milliseconds(KEPT);
        ledger.claim(&claim("blue-128", 1), |_| true, later, KEPT).unwrap();
    }

    #[test]
    fn unnamed_namespace_needs_room_but_reserves_none() {
        let mut ledger = NamespaceLedger::default();
        ledger.claim(&claim("", 4), nobody, NOW, KEPT).unwrap();
        assert_eq!(ledger, NamespaceLedger::default());
        ledger.claim(&claim("blue-1", 4), nobody, NOW, KEPT).unwrap();
        ledger.claim(&claim("", 4), nobody, NOW, KEPT).unwrap_err();
    }

    /// A namespace that is known doesn't count as reserved, too.
    #[test]
    fn known_namespace_counts_once() {
        let mut ledger = NamespaceLedger::default();
        ledger.claim(&claim("blue-1", 3), nobody, NOW, KEPT).unwrap();
        ledger
            .claim(&claim("blue-2", 4), |name| name == "blue-1", NOW, KEPT)
            .unwrap();
        let all_seen = |_: &str| true;
        let refusal = ledger.claim(&claim("blue-3", 5), all_seen, NOW, KEPT).unwrap_err();
        assert_eq!(refusal.why, "Tenant blue has 5 of at most 5 namespaces");
    }

    #[test]
    fn reservation_ends_after_half_a_minute() {
        let mut ledger = NamespaceLedger::default();
        ledger.claim(&claim("blue-1", 4), nobody, NOW, KEPT).unwrap();
        ledger
            .claim(&claim("blue-2", 4), nobody, NOW + 29_999, KEPT)
            .unwrap_err();
        ledger.claim(&claim("blue-2", 4), nobody, NOW + 30_000, KEPT).unwrap();
        assert!(!ledger.forget_old(NOW + 60_000));
    }

    #[test]
    fn a_clock_that_is_ahead_keeps_nothing_longer() {
        let mut ledger = NamespaceLedger::default();
        let tomorrow = NOW + 86_400_000;
        ledger.claim(&claim("blue-1", 4), nobody, tomorrow, KEPT).unwrap();
        ledger.claim(&claim("blue-2", 4), nobody, NOW, KEPT).unwrap_err();
        ledger.claim(&claim("blue-2", 4), nobody, NOW + 30_000, KEPT).unwrap();
    }

    #[test]
    fn unlimited_tenant_reserves_at_most_128_namespaces() {
        let mut ledger = NamespaceLedger::default();
        let wanted = |number: usize| NamespaceClaim {
            quota: usize::MAX,
            ..claim(&format!("{number}-{}", "x".repeat(58)), 0)
        };
        let taken = (0..1000).filter(|number| ledger.claim(&wanted(*number), nobody, NOW, KEPT).is_ok());
        assert_eq!(taken.count(), MOST);
        assert!(ledger.to_string().len() < 16 << 10);
        let refusal = ledger.claim(&wanted(1000), nobody, NOW, KEPT).unwrap_err();
        assert!(
            refusal
                .to_string()
                .starts_with("128 namespaces of Tenant blue were created in the last 30 seconds"),
            "{refusal}"
        );
    }

    /// A ledger is read as it was written.
    #[test]
    fn broken_ledger_is_read_as_empty() {
        let mut ledger = NamespaceLedger::default();
        ledger.claim(&claim("blue-1", 0), nobody, NOW, KEPT).unwrap();
        assert_eq!(NamespaceLedger::read(&ledger.to_string()), ledger);
        for broken in ["", "{", "[]", "null", r#"{"a":-1}"#, r#"{"a":"b"}"#] {
            assert_eq!(NamespaceLedger::read(broken), NamespaceLedger::default(), "{broken}");
        }
    }
}
