//! The next step of a wanted credential.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::access::request::{CredentialLedger, CredentialPhase, HeldCredential, NextCredential};

use super::conditions::{self, Finding};
use super::name::CredentialName;
use super::schedule::{self, add_duration, record_time};
use super::{
    Answer, NamespaceState, Order, Plan, RotationEvent, SecretFacts, SecretState, Snapshot, StagedFacts, StagingState,
    Step, TrialResult, WantedState,
};
use tenure_remote_requests::git_host::{MintRequest, Target};

/// The maximum of retiring credentials where the host doesn't end them by itself, and where it does. A user that repeatedly removes the Secret and has a source
/// with a long interval gets no more new ones.
const MOST_ENDLESS: usize = 4;
const MOST_RETIRING: usize = 32;
/// The cause of a replacement after a leak.
const LEAK: &str = "Leak";
/// The causes of planned credentials.
const FIRST: &str = "First";
const DUE: &str = "Due";
/// The cause of a replacement on a user's order.
const ORDERED: &str = "Ordered";

/// The result of one part of the plan.
pub(super) enum Next {
    /// Execute this step.
    Do(Step),
    /// The ledger has changed, and is recorded before any other step.
    Record,
    /// The ledger has changed, and an order follows its record.
    Begin,
    /// No step before this time.
    Wait(Timestamp),
}

/// A plan in progress.
pub(super) struct StateMachine<'a> {
    pub(super) seen: &'a Snapshot,
    pub(super) now: Timestamp,
    pub(super) ledger: CredentialLedger,
    pub(super) happened: Vec<RotationEvent>,
    pub(super) findings: Vec<Finding>,
    pub(super) is_over: bool,
    pub(super) trial: Option<TrialResult>,
}

impl<'a> StateMachine<'a> {
    pub(super) fn new(seen: &'a Snapshot, now: Timestamp) -> Self {
        Self {
            seen,
            now,
            ledger: seen.ledger.clone(),
            happened: Vec::new(),
            findings: Vec::new(),
            is_over: false,
            trial: None,
        }
    }

    pub(super) fn run(mut self) -> Plan {
        let next = self.take_answer().unwrap_or_else(|| self.decide_next());
        // A part that changed the ledger returns `Record`. The record comes first even if that part returned something else.
        let is_changed = self.ledger != self.seen.ledger;
        let (step, again) = match next {
            Next::Begin => (Some(Step::Begin), self.now),
            Next::Record | Next::Do(_) | Next::Wait(_) if is_changed => (Some(Step::Record), self.now),
            Next::Record => (None, add_duration(self.now, schedule::LOOK)),
            Next::Do(step) => (Some(step), self.now),
            Next::Wait(until) => (None, until.min(add_duration(self.now, schedule::IDLE_LOOK))),
        };
        let mut findings = conditions::list_findings(self.seen, &self.ledger, self.now);
        findings.append(&mut self.findings);
        Plan {
            is_over: self.is_over && step.is_none(),
            ledger: self.ledger,
            step,
            happened: self.happened,
            findings,
            trial: self.trial,
            again,
            is_by_hand: false,
        }
    }

    /// Returns the time at the host.
    pub(super) fn host_now(&self) -> Timestamp {
        self.now.checked_add(self.seen.host_ahead).unwrap_or(self.now)
    }

    /// Returns the target with its last observed path.
    pub(super) fn target(&self) -> Target {
        let mut target = self.seen.target.clone();
        if let Some(path) = &self.ledger.path {
            target.path.clone_from(path);
        }
        target
    }

    pub(super) fn record_event(
        &mut self,
        action: &'static str,
        (generation, id): (u64, Option<u64>),
        cause: impl Into<String>,
    ) {
        self.happened.push(RotationEvent {
            action,
            generation,
            id,
            cause: cause.into(),
        });
    }

    pub(super) fn staged_facts(&self) -> Option<&'a StagedFacts> {
        match &self.seen.staging {
            StagingState::Present(staged) => Some(staged),
            StagingState::Absent | StagingState::Unknown(_) => None,
        }
    }

    /// Returns the Secret if it is Tenure's.
    pub(super) fn own_secret(&self) -> Option<&'a SecretFacts> {
        self.seen.find_own(&self.ledger)
    }

    pub(super) fn is_marked(&self, secret: &SecretFacts) -> bool {
        secret.marked_for.as_deref() == Some(self.seen.request_name.as_str())
    }

    /// Checks whether a Secret has the host's authority, if the host has one.
    fn has_authority(&self, secret: &SecretFacts) -> bool {
        self.seen.authority.is_none() || self.seen.authority == secret.authority
    }

    /// Decides the next step, independent of the last answer.
    pub(super) fn decide_next(&mut self) -> Next {
        match (&self.seen.wanted, self.seen.namespace) {
            (WantedState::Revoked(cause), _) => return self.end_credentials(&cause.clone(), false),
            (WantedState::Abandoned(cause), _) => return self.end_credentials(&cause.clone(), true),
            (_, NamespaceState::Terminating | NamespaceState::Gone) => {
                return self.end_credentials("the namespace is gone, or going", false);
            }
            (_, NamespaceState::Unknown) => return Next::Wait(add_duration(self.now, schedule::LOOK)),
            (WantedState::Delivered | WantedState::HeldBack(_), NamespaceState::Present) => {}
        }
        if self.forget_expired() || self.record_secret() {
            return Next::Record;
        }
        if let Some(at) = self.ledger.retry_at.as_ref().map(|at| at.0)
            && self.now < at
        {
            return Next::Wait(at);
        }
        if let (StagingState::Unknown(_), _) | (_, SecretState::Unknown(_)) = (&self.seen.staging, &self.seen.secret) {
            // An unknown namespace is not a missing one.
            return Next::Wait(add_duration(self.now, schedule::LOOK));
        }
        if let Some(successor) = self.seen.find_successor() {
            return self.hand_over(successor);
        }
        let next = match self.ledger.next.clone() {
            Some(next) => self.advance_credential(&next),
            None => self.maintain_current(),
        };
        // Accounts are changed last, so a problem with them delays no credential.
        match next {
            Next::Wait(until) => self.name_in_accounts(until),
            next => next,
        }
    }

    /// Removes credentials that the host has ended by itself from the ledger. Returns true if it removed any.
    fn forget_expired(&mut self) -> bool {
        let host_now = self.host_now();
        let is_over = |held: &HeldCredential| held.expires_at.as_ref().is_some_and(|end| end.0 <= host_now);
        let (over, retiring): (Vec<_>, Vec<_>) = self.ledger.retiring.drain(..).partition(is_over);
        self.ledger.retiring = retiring;
        for held in &over {
            self.record_event("Expired", (held.generation, held.id), "the host ended it");
        }
        !over.is_empty()
    }

    /// Advances a credential that is being made.
    pub(super) fn advance_credential(&mut self, next: &NextCredential) -> Next {
        let is_held_back = matches!(self.seen.wanted, WantedState::HeldBack(_));
        let staged = self.staged_facts().filter(|staged| staged.nonce == next.nonce);
        match next.phase {
            CredentialPhase::Intent => match staged {
                // The value was staged before the controller died.
                Some(staged) if staged.is_minted => self.adopt_staged(&staged.clone()),
                _ => self.look_for(next),
            },
            CredentialPhase::Minted => self.discard_credential(next, "its value is lost"),
            CredentialPhase::Staged if is_held_back => self
                .promote_expired(next)
                .unwrap_or_else(|| Next::Wait(add_duration(self.now, schedule::IDLE_LOOK))),
            CredentialPhase::Staged => match staged {
                _ if self.is_lost(next.id, next.begun_at.0) => {
                    self.discard_credential(next, "it was revoked at the host")
                }
                None => self.discard_credential(next, "its value is no longer in the staging Secret"),
                Some(_) => self.probe_at_host(Step::ProbeStaged),
            },
            CredentialPhase::Distributed => self.verify_credential(next, staged.is_some()),
        }
    }

    /// Looks for the result of an order without an answer, after the order must have arrived if it arrived at all.
    pub(super) fn look_for(&mut self, next: &NextCredential) -> Next {
        let settled = add_duration(next.begun_at.0, schedule::SETTLE);
        if self.now < settled {
            return Next::Wait(settled);
        }
        if !self.seen.capabilities.listed {
            // The credential ends by itself soon, and the host has no list to search.
            self.record_event(
                "Lost",
                (next.generation, None),
                "it is unknown whether it was made, and the host lists none",
            );
            self.ledger.next = None;
            return Next::Record;
        }
        Next::Do(Step::List(self.target()))
    }

    /// Revokes a credential whose value is lost or refused. A later plan makes another one.
    pub(super) fn discard_credential(&mut self, next: &NextCredential, cause: &str) -> Next {
        if next.phase != CredentialPhase::Minted {
            let mut changed = next.clone();
            changed.phase = CredentialPhase::Minted;
            self.record_event("Lost", (next.generation, next.id), cause);
            self.ledger.next = Some(changed);
            return Next::Record;
        }
        match next.id {
            Some(id) => Next::Do(Step::Revoke {
                target: self.target(),
                id,
            }),
            // The credential has no number, so it can't be revoked. It ends by itself.
            None => {
                self.ledger.next = None;
                Next::Record
            }
        }
    }

    /// Adopts a credential whose value is staged.
    pub(super) fn adopt_staged(&mut self, staged: &StagedFacts) -> Next {
        if let Some(next) = &mut self.ledger.next {
            next.phase = CredentialPhase::Staged;
            next.id = staged.id;
            next.fingerprint.clone_from(&staged.fingerprint);
            next.expires_at = staged.expires_at.map(record_time);
            let credential = (next.generation, next.id);
            let cause = next.cause.clone();
            self.clear_failure();
            self.record_event("Minted", credential, cause);
        }
        Next::Record
    }

    /// Checks whether the host's list, if recent enough, says that a credential no longer works.
    fn is_lost(&self, id: Option<u64>, begun_at: Timestamp) -> bool {
        let (Some(id), Some(listing)) = (id, &self.seen.listing) else {
            return false;
        };
        // Hosts may list new credentials a moment later.
        if !self.seen.capabilities.listed || listing.asked_at < add_duration(begun_at, schedule::SETTLE) {
            return false;
        }
        let found = listing.credentials.iter().find(|listed| listed.id == id);
        found.is_none_or(|listed| listed.is_revoked || listed.is_expired)
    }

    /// Checks a credential in the Secret, until all sources are seen to use it.
    fn verify_credential(&mut self, next: &NextCredential, is_staged: bool) -> Next {
        let is_there = match (self.find_writable(), &self.seen.secret) {
            (Some(secret), _) => secret.fingerprint.as_deref() == Some(next.fingerprint.as_str()),
            (None, SecretState::Present(_)) => return self.refuse_foreign(),
            (None, _) => false,
        };
        if self.is_lost(next.id, next.begun_at.0) {
            return self.promote_unproven(next);
        }
        if !is_there {
            return match is_staged {
                true if matches!(self.seen.wanted, WantedState::HeldBack(_)) => {
                    Next::Wait(add_duration(self.now, schedule::IDLE_LOOK))
                }
                true => Next::Do(Step::Spread(self.find_writable().cloned())),
                // Only the sources that fetched with the value still have it. They keep it until another one exists.
                false => self.promote_unproven(next),
            };
        }
        if let Some(mark) = self
            .find_writable()
            .and_then(|secret| self.restore_mark(secret, &next.fingerprint))
        {
            return mark;
        }
        if let Some(done) = self.promote_expired(next) {
            return done;
        }
        let token = make_source_token(next);
        let running = || self.seen.sources.iter().filter(|source| !source.is_suspended);
        let unasked: Vec<String> = running()
            .filter(|source| source.asked.as_ref() != Some(&token) && source.last_handled.as_ref() != Some(&token))
            .map(|source| source.name.clone())
            .collect();
        // Ask again the sources with an annotation that another writer has changed, but not without end.
        if !unasked.is_empty() && !matches!(self.seen.answer, Some(Answer::Asked)) {
            return Next::Do(Step::AskSources {
                sources: unasked,
                token,
            });
        }
        if running().all(|source| source.has_used(&token)) {
            return self.probe_at_host(Step::ProbeDelivered);
        }
        // After a leak, a source that never fetches must not keep the old credential open, and not delay its replacement either.
        let deadline = add_duration(find_distribution_time(next), schedule::LEAK_DEADLINE);
        if (next.cause == LEAK || self.is_leak_ordered()) && self.now >= deadline {
            return self.probe_at_host(Step::ProbeDelivered);
        }
        Next::Wait(add_duration(self.now, schedule::LOOK))
    }

    /// Handles a credential that is due before its proof. A distributed one becomes current, and the old ones end by themselves. Any other one is discarded.
    fn promote_expired(&mut self, next: &NextCredential) -> Option<Next> {
        let held = make_held_credential(next);
        let is_due = self.find_due_time(&held) <= self.now;
        if !is_due {
            return None;
        }
        Some(match next.phase {
            CredentialPhase::Distributed => self.promote_unproven(next),
            _ => self.discard_credential(next, "it grew old before it could be spread"),
        })
    }

    pub(super) fn promote_unproven(&mut self, next: &NextCredential) -> Next {
        let old = self.ledger.current.replace(make_held_credential(next));
        self.ledger.retiring.extend(old);
        self.ledger.next = None;
        // The leaked credential still works. Its order is executed once a successor is proven.
        if next.cause != LEAK {
            self.record_order(next);
        }
        Next::Record
    }

    /// Makes the credential current: all sources use it.
    pub(super) fn promote_credential(&mut self, next: &NextCredential) -> Next {
        let overlap = match next.cause.as_str() {
            LEAK => Duration::ZERO,
            _ => schedule::find_overlap(&self.seen.sources),
        };
        let old = self.ledger.current.replace(HeldCredential {
            verified_at: Some(record_time(self.now)),
            ..make_held_credential(next)
        });
        self.ledger.retiring.extend(old);
        self.retire_all(overlap);
        self.ledger.next = None;
        self.record_order(next);
        self.clear_failure();
        self.record_event("Verified", (next.generation, next.id), next.cause.clone());
        Next::Record
    }

    /// Sets the end of all retiring credentials to the end of the overlap, or keeps an earlier end.
    pub(super) fn retire_all(&mut self, overlap: Duration) {
        let retire_at = record_time(add_duration(self.now, overlap));
        for held in &mut self.ledger.retiring {
            let is_sooner = held.retire_at.as_ref().is_some_and(|at| at.0 <= retire_at.0);
            if !is_sooner {
                held.retire_at = Some(retire_at.clone());
            }
        }
    }

    /// Notes that the order for this credential was executed.
    fn record_order(&mut self, next: &NextCredential) {
        if next.order.is_some() {
            self.ledger.handled_order.clone_from(&next.order);
        }
    }

    pub(super) fn refuse_foreign(&mut self) -> Next {
        let marked_for = match &self.seen.secret {
            SecretState::Present(secret) => secret.marked_for.as_deref(),
            SecretState::Absent | SecretState::Unknown(_) => None,
        };
        let marked_for = marked_for.filter(|request| *request != self.seen.request_name);
        self.findings
            .push(Finding::foreign_secret(&self.ledger.namespace, marked_for));
        Next::Wait(add_duration(self.now, schedule::IDLE_LOOK))
    }

    /// Restores Tenure's mark and the host's authority on a Secret with the right credential. Sources can't use a Secret with a wrong authority.
    fn restore_mark(&self, secret: &SecretFacts, fingerprint: &str) -> Option<Next> {
        let is_whole = self.is_marked(secret) && self.has_authority(secret);
        if is_whole || secret.fingerprint.as_deref() != Some(fingerprint) {
            return None;
        }
        // If another writer undoes the change at once, the next attempt waits.
        Some(match &self.seen.answer {
            Some(Answer::Spread(Ok(_))) => Next::Wait(add_duration(self.now, schedule::LOOK)),
            _ => Next::Do(Step::Mark(secret.clone())),
        })
    }

    /// Keeps a credential in use: restores its Secret, ends its predecessors, and makes another credential when it is due.
    fn maintain_current(&mut self) -> Next {
        let own = self.own_secret();
        let current = self.ledger.current.clone();
        if let Some(mark) = own
            .zip(current.as_ref())
            .and_then(|(secret, held)| self.restore_mark(secret, &held.fingerprint))
        {
            return mark;
        }
        if let Some(next) = self.end_retired() {
            return next;
        }
        if matches!(self.seen.secret, SecretState::Present(_)) && self.find_writable().is_none() {
            return self.refuse_foreign();
        }
        let look_at = self.find_look(current.as_ref());
        if look_at.is_some_and(|at| at <= self.now) {
            return Next::Do(Step::List(self.target()));
        }
        let sooner = self.find_retirement().into_iter().chain(look_at).min();
        let (cause, at) = self.find_cause(current.as_ref(), own);
        let wait = |until: Timestamp| Next::Wait(sooner.map_or(until, |at| until.min(at)));
        if matches!(self.seen.wanted, WantedState::HeldBack(_)) || self.now < at {
            return wait(at);
        }
        let is_endless = !self.seen.capabilities.expiry && self.seen.capabilities.listed;
        let most = if is_endless { MOST_ENDLESS } else { MOST_RETIRING };
        if self.ledger.retiring.len() >= most {
            self.findings
                .push(Finding::too_many_retiring(self.ledger.retiring.len()));
            return wait(add_duration(self.now, schedule::IDLE_LOOK));
        }
        if let Some(from) = self.seen.restraint.mint_from.filter(|from| *from > self.now) {
            self.findings.push(Finding::too_many_refusals(from));
            return wait(from);
        }
        if let Some(from) = self.seen.restraint.turn_from {
            self.findings.push(Finding::waiting_for_trial());
            return wait(from);
        }
        // Begin only right after a successful preflight.
        match &self.seen.answer {
            Some(Answer::Preflight(Ok(()))) => self.begin_credential(cause),
            _ => Next::Do(Step::Preflight),
        }
    }

    /// Ends credentials that have retired long enough, and removes a staged value that is not needed.
    pub(super) fn end_retired(&self) -> Option<Next> {
        let retiring = self.ledger.retiring.iter();
        let mut due = retiring.filter(|held| held.retire_at.as_ref().is_some_and(|at| at.0 <= self.now));
        if let Some(id) = due.find_map(|held| held.id) {
            return Some(Next::Do(Step::Revoke {
                target: self.target(),
                id,
            }));
        }
        self.staged_facts().map(|_| Next::Do(Step::ClearStaging))
    }

    /// Returns the time of the next end among the retiring credentials. A credential without a number ends by itself.
    pub(super) fn find_retirement(&self) -> Option<Timestamp> {
        let retiring = self.ledger.retiring.iter().filter(|held| held.id.is_some());
        retiring.filter_map(|held| held.retire_at.as_ref().map(|at| at.0)).min()
    }

    /// Returns the order that was not executed yet.
    fn find_order(&self) -> Option<&Order> {
        let order = self.seen.order.as_ref();
        order.filter(|order| Some(&order.id) != self.ledger.handled_order.as_ref())
    }

    fn is_leak_ordered(&self) -> bool {
        self.find_order().is_some_and(|order| order.is_leak)
    }

    /// Returns the cause and the time of the next credential.
    fn find_cause(&self, current: Option<&HeldCredential>, own: Option<&SecretFacts>) -> (String, Timestamp) {
        let Some(held) = current else {
            return (FIRST.to_owned(), Timestamp::MIN);
        };
        // The minimum interval also limits a user that orders, or removes the Secret, in a loop.
        let unplanned = self.ledger.unplanned_at.as_ref();
        let soon = unplanned.map_or(Timestamp::MIN, |at| add_duration(at.0, schedule::LEAST_BETWEEN));
        if self.is_lost(held.id, held.begun_at.0) {
            return ("RevokedAtHost".to_owned(), soon);
        }
        match own {
            None => return ("SecretGone".to_owned(), soon),
            Some(secret) if secret.fingerprint.as_ref() != Some(&held.fingerprint) => {
                return ("SecretEdited".to_owned(), soon);
            }
            Some(_) => {}
        }
        if let Some(order) = self.find_order() {
            let cause = if order.is_leak { LEAK } else { ORDERED };
            return (cause.to_owned(), soon);
        }
        let due = self
            .find_due_time(held)
            .max(add_duration(held.begun_at.0, schedule::LEAST_BETWEEN));
        (DUE.to_owned(), due)
    }

    fn find_due_time(&self, held: &HeldCredential) -> Timestamp {
        schedule::find_due_time(held, self.seen.rotate, &self.seen.request_uid, self.seen.host_ahead)
    }

    /// Records the next order.
    fn begin_credential(&mut self, cause: String) -> Next {
        let generation = self.ledger.generation.saturating_add(1);
        let name = CredentialName::new(
            &self.seen.cluster_uid,
            &self.seen.request_uid,
            generation,
            self.now,
            &self.seen.nonce,
        );
        let order = self.seen.order.as_ref().filter(|_| cause == LEAK || cause == ORDERED);
        let can_end = self.seen.capabilities.expiry;
        let expires_at = can_end.then(|| schedule::find_expiry(self.host_now(), self.seen.rotate, &self.seen.sources));
        if ![FIRST, DUE].contains(&cause.as_str()) {
            self.ledger.unplanned_at = Some(record_time(self.now));
        }
        self.record_event("Begun", (generation, None), cause.clone());
        self.ledger.generation = generation;
        self.ledger.next = Some(NextCredential {
            phase: CredentialPhase::Intent,
            generation,
            nonce: name.nonce.clone(),
            name: name.to_string(),
            cause,
            begun_at: record_time(self.now),
            id: None,
            fingerprint: String::new(),
            expires_at: expires_at.map(record_time),
            distributed_at: None,
            order: order.map(|order| order.id.clone()),
        });
        Next::Begin
    }

    /// Returns the order for the host.
    pub(super) fn make_mint_step(&self, next: &NextCredential) -> Step {
        Step::MintAndStage(MintRequest {
            target: self.target(),
            kind: self.seen.kind,
            role: self.seen.role,
            name: next.name.clone(),
            username: self.seen.username.clone(),
            expires_at: next.expires_at.as_ref().map(|at| at.0),
            public_key: None,
        })
    }
}

/// Returns the annotation value for sources: a different value for each credential.
pub(super) fn make_source_token(next: &NextCredential) -> String {
    format!("{}-{}", find_distribution_time(next), next.nonce)
}

fn find_distribution_time(next: &NextCredential) -> Timestamp {
    next.distributed_at.as_ref().unwrap_or(&next.begun_at).0
}

fn make_held_credential(next: &NextCredential) -> HeldCredential {
    HeldCredential {
        generation: next.generation,
        id: next.id,
        name: next.name.clone(),
        fingerprint: next.fingerprint.clone(),
        begun_at: next.begun_at.clone(),
        expires_at: next.expires_at.clone(),
        verified_at: None,
        retire_at: None,
    }
}
