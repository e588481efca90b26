//! The Secret among the `imagePullSecrets` of accounts. It is added after it has a value, and removed when the credential is no longer wanted.
//!
//! Changes of accounts come after all steps that a credential needs. The ledger records the change before the first entry is added, so that the end of the
//! credential finds all entries.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::access::request::CredentialPhase;

use super::conditions::Finding;
use super::failures::FailingSide;
use super::schedule::{LOOK, add_duration};
use super::state_machine::{Next, StateMachine};
use super::{Answer, Step, WantedState};
use crate::pull_secrets::{AccountFacts, ObservedAccounts, PullSecretAction, name_in, remove_pull_secret};

/// The interval of checks for a missing account.
const ACCOUNT_LOOK: Duration = Duration::from_secs(600);

impl StateMachine<'_> {
    /// Returns the observed accounts.
    fn observed_accounts(&self) -> &[AccountFacts] {
        match &self.seen.accounts {
            ObservedAccounts::Seen(accounts) => accounts,
            ObservedAccounts::NotAsked | ObservedAccounts::Unknown(_) => &[],
        }
    }

    /// Adds the Secret to accounts that lack it. No other step is due before `until`.
    pub(super) fn name_in_accounts(&mut self, until: Timestamp) -> Next {
        let is_spread = |phase: CredentialPhase| phase == CredentialPhase::Distributed;
        let is_delivered =
            self.ledger.current.is_some() || self.ledger.next.as_ref().is_some_and(|next| is_spread(next.phase));
        let accounts = match &self.seen.accounts {
            ObservedAccounts::NotAsked => return Next::Wait(until),
            ObservedAccounts::Unknown(_) => return Next::Wait(until.min(add_duration(self.now, LOOK))),
            ObservedAccounts::Seen(accounts) => accounts,
        };
        if self.seen.wanted != WantedState::Delivered || !is_delivered || self.own_secret().is_none() {
            return Next::Wait(until);
        }
        let (mut changes, mut until) = (Vec::new(), until);
        for account in accounts {
            match name_in(account, &self.seen.request_name, &self.seen.secret_name) {
                PullSecretAction::Done => {}
                PullSecretAction::Missing => {
                    self.findings
                        .push(Finding::missing_account(&self.ledger.namespace, &account.name));
                    until = until.min(add_duration(self.now, ACCOUNT_LOOK));
                }
                PullSecretAction::Applied(by) => {
                    let place = (self.ledger.namespace.as_str(), account.name.as_str());
                    self.findings
                        .push(Finding::applied_list(place, &by, &self.seen.secret_name));
                }
                PullSecretAction::Change(change) => changes.push(change),
            }
        }
        if changes.is_empty() {
            // Any earlier failure of a write is over, because there is nothing to write.
            self.clear_failure_of(FailingSide::Cluster);
            return Next::Wait(until);
        }
        if !self.ledger.image_pull_secrets {
            self.ledger.image_pull_secrets = true;
            return Next::Record;
        }
        // If another writer or a webhook removes the entry at once, the next attempt waits.
        match &self.seen.answer {
            Some(Answer::Named(_)) => Next::Wait(add_duration(self.now, LOOK)),
            _ => Next::Do(Step::ChangeAccounts(changes)),
        }
    }

    /// Removes the Secret from all accounts to which Tenure added it.
    pub(super) fn remove_from_accounts(&mut self) -> Option<Next> {
        let is_read = matches!(self.seen.accounts, ObservedAccounts::Seen(_));
        if !self.ledger.image_pull_secrets || !is_read {
            return None;
        }
        let remove_entry = |account| remove_pull_secret(account, &self.seen.request_name, &self.seen.secret_name);
        let changes: Vec<_> = self.observed_accounts().iter().filter_map(remove_entry).collect();
        if changes.is_empty() {
            self.ledger.image_pull_secrets = false;
            return Some(Next::Record);
        }
        let is_changed = matches!(self.seen.answer, Some(Answer::Named(_)));
        (!is_changed).then_some(Next::Do(Step::ChangeAccounts(changes)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::conditions::About;
    use super::super::failures::MISSING_RIGHTS;
    use super::super::tests::{make_snapshot, now};
    use super::super::{NamespaceState, Plan, SecretState, Snapshot, WriteFailure, plan};
    use super::*;
    use crate::pull_secrets::read_account;

    /// Returns the state of a delivered credential that these accounts also use for images.
    fn make_with_accounts(is_noted: bool, accounts: &[(&str, Option<Value>)]) -> Snapshot {
        let mut seen = make_snapshot();
        seen.ledger.retiring.clear();
        seen.ledger.image_pull_secrets = is_noted;
        let read = accounts
            .iter()
            .map(|(name, object)| read_account(name, object.as_ref()));
        seen.accounts = ObservedAccounts::Seen(read.collect());
        seen
    }

    fn make_account_without() -> Option<Value> {
        Some(json!({ "metadata": { "uid": "a-1", "resourceVersion": "7" } }))
    }

    fn make_account_with() -> Option<Value> {
        Some(
            json!({ "metadata": { "annotations": { "pull-secrets.access.tenure.dev/request-1": "gitlab-flux-token" } },
            "imagePullSecrets": [{ "name": "gitlab-flux-token" }] }),
        )
    }

    fn list_changed(planned: &Plan) -> Vec<&str> {
        match &planned.step {
            Some(Step::ChangeAccounts(changes)) => changes.iter().map(|change| change.name.as_str()).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn ledger_records_pull_secret_before_adding_it() {
        let accounts = [("a", make_account_without()), ("b", make_account_with()), ("c", None)];
        let planned = plan(&make_with_accounts(false, &accounts), now());
        assert_eq!(planned.step, Some(Step::Record));
        assert!(planned.ledger.image_pull_secrets);
        let planned = plan(&make_with_accounts(true, &accounts), now());
        assert_eq!(list_changed(&planned), ["a"]);
        let reasons: Vec<&str> = planned.findings.iter().map(|finding| finding.reason.as_str()).collect();
        assert_eq!(reasons, ["AccountMissing"]);
        // Without an entry to add, nothing is recorded. A missing account is checked again soon.
        let planned = plan(&make_with_accounts(false, &accounts[1..]), now());
        assert!(planned.step.is_none() && planned.again == add_duration(now(), ACCOUNT_LOOK));
    }

    /// A request that is held back adds no pull secret either.
    #[test]
    fn pull_secret_waits_for_secret_and_readable_accounts() {
        let accounts = [("a", make_account_without())];
        for spoil in [
            (|seen| seen.wanted = WantedState::HeldBack("suspended".to_owned())) as fn(&mut Snapshot),
            |seen| seen.secret = SecretState::Absent,
            |seen| seen.accounts = ObservedAccounts::Unknown("forbidden".to_owned()),
            |seen| seen.accounts = ObservedAccounts::NotAsked,
        ] {
            let mut seen = make_with_accounts(true, &accounts);
            spoil(&mut seen);
            assert!(list_changed(&plan(&seen, now())).is_empty());
        }
        assert_eq!(list_changed(&plan(&make_with_accounts(true, &accounts), now())), ["a"]);
        // A missing right is reported and delays no credential: a due credential is begun.
        let mut seen = make_with_accounts(true, &accounts);
        seen.answer = Some(Answer::Named(Err(WriteFailure::Refused("may not patch".to_owned()))));
        let planned = plan(&seen, now());
        assert_eq!(
            planned.ledger.trouble.as_ref().map(|trouble| trouble.reason.as_str()),
            Some(MISSING_RIGHTS)
        );
        let due = add_duration(now(), Duration::from_secs(90 * 86_400));
        seen.answer = None;
        seen.ledger = planned.ledger.clone();
        assert_eq!(plan(&seen, due).step, Some(Step::Preflight));
        // After another writer has added the Secret, nothing blocks the plan any more.
        seen.accounts = ObservedAccounts::Seen(vec![read_account("a", make_account_with().as_ref())]);
        let planned = plan(&seen, add_duration(now(), Duration::from_secs(3_600)));
        assert!(planned.ledger.trouble.is_none() && planned.step == Some(Step::Record));
    }

    #[test]
    fn removed_pull_secret_entry_is_not_readded_at_once() {
        let mut seen = make_with_accounts(true, &[("a", make_account_without())]);
        seen.answer = Some(Answer::Named(Ok(())));
        let planned = plan(&seen, now());
        assert_eq!((planned.step, planned.again), (None, add_duration(now(), LOOK)));
    }

    /// In a terminating namespace, a revocation ends without a look at the accounts.
    #[test]
    fn revocation_ends_once_no_account_names_secret() {
        let mut seen = make_with_accounts(true, &[("a", make_account_with()), ("b", make_account_without())]);
        seen.wanted = WantedState::Revoked("the grant was deleted".to_owned());
        seen.secret = SecretState::Absent;
        (seen.ledger.current, seen.ledger.secret_uid) = (None, None);
        assert_eq!(list_changed(&plan(&seen, now())), ["a"]);
        let over = |seen: &Snapshot| {
            let planned = plan(seen, now());
            (planned.is_over, planned.step)
        };
        let mut unreadable = seen.clone();
        unreadable.accounts = ObservedAccounts::Unknown("forbidden".to_owned());
        let planned = plan(&unreadable, now());
        assert!(!planned.is_over && planned.findings.iter().any(|finding| finding.about == About::Failure));
        unreadable.namespace = NamespaceState::Terminating;
        unreadable.ledger = plan(&unreadable, now()).ledger;
        assert_eq!(over(&unreadable), (true, None));
        seen.accounts = ObservedAccounts::Seen(vec![read_account("a", make_account_without().as_ref())]);
        assert_eq!(over(&seen), (false, Some(Step::Record)));
        seen.ledger = plan(&seen, now()).ledger;
        assert_eq!(over(&seen), (true, None));
    }
}
