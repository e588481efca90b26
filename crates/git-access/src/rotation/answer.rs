//! The effect of the answer to a step. Answers without effect beyond the ledger and the snapshot are not handled here.

use tenure_api::access::request::{CredentialPhase, NextCredential};

use super::failures::{CLUSTER_UNREACHABLE, FailingSide, MISSING_RIGHTS};
use super::schedule::{self, add_duration, record_time};
use super::state_machine::{Next, StateMachine};
use super::{Answer, NamespaceState, Probe, StagedFacts, Step, TrialResult, WantedState, WriteFailure};
use tenure_remote_requests::git_host::{HostError, ListedCredential, MintedCredential, TargetDescription};

impl StateMachine<'_> {
    /// Returns the next step from the answer alone, or none if the whole state decides.
    pub(super) fn take_answer(&mut self) -> Option<Next> {
        let answer = self.seen.answer.clone()?;
        let next = self.ledger.next.clone();
        match (answer, next) {
            (Answer::Begun, Some(next)) if next.phase == CredentialPhase::Intent => {
                // An order that was withdrawn meanwhile is not sent. So it is certain that nothing was ordered.
                if self.is_wanted() {
                    return Some(Next::Do(self.make_mint_step(&next)));
                }
                self.ledger.next = None;
                Some(Next::Record)
            }
            (Answer::Minted(minted), Some(next)) if next.phase == CredentialPhase::Intent => {
                Some(self.adopt_staged(&StagedFacts {
                    nonce: next.nonce,
                    is_minted: true,
                    id: minted.id,
                    fingerprint: minted.fingerprint,
                    expires_at: minted.expires_at.or(next.expires_at.map(|at| at.0)),
                }))
            }
            (Answer::MintedOnly(minted, why), Some(next)) if next.phase == CredentialPhase::Intent => {
                Some(self.record_lost_value(next, &minted, &why))
            }
            (Answer::MintFailed(trouble), Some(next)) if next.phase == CredentialPhase::Intent => {
                Some(self.give_up(&next, trouble))
            }
            (Answer::Listed(listed), Some(next)) if next.phase == CredentialPhase::Intent => {
                Some(self.find_made(next, listed))
            }
            (Answer::Listed(Err(HostError::Moved)), None) => Some(Next::Do(Step::Find(self.target()))),
            // The list gave no new information, and the credential in use stays.
            (Answer::Listed(Err(_)), None) => Some(Next::Wait(add_duration(self.now, schedule::LEAST_BETWEEN_LOOKS))),
            (Answer::Found(found), _) => Some(self.take_target_path(found)),
            (Answer::Revoked(id, result), _) => Some(self.take_revocation(id, result)),
            (Answer::Probed(probe), Some(next)) => Some(self.take_probe(&next, probe)),
            (Answer::Preflight(Err(why)), _) => Some(self.record_failure(MISSING_RIGHTS, why)),
            (Answer::Spread(result), next) => self.take_write(next, result),
            (Answer::StagingCleared(Err(failure)) | Answer::SecretDeleted(Err(failure)), _) => {
                Some(self.take_failure(failure))
            }
            (Answer::Named(Err(failure)), _) => Some(self.take_failure(failure)),
            // The earlier failure of this write is over.
            (Answer::StagingCleared(Ok(())) | Answer::SecretDeleted(Ok(())) | Answer::Named(Ok(())), _) => {
                self.clear_failure_of(FailingSide::Cluster);
                None
            }
            _ => None,
        }
    }

    /// Checks whether a new credential is wanted.
    fn is_wanted(&self) -> bool {
        self.seen.wanted == WantedState::Delivered && self.seen.namespace == NamespaceState::Present
    }

    /// Handles a credential that was made, but whose value is lost.
    fn record_lost_value(&mut self, mut next: NextCredential, minted: &MintedCredential, why: &str) -> Next {
        next.phase = CredentialPhase::Minted;
        next.id = minted.id;
        next.fingerprint.clone_from(&minted.fingerprint);
        self.record_event("Lost", (next.generation, next.id), why);
        self.ledger.next = Some(next);
        self.record_failure(
            "StagingFailed",
            format!("the new credential could not be put into the staging Secret: {why}"),
        )
    }

    /// Handles an order that failed, or whose result is unknown.
    fn give_up(&mut self, next: &NextCredential, trouble: HostError) -> Next {
        match trouble {
            HostError::Unknown(_) | HostError::NotUnderstood(_) => {
                let settled = add_duration(next.begun_at.0, schedule::SETTLE).max(self.now);
                return self.record_failure_until("AnswerLost", trouble.to_string(), settled);
            }
            HostError::Moved => {}
            // It is certain that nothing was made.
            _ => self.ledger.next = None,
        }
        self.take_trouble(trouble)
    }

    /// Handles trouble of the host if no effect is in doubt.
    pub(super) fn take_trouble(&mut self, trouble: HostError) -> Next {
        let message = trouble.to_string();
        match trouble {
            HostError::Banned { until } => {
                let until = schedule::wait_for(self.now, until);
                self.record_failure_until("BannedByHost", message, until)
            }
            HostError::Limited { until } => {
                let until = schedule::wait_for(self.now, until);
                self.record_failure_until("LimitedByHost", message, until)
            }
            HostError::Unauthenticated => self.record_failure(
                "AuthoriserRefused",
                format!("{message}: delivered credentials stay as they are; give the AccessProvider's authoriser a new credential"),
            ),
            HostError::Forbidden(_) => self.record_failure(
                "TargetUnavailable",
                format!("{message}: let the authoriser be a Maintainer of the project, or an Owner of the group"),
            ),
            HostError::Refused { .. } => self.record_failure("RefusedByHost", message),
            // The number is still valid: the next step finds its current path, and the plan continues there.
            HostError::Moved => Next::Do(Step::Find(self.target())),
            HostError::Unknown(_) | HostError::Unreachable(_) | HostError::NotUnderstood(_) => self.record_failure("HostUnreachable", message),
        }
    }

    /// Checks the list for the result of an order without an answer.
    fn find_made(&mut self, mut next: NextCredential, listed: Result<Vec<ListedCredential>, HostError>) -> Next {
        let listed = match listed {
            Ok(listed) => listed,
            Err(trouble) => return self.take_trouble(trouble),
        };
        let mut made = listed.iter();
        let made = made.find(|listed| listed.name == next.name && !listed.is_revoked && !listed.is_expired);
        let staged = self.staged_facts().filter(|staged| staged.nonce == next.nonce).cloned();
        match (made, staged) {
            // A key: its private half was staged before the order.
            (Some(made), Some(staged)) => self.adopt_staged(&StagedFacts {
                is_minted: true,
                id: Some(made.id),
                expires_at: made.expires_at,
                ..staged
            }),
            (Some(made), None) => {
                next.phase = CredentialPhase::Minted;
                next.id = Some(made.id);
                self.record_event(
                    "Lost",
                    (next.generation, next.id),
                    "it was made, and its value never came",
                );
                self.ledger.next = Some(next);
                Next::Record
            }
            (None, _) => {
                self.record_event("Lost", (next.generation, None), "it was not made");
                self.ledger.next = None;
                self.ledger.retry_at = None;
                Next::Record
            }
        }
    }

    /// Handles the answer about the target's current path.
    fn take_target_path(&mut self, found: Result<Option<TargetDescription>, HostError>) -> Next {
        match found {
            Ok(Some(found))
                if found.target.id == self.seen.target.id && found.target.scope == self.seen.target.scope =>
            {
                if self.target().path == found.target.path {
                    return self.record_failure(
                        "TargetMoved",
                        "the host says that it has moved, and to where it was: it is tried again".to_owned(),
                    );
                }
                self.ledger.path = Some(found.target.path);
                Next::Record
            }
            // A lookup by number that moves again could cause an endless loop.
            Err(HostError::Moved) => self.record_failure(
                "TargetMoved",
                "the host says of a number that it has moved: it is tried again".to_owned(),
            ),
            Ok(_) => self.record_failure(
                "TargetUnavailable",
                "there is no project or group of this number, or the authoriser may not see it: ask its owner"
                    .to_owned(),
            ),
            Err(trouble) => self.take_trouble(trouble),
        }
    }

    /// Handles the result of a revocation.
    fn take_revocation(&mut self, id: u64, result: Result<(), HostError>) -> Next {
        if let Err(trouble) = result {
            return self.take_trouble(trouble);
        }
        let discarded = self.ledger.next.take_if(|next| next.id == Some(id));
        let is_refused = discarded.is_some() && self.ledger.refusals > 0;
        let trouble = self.ledger.trouble.clone();
        let mut struck = discarded.map(|next| next.generation);
        let current = self.ledger.current.take_if(|held| held.id == Some(id));
        struck = struck.or(current.map(|held| held.generation));
        self.ledger.retiring.retain(|held| {
            let is_it = held.id == Some(id);
            if is_it {
                struck = Some(held.generation);
            }
            !is_it
        });
        if let Some(generation) = struck {
            self.clear_failure_of(FailingSide::Host);
            self.record_event("Revoked", (generation, Some(id)), "it is not needed any more");
        }
        // A successful revocation is no sign that the host will accept the next credential.
        if is_refused {
            self.ledger.retry_at = Some(record_time(schedule::find_retry_time(self.now, self.ledger.refusals)));
            self.ledger.trouble = trouble;
        }
        Next::Record
    }

    fn take_probe(&mut self, next: &NextCredential, probe: Probe) -> Next {
        let is_staged = next.phase == CredentialPhase::Staged;
        let is_given_up = self.now >= add_duration(next.begun_at.0, schedule::PATIENCE);
        self.trial = match &probe {
            Probe::Works if is_staged => Some(TrialResult::Accepted),
            Probe::Refused(_) if is_staged && is_given_up => Some(TrialResult::Refused),
            Probe::Refused(_) if is_staged => Some(TrialResult::Doubted),
            _ => None,
        };
        match probe {
            Probe::Works if is_staged => match (self.find_writable(), &self.seen.secret) {
                _ if !self.is_wanted() => self.decide_next(),
                (None, super::SecretState::Present(_)) => self.refuse_foreign(),
                (None, super::SecretState::Unknown(_)) => Next::Wait(add_duration(self.now, schedule::LOOK)),
                (own, _) => Next::Do(Step::Spread(own.cloned())),
            },
            Probe::Works => self.promote_credential(next),
            // A host may need a moment until it accepts a new credential.
            Probe::Refused(why) if is_staged && is_given_up => {
                // The ledger has the count of the target, so that the count survives a restart.
                let refusals = self.ledger.refusals.max(self.seen.restraint.refusals);
                self.ledger.refusals = refusals.saturating_add(1);
                let next = self.discard_credential(next, "it is refused by the host that made it");
                let _recorded = self.record_failure("RefusedByHost", format!("a new credential is refused: {why}"));
                next
            }
            Probe::Refused(why) => self.record_failure_until(
                "ProbeRefused",
                format!("the new credential is refused: {why}; it is tried again"),
                schedule::find_next_probe(next.begun_at.0, self.now),
            ),
            Probe::Banned(until) => {
                let until = schedule::wait_for(self.now, until);
                let message = format!(
                    "the host takes no requests of this address until {until}: whether the credential works is not known"
                );
                self.record_failure_until("BannedByHost", message, until)
            }
            Probe::Unreachable(why) => self.record_failure(
                "HostUnreachable",
                format!("the new credential could not be tried: {why}"),
            ),
        }
    }

    /// Handles the result of a write of the Secret.
    fn take_write(&mut self, next: Option<NextCredential>, result: Result<String, WriteFailure>) -> Option<Next> {
        let uid = match result {
            Ok(uid) => uid,
            Err(failure) => return Some(self.take_failure(failure)),
        };
        self.clear_failure_of(FailingSide::Cluster);
        self.ledger.secret_uid = Some(uid);
        if let Some(mut next) = next.filter(|next| next.phase == CredentialPhase::Staged) {
            // The host has accepted the credential just before.
            self.clear_failure();
            self.ledger.refusals = 0;
            next.phase = CredentialPhase::Distributed;
            next.distributed_at = Some(record_time(self.now));
            self.record_event("Distributed", (next.generation, next.id), next.cause.clone());
            self.ledger.next = Some(next);
        }
        (self.ledger != self.seen.ledger).then_some(Next::Record)
    }

    fn take_failure(&mut self, failure: WriteFailure) -> Next {
        match failure {
            // The plan reads the Secret again, then decides again.
            WriteFailure::Changed => Next::Wait(add_duration(self.now, std::time::Duration::from_secs(1))),
            WriteFailure::Refused(why) => self.record_failure(MISSING_RIGHTS, why),
            WriteFailure::Unknown(why) => self.record_failure(CLUSTER_UNREACHABLE, why),
        }
    }
}
