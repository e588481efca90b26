//! What is left over at a host: credentials with a name of ours that no ledger has.
//!
//! Owns when one is taken for that: the name is of this cluster, nobody recorded it, and it is older than anything that may still be under way. Refuses to touch
//! what has another name, whoever's it is, and to conclude anything from a record that is not known to be complete.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::access::request::CredentialLedger;

use super::name::{CredentialName, shorten_uid};
use crate::access::host::Listed;

/// How old a credential has to be, by its name, to be taken for left over.
pub const LEFT_AFTER: Duration = Duration::from_secs(3_600);
/// The most that are revoked at once.
pub const MOST: usize = 100;

/// What was seen of one target.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Uid of this cluster's namespace `kube-system`.
    pub cluster_uid: String,
    /// All credentials of one kind that the host has of the target.
    pub listed: Vec<Listed>,
    /// Names in the ledgers of all requests, read after the host was asked; none if any of them couldn't be read.
    pub recorded: Option<BTreeSet<String>>,
}

/// What is done about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The host's numbers of what is revoked.
    pub revoke: Vec<u64>,
    /// How many are younger, and looked at later.
    pub young: usize,
    /// Why nothing can be told.
    pub problem: Option<&'static str>,
}

/// The names that a ledger has.
pub fn list_recorded(ledger: &CredentialLedger) -> impl Iterator<Item = &str> {
    let next = ledger.next.iter().map(|next| next.name.as_str());
    let held = ledger
        .current
        .iter()
        .chain(&ledger.retiring)
        .map(|held| held.name.as_str());
    next.chain(held)
}

/// What is left over.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let Some(recorded) = &snapshot.recorded else {
        return Plan {
            problem: Some("not all requests could be read, so nobody knows what is left over"),
            ..Plan::default()
        };
    };
    let cluster = shorten_uid(&snapshot.cluster_uid);
    let mut plan = Plan::default();
    for listed in &snapshot.listed {
        let Some(name) = CredentialName::read(&listed.name) else {
            continue;
        };
        let is_over = listed.is_revoked || listed.is_expired;
        if name.cluster != cluster || recorded.contains(&listed.name) || is_over {
            continue;
        }
        // A clock that was wrong by a day may have written a time that is still to come.
        let age = now.as_second().abs_diff(name.begun);
        if age <= LEFT_AFTER.as_secs() {
            plan.young += 1;
        } else if plan.revoke.len() < MOST {
            plan.revoke.push(listed.id);
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ours_and_old_and_unrecorded_is_swept() {
        let now = Timestamp::from_second(1_790_000_000).unwrap();
        let listed = |id: u64, name: &str| Listed {
            id,
            name: name.to_owned(),
            expires_at: None,
            is_revoked: false,
            is_expired: false,
            may_write: false,
            last_used_at: None,
        };
        let mut all = vec![
            listed(1, "fa/c0ffee00/0badcafe/1/1789996399/a"),
            listed(2, "fa/c0ffee00/0badcafe/1/1789996401/b"),
            listed(3, "fa/c0ffee00/0badcafe/1/1789000000/recorded"),
            listed(4, "fa/deadbeef/0badcafe/1/1789000000/other"),
            listed(5, "somebody's own"),
            listed(6, "fa/c0ffee00/0badcafe/1/1789000000/"),
            // A clock that went wrong.
            listed(7, "fa/c0ffee00/0badcafe/1/1790086400/c"),
            listed(8, "fa/c0ffee00/0badcafe/1/1789000000/revoked"),
        ];
        all[7].is_revoked = true;
        let snapshot = Snapshot {
            cluster_uid: "c0ffee00-0000".to_owned(),
            listed: all,
            recorded: Some(["fa/c0ffee00/0badcafe/1/1789000000/recorded".to_owned()].into()),
        };
        let planned = plan(&snapshot, now);
        assert_eq!((planned.revoke, planned.young), (vec![1, 7], 1));
        // Who can't read all ledgers knows nothing.
        let unread = Snapshot {
            recorded: None,
            ..snapshot
        };
        assert_eq!(plan(&unread, now).revoke, Vec::<u64>::new());
        assert!(plan(&unread, now).problem.is_some());
    }
}
