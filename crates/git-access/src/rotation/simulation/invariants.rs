//! The invariants of every moment: each credential at the host is recorded.

use std::collections::BTreeSet;

use super::super::leftover_credentials::{self, list_recorded};
use super::host::Flavour;
use super::model::World;

impl World {
    fn list_recorded_names(&self) -> BTreeSet<String> {
        self.ledgers().flat_map(list_recorded).map(str::to_owned).collect()
    }

    /// Checks the invariants of every moment.
    pub(super) fn check(&self) {
        let recorded = self.list_recorded_names();
        let live = self.live();
        // A credential that can't be listed ends by itself within the hour.
        if self.flavour != Flavour::Hourly {
            for credential in &live {
                assert!(
                    recorded.contains(&credential.name),
                    "seed {}: {credential:?} is in no ledger: {:?}",
                    self.seed,
                    self.ledger
                );
            }
        }
        let held = self
            .ledgers()
            .flat_map(|ledger| ledger.current.iter().chain(&ledger.retiring))
            .filter_map(|held| held.id);
        let next = self
            .ledgers()
            .filter_map(|ledger| ledger.next.as_ref().and_then(|next| next.id));
        let ids: BTreeSet<u64> = held.chain(next).collect();
        let unknown = live.iter().filter(|credential| !ids.contains(&credential.id)).count();
        assert!(
            self.flavour == Flavour::Hourly || unknown <= self.ledgers().count(),
            "seed {}: {unknown} numbers are not recorded",
            self.seed
        );
        assert!(
            self.ledger.retiring.len() <= 20,
            "seed {}: {:?}",
            self.seed,
            self.ledger
        );
    }

    /// Returns the number of leftover credentials.
    pub(super) fn sweep(&mut self) -> usize {
        let snapshot = leftover_credentials::Snapshot {
            cluster_uid: "c0ffee00-0000".to_owned(),
            listed: self.list(),
            recorded: Some(self.list_recorded_names()),
        };
        leftover_credentials::plan(&snapshot, self.moment()).revoke.len()
    }
}
