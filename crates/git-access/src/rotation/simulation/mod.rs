//! The machine on a model of a host and of a cluster, in all kinds of trouble, with checks at every moment and at the end.
//!
//! At every moment: each existing credential with a name of Tenure is recorded by its name, and all but one by their number. A credential that a source has fetched
//! with still works. At the end, without further trouble: one credential exists, it is proven, and nothing is staged.

mod accounts;
mod entry;
mod host;
mod invariants;
mod model;
mod outside;
mod pace;
mod shared_target;

use std::collections::BTreeSet;

use jiff::Timestamp;

use self::entry::Side;
use self::host::{Chance, Flavour, Harm};
use self::model::World;
use super::{Order, WantedState, plan};
use crate::request_plan::handover::is_living;

const DAY: i64 = 86_400;
/// The number of random interleavings, which are equal in every run.
const SEEDS: u64 = 300;
/// The number in a long run.
const LONG_SEEDS: u64 = 1_500;

/// Returns the number of seeds: `cargo xtask long` sets the variable.
fn count_seeds() -> u64 {
    std::env::var_os("TENURE_TEST_LONG").map_or(SEEDS, |_| LONG_SEEDS)
}

/// A harmful action of another user, with its name.
type Deed = (&'static str, fn(&mut World));

/// Runs for this number of seconds.
fn run_for(world: &mut World, span: i64) {
    let end = world.now + span;
    world.wake();
    while world.now < end {
        world.take_turn();
    }
}

/// Without further trouble, the machine comes to rest in the wanted state.
fn run_until_settled(world: &mut World) {
    world.trouble = 0;
    world.kills = 0;
    world.heal();
    // Time for an hour of waiting, for overlaps, and for all other due steps.
    run_for(world, DAY);
    let ledger = &world.ledger;
    let what = format!("seed {}: {ledger:?}", world.seed);
    let current = ledger.current.as_ref().unwrap_or_else(|| panic!("{what}"));
    assert!(ledger.trouble.is_none() && ledger.failures == 0, "{what}");
    let is_resting = ledger.next.is_none() && ledger.retiring.is_empty();
    if is_resting {
        assert!(current.verified_at.is_some() && world.staging.is_none(), "{what}");
        let live = world.live();
        assert_eq!(live.len(), 1, "{what}");
        assert_eq!(live[0].name, current.name, "{what}");
    }
    assert_eq!(world.sweep(), 0, "{what}");
    assert_eq!(world.list_images(), ["of-somebody", "gitlab-flux-token"], "{what}");
}

/// After a revocation, nothing is left.
fn revoke_and_settle(world: &mut World) {
    world.wanted = WantedState::Revoked("the grant was deleted".to_owned());
    let mut last = None;
    for _ in 0..50 {
        run_for(world, 2 * 3_600);
        let (snapshot, now) = (world.snapshot(), world.moment());
        let planned = plan(&snapshot, now);
        assert_eq!(planned, plan(&snapshot, now), "the same is planned twice");
        let is_over = planned.is_over;
        last = Some(planned);
        if is_over {
            break;
        }
    }
    let last = last.unwrap();
    assert!(last.is_over, "seed {}: {last:?}", world.seed);
    assert!(
        world.live().is_empty() && world.secret.is_none() && world.staging.is_none(),
        "seed {}",
        world.seed
    );
    assert_eq!(world.list_images(), ["of-somebody"], "seed {}", world.seed);
}

/// The trouble and the kills come at random. No credential is forgotten at the host.
#[test]
fn random_trouble_never_leaves_source_without_credential() {
    let mut minted = 0;
    for seed in 1..=count_seeds() {
        let flavour = [Flavour::Token, Flavour::Key, Flavour::Token][usize::try_from(seed % 3).unwrap()];
        let mut world = World::new(seed, flavour);
        world.trouble = 25;
        world.kills = 8;
        run_for(&mut world, 2 * DAY);
        run_until_settled(&mut world);
        minted += world.minted;
        world.trouble = 25;
        world.kills = 8;
        revoke_and_settle(&mut world);
    }
    // The machine did real work.
    assert!(minted > count_seeds() * 2, "{minted}");
}

/// Alternates randomly between two requests. A request that just got an answer continues before the other one acts.
fn take_turns(world: &mut World) {
    world.take_turn();
    if world.answer.is_none() && world.chance.is_one_of(50) {
        world.swap_entry();
        world.wake();
    }
}

/// The entry asks for more, and it is approved: another request takes over, until nothing of the earlier one is left.
fn hand_over(world: &mut World) {
    world.other = Some(Side::new("request-2", "decade00-0000"));
    let had_any = world.ledger.current.is_some();
    let end = world.now + 20 * DAY;
    // Some users revert their entry, and some of those then restore the change: at most two turns.
    let mut turns = world.chance.draw_below(4).saturating_sub(1);
    loop {
        take_turns(world);
        let both = [Some(&world.wanted), world.other.as_ref().map(|side| &side.wanted)];
        // An ended request is gone. A later request for the same would be a new one.
        let are_asked_for = both == [Some(&WantedState::Delivered); 2];
        if turns > 0 && are_asked_for && world.chance.is_one_of(2) {
            world.turn_back();
            turns -= 1;
        }
        assert!(world.now < end, "seed {}: {:?}", world.seed, world.ledger);
        if world.is_heir {
            continue;
        }
        let successor = world.other.as_ref().unwrap();
        let is_proven = successor
            .ledger
            .current
            .as_ref()
            .is_some_and(|held| held.verified_at.is_some());
        assert!(
            !had_any || is_proven || is_living(&world.ledger),
            "seed {}: the earlier one ended before the new one was proven",
            world.seed
        );
        if !is_living(&world.ledger) && is_proven {
            // No entry asks for the request any more.
            world.wanted = WantedState::Revoked("nobody asks for it any more".to_owned());
        }
        let (snapshot, now) = (world.snapshot(), world.moment());
        world.answer.clone_from(&snapshot.answer);
        if matches!(world.wanted, WantedState::Revoked(_)) && plan(&snapshot, now).is_over {
            break;
        }
    }
    while world.answer.is_some() {
        world.take_turn();
    }
    world.swap_entry();
    world.other = None;
}

#[test]
fn handover_never_leaves_source_without_credential() {
    let mut names = BTreeSet::new();
    for seed in 1..=count_seeds() {
        let mut world = World::new(seed, [Flavour::Token, Flavour::Key][usize::try_from(seed % 2).unwrap()]);
        world.trouble = if seed % 3 == 0 { 0 } else { 20 };
        world.kills = world.trouble / 3;
        let established = i64::try_from(world.chance.draw_below(3 * 86_400)).unwrap();
        run_for(&mut world, established);
        hand_over(&mut world);
        run_until_settled(&mut world);
        let secret = world.secret.as_ref().unwrap();
        assert_eq!(secret.marked_for.as_deref(), Some(world.name), "seed {seed}");
        names.insert(world.name);
        revoke_and_settle(&mut world);
    }
    // Each request had the Secret at some time.
    assert_eq!(names.len(), 2);
}

#[test]
fn thousand_rotations_fail_no_fetch() {
    for (flavour, trouble) in [(Flavour::Token, 0), (Flavour::Token, 15), (Flavour::Key, 15)] {
        let mut world = World::new(7, flavour);
        world.trouble = trouble;
        world.kills = trouble / 5;
        while world.verified < 1_000 {
            world.take_turn();
        }
        assert!(world.fetches > 10_000, "{}", world.fetches);
        run_until_settled(&mut world);
        if trouble == 0 {
            // Each credential has one order, and no source was asked to try twice.
            assert_eq!(world.orders, world.minted);
        }
    }
}

#[test]
fn hourly_tokens_are_replaced_after_half_an_hour() {
    for (seed, trouble) in [(1, 0), (2, 10), (3, 10), (4, 10)] {
        let mut world = World::new(seed, Flavour::Hourly);
        world.trouble = trouble;
        // Trouble of half an hour is an outage for hourly tokens, and their documentation says so.
        world.longest_trouble = 60;
        run_for(&mut world, 2 * DAY);
        let days = world.minted / 2;
        assert!((45..=70).contains(&days), "{days}");
        world.trouble = 0;
        revoke_and_settle(&mut world);
    }
}

/// The crash table: every step of the first credential, of its replacement and of its end, killed before its effect and after it.
#[test]
fn a_kill_at_any_step_loses_nothing() {
    for flavour in [Flavour::Token, Flavour::Key] {
        let mut killed = 0;
        for at in 1..60 {
            for harm in [Harm::KillBefore, Harm::KillAfter, Harm::KillBetween] {
                let mut world = World::new(at, flavour);
                world.planned_harm = Some((at, harm));
                run_for(&mut world, 3 * DAY);
                run_until_settled(&mut world);
                // The remaining steps run while the credential ends.
                revoke_and_settle(&mut world);
                killed += u64::from(world.planned_harm.is_none());
            }
        }
        assert!(killed > 100, "{killed}");
    }
}

/// Each kind of trouble at each step.
#[test]
fn rotation_recovers_from_each_trouble_at_any_step() {
    for harm in Harm::TROUBLES {
        let mut met = 0;
        for at in 1..40 {
            let mut world = World::new(at, Flavour::Token);
            world.planned_harm = Some((at, harm));
            run_for(&mut world, 3 * DAY);
            met += u64::from(world.planned_harm.is_none());
            run_until_settled(&mut world);
            revoke_and_settle(&mut world);
        }
        assert!(met > 0, "{harm:?} was never met");
    }
}

#[test]
fn credential_is_repaired_after_each_outside_change() {
    let deeds: [Deed; 12] = [
        ("the Secret is deleted", |world| world.secret = None),
        ("the value is edited", |world| {
            world.secret.as_mut().unwrap().fingerprint = Some("somebody's".to_owned());
        }),
        ("our mark is taken off", |world| {
            world.secret.as_mut().unwrap().marked_for = None
        }),
        ("our mark is taken off, and the value edited", |world| {
            let secret = world.secret.as_mut().unwrap();
            secret.marked_for = None;
            secret.fingerprint = Some("somebody's".to_owned());
        }),
        ("our mark is forged, and the value edited", |world| {
            let secret = world.secret.as_mut().unwrap();
            secret.marked_for = Some("somebody's".to_owned());
            secret.fingerprint = Some("somebody's".to_owned());
        }),
        ("the host has certificates of another authority", |world| {
            world.authority = Some("another".to_owned());
        }),
        ("it is revoked in the host's pages", |world| world.revoke_by_hand()),
        ("the host forgets it", |world| world.host.clear()),
        ("the staging Secret is emptied", |world| world.staging = None),
        ("the account is made anew", |world| {
            world.account = Some(accounts::make(1 << 40))
        }),
        ("an account names it no more", |world| {
            world.account.as_mut().unwrap()["imagePullSecrets"] = serde_json::json!([{ "name": "of-somebody" }]);
        }),
        ("the project moves", |world| world.path = "group-1/elsewhere".to_owned()),
    ];
    for (what, deed) in deeds {
        for seed in 1..=40 {
            let mut world = World::new(seed, Flavour::Token);
            world.trouble = if seed % 2 == 0 { 10 } else { 0 };
            let mut chance = Chance(seed);
            run_for(&mut world, DAY + i64::try_from(chance.draw_below(100_000)).unwrap());
            // Damage by another user stays until it is repaired.
            world.is_strict = false;
            if world.secret.is_some() {
                deed(&mut world);
            }
            run_for(&mut world, DAY);
            world.heal_sources();
            world.is_strict = true;
            run_until_settled(&mut world);
            let secret = world.secret.as_ref().unwrap_or_else(|| panic!("{what}: seed {seed}"));
            assert_eq!(secret.marked_for.as_deref(), Some("request-1"), "{what}: seed {seed}");
            assert_eq!(secret.authority, world.authority, "{what}: seed {seed}");
        }
    }
}

/// A project may refuse every new token. The host would ban the cluster's address after some refused attempts.
#[test]
fn refusing_project_gets_few_new_credentials() {
    for flavour in [Flavour::Token, Flavour::Key] {
        let mut world = World::new(9, flavour);
        world.refuses_new = true;
        world.most_mints = 6;
        run_for(&mut world, DAY);
        assert!((15..=35).contains(&world.minted), "{}", world.minted);
        assert!(world.refused < 10 * world.minted, "{} {}", world.refused, world.minted);
        assert!(world.ledger.trouble.is_some() && world.live().len() <= 1);
        // As soon as the project accepts new credentials, the next one is delivered.
        world.refuses_new = false;
        run_until_settled(&mut world);
        assert_eq!(world.ledger.refusals, 0);
    }
}

/// The host is listed within a minute of a source's failure, and only once.
#[test]
fn revoked_token_is_replaced_after_source_failure() {
    for seed in 1..=20 {
        let mut world = World::new(seed, Flavour::Token);
        run_for(&mut world, DAY / 2);
        world.is_strict = false;
        let (revoked, begun) = (world.ledger.current.clone().unwrap(), world.now);
        world.revoke_by_hand();
        while world
            .ledger
            .current
            .as_ref()
            .is_none_or(|held| held.name == revoked.name)
        {
            world.take_turn();
            // The longest interval of a source is 130 minutes, and the host is also listed each hour.
            assert!(world.now < begun + 2 * 3_600, "seed {seed}");
        }
        world.heal_sources();
        world.is_strict = true;
        run_until_settled(&mut world);
    }
}

#[test]
fn leaked_credential_ends_once_replacement_is_proven() {
    let mut world = World::new(3, Flavour::Token);
    run_for(&mut world, DAY / 2);
    let leaked = world.ledger.current.clone().unwrap();
    world.order = Some(Order {
        id: "2026-01-01".to_owned(),
        cause: "it was in a log".to_owned(),
        is_leak: true,
    });
    let begun = world.now;
    while world.live().iter().any(|credential| credential.name == leaked.name) {
        world.take_turn();
    }
    assert!(world.now - begun < 15 * 60, "{}", world.now - begun);
    assert_eq!(world.ledger.handled_order.as_deref(), Some("2026-01-01"));
    // Each order makes one credential.
    let minted = world.minted;
    run_for(&mut world, 3_600);
    assert_eq!(world.minted, minted);
}

#[test]
fn host_clock_skew_leaves_credential_lifetime_unchanged() {
    for ahead in [-DAY, DAY] {
        let mut world = World::new(5, Flavour::Token);
        world.host_ahead = ahead;
        run_for(&mut world, 5 * DAY);
        run_until_settled(&mut world);
        let end = world.ledger.current.as_ref().unwrap().expires_at.clone().unwrap().0;
        let host_now = Timestamp::from_second(world.now + ahead).unwrap();
        let days = end.duration_since(host_now).as_secs() / DAY;
        assert!((13..=16).contains(&days), "{days}");
    }
}
