//! Two requests of one entry, one of which takes over from the other.

use tenure_api::access::request::CredentialLedger;

use super::super::handover::{Predecessor, Successor};
use super::super::{Answer, StagedFacts, WantedState};
use super::model::World;

/// The state of one of two requests of the same entry.
pub(super) struct Side {
    pub(super) name: &'static str,
    pub(super) uid: &'static str,
    pub(super) wanted: WantedState,
    pub(super) ledger: CredentialLedger,
    staging: Option<StagedFacts>,
    answer: Option<Answer>,
    again: i64,
}

impl Side {
    /// Returns a request for which nothing was made yet.
    pub(super) fn new(name: &'static str, uid: &'static str) -> Self {
        Self {
            name,
            uid,
            wanted: WantedState::Delivered,
            ledger: CredentialLedger {
                namespace: "team-a".to_owned(),
                ..CredentialLedger::default()
            },
            staging: None,
            answer: None,
            again: 0,
        }
    }
}

impl World {
    /// Makes the other request of the entry the active one.
    pub(super) fn swap_entry(&mut self) {
        use std::mem::swap;
        let Some(other) = &mut self.other else { return };
        swap(&mut self.name, &mut other.name);
        swap(&mut self.uid, &mut other.uid);
        swap(&mut self.wanted, &mut other.wanted);
        swap(&mut self.ledger, &mut other.ledger);
        swap(&mut self.staging, &mut other.staging);
        swap(&mut self.answer, &mut other.answer);
        swap(&mut self.again, &mut other.again);
        self.is_heir = !self.is_heir;
    }

    /// Returns the entry to its earlier content: the request that handed over takes over again.
    pub(super) fn turn_back(&mut self) {
        self.is_heir = !self.is_heir;
        self.wake();
    }

    pub(super) fn list_predecessors(&self) -> Vec<Predecessor> {
        let earlier = self.other.iter().filter(|_| self.is_heir);
        earlier
            .filter_map(|side| {
                Some(Predecessor {
                    request_name: side.name.to_owned(),
                    secret_uid: side.ledger.secret_uid.clone()?,
                })
            })
            .collect()
    }

    pub(super) fn find_successor(&self) -> Option<Successor> {
        let successor = self.other.as_ref().filter(|_| !self.is_heir)?;
        let current = successor.ledger.current.as_ref();
        Some(Successor {
            request_name: successor.name.to_owned(),
            is_proven: current.is_some_and(|held| held.verified_at.is_some()),
        })
    }

    /// Checks whether the request in the Secret's label exists.
    pub(super) fn is_mark_valid(&self) -> bool {
        let marked_for = self.secret.as_ref().and_then(|secret| secret.marked_for.as_deref());
        let other = self.other.as_ref().map(|side| side.name);
        marked_for.is_some_and(|name| name == self.name || Some(name) == other)
    }

    /// Lists the ledgers of all requests of the entry.
    pub(super) fn ledgers(&self) -> impl Iterator<Item = &CredentialLedger> {
        [&self.ledger]
            .into_iter()
            .chain(self.other.iter().map(|side| &side.ledger))
    }
}
