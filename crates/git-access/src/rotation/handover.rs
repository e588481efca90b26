//! The handover of a Secret from one request to another request of the same entry, if the entry asks for more. The Secret always has a value.
//!
//! ```text
//!  the earlier request:   goes on ────────────▶ its Secret is another's ───▶ the new one is proven ───▶ overlap ───▶ revoked, nothing left
//!  the new request:       Intent ─▶ Staged ───▶ Distributed: it writes ────▶ current
//!                                               over the earlier one's
//! ```
//!
//! A request may write over a Secret of an earlier request only if the uid is in that request's ledger and the Secret has that request's mark. The earlier
//! credential ends only after the new one was seen in use. A request whose Secret was taken over makes no further credential.

use std::time::Duration;

use tenure_api::access::request::{CredentialLedger, CredentialPhase};

use super::schedule::{self, add_duration};
use super::state_machine::{Next, StateMachine};
use super::{SecretFacts, SecretState, Snapshot, WantedState};

/// A request of the same entry whose Secret may be taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// The name of the request.
    pub request_name: String,
    /// Uid of the Secret that was written for the request in this namespace.
    pub secret_uid: String,
}

/// The request of the same entry that takes over the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    /// The name of the request.
    pub request_name: String,
    /// True if this request's own credential was seen in use in the namespace.
    pub is_proven: bool,
}

impl Snapshot {
    /// Returns the Secret if it is this request's: it has a value of this request, or is the written Secret and has no mark of another request.
    pub(super) fn find_own(&self, ledger: &CredentialLedger) -> Option<&SecretFacts> {
        let SecretState::Present(secret) = &self.secret else {
            return None;
        };
        let next = ledger.next.iter().map(|next| next.fingerprint.as_str());
        let held = ledger.current.iter().chain(&ledger.retiring);
        let mut known = next.chain(held.map(|held| held.fingerprint.as_str()));
        let holds_ours = known.any(|known| !known.is_empty() && secret.fingerprint.as_deref() == Some(known));
        let is_written = ledger.secret_uid.as_ref() == Some(&secret.uid) && !self.is_marked_for_another(secret);
        (holds_ours || is_written).then_some(secret)
    }

    /// Checks whether a Secret is another request's by its mark. A Secret without a mark is still Tenure's, and so is one whose mark was forged.
    fn is_marked_for_another(&self, secret: &SecretFacts) -> bool {
        let Some(marked_for) = secret.marked_for.as_ref().filter(|name| **name != self.request_name) else {
            return false;
        };
        let is_kept = matches!(self.wanted, WantedState::Delivered | WantedState::HeldBack(_));
        let successor = self.successor.iter().map(|successor| &successor.request_name);
        let earlier = self.predecessors.iter().map(|earlier| &earlier.request_name);
        !is_kept || self.is_mark_valid || successor.chain(earlier).any(|relative| relative == marked_for)
    }

    /// Returns the request that has the Secret instead of this one. None while the Secret is this request's, even if the other one was proven before. If an entry asks
    /// for less, and then for more again, two requests take over from each other.
    pub(super) fn find_successor(&self) -> Option<&Successor> {
        let successor = self.successor.as_ref()?;
        let is_marked = match &self.secret {
            SecretState::Present(secret) => secret.marked_for.as_ref() == Some(&successor.request_name),
            SecretState::Absent | SecretState::Unknown(_) => false,
        };
        let is_taken = self.find_own(&self.ledger).is_none() && (is_marked || successor.is_proven);
        is_taken.then_some(successor)
    }

    /// Returns the Secret if it is that of a request from which this one takes over.
    fn find_inherited(&self) -> Option<&SecretFacts> {
        let SecretState::Present(secret) = &self.secret else {
            return None;
        };
        let mut predecessors = self.predecessors.iter();
        let is_theirs = predecessors.any(|earlier| {
            earlier.secret_uid == secret.uid && secret.marked_for.as_ref() == Some(&earlier.request_name)
        });
        is_theirs.then_some(secret)
    }
}

impl<'a> StateMachine<'a> {
    /// Returns the Secret if this request may write it: its own, or one to take over.
    pub(super) fn find_writable(&self) -> Option<&'a SecretFacts> {
        self.own_secret().or_else(|| self.seen.find_inherited())
    }

    /// Records the uid of a Secret with a value of this request. The controller may have died after it wrote the Secret. The value proves the ownership only until another
    /// user edits it, or until the credential is discarded. Returns true if the uid is new.
    pub(super) fn record_secret(&mut self) -> bool {
        let Some(secret) = self.own_secret() else { return false };
        let is_of_another = secret.marked_for.is_some() && !self.is_marked(secret);
        if is_of_another || self.ledger.secret_uid.as_ref() == Some(&secret.uid) {
            return false;
        }
        self.ledger.secret_uid = Some(secret.uid.clone());
        true
    }

    /// Plans after another request got the Secret: makes no credential, and ends the existing ones when the other request's is proven and the overlap is over.
    pub(super) fn hand_over(&mut self, successor: &Successor) -> Next {
        if let Some(next) = self.ledger.next.clone() {
            return match next.phase {
                CredentialPhase::Intent => self.advance_credential(&next),
                // Sources may have fetched with the credential, even if the ledger has no record that it was written.
                CredentialPhase::Staged | CredentialPhase::Distributed => self.promote_unproven(&next),
                CredentialPhase::Minted => {
                    self.discard_credential(&next, "another request of the same entry has the Secret now")
                }
            };
        }
        if successor.is_proven {
            // No credential is made for an order now. The credentials that the order should end are ended.
            let order = self.seen.order.as_ref();
            let is_leak = order.is_some_and(|order| order.is_leak);
            if let Some(order) = order {
                self.ledger.handled_order = Some(order.id.clone());
            }
            let overlap = match is_leak {
                true => Duration::ZERO,
                false => schedule::find_overlap(&self.seen.sources),
            };
            let old = self.ledger.current.take();
            let is_new = old.is_some();
            self.ledger.retiring.extend(old);
            let has_endless = self.ledger.retiring.iter().any(|held| held.retire_at.is_none());
            if is_new || has_endless || is_leak {
                self.retire_all(overlap);
            }
            if self.ledger != self.seen.ledger {
                return Next::Record;
            }
        }
        if let Some(next) = self.end_retired() {
            return next;
        }
        let idle = add_duration(self.now, schedule::IDLE_LOOK);
        Next::Wait(self.find_retirement().map_or(idle, |at| idle.min(at)))
    }
}

#[cfg(test)]
mod tests {
    use tenure_api::Time;

    use super::super::conditions::About;
    use super::super::tests::{make_snapshot, now};
    use super::super::{Order, Step, WantedState, plan};
    use super::*;

    fn has_heir(is_proven: bool) -> Snapshot {
        let mut seen = make_snapshot();
        seen.ledger.retiring.clear();
        seen.successor = Some(Successor {
            request_name: "request-2".to_owned(),
            is_proven,
        });
        seen
    }

    /// Marks the Secret as another request's.
    fn make_taken_over(mut seen: Snapshot) -> Snapshot {
        if let SecretState::Present(secret) = &mut seen.secret {
            secret.marked_for = Some("request-2".to_owned());
            secret.fingerprint = Some("another".to_owned());
        }
        seen
    }

    #[test]
    fn old_credential_retires_after_new_one_is_proven() {
        // No handover has happened yet: the Secret is in use, and no step is due.
        let planned = plan(&has_heir(false), now());
        assert!(planned.step.is_none() && planned.findings.is_empty(), "{planned:?}");
        // Another request has the Secret: no credential is made, none ends, and a finding names that request.
        let planned = plan(&make_taken_over(has_heir(false)), now());
        let findings: Vec<_> = planned
            .findings
            .iter()
            .map(|finding| (finding.about, finding.reason.as_str()))
            .collect();
        assert_eq!((planned.step, findings), (None, vec![(About::Progress, "HandingOver")]));
        // The other request was proven once, and has since handed over to this one: this one's Secret is in use.
        assert!(plan(&has_heir(true), now()).step.is_none());
        // The new credential is proven: the old one retires, and ends at its time.
        let mut seen = make_taken_over(has_heir(true));
        let planned = plan(&seen, now());
        assert_eq!(planned.step, Some(Step::Record));
        assert!(planned.ledger.current.is_none());
        let retire_at = planned.ledger.retiring[0].retire_at.clone().unwrap().0;
        assert_eq!(retire_at, add_duration(now(), Duration::from_secs(3_600)));
        seen.ledger = planned.ledger;
        assert_eq!(plan(&seen, now()).step, None);
        assert!(matches!(plan(&seen, retire_at).step, Some(Step::Revoke { id: 12, .. })));
        // A leaked credential ends without a wait, and the order makes no new credential.
        seen.order = Some(Order {
            id: "leak".to_owned(),
            cause: "a laptop was stolen".to_owned(),
            is_leak: true,
        });
        let planned = plan(&seen, now());
        assert_eq!(planned.ledger.handled_order.as_deref(), Some("leak"));
        assert_eq!(planned.ledger.retiring[0].retire_at, Some(Time(now())));
    }

    #[test]
    fn only_secret_of_predecessor_is_taken_over() {
        let mut seen = make_snapshot();
        seen.request_name = "request-2".to_owned();
        (seen.ledger.current, seen.ledger.secret_uid) = (None, None);
        seen.ledger.retiring.clear();
        seen.predecessors = vec![Predecessor {
            request_name: "request-1".to_owned(),
            secret_uid: "s-1".to_owned(),
        }];
        assert_eq!(plan(&seen, now()).step, Some(Step::Preflight));
        // A forged mark on another Secret, a removed mark on the right one, and no predecessor: in each case, nothing is taken over.
        let mut forged = seen.clone();
        forged.predecessors[0].secret_uid = "s-0".to_owned();
        let mut unmarked = seen.clone();
        if let SecretState::Present(secret) = &mut unmarked.secret {
            secret.marked_for = None;
        }
        let mut alone = seen.clone();
        alone.predecessors.clear();
        for foreign in [forged, unmarked, alone] {
            let planned = plan(&foreign, now());
            let is_reported = planned.findings.iter().any(|finding| finding.reason == "ForeignSecret");
            assert!(planned.step.is_none() && is_reported, "{planned:?}");
        }
        // An unwanted request leaves the Secret to its new owner.
        seen.wanted = WantedState::Revoked("the grant was deleted".to_owned());
        let planned = plan(&seen, now());
        assert!(planned.is_over && planned.step.is_none(), "{planned:?}");
    }
}
