//! Limits for requests that a host may refuse, and for lists that refused sources cause. Hosts ban an address for too many refused requests, and the whole cluster
//! has one address.
//!
//! The counts of one host are in memory. No count stops anything for longer than an hour, and no demand of a host for longer than a day. Each target has the counts of
//! its own credentials (`trials`).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::access::request::CredentialLedger;

use super::schedule::{add_duration, wait_for};
use super::trials::{TargetTrials, TrialResult};
use tenure_remote_requests::git_host::{HostError, Scope, Target};

/// The window in which refusals and lists are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// The maximum of refused attempts in the window. GitLab's ban, where it is enabled, begins at 30 in three minutes.
const MOST_REFUSED: usize = 5;
/// The maximum of lists in the window.
const MOST_LOOKS: usize = 30;
/// The maximum of targets with counts of their own. Beyond that, the target whose wait ends first is forgotten.
const MOST_TARGETS: usize = 10_000;

/// The counts of one host.
#[derive(Clone, Debug, Default)]
pub struct HostRateLimiter {
    refused: VecDeque<Timestamp>,
    looks: VecDeque<Timestamp>,
    targets: BTreeMap<(Scope, u64), TargetTrials>,
    block: Option<Block>,
    /// The end of a pause of the server at which credentials are tried.
    probe_pause: Option<Timestamp>,
}

/// A time in which the host takes no requests.
#[derive(Clone, Copy, Debug)]
struct Block {
    end: Timestamp,
    is_ban: bool,
}

/// The limits of a host for one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimitState {
    /// No credential is probed before this time.
    pub probe_from: Option<Timestamp>,
    /// No credential is made before this time, because the host refused earlier ones.
    pub mint_from: Option<Timestamp>,
    /// No credential is made before this time, because others of the target are tried first.
    pub turn_from: Option<Timestamp>,
    /// The number of the target's credentials that the host refused in a row.
    pub refusals: u32,
    /// The host isn't listed before this time.
    pub look_from: Option<Timestamp>,
}

impl HostRateLimiter {
    /// Counts an attempt with a credential that the host refused.
    pub fn record_refused_probe(&mut self, now: Timestamp) {
        push(&mut self.refused, MOST_REFUSED, now);
    }

    /// Counts a list that a refused source caused.
    pub fn record_list(&mut self, now: Timestamp) {
        push(&mut self.looks, MOST_LOOKS, now);
    }

    /// Records that the host takes no requests for a while, for no target. A shorter block does not end a longer one.
    pub fn record_block(&mut self, answer: &HostError, now: Timestamp) {
        let (until, is_ban) = match answer {
            HostError::Banned { until } => (*until, true),
            HostError::Limited { until } => (*until, false),
            _ => return,
        };
        let end = wait_for(now, until);
        if self.block.is_none_or(|block| block.end < end) {
            self.block = Some(Block { end, is_ban });
        }
    }

    /// Records that a server with another name than the host's, for example its registry, takes no requests for a while. No credential is tried there before the
    /// end, and none is made.
    pub fn record_probe_pause(&mut self, until: Timestamp, now: Timestamp) {
        self.probe_pause = self.probe_pause.max(Some(wait_for(now, until)));
    }

    /// Returns the host's answer that is still valid: no request is sent before its end.
    #[must_use]
    pub fn find_block(&self, now: Timestamp) -> Option<HostError> {
        let Block { end: until, is_ban } = self.block.filter(|block| now < block.end)?;
        Some(match is_ban {
            true => HostError::Banned { until },
            false => HostError::Limited { until },
        })
    }

    /// Begins the trial of a new credential, unless the target has no room for another one. `owner` is the request and its namespace.
    #[must_use]
    pub fn begin_trial(&mut self, target: &Target, owner: &str, nonce: &str, now: Timestamp) -> bool {
        self.find_or_add(target).begin(owner, nonce, now)
    }

    /// Adjusts the owner's trial to its recorded ledger. `is_wanted`: the credential is wanted, and not held back.
    pub fn follow_ledger(&mut self, target: &Target, owner: &str, ledger: &CredentialLedger, is_wanted: bool) {
        let is_known = self.targets.contains_key(&(target.scope, target.id));
        if is_known || ledger.next.is_some() {
            self.find_or_add(target).follow(owner, ledger, is_wanted);
        }
    }

    /// Restores the counts of the target from a ledger, after a restart.
    pub fn restore(&mut self, target: &Target, ledger: &CredentialLedger, now: Timestamp) {
        if ledger.refusals > 0 {
            self.find_or_add(target).restore(ledger, now);
        }
    }

    /// Records the host's verdict on a new credential of the target.
    pub fn record_trial(&mut self, target: &Target, owner: &str, result: TrialResult, now: Timestamp) {
        self.find_or_add(target).record(owner, result, now);
    }

    fn find_or_add(&mut self, target: &Target) -> &mut TargetTrials {
        let key = (target.scope, target.id);
        if !self.targets.contains_key(&key) && self.targets.len() >= MOST_TARGETS {
            let oldest = self.targets.iter().min_by_key(|(_, trials)| trials.find_end());
            if let Some(oldest) = oldest.map(|(target, _)| *target) {
                self.targets.remove(&oldest);
            }
        }
        self.targets.entry(key).or_default()
    }

    /// Returns the current limits for a credential of a target: `owner` is its request and namespace.
    #[must_use]
    pub fn find_state(
        &self,
        target: &Target,
        owner: &str,
        ledger: &CredentialLedger,
        now: Timestamp,
    ) -> RateLimitState {
        let still = |at: Option<Timestamp>| at.filter(|at| *at > now);
        let probe_from = still(find_free(&self.refused, MOST_REFUSED).max(self.probe_pause));
        let trials = self.targets.get(&(target.scope, target.id));
        RateLimitState {
            probe_from,
            mint_from: still(trials.and_then(|trials| trials.find_wait(ledger))).max(probe_from),
            turn_from: trials.and_then(|trials| trials.find_turn(owner, now)),
            refusals: trials.map_or(0, TargetTrials::count_refusals),
            look_from: still(find_free(&self.looks, MOST_LOOKS)),
        }
    }
}

fn push(times: &mut VecDeque<Timestamp>, most: usize, now: Timestamp) {
    times.push_back(now);
    while times.len() > most {
        times.pop_front();
    }
}

/// Returns the time at which the limit allows another attempt, if it forbids one now.
fn find_free(times: &VecDeque<Timestamp>, most: usize) -> Option<Timestamp> {
    let oldest = times.front().filter(|_| times.len() >= most)?;
    Some(add_duration(*oldest, WINDOW))
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::tests::now;
    use super::*;

    fn target(id: u64) -> Target {
        Target {
            scope: Scope::Project,
            id,
            path: "group-1/a".to_owned(),
        }
    }

    fn seconds(now: Timestamp, at: Option<Timestamp>) -> Option<i64> {
        at.map(|at| at.duration_since(now).as_secs())
    }

    fn find_state(restraint: &HostRateLimiter, id: u64, owner: &str, at: Timestamp) -> RateLimitState {
        restraint.find_state(&target(id), owner, &CredentialLedger::default(), at)
    }

    /// Refuses a new credential of a target, and returns the wait before the next one.
    fn refuse(restraint: &mut HostRateLimiter, id: u64) -> Option<i64> {
        restraint.record_trial(&target(id), "a", TrialResult::Refused, now());
        seconds(now(), find_state(restraint, id, "a", now()).mint_from)
    }

    #[test]
    fn refusing_target_waits_longer_without_delaying_others() {
        let mut restraint = HostRateLimiter::default();
        let waits: Vec<Option<i64>> = (0..8).map(|_| refuse(&mut restraint, 1)).collect();
        assert_eq!(waits, [60, 120, 240, 480, 960, 1_920, 3_600, 3_600].map(Some));
        assert_eq!(find_state(&restraint, 2, "a", now()), RateLimitState::default());
        let later = add_duration(now(), Duration::from_secs(3_600));
        assert_eq!(find_state(&restraint, 1, "a", later).mint_from, None);
        restraint.record_trial(&target(1), "a", TrialResult::Accepted, now());
        assert_eq!(find_state(&restraint, 1, "a", now()), RateLimitState::default());
    }

    /// Begins trials of a target until one is refused, and returns their number.
    fn count_trials(restraint: &mut HostRateLimiter, at: Timestamp) -> usize {
        let owners = (0..100).map(|number| format!("owner-{number}"));
        let begun = owners.take_while(|owner| {
            let is_free = find_state(restraint, 1, owner, at).turn_from.is_none();
            assert_eq!(restraint.begin_trial(&target(1), owner, "n", at), is_free);
            is_free
        });
        begun.count()
    }

    #[test]
    fn trials_are_limited_until_one_is_accepted() {
        let mut restraint = HostRateLimiter::default();
        assert_eq!(count_trials(&mut restraint, now()), 4);
        assert_eq!(seconds(now(), find_state(&restraint, 1, "b", now()).turn_from), Some(5));
        assert_eq!(find_state(&restraint, 2, "b", now()).turn_from, None);
        // An accepted credential opens the target for all.
        restraint.record_trial(&target(1), "owner-0", TrialResult::Accepted, now());
        assert_eq!(count_trials(&mut restraint, now()), 100);
        // After the first refused probe, the others wait.
        restraint.record_trial(&target(1), "owner-7", TrialResult::Doubted, now());
        assert_eq!(count_trials(&mut restraint, now()), 0);
        assert_eq!(
            seconds(now(), find_state(&restraint, 1, "b", now()).turn_from),
            Some(30)
        );
        // Credentials without a result don't block the target for ever.
        let later = add_duration(now(), Duration::from_secs(1_200));
        assert_eq!(count_trials(&mut restraint, later), 1);
        restraint.record_trial(&target(1), "owner-0", TrialResult::Refused, later);
        assert_eq!(count_trials(&mut restraint, later), 1);
    }

    fn make_ledger(phase: &str, refusals: u32) -> CredentialLedger {
        serde_json::from_value(serde_json::json!({
            "namespace": "team-a", "refusals": refusals, "retryAt": "2026-06-01T12:30:00Z",
            "next": { "phase": phase, "generation": 3, "nonce": "n3", "name": "fa/c0ffee00/0badcafe/3/1780315140/n3",
                "cause": "Due", "begunAt": "2026-06-01T11:59:00Z", "fingerprint": "" }
        }))
        .unwrap()
    }

    #[test]
    fn trial_follows_ledger_of_its_owner() {
        let mut restraint = HostRateLimiter::default();
        let doubt = |restraint: &mut HostRateLimiter| {
            restraint.record_trial(&target(1), "c", TrialResult::Doubted, now());
        };
        doubt(&mut restraint);
        for (phase, is_wanted, is_tried) in [
            ("Intent", true, true),
            ("Staged", true, true),
            ("Staged", false, false),
            ("Minted", true, false),
            ("Distributed", true, false),
        ] {
            restraint.follow_ledger(&target(1), "a", &make_ledger(phase, 0), is_wanted);
            let turn = find_state(&restraint, 1, "b", now()).turn_from;
            assert_eq!(turn.is_some(), is_tried, "{phase} {is_wanted}");
            assert_eq!(find_state(&restraint, 1, "a", now()).turn_from, None, "its own turn");
        }
        restraint.follow_ledger(&target(1), "a", &make_ledger("Intent", 0), true);
        restraint.follow_ledger(&target(1), "a", &CredentialLedger::default(), true);
        assert_eq!(find_state(&restraint, 1, "b", now()).turn_from, None);
    }

    #[test]
    fn ledger_restores_count_of_refusals() {
        let mut restraint = HostRateLimiter::default();
        restraint.restore(&target(1), &make_ledger("Minted", 0), now());
        assert_eq!(find_state(&restraint, 1, "a", now()), RateLimitState::default());
        restraint.restore(&target(1), &make_ledger("Minted", 5), now());
        let seen = find_state(&restraint, 1, "a", now());
        assert_eq!((seen.refusals, seconds(now(), seen.mint_from)), (5, Some(1_800)));
        assert_eq!(refuse(&mut restraint, 1), Some(1_920));
        // The wait of this ledger is over, and its count stays.
        let mut restraint = HostRateLimiter::default();
        let later = add_duration(now(), Duration::from_secs(1_800));
        restraint.restore(&target(1), &make_ledger("Minted", 5), later);
        let seen = find_state(&restraint, 1, "a", later);
        assert_eq!((seen.refusals, seen.mint_from), (5, None));
        assert_eq!(count_trials(&mut restraint, later), 1);
        // The target has accepted another credential since the restart.
        let mut restraint = HostRateLimiter::default();
        restraint.record_trial(&target(1), "b", TrialResult::Accepted, now());
        restraint.restore(&target(1), &make_ledger("Minted", 5), now());
        assert_eq!(find_state(&restraint, 1, "a", now()), RateLimitState::default());
    }

    #[test]
    fn request_with_refused_credential_lets_others_go_first() {
        let mut restraint = HostRateLimiter::default();
        assert_eq!(refuse(&mut restraint, 1), Some(60));
        let refused = restraint.find_state(&target(1), "a", &make_ledger("Minted", 1), now());
        assert_eq!(seconds(now(), refused.mint_from), Some(180));
    }

    #[test]
    fn refused_probes_of_all_targets_stay_below_ban() {
        let mut restraint = HostRateLimiter::default();
        let (mut at, mut tried) = (now(), Vec::new());
        for number in 0..100 {
            let seen = find_state(&restraint, number, "a", at);
            at = seen.probe_from.unwrap_or(at);
            restraint.record_refused_probe(at);
            tried.push(at);
            at = add_duration(at, Duration::from_secs(1));
        }
        for window in tried.windows(MOST_REFUSED + 1) {
            assert!(window[MOST_REFUSED].duration_since(window[0]).as_secs() >= 60);
        }
        let later = add_duration(at, WINDOW);
        assert_eq!(find_state(&restraint, 1, "a", later), RateLimitState::default());
    }

    #[test]
    fn a_block_holds_for_all_targets_until_its_end() {
        let mut restraint = HostRateLimiter::default();
        let time_after = |seconds: i64| now().checked_add(SignedDuration::from_secs(seconds)).unwrap();
        assert_eq!(restraint.find_block(now()), None);
        restraint.record_block(&HostError::Unauthenticated, now());
        assert_eq!(restraint.find_block(now()), None);
        let banned = HostError::Banned { until: time_after(300) };
        restraint.record_block(&banned, now());
        restraint.record_block(&HostError::Limited { until: time_after(200) }, now());
        assert_eq!(restraint.find_block(time_after(299)), Some(banned));
        assert_eq!(restraint.find_block(time_after(300)), None);
        // No host stops requests for ever.
        restraint.record_block(&HostError::Limited { until: Timestamp::MAX }, now());
        assert_eq!(restraint.find_block(time_after(86_400)), None);
        assert!(restraint.find_block(time_after(86_399)).is_some());
    }

    #[test]
    fn pause_of_registry_holds_for_probes_and_new_credentials() {
        let mut restraint = HostRateLimiter::default();
        for wait in [300, 200] {
            restraint.record_probe_pause(add_duration(now(), Duration::from_secs(wait)), now());
        }
        let seen = find_state(&restraint, 1, "a", now());
        let waits = [seen.probe_from, seen.mint_from].map(|at| seconds(now(), at));
        assert_eq!((waits, seen.look_from), ([Some(300); 2], None));
        assert_eq!(restraint.find_block(now()), None);
        let later = add_duration(now(), Duration::from_secs(300));
        assert_eq!(find_state(&restraint, 1, "a", later), RateLimitState::default());
    }

    #[test]
    fn lists_are_limited_and_target_table_is_bounded() {
        let mut restraint = HostRateLimiter::default();
        for _ in 0..MOST_LOOKS {
            assert_eq!(find_state(&restraint, 1, "a", now()).look_from, None);
            restraint.record_list(now());
        }
        assert_eq!(
            seconds(now(), find_state(&restraint, 1, "a", now()).look_from),
            Some(60)
        );
        for id in 0..10_200 {
            refuse(&mut restraint, id);
        }
        assert_eq!(restraint.targets.len(), MOST_TARGETS);
    }

    #[test]
    fn full_table_keeps_count_of_known_target() {
        let mut restraint = HostRateLimiter::default();
        for id in 0..u64::try_from(MOST_TARGETS).unwrap() {
            refuse(&mut restraint, id);
        }
        // A target without refusals makes room first.
        restraint.record_trial(&target(u64::MAX), "a", TrialResult::Accepted, now());
        refuse(&mut restraint, u64::MAX - 1);
        assert_eq!(restraint.targets.len(), MOST_TARGETS);
        let waits = [refuse(&mut restraint, 1), refuse(&mut restraint, 1)];
        assert_eq!(waits, [120, 240].map(Some));
        assert_eq!(restraint.targets.len(), MOST_TARGETS);
    }
}
