//! A Secret that goes from one request to another one of the same entry, as more is asked for: it is never without a value.
//!
//! ```text
//!  the earlier request:   goes on ────────────▶ its Secret is another's ───▶ the new one is proven ───▶ overlap ───▶ revoked, nothing left
//!  the new request:       Intent ─▶ Staged ───▶ Distributed: it writes ────▶ current
//!                                               over the earlier one's
//! ```
//!
//! Owns whose a Secret is, and whose may be written over: one that the other's ledger has by its uid and that bears the other's mark. Refuses to end the earlier credential before
//! the new one was seen in use, and to make another one for a request whose Secret is taken over.

use std::time::Duration;

use tenure_api::access::request::{CredentialLedger, CredentialPhase};

use super::machine::{Machine, Next};
use super::schedule::{self, later};
use super::{SecretFacts, SecretSeen, Snapshot};

/// A request of the same entry whose Secret may be taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// Its name.
    pub request_name: String,
    /// Uid of the Secret that was written for it in this namespace.
    pub secret_uid: String,
}

/// The request of the same entry that takes the Secret over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heir {
    /// Its name.
    pub request_name: String,
    /// Its own credential was seen in use in this namespace.
    pub is_proven: bool,
}

impl Snapshot {
    /// The Secret, if it is this request's: it holds a value that was made for it, or is the one that was written for it and still bears its mark.
    pub(super) fn find_own(&self, ledger: &CredentialLedger) -> Option<&SecretFacts> {
        let SecretSeen::Present(secret) = &self.secret else {
            return None;
        };
        let next = ledger.next.iter().map(|next| next.fingerprint.as_str());
        let held = ledger.current.iter().chain(&ledger.retiring);
        let mut known = next.chain(held.map(|held| held.fingerprint.as_str()));
        let holds_ours = known.any(|known| !known.is_empty() && secret.fingerprint.as_deref() == Some(known));
        // Without a mark the Secret is still ours. With another request's mark it is that request's.
        let is_of_another = secret
            .marked_for
            .as_ref()
            .is_some_and(|name| *name != self.request_name);
        let is_written = ledger.secret_uid.as_ref() == Some(&secret.uid) && !is_of_another;
        (holds_ours || is_written).then_some(secret)
    }

    /// Who has the Secret now instead of this request; nobody as long as it is this one's, also if the other one was proven before: who asks for less again, and
    /// for more again, has two that take over from each other.
    pub(super) fn find_heir(&self) -> Option<&Heir> {
        let heir = self.heir.as_ref()?;
        let is_marked = match &self.secret {
            SecretSeen::Present(secret) => secret.marked_for.as_ref() == Some(&heir.request_name),
            SecretSeen::Absent | SecretSeen::Unknown(_) => false,
        };
        let is_taken = self.find_own(&self.ledger).is_none() && (is_marked || heir.is_proven);
        is_taken.then_some(heir)
    }

    /// The Secret, if it is that of a request from which this one takes over.
    fn find_inherited(&self) -> Option<&SecretFacts> {
        let SecretSeen::Present(secret) = &self.secret else {
            return None;
        };
        let mut predecessors = self.predecessors.iter();
        let is_theirs = predecessors.any(|earlier| {
            earlier.secret_uid == secret.uid && secret.marked_for.as_ref() == Some(&earlier.request_name)
        });
        is_theirs.then_some(secret)
    }
}

impl<'a> Machine<'a> {
    /// The Secret, if it may be written: it is ours, or is taken over.
    pub(super) fn find_writable(&self) -> Option<&'a SecretFacts> {
        self.own_secret().or_else(|| self.seen.find_inherited())
    }

    /// Another request has the Secret: nothing is made any more, and what lives is ended once that one's was seen in use, after the overlap.
    pub(super) fn hand_over(&mut self, heir: &Heir) -> Next {
        if let Some(next) = self.ledger.next.clone() {
            return match next.phase {
                CredentialPhase::Intent => self.advance(&next),
                // Sources may have fetched with it, also if nobody has recorded that it was written.
                CredentialPhase::Staged | CredentialPhase::Distributed => self.promote_unproven(&next),
                CredentialPhase::Minted => self.discard(&next, "another request of the same entry has the Secret now"),
            };
        }
        if heir.is_proven {
            // Nothing is made for an order any more: what it wants ended, ends.
            let order = self.seen.order.as_ref();
            let is_leak = order.is_some_and(|order| order.is_leak);
            if let Some(order) = order {
                self.ledger.handled_order = Some(order.id.clone());
            }
            let overlap = match is_leak {
                true => Duration::ZERO,
                false => schedule::overlap(&self.seen.sources),
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
        let idle = later(self.now, schedule::IDLE_LOOK);
        Next::Wait(self.find_retirement().map_or(idle, |at| idle.min(at)))
    }
}

#[cfg(test)]
mod tests {
    use tenure_api::Time;

    use super::super::conditions::About;
    use super::super::tests::{now, snapshot};
    use super::super::{Order, Step, Wanted, plan};
    use super::*;

    fn has_heir(is_proven: bool) -> Snapshot {
        let mut seen = snapshot();
        seen.ledger.retiring.clear();
        seen.heir = Some(Heir {
            request_name: "request-2".to_owned(),
            is_proven,
        });
        seen
    }

    /// The Secret is another request's now.
    fn taken(mut seen: Snapshot) -> Snapshot {
        if let SecretSeen::Present(secret) = &mut seen.secret {
            secret.marked_for = Some("request-2".to_owned());
            secret.fingerprint = Some("another".to_owned());
        }
        seen
    }

    #[test]
    fn the_earlier_one_goes_on_until_the_new_one_is_proven_and_then_retires() {
        // Nobody has taken anything yet: it is in use, and nothing is to be done.
        let planned = plan(&has_heir(false), now());
        assert!(planned.step.is_none() && planned.findings.is_empty(), "{planned:?}");
        // Its Secret is another's: nothing is made, nothing ends, and it is said to whom it goes.
        let planned = plan(&taken(has_heir(false)), now());
        let said: Vec<_> = planned
            .findings
            .iter()
            .map(|finding| (finding.about, finding.reason.as_str()))
            .collect();
        assert_eq!((planned.step, said), (None, vec![(About::Progress, "HandingOver")]));
        // The other one was proven once, and has handed over to this one since: its Secret is in use.
        assert!(plan(&has_heir(true), now()).step.is_none());
        // It is proven: the old one retires, and ends when its time has come.
        let mut seen = taken(has_heir(true));
        let planned = plan(&seen, now());
        assert_eq!(planned.step, Some(Step::Record));
        assert!(planned.ledger.current.is_none());
        let retire_at = planned.ledger.retiring[0].retire_at.clone().unwrap().0;
        assert_eq!(retire_at, later(now(), Duration::from_secs(3_600)));
        seen.ledger = planned.ledger;
        assert_eq!(plan(&seen, now()).step, None);
        assert!(matches!(plan(&seen, retire_at).step, Some(Step::Revoke { id: 12, .. })));
        // What has leaked doesn't wait, and nothing is made for the order.
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
    fn only_the_secret_that_was_written_for_the_other_one_is_taken_over() {
        let mut seen = snapshot();
        seen.request_name = "request-2".to_owned();
        (seen.ledger.current, seen.ledger.secret_uid) = (None, None);
        seen.ledger.retiring.clear();
        seen.predecessors = vec![Predecessor {
            request_name: "request-1".to_owned(),
            secret_uid: "s-1".to_owned(),
        }];
        assert_eq!(plan(&seen, now()).step, Some(Step::Preflight));
        // Somebody puts the mark of the other one on a Secret of his own; the mark of the right one was taken off; nobody hands over.
        let mut forged = seen.clone();
        forged.predecessors[0].secret_uid = "s-0".to_owned();
        let mut unmarked = seen.clone();
        if let SecretSeen::Present(secret) = &mut unmarked.secret {
            secret.marked_for = None;
        }
        let mut alone = seen.clone();
        alone.predecessors.clear();
        for foreign in [forged, unmarked, alone] {
            let planned = plan(&foreign, now());
            let is_told = planned.findings.iter().any(|finding| finding.reason == "ForeignSecret");
            assert!(planned.step.is_none() && is_told, "{planned:?}");
        }
        // One that is wanted no more leaves it to whose it is.
        seen.wanted = Wanted::Revoked("the grant was deleted".to_owned());
        let planned = plan(&seen, now());
        assert!(planned.is_over && planned.step.is_none(), "{planned:?}");
    }
}
