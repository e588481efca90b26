//! Several requests for one project. They share the counts of their host.

use tenure_api::access::request::CredentialLedger;

use super::super::WantedState;
use super::super::rate_limits::{HostRateLimiter, RateLimitState};
use super::host::Flavour;
use super::model::World;
use super::{DAY, run_until_settled};

/// Credentials for a project that refuses all of them, in a day: after waits of 1, 2, 4, 8, 16 and 32 minutes, and then each hour. Each is tried for ten minutes.
const DAILY: std::ops::RangeInclusive<u64> = 20..=32;
/// The longest time in which twenty requests get their first credential from a project that accepts it, in seconds.
const LONGEST_DELIVERY: i64 = 60;

impl World {
    /// Returns the name under which the host's limits count the credentials of this request.
    pub(super) fn name_owner(&self) -> String {
        format!("{}-{}", self.name, self.seed)
    }

    /// Returns the limits of the host, which follow the ledger.
    pub(super) fn see_restraint(&mut self) -> RateLimitState {
        let (target, owner, now) = (self.target(), self.name_owner(), self.moment());
        if std::mem::take(&mut self.is_restarted) {
            self.restraint.restore(&target, &self.ledger, now);
        }
        let is_wanted = self.wanted == WantedState::Delivered;
        self.restraint.follow_ledger(&target, &owner, &self.ledger, is_wanted);
        self.restraint.find_state(&target, &owner, &self.ledger, now)
    }

    /// Begins the trial of the planned credential, if its target has room.
    pub(super) fn begin_trial(&mut self, ledger: &CredentialLedger) -> bool {
        let next = ledger.next.as_ref().unwrap();
        let (target, owner) = (self.target(), self.name_owner());
        self.restraint.begin_trial(&target, &owner, &next.nonce, self.moment())
    }
}

fn make_worlds(count: u64, seed: u64) -> Vec<World> {
    (0..count)
        .map(|number| World::new(seed * 100 + number, Flavour::Token))
        .collect()
}

/// Runs requests with common counts for this number of seconds. The request that is furthest behind acts first.
fn run_together(worlds: &mut [World], restraint: &mut HostRateLimiter, span: i64) {
    let end = worlds.iter().map(|world| world.now).min().unwrap() + span;
    for world in worlds.iter_mut() {
        world.wake();
    }
    loop {
        let world = worlds.iter_mut().min_by_key(|world| world.now).unwrap();
        if world.now >= end {
            return;
        }
        std::mem::swap(restraint, &mut world.restraint);
        world.take_turn();
        std::mem::swap(restraint, &mut world.restraint);
    }
}

fn count_minted(worlds: &[World]) -> u64 {
    worlds.iter().map(|world| world.minted).sum()
}

/// The number of credentials that a refusing project gets depends on the time alone, and not on the number of its requests.
#[test]
fn refusing_project_gets_few_credentials_from_all_requests() {
    for count in [1, 4, 20] {
        for seed in 1..=5 {
            let (mut worlds, mut restraint) = (make_worlds(count, seed), HostRateLimiter::default());
            for world in &mut worlds {
                world.refuses_new = true;
            }
            run_together(&mut worlds, &mut restraint, DAY);
            let minted = count_minted(&worlds);
            println!("{count} requests: {minted} credentials in a day");
            assert!(
                DAILY.contains(&minted),
                "{count} requests, seed {seed}: {minted} credentials"
            );
            // As soon as the project accepts new credentials, all requests get theirs.
            for world in &mut worlds {
                world.refuses_new = false;
            }
            run_together(&mut worlds, &mut restraint, 3 * 3_600);
            for world in &mut worlds {
                assert!(
                    world.ledger.current.is_some(),
                    "seed {}: {:?}",
                    world.seed,
                    world.ledger
                );
                run_until_settled(world);
            }
        }
    }
}

/// A restart doesn't open the project for all requests at once.
#[test]
fn restarts_keep_limit_of_refusing_project() {
    let (mut worlds, mut restraint) = (make_worlds(20, 3), HostRateLimiter::default());
    for world in &mut worlds {
        world.refuses_new = true;
    }
    run_together(&mut worlds, &mut restraint, DAY);
    let before = count_minted(&worlds);
    for _ in 0..24 {
        restraint = HostRateLimiter::default();
        for world in &mut worlds {
            world.restart();
        }
        run_together(&mut worlds, &mut restraint, 3_600);
    }
    let minted = count_minted(&worlds) - before;
    assert!(
        (10..=48).contains(&minted),
        "{minted} credentials in a day with 24 restarts"
    );
}

/// The limits don't delay the requests for a project that accepts their credentials.
#[test]
fn accepting_project_delivers_to_all_requests_at_once() {
    for seed in 1..=20 {
        let (mut worlds, mut restraint) = (make_worlds(20, seed), HostRateLimiter::default());
        run_together(&mut worlds, &mut restraint, LONGEST_DELIVERY);
        let late = worlds.iter().filter(|world| world.secret.is_none()).count();
        assert_eq!(
            late, 0,
            "seed {seed}: requests without a credential after {LONGEST_DELIVERY} s"
        );
        assert_eq!(count_minted(&worlds), 20, "seed {seed}");
    }
}

/// Trouble of single requests, and changes by others, block the project for no other request.
#[test]
fn trouble_of_one_request_blocks_no_other() {
    for seed in 1..=20 {
        let (mut worlds, mut restraint) = (make_worlds(6, seed), HostRateLimiter::default());
        for world in &mut worlds {
            world.trouble = 20;
            world.longest_trouble = 600;
            world.outside = 2;
        }
        run_together(&mut worlds, &mut restraint, DAY);
        for world in &mut worlds {
            world.trouble = 0;
            world.outside = 0;
            world.heal();
        }
        run_together(&mut worlds, &mut restraint, DAY);
        for world in &mut worlds {
            assert!(
                world.ledger.current.is_some(),
                "seed {}: {:?}",
                world.seed,
                world.ledger
            );
            world.heal_sources();
            world.is_strict = true;
            run_until_settled(world);
        }
    }
}
