//! Limits for requests that a host may refuse, and for lists that refused sources cause. Hosts ban an address for too many refused requests, and the whole cluster
//! has one address.
//!
//! The counts of one host are in memory. No count stops anything for longer than an hour, and no demand of a host for longer than a day.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::schedule::{add_duration, find_retry_time, wait_for};
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
    targets: BTreeMap<(Scope, u64), Refusals>,
    block: Option<Block>,
}

/// A time in which the host takes no requests.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The end, by the local clock.
    end: Timestamp,
    /// The end, by the host's clock.
    until: Timestamp,
    is_ban: bool,
}

/// New credentials of a target that its host refused in a row.
#[derive(Clone, Copy, Debug)]
struct Refusals {
    count: u32,
    until: Timestamp,
}

/// The limits of a host for one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimitState {
    /// No credential is probed before this time.
    pub probe_from: Option<Timestamp>,
    /// No credential is made before this time.
    pub mint_from: Option<Timestamp>,
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
    pub fn record_block(&mut self, answer: &HostError, host_ahead: SignedDuration, now: Timestamp) {
        let (until, is_ban) = match answer {
            HostError::Banned { until } => (*until, true),
            HostError::Limited { until } => (*until, false),
            _ => return,
        };
        let end = wait_for(now, until.checked_sub(host_ahead).unwrap_or(until));
        if self.block.is_none_or(|block| block.end < end) {
            self.block = Some(Block { end, until, is_ban });
        }
    }

    /// Returns the host's answer that is still valid: no request is sent before its end.
    #[must_use]
    pub fn find_block(&self, now: Timestamp) -> Option<HostError> {
        let Block { until, is_ban, .. } = self.block.filter(|block| now < block.end)?;
        Some(match is_ban {
            true => HostError::Banned { until },
            false => HostError::Limited { until },
        })
    }

    /// Counts a new credential that its host finally refused.
    pub fn record_refusal(&mut self, target: &Target, now: Timestamp) {
        let is_new = !self.targets.contains_key(&(target.scope, target.id));
        if is_new && self.targets.len() >= MOST_TARGETS {
            let oldest = self.targets.iter().min_by_key(|(_, refusals)| refusals.until);
            if let Some(oldest) = oldest.map(|(target, _)| *target) {
                self.targets.remove(&oldest);
            }
        }
        let before = self.targets.get(&(target.scope, target.id));
        let count = before.map_or(0, |refusals| refusals.count).saturating_add(1);
        let until = find_retry_time(now, count);
        self.targets
            .insert((target.scope, target.id), Refusals { count, until });
    }

    /// Forgets the refusals of a target, because a new credential works.
    pub fn record_acceptance(&mut self, target: &Target) {
        self.targets.remove(&(target.scope, target.id));
    }

    /// Returns the current limits for a target.
    #[must_use]
    pub fn find_state(&self, target: &Target, now: Timestamp) -> RateLimitState {
        let still = |at: Option<Timestamp>| at.filter(|at| *at > now);
        let probe_from = still(find_free(&self.refused, MOST_REFUSED));
        let refusals = self.targets.get(&(target.scope, target.id));
        RateLimitState {
            probe_from,
            mint_from: still(refusals.map(|refusals| refusals.until)).max(probe_from),
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

    #[test]
    fn refusing_target_waits_longer_without_delaying_others() {
        let mut restraint = HostRateLimiter::default();
        let waits: Vec<Option<i64>> = (0..8)
            .map(|_| {
                restraint.record_refusal(&target(1), now());
                seconds(now(), restraint.find_state(&target(1), now()).mint_from)
            })
            .collect();
        assert_eq!(waits, [60, 120, 240, 480, 960, 1_920, 3_600, 3_600].map(Some));
        assert_eq!(restraint.find_state(&target(2), now()), RateLimitState::default());
        assert_eq!(
            restraint
                .find_state(&target(1), add_duration(now(), Duration::from_secs(3_600)))
                .mint_from,
            None
        );
        restraint.record_acceptance(&target(1));
        assert_eq!(restraint.find_state(&target(1), now()), RateLimitState::default());
    }

    #[test]
    fn refused_probes_of_all_targets_stay_below_ban() {
        let mut restraint = HostRateLimiter::default();
        let (mut at, mut tried) = (now(), Vec::new());
        for number in 0..100 {
            let seen = restraint.find_state(&target(number), at);
            at = seen.probe_from.unwrap_or(at);
            restraint.record_refused_probe(at);
            tried.push(at);
            at = add_duration(at, Duration::from_secs(1));
        }
        for window in tried.windows(MOST_REFUSED + 1) {
            assert!(window[MOST_REFUSED].duration_since(window[0]).as_secs() >= 60);
        }
        assert_eq!(
            restraint.find_state(&target(1), add_duration(at, WINDOW)),
            RateLimitState::default()
        );
    }

    #[test]
    fn a_block_holds_for_all_targets_until_its_end() {
        let mut restraint = HostRateLimiter::default();
        let time_after = |seconds: i64| now().checked_add(SignedDuration::from_secs(seconds)).unwrap();
        let ahead = SignedDuration::from_secs(100);
        assert_eq!(restraint.find_block(now()), None);
        restraint.record_block(&HostError::Unauthenticated, ahead, now());
        assert_eq!(restraint.find_block(now()), None);
        // The host's clock is ahead: 400 there is 300 here.
        let banned = HostError::Banned { until: time_after(400) };
        restraint.record_block(&banned, ahead, now());
        restraint.record_block(&HostError::Limited { until: time_after(200) }, ahead, now());
        assert_eq!(restraint.find_block(time_after(299)), Some(banned));
        assert_eq!(restraint.find_block(time_after(300)), None);
        // No host stops requests for ever.
        restraint.record_block(&HostError::Limited { until: Timestamp::MAX }, ahead, now());
        assert_eq!(restraint.find_block(time_after(86_400)), None);
        assert!(restraint.find_block(time_after(86_399)).is_some());
    }

    #[test]
    fn lists_are_limited_and_target_table_is_bounded() {
        let mut restraint = HostRateLimiter::default();
        for _ in 0..MOST_LOOKS {
            assert_eq!(restraint.find_state(&target(1), now()).look_from, None);
            restraint.record_list(now());
        }
        assert_eq!(
            seconds(now(), restraint.find_state(&target(1), now()).look_from),
            Some(60)
        );
        for id in 0..20_000 {
            restraint.record_refusal(&target(id), now());
        }
        assert_eq!(restraint.targets.len(), MOST_TARGETS);
    }

    #[test]
    fn full_table_keeps_count_of_known_target() {
        let mut restraint = HostRateLimiter::default();
        for id in 0..u64::try_from(MOST_TARGETS).unwrap() {
            restraint.record_refusal(&target(id), now());
        }
        let waits: Vec<Option<i64>> = (0..2)
            .map(|_| {
                restraint.record_refusal(&target(0), now());
                seconds(now(), restraint.find_state(&target(0), now()).mint_from)
            })
            .collect();
        assert_eq!(waits, [120, 240].map(Some));
        assert_eq!(restraint.targets.len(), MOST_TARGETS);
    }
}
