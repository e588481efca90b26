//! The rate at which a Tenant's owners create namespaces where policies are the only admission.
//!
//! An expression can't count requests. So the owners' right to create namespaces ends after a burst, and comes back when the burst is over. With webhooks and on the
//! embedded control plane, reservations have the same limit ([`tenure_admission_rules::ledger`]).

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_admission_rules::ledger;

use crate::outcome::add_duration;

/// The recent new namespaces of a Tenant, for the rate limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespaceBurst {
    /// The uids of the namespaces at the last plan. Unset before the first plan, which can't know how old they are.
    known: Option<BTreeSet<String>>,
    /// The times at which new namespaces were seen, oldest first, and not longer ago than [`NamespaceBurst::SPAN`]. At most [`ledger::MOST`], since the newest decide.
    seen: Vec<Timestamp>,
}

impl NamespaceBurst {
    const SPAN: Duration = ledger::KEPT;

    /// Records the namespaces that name the Tenant now, and the time of new ones.
    pub(super) fn record_uids<'a>(&mut self, uids: impl Iterator<Item = &'a str>, now: Timestamp) {
        let current: BTreeSet<String> = uids.map(str::to_owned).collect();
        if let Some(known) = &self.known {
            let new = current.difference(known).count();
            self.seen.extend(std::iter::repeat_n(now, new.min(ledger::MOST)));
        }
        self.known = Some(current);
        self.seen.retain(|at| now < add_duration(*at, Self::SPAN));
        let surplus = self.seen.len().saturating_sub(ledger::MOST);
        self.seen.drain(..surplus);
    }

    /// Returns the time until which owners may create no namespace. Unset if they may.
    pub(super) fn find_pause(&self) -> Option<Timestamp> {
        let oldest = self.seen.first().filter(|_| self.seen.len() >= ledger::MOST)?;
        Some(add_duration(*oldest, Self::SPAN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_at(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).unwrap()
    }

    fn record_range(burst: &mut NamespaceBurst, uids: std::ops::Range<usize>, second: i64) -> Option<Timestamp> {
        let uids: Vec<String> = uids.map(|uid| uid.to_string()).collect();
        burst.record_uids(uids.iter().map(String::as_str), time_at(second));
        burst.find_pause()
    }

    #[test]
    fn a_burst_pauses_creation_for_half_a_minute() {
        let mut burst = NamespaceBurst::default();
        // A process that begins doesn't know how old the namespaces are.
        assert_eq!(record_range(&mut burst, 0..500, 0), None);
        assert_eq!(record_range(&mut burst, 0..627, 1), None);
        assert_eq!(record_range(&mut burst, 0..628, 2), Some(time_at(31)));
        assert_eq!(record_range(&mut burst, 0..628, 30), Some(time_at(31)));
        assert_eq!(record_range(&mut burst, 0..628, 31), None);
    }

    #[test]
    fn deleted_namespaces_still_count() {
        let mut burst = NamespaceBurst::default();
        assert_eq!(record_range(&mut burst, 0..0, 0), None);
        // Each is gone before the next one is there.
        let pause = (0..ledger::MOST).find_map(|number| record_range(&mut burst, number..number + 1, 5));
        assert_eq!(pause, Some(time_at(35)));
        // A larger burst takes no more memory, and lasts no longer.
        assert_eq!(record_range(&mut burst, 0..50_000, 6), Some(time_at(36)));
        assert_eq!(burst.seen.len(), ledger::MOST);
    }
}
