//! Leftover credentials at a host: they have a name of Tenure, but are in no ledger.
//!
//! A credential is leftover only if its name has this cluster, no ledger has the name, and it is older than any order in progress. Credentials with other names are
//! never touched. An incomplete set of ledgers proves nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::access::request::CredentialLedger;

use super::name::{CredentialName, shorten_uid};
use tenure_remote_requests::git_host::ListedCredential;

/// The minimum age of a leftover credential, by its name.
pub const LEFT_AFTER: Duration = Duration::from_secs(3_600);
/// The maximum of revocations at once.
pub const MOST: usize = 100;

/// The observed state of one target.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Uid of this cluster's namespace `kube-system`.
    pub cluster_uid: String,
    /// All credentials of one kind at the target.
    pub listed: Vec<ListedCredential>,
    /// Names in the ledgers of all requests, read after the host's list. Unset if any ledger couldn't be read.
    pub recorded: Option<BTreeSet<String>>,
}

/// The decisions for one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The host's numbers of the credentials to revoke.
    pub revoke: Vec<u64>,
    /// The number of unrecorded credentials that are too young, and are checked later.
    pub young: usize,
    /// The reason why no decision is possible.
    pub problem: Option<&'static str>,
}

/// Lists the names in a ledger.
pub fn list_recorded(ledger: &CredentialLedger) -> impl Iterator<Item = &str> {
    let next = ledger.next.iter().map(|next| next.name.as_str());
    let held = ledger
        .current
        .iter()
        .chain(&ledger.retiring)
        .map(|held| held.name.as_str());
    next.chain(held)
}

/// Finds the leftover credentials.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let Some(recorded) = &snapshot.recorded else {
        return Plan {
            problem: Some("not all requests could be read, so the leftovers are unknown"),
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
        // A clock that was wrong by a day may have written a time in the future.
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
    fn only_own_old_unrecorded_credentials_are_swept() {
        let now = Timestamp::from_second(1_790_000_000).unwrap();
        let listed = |id: u64, name: &str| ListedCredential {
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
            // A clock was wrong.
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
        // Without all ledgers, no credential is leftover.
        let unread = Snapshot {
            recorded: None,
            ..snapshot
        };
        assert_eq!(plan(&unread, now).revoke, Vec::<u64>::new());
        assert!(plan(&unread, now).problem.is_some());
    }
}
