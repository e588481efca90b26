//! The trials of a target's new credentials. A trial begins with the order for a credential, and ends when the host accepts or refuses this credential.
//!
//! All requests for one project or group share the counts of their target. Without a limit, each of them would have its own credential refused before it learns
//! that the target refuses them. A target that accepts new credentials has no limit.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::access::request::{CredentialLedger, CredentialPhase};

use super::schedule::{LOOK, PATIENCE, add_duration, find_retry_time};

/// The limit of trials at the same time while it is unknown whether the target accepts new credentials. The connection to a host has as many turns.
const MOST_UNKNOWN: usize = 4;
/// The limit after a refusal.
const MOST_DOUBTED: usize = 1;
/// The interval in which a request looks for the end of other trials, while nothing was refused. Trials take a second or two.
const SHORT_LOOK: Duration = Duration::from_secs(5);
/// The time after which a trial without a result is over. A refused credential is tried for the patience and half as long again.
const LONGEST_TRIAL: Duration = Duration::from_secs(2 * PATIENCE.as_secs());
/// The extra wait of a request whose own credential was refused. Other requests are tried first, for example those with another kind of credential.
const PRECEDENCE: Duration = Duration::from_secs(120);

/// The host's verdict on a new credential in its trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialResult {
    /// The host accepts the credential.
    Accepted,
    /// The host refuses the credential so far. Hosts may accept a new credential a moment later.
    Doubted,
    /// The host refused the credential for too long, so the credential is given up.
    Refused,
}

/// A target's earlier answers to new credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TargetRecord {
    /// No credential was accepted or refused yet.
    #[default]
    Unknown,
    /// The last answer was an acceptance.
    Accepting,
    /// The last answer was a refusal.
    Doubted,
}

/// A trial in progress.
#[derive(Clone, Debug)]
struct Trial {
    /// The nonce in the name of the credential.
    nonce: String,
    /// The time at which the trial is over without a result.
    end: Timestamp,
}

/// The trials of one target, and the wait after refused ones.
#[derive(Clone, Debug, Default)]
pub(super) struct TargetTrials {
    record: TargetRecord,
    /// The number of credentials that were refused in a row.
    refusals: u32,
    /// The end of the wait after the last refusal.
    wait_end: Option<Timestamp>,
    /// The trials in progress, by the owners of their credentials.
    open: BTreeMap<String, Trial>,
}

impl TargetTrials {
    /// Returns the number of credentials that were refused in a row.
    pub(super) fn count_refusals(&self) -> u32 {
        self.refusals
    }

    /// Returns the time after which the counts are needed least: the end of the wait, and of the last trial.
    pub(super) fn find_end(&self) -> Option<Timestamp> {
        let trials = self.open.values().map(|trial| trial.end);
        trials.chain(self.wait_end).max()
    }

    /// Returns the end of the wait after refusals. A request with refused credentials waits longer than the others.
    pub(super) fn find_wait(&self, ledger: &CredentialLedger) -> Option<Timestamp> {
        let own = if ledger.refusals > 0 {
            PRECEDENCE
        } else {
            Duration::ZERO
        };
        self.wait_end.map(|end| add_duration(end, own))
    }

    /// Returns the time of the next look if the target has no room for another trial of this owner.
    pub(super) fn find_turn(&self, owner: &str, now: Timestamp) -> Option<Timestamp> {
        let (most, look) = match self.record {
            TargetRecord::Accepting => return None,
            TargetRecord::Unknown => (MOST_UNKNOWN, SHORT_LOOK),
            TargetRecord::Doubted => (MOST_DOUBTED, LOOK),
        };
        let others = self
            .open
            .iter()
            .filter(|(other, trial)| *other != owner && now < trial.end);
        (others.count() >= most).then(|| add_duration(now, look))
    }

    /// Begins a trial, unless the target has no room for another one.
    pub(super) fn begin(&mut self, owner: &str, nonce: &str, now: Timestamp) -> bool {
        self.open.retain(|_, trial| now < trial.end);
        let has_room = self.find_turn(owner, now).is_none();
        if has_room {
            self.insert(owner, nonce, now);
        }
        has_room
    }

    fn insert(&mut self, owner: &str, nonce: &str, begun_at: Timestamp) {
        let trial = Trial {
            nonce: nonce.to_owned(),
            end: add_duration(begun_at, LONGEST_TRIAL),
        };
        self.open.insert(owner.to_owned(), trial);
    }

    /// Takes over the trial in a recorded ledger, for example after a restart, or ends the owner's trial. A credential that is held back is not tried.
    pub(super) fn follow(&mut self, owner: &str, ledger: &CredentialLedger, is_wanted: bool) {
        let tried = ledger
            .next
            .as_ref()
            .filter(|next| is_wanted && matches!(next.phase, CredentialPhase::Intent | CredentialPhase::Staged));
        match tried {
            None => {
                self.open.remove(owner);
            }
            Some(next) if self.open.get(owner).is_none_or(|trial| trial.nonce != next.nonce) => {
                self.insert(owner, &next.nonce, next.begun_at.0);
            }
            Some(_) => {}
        }
    }

    /// Restores the count of refusals from a ledger after a restart, unless the target's record is newer.
    pub(super) fn restore(&mut self, ledger: &CredentialLedger, now: Timestamp) {
        let is_answered = self.record == TargetRecord::Accepting;
        if is_answered || ledger.refusals <= self.refusals {
            return;
        }
        self.record = TargetRecord::Doubted;
        self.refusals = ledger.refusals;
        let until = ledger.retry_at.as_ref().map(|at| at.0).filter(|at| now < *at);
        self.wait_end = self.wait_end.max(until);
    }

    /// Records the result of a trial.
    pub(super) fn record(&mut self, owner: &str, result: TrialResult, now: Timestamp) {
        match result {
            TrialResult::Accepted => {
                self.open.remove(owner);
                self.record = TargetRecord::Accepting;
                self.refusals = 0;
                self.wait_end = None;
            }
            TrialResult::Doubted => self.record = TargetRecord::Doubted,
            TrialResult::Refused => {
                self.open.remove(owner);
                self.record = TargetRecord::Doubted;
                self.refusals = self.refusals.saturating_add(1);
                self.wait_end = Some(find_retry_time(now, self.refusals));
            }
        }
    }
}
