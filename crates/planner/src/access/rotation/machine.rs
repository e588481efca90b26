//! The next step of a credential that is wanted.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::access::request::{CredentialLedger, CredentialPhase, HeldCredential, LedgerTrouble, NextCredential};

use super::conditions::{self, Finding};
use super::name::CredentialName;
use super::schedule::{self, later, record_time};
use super::{
    Answer, Happening, NamespaceSeen, Plan, SecretFacts, SecretSeen, Snapshot, StagedFacts, StagingSeen, Step, Wanted,
};
use crate::access::host::{MintRequest, Target};

/// The most credentials that retire at once where the host ends none by itself, and where it does: who takes the Secret away again and again, and has a source
/// with a long interval, gets no more of them.
const MOST_ENDLESS: usize = 4;
const MOST_RETIRING: usize = 32;
/// The cause of what is replaced because others know it.
const LEAK: &str = "Leak";
/// The causes of what is made by plan.
const FIRST: &str = "First";
const DUE: &str = "Due";
/// The cause of what is replaced because somebody says so.
const ORDERED: &str = "Ordered";

/// What comes of looking at one thing.
pub(super) enum Next {
    /// This is done.
    Do(Step),
    /// The ledger has changed, and is recorded before anything else.
    Record,
    /// The same, and it orders something.
    Begin,
    /// Nothing is done before then.
    Wait(Timestamp),
}

/// A plan on its way.
pub(super) struct Machine<'a> {
    pub(super) seen: &'a Snapshot,
    pub(super) now: Timestamp,
    pub(super) ledger: CredentialLedger,
    pub(super) happened: Vec<Happening>,
    pub(super) findings: Vec<Finding>,
    pub(super) is_over: bool,
    pub(super) is_refused: bool,
}

impl<'a> Machine<'a> {
    pub(super) fn new(seen: &'a Snapshot, now: Timestamp) -> Self {
        Self {
            seen,
            now,
            ledger: seen.ledger.clone(),
            happened: Vec::new(),
            findings: Vec::new(),
            is_over: false,
            is_refused: false,
        }
    }

    pub(super) fn run(mut self) -> Plan {
        let next = self.take_answer().unwrap_or_else(|| self.decide());
        // Whoever changed the ledger says so; that it is recorded first doesn't hang on it.
        let is_changed = self.ledger != self.seen.ledger;
        let (step, again) = match next {
            Next::Begin => (Some(Step::Begin), self.now),
            Next::Record | Next::Do(_) | Next::Wait(_) if is_changed => (Some(Step::Record), self.now),
            Next::Record => (None, later(self.now, schedule::LOOK)),
            Next::Do(step) => (Some(step), self.now),
            Next::Wait(until) => (None, until.min(later(self.now, schedule::IDLE_LOOK))),
        };
        let mut findings = conditions::describe(self.seen, &self.ledger, self.now);
        findings.append(&mut self.findings);
        Plan {
            is_over: self.is_over && step.is_none(),
            ledger: self.ledger,
            step,
            happened: self.happened,
            findings,
            is_refused: self.is_refused,
            again,
            is_by_hand: false,
        }
    }

    /// The time at the host.
    pub(super) fn host_now(&self) -> Timestamp {
        self.now.checked_add(self.seen.host_ahead).unwrap_or(self.now)
    }

    /// The target, by the path that it was seen to have last.
    pub(super) fn target(&self) -> Target {
        let mut target = self.seen.target.clone();
        if let Some(path) = &self.ledger.path {
            target.path.clone_from(path);
        }
        target
    }

    pub(super) fn tell(
        &mut self,
        action: &'static str,
        (generation, id): (u64, Option<u64>),
        cause: impl Into<String>,
    ) {
        self.happened.push(Happening {
            action,
            generation,
            id,
            cause: cause.into(),
        });
    }

    /// Something went wrong: it is recorded, and nothing is tried for a while.
    pub(super) fn fail(&mut self, reason: &str, message: String) -> Next {
        self.ledger.failures = self.ledger.failures.saturating_add(1);
        let at = schedule::retry(self.now, self.ledger.failures);
        self.fail_until(reason, message, at)
    }

    /// The same, and it is known when it is over.
    pub(super) fn fail_until(&mut self, reason: &str, message: String, at: Timestamp) -> Next {
        self.ledger.retry_at = Some(record_time(later(at, Duration::from_secs(1))));
        self.ledger.trouble = Some(LedgerTrouble {
            reason: reason.to_owned(),
            message,
        });
        Next::Record
    }

    /// What went wrong is over.
    pub(super) fn recover(&mut self) {
        self.ledger.failures = 0;
        self.ledger.retry_at = None;
        self.ledger.trouble = None;
    }

    pub(super) fn staged(&self) -> Option<&'a StagedFacts> {
        match &self.seen.staging {
            StagingSeen::Present(staged) => Some(staged),
            StagingSeen::Absent | StagingSeen::Unknown(_) => None,
        }
    }

    /// The Secret, if it is ours.
    pub(super) fn own_secret(&self) -> Option<&'a SecretFacts> {
        self.seen.find_own(&self.ledger)
    }

    pub(super) fn is_marked(&self, secret: &SecretFacts) -> bool {
        secret.marked_for.as_deref() == Some(self.seen.request_name.as_str())
    }

    /// Whether a Secret has the host's authority, if there is one to have.
    fn has_authority(&self, secret: &SecretFacts) -> bool {
        self.seen.authority.is_none() || self.seen.authority == secret.authority
    }

    /// What has to be done now, whatever was answered.
    pub(super) fn decide(&mut self) -> Next {
        match (&self.seen.wanted, self.seen.namespace) {
            (Wanted::Revoked(cause), _) => return self.end(&cause.clone(), false),
            (Wanted::Abandoned(cause), _) => return self.end(&cause.clone(), true),
            (_, NamespaceSeen::Terminating | NamespaceSeen::Gone) => {
                return self.end("the namespace is gone, or going", false);
            }
            (_, NamespaceSeen::Unknown) => return Next::Wait(later(self.now, schedule::LOOK)),
            (Wanted::Delivered | Wanted::HeldBack(_), NamespaceSeen::Present) => {}
        }
        if self.forget_expired() {
            return Next::Record;
        }
        if let Some(at) = self.ledger.retry_at.as_ref().map(|at| at.0)
            && self.now < at
        {
            return Next::Wait(at);
        }
        if let (StagingSeen::Unknown(_), _) | (_, SecretSeen::Unknown(_)) = (&self.seen.staging, &self.seen.secret) {
            // What can't be seen is not gone.
            return Next::Wait(later(self.now, schedule::LOOK));
        }
        if let Some(heir) = self.seen.find_heir() {
            return self.hand_over(heir);
        }
        let next = match self.ledger.next.clone() {
            Some(next) => self.advance(&next),
            None => self.keep(),
        };
        // Accounts are named once nothing else is due: what is in their way holds up no credential.
        match next {
            Next::Wait(until) => self.name_in_accounts(until),
            next => next,
        }
    }

    /// Takes away what the host has ended by itself. Whether anything was.
    fn forget_expired(&mut self) -> bool {
        let host_now = self.host_now();
        let is_over = |held: &HeldCredential| held.expires_at.as_ref().is_some_and(|end| end.0 <= host_now);
        let (over, retiring): (Vec<_>, Vec<_>) = self.ledger.retiring.drain(..).partition(is_over);
        self.ledger.retiring = retiring;
        for held in &over {
            self.tell("Expired", (held.generation, held.id), "the host ended it");
        }
        !over.is_empty()
    }

    /// One that is being made, a step further.
    pub(super) fn advance(&mut self, next: &NextCredential) -> Next {
        let is_held_back = matches!(self.seen.wanted, Wanted::HeldBack(_));
        let staged = self.staged().filter(|staged| staged.nonce == next.nonce);
        match next.phase {
            CredentialPhase::Intent => match staged {
                // Somebody staged it and died.
                Some(staged) if staged.is_minted => self.adopt(&staged.clone()),
                _ => self.look_for(next),
            },
            CredentialPhase::Minted => self.discard(next, "its value is lost"),
            CredentialPhase::Staged if is_held_back => self
                .promote_expired(next)
                .unwrap_or_else(|| Next::Wait(later(self.now, schedule::IDLE_LOOK))),
            CredentialPhase::Staged => match staged {
                _ if self.is_lost(next.id, next.begun_at.0) => self.discard(next, "it was revoked at the host"),
                None => self.discard(next, "its value is no longer in the staging Secret"),
                Some(_) => self.probe(Step::ProbeStaged),
            },
            CredentialPhase::Distributed => self.verify(next, staged.is_some()),
        }
    }

    /// An order that nobody has an answer for: it is looked for, once it must have arrived if it did at all.
    pub(super) fn look_for(&mut self, next: &NextCredential) -> Next {
        let settled = later(next.begun_at.0, schedule::SETTLE);
        if self.now < settled {
            return Next::Wait(settled);
        }
        if !self.seen.capabilities.listed {
            // It ends by itself, soon: nothing can be looked for.
            self.tell(
                "Lost",
                (next.generation, None),
                "nobody knows whether it was made, and the host lists none",
            );
            self.ledger.next = None;
            return Next::Record;
        }
        Next::Do(Step::List(self.target()))
    }

    /// One whose value nobody has, or that is refused: it is revoked, and another one is made.
    pub(super) fn discard(&mut self, next: &NextCredential, cause: &str) -> Next {
        if next.phase != CredentialPhase::Minted {
            let mut changed = next.clone();
            changed.phase = CredentialPhase::Minted;
            self.tell("Lost", (next.generation, next.id), cause);
            self.ledger.next = Some(changed);
            return Next::Record;
        }
        match next.id {
            Some(id) => Next::Do(Step::Revoke {
                target: self.target(),
                id,
            }),
            // It can't be revoked, and ends by itself.
            None => {
                self.ledger.next = None;
                Next::Record
            }
        }
    }

    /// Takes one whose value is staged.
    pub(super) fn adopt(&mut self, staged: &StagedFacts) -> Next {
        if let Some(next) = &mut self.ledger.next {
            next.phase = CredentialPhase::Staged;
            next.id = staged.id;
            next.fingerprint.clone_from(&staged.fingerprint);
            next.expires_at = staged.expires_at.map(record_time);
            let told = (next.generation, next.id);
            let cause = next.cause.clone();
            self.recover();
            self.tell("Minted", told, cause);
        }
        Next::Record
    }

    /// Whether the list of the host, if it is young enough, says that a credential works no more.
    fn is_lost(&self, id: Option<u64>, begun_at: Timestamp) -> bool {
        let (Some(id), Some(listing)) = (id, &self.seen.listing) else {
            return false;
        };
        // Hosts may list what is new a moment later.
        if !self.seen.capabilities.listed || listing.asked_at < later(begun_at, schedule::SETTLE) {
            return false;
        }
        let found = listing.credentials.iter().find(|listed| listed.id == id);
        found.is_none_or(|listed| listed.is_revoked || listed.is_expired)
    }

    /// One that the Secret holds, until all sources are seen to use it.
    fn verify(&mut self, next: &NextCredential, is_staged: bool) -> Next {
        let is_there = match (self.find_writable(), &self.seen.secret) {
            (Some(secret), _) => secret.fingerprint.as_deref() == Some(next.fingerprint.as_str()),
            (None, SecretSeen::Present(_)) => return self.refuse_foreign(),
            (None, _) => false,
        };
        if self.is_lost(next.id, next.begun_at.0) {
            return self.promote_unproven(next);
        }
        if !is_there {
            return match is_staged {
                true if matches!(self.seen.wanted, Wanted::HeldBack(_)) => {
                    Next::Wait(later(self.now, schedule::IDLE_LOOK))
                }
                true => Next::Do(Step::Spread(self.find_writable().cloned())),
                // Nobody has the value but those who fetched with it: they keep it until there is another one.
                false => self.promote_unproven(next),
            };
        }
        if let Some(done) = self.promote_expired(next) {
            return done;
        }
        let token = token_of(next);
        let running = || self.seen.sources.iter().filter(|source| !source.is_suspended);
        let unasked: Vec<String> = running()
            .filter(|source| source.asked.as_ref() != Some(&token) && source.last_handled.as_ref() != Some(&token))
            .map(|source| source.name.clone())
            .collect();
        // Once more for whom somebody else has asked for something meanwhile, but not without end.
        if !unasked.is_empty() && !matches!(self.seen.answer, Some(Answer::Asked)) {
            return Next::Do(Step::AskSources {
                sources: unasked,
                token,
            });
        }
        if running().all(|source| source.has_used(&token)) {
            return self.probe(Step::ProbeDelivered);
        }
        // A leak is not kept open by a source that never fetches.
        let deadline = later(distributed_at(next), schedule::LEAK_DEADLINE);
        if next.cause == LEAK && self.now >= deadline {
            return self.probe(Step::ProbeDelivered);
        }
        Next::Wait(later(self.now, schedule::LOOK))
    }

    /// One that is due, although it isn't proven: another one is needed, and the old ones are left to end by themselves.
    fn promote_expired(&mut self, next: &NextCredential) -> Option<Next> {
        let held = hold(next);
        let is_due = self.due(&held) <= self.now;
        if !is_due {
            return None;
        }
        Some(match next.phase {
            CredentialPhase::Distributed => self.promote_unproven(next),
            _ => self.discard(next, "it grew old before it could be spread"),
        })
    }

    pub(super) fn promote_unproven(&mut self, next: &NextCredential) -> Next {
        let old = self.ledger.current.replace(hold(next));
        self.ledger.retiring.extend(old);
        self.ledger.next = None;
        self.note_order(next);
        Next::Record
    }

    /// All sources use it.
    pub(super) fn promote(&mut self, next: &NextCredential) -> Next {
        let overlap = match next.cause.as_str() {
            LEAK => Duration::ZERO,
            _ => schedule::overlap(&self.seen.sources),
        };
        let old = self.ledger.current.replace(HeldCredential {
            verified_at: Some(record_time(self.now)),
            ..hold(next)
        });
        self.ledger.retiring.extend(old);
        self.retire_all(overlap);
        self.ledger.next = None;
        self.note_order(next);
        self.recover();
        self.tell("Verified", (next.generation, next.id), next.cause.clone());
        Next::Record
    }

    /// All that retire are ended after the overlap, unless they are sooner.
    pub(super) fn retire_all(&mut self, overlap: Duration) {
        let retire_at = record_time(later(self.now, overlap));
        for held in &mut self.ledger.retiring {
            let is_sooner = held.retire_at.as_ref().is_some_and(|at| at.0 <= retire_at.0);
            if !is_sooner {
                held.retire_at = Some(retire_at.clone());
            }
        }
    }

    /// The order that it was made for is carried out.
    fn note_order(&mut self, next: &NextCredential) {
        if next.order.is_some() {
            self.ledger.handled_order.clone_from(&next.order);
        }
    }

    pub(super) fn refuse_foreign(&mut self) -> Next {
        let marked_for = match &self.seen.secret {
            SecretSeen::Present(secret) => secret.marked_for.as_deref(),
            SecretSeen::Absent | SecretSeen::Unknown(_) => None,
        };
        let marked_for = marked_for.filter(|request| *request != self.seen.request_name);
        self.findings
            .push(Finding::foreign_secret(&self.ledger.namespace, marked_for));
        Next::Wait(later(self.now, schedule::IDLE_LOOK))
    }

    /// One that is in use: its Secret is kept, its predecessors are ended, and another one is made when it is due.
    fn keep(&mut self) -> Next {
        let own = self.own_secret();
        let current = self.ledger.current.clone();
        if let Some(secret) = own
            && !(self.is_marked(secret) && self.has_authority(secret))
            && current
                .as_ref()
                .is_some_and(|held| secret.fingerprint.as_ref() == Some(&held.fingerprint))
        {
            // If somebody changes it back at once, the next attempt waits.
            return match &self.seen.answer {
                Some(Answer::Spread(Ok(_))) => Next::Wait(later(self.now, schedule::LOOK)),
                _ => Next::Do(Step::Mark(secret.clone())),
            };
        }
        if let Some(next) = self.end_retired() {
            return next;
        }
        if matches!(self.seen.secret, SecretSeen::Present(_)) && self.find_writable().is_none() {
            return self.refuse_foreign();
        }
        let look_at = self.find_look(current.as_ref());
        if look_at.is_some_and(|at| at <= self.now) {
            return Next::Do(Step::List(self.target()));
        }
        let sooner = self.find_retirement().into_iter().chain(look_at).min();
        let (cause, at) = self.find_cause(current.as_ref(), own);
        let wait = |until: Timestamp| Next::Wait(sooner.map_or(until, |at| until.min(at)));
        if matches!(self.seen.wanted, Wanted::HeldBack(_)) || self.now < at {
            return wait(at);
        }
        let is_endless = !self.seen.capabilities.expiry && self.seen.capabilities.listed;
        let most = if is_endless { MOST_ENDLESS } else { MOST_RETIRING };
        if self.ledger.retiring.len() >= most {
            self.findings
                .push(Finding::too_many_retiring(self.ledger.retiring.len()));
            return wait(later(self.now, schedule::IDLE_LOOK));
        }
        if let Some(from) = self.seen.restraint.mint_from.filter(|from| *from > self.now) {
            self.findings.push(Finding::too_many_refusals(from));
            return wait(from);
        }
        // Whoever has just tried begins.
        match &self.seen.answer {
            Some(Answer::Preflight(Ok(()))) => self.begin(cause),
            _ => Next::Do(Step::Preflight),
        }
    }

    /// Ends what has retired long enough, and takes away a value that is staged for nobody.
    pub(super) fn end_retired(&self) -> Option<Next> {
        let retiring = self.ledger.retiring.iter();
        let mut due = retiring.filter(|held| held.retire_at.as_ref().is_some_and(|at| at.0 <= self.now));
        if let Some(id) = due.find_map(|held| held.id) {
            return Some(Next::Do(Step::Revoke {
                target: self.target(),
                id,
            }));
        }
        self.staged().map(|_| Next::Do(Step::ClearStaging))
    }

    /// When the next of those that retire is to be ended; what has no number ends by itself.
    pub(super) fn find_retirement(&self) -> Option<Timestamp> {
        let retiring = self.ledger.retiring.iter().filter(|held| held.id.is_some());
        retiring.filter_map(|held| held.retire_at.as_ref().map(|at| at.0)).min()
    }

    /// Why another one is made, and when.
    fn find_cause(&self, current: Option<&HeldCredential>, own: Option<&SecretFacts>) -> (String, Timestamp) {
        let Some(held) = current else {
            return (FIRST.to_owned(), Timestamp::MIN);
        };
        // Who orders in a loop, or takes the Secret away in one, gets no more of them.
        let unplanned = self.ledger.unplanned_at.as_ref();
        let soon = unplanned.map_or(Timestamp::MIN, |at| later(at.0, schedule::LEAST_BETWEEN));
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
        let order = self.seen.order.as_ref();
        if let Some(order) = order.filter(|order| Some(&order.id) != self.ledger.handled_order.as_ref()) {
            let cause = if order.is_leak { LEAK } else { ORDERED };
            return (cause.to_owned(), soon);
        }
        let due = self.due(held).max(later(held.begun_at.0, schedule::LEAST_BETWEEN));
        (DUE.to_owned(), due)
    }

    fn due(&self, held: &HeldCredential) -> Timestamp {
        schedule::due(held, self.seen.rotate, &self.seen.request_uid, self.seen.host_ahead)
    }

    /// Records what is ordered next.
    fn begin(&mut self, cause: String) -> Next {
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
        let expires_at = can_end.then(|| schedule::expiry(self.host_now(), self.seen.rotate, &self.seen.sources));
        if ![FIRST, DUE].contains(&cause.as_str()) {
            self.ledger.unplanned_at = Some(record_time(self.now));
        }
        self.tell("Begun", (generation, None), cause.clone());
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

    /// What is ordered of the host.
    pub(super) fn mint(&self, next: &NextCredential) -> Step {
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

/// What sources are asked with: another value for each credential.
pub(super) fn token_of(next: &NextCredential) -> String {
    format!("{}-{}", distributed_at(next), next.nonce)
}

fn distributed_at(next: &NextCredential) -> Timestamp {
    next.distributed_at.as_ref().unwrap_or(&next.begun_at).0
}

fn hold(next: &NextCredential) -> HeldCredential {
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
