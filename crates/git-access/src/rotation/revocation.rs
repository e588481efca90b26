//! The end of an unwanted credential: first its Secret is deleted, then the credential is revoked at the host.
//!
//! This order removes the access at once, even if the host doesn't answer. A credential that remains at the host is reported by its number until it is gone, and
//! nothing in the namespace waits for it.

use tenure_api::access::request::CredentialPhase;

use super::failures::FailingSide;
use super::schedule::{self, add_duration};
use super::state_machine::{Next, StateMachine};
use super::{NamespaceState, SecretState, StagingState, Step};

impl StateMachine<'_> {
    /// Returns the next step to the end. `is_abandoned`: the plan sends no request to the host.
    pub(super) fn end_credentials(&mut self, cause: &str, is_abandoned: bool) -> Next {
        let waits_until = self.find_wait();
        // A failure in the cluster doesn't delay revocations at the host, and a failure at the host doesn't delay the cluster's steps.
        let waiting = waits_until.and(self.find_failing_side());
        let may_write = matches!(waiting, None | Some(FailingSide::Host));
        let may_ask = matches!(waiting, None | Some(FailingSide::Cluster));
        let step = may_write.then(|| self.clear_cluster()).flatten();
        if let Some(next) = step.or_else(|| self.clear_host(cause, is_abandoned, may_ask)) {
            return next;
        }
        let is_secret_gone = match (self.seen.namespace, &self.seen.secret) {
            (NamespaceState::Terminating | NamespaceState::Gone, _) | (_, SecretState::Absent) => true,
            (_, SecretState::Present(_)) => self.own_secret().is_none(),
            (_, SecretState::Unknown(_)) => false,
        };
        let is_in_namespace = !matches!(self.seen.namespace, NamespaceState::Terminating | NamespaceState::Gone);
        let is_named = self.ledger.image_pull_secrets && is_in_namespace && !is_abandoned;
        let is_empty = self.ledger.next.is_none() && self.ledger.current.is_none() && self.ledger.retiring.is_empty();
        if is_secret_gone && !is_named && is_empty && self.seen.staging == StagingState::Absent {
            self.is_over = true;
            self.ledger.secret_uid = None;
            self.ledger.image_pull_secrets = false;
            self.clear_failure();
            return Next::Wait(add_duration(self.now, schedule::IDLE_LOOK));
        }
        Next::Wait(waits_until.unwrap_or_else(|| add_duration(self.now, schedule::LOOK)))
    }

    /// Deletes the Secret of the namespace, and the staged value that is no longer needed.
    fn clear_cluster(&mut self) -> Option<Next> {
        if self.seen.namespace == NamespaceState::Present
            && let Some(secret) = self.own_secret()
        {
            return Some(Next::Do(Step::DeleteSecret(secret.clone())));
        }
        if let Some(next) = self.remove_from_accounts() {
            return Some(next);
        }
        let staged = self.staged_facts()?;
        if let Some(next) = &self.ledger.next
            && next.phase == CredentialPhase::Intent
            && staged.nonce == next.nonce
        {
            // The staged facts identify the credential that was made.
            return staged.is_minted.then(|| self.adopt_staged(&staged.clone()));
        }
        Some(Next::Do(Step::ClearStaging))
    }

    fn clear_host(&mut self, cause: &str, is_abandoned: bool, may_ask: bool) -> Option<Next> {
        let held = self.ledger.current.iter().chain(&self.ledger.retiring);
        let held: Vec<(u64, Option<u64>)> = held.map(|held| (held.generation, held.id)).collect();
        let next = self.ledger.next.clone();
        let made = next.iter().filter(|next| next.phase != CredentialPhase::Intent);
        let all: Vec<(u64, Option<u64>)> = held
            .into_iter()
            .chain(made.map(|next| (next.generation, next.id)))
            .collect();
        if is_abandoned {
            if all.is_empty() && next.is_none() {
                return None;
            }
            for credential in all {
                self.record_event(
                    "Forgotten",
                    credential,
                    format!("{cause}: it lives on at the host until it ends there or is revoked by hand"),
                );
            }
            self.ledger.next = None;
            self.ledger.current = None;
            self.ledger.retiring.clear();
            return Some(Next::Record);
        }
        // A credential without a number can't be revoked, and ends within the hour.
        if let Some(credential) = all.iter().find(|(_, id)| id.is_none()) {
            self.record_event(
                "Forgotten",
                *credential,
                format!("{cause}: it can't be revoked, and ends by itself"),
            );
            let is_kept = |generation: u64| generation != credential.0;
            self.ledger.next.take_if(|next| !is_kept(next.generation));
            self.ledger.current.take_if(|held| !is_kept(held.generation));
            self.ledger.retiring.retain(|held| is_kept(held.generation));
            return Some(Next::Record);
        }
        if !may_ask {
            return None;
        }
        if let Some(id) = all.into_iter().find_map(|(_, id)| id) {
            return Some(Next::Do(Step::Revoke {
                target: self.target(),
                id,
            }));
        }
        // An order without an answer is looked for after it must have arrived.
        next.map(|next| self.look_for(&next))
    }
}
