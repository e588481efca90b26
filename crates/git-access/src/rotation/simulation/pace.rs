//! How often a failing host or cluster is asked, and how soon a wrong authority in the Secret is replaced.

use super::super::WantedState;
use super::host::{Chance, Flavour};
use super::model::World;
use super::{DAY, run_for, run_until_settled};
use tenure_remote_requests::git_host::HostError;

/// The largest number of attempts in three days: after 1, 2, 4, 8, 16 and 32 minutes, and then each hour.
const MOST_WRITES: u64 = 3 * 24 + 6;
/// An attempt may need two requests: an order whose answer is lost, and then a list; or one for a moved project, and then its lookup.
const MOST_REQUESTS: u64 = 2 * MOST_WRITES;

/// Brings a world into a state in which requests to the host are due.
type Situation = (&'static str, fn(&mut World));

const SITUATIONS: [Situation; 4] = [
    ("nothing was delivered yet", |_| {}),
    ("the Secret is deleted", |world| {
        run_for(world, DAY / 2);
        world.secret = None;
    }),
    ("the credential is due", |world| run_for(world, 88 * DAY)),
    ("the grant is deleted", |world| {
        run_for(world, DAY / 2);
        world.wanted = WantedState::Revoked("the grant was deleted".to_owned());
    }),
];

fn list_failures() -> [HostError; 6] {
    [
        HostError::Unauthenticated,
        HostError::Forbidden("403".to_owned()),
        HostError::Refused {
            status: 422,
            message: "no".to_owned(),
        },
        HostError::NotUnderstood("HTML".to_owned()),
        HostError::Unknown("502".to_owned()),
        HostError::Unreachable("connection refused".to_owned()),
    ]
}

/// Ends the trouble, and checks the end.
fn end_trouble(world: &mut World) {
    world.heal();
    world.refuses_writes = false;
    world.heal_sources();
    world.is_strict = true;
    match world.wanted {
        WantedState::Revoked(_) => super::revoke_and_settle(world),
        _ => run_until_settled(world),
    }
}

#[test]
fn a_failing_host_is_asked_ever_less() {
    for flavour in [Flavour::Token, Flavour::Key] {
        for (situation, prepare) in SITUATIONS {
            for failure in list_failures() {
                let mut world = World::new(4, flavour);
                prepare(&mut world);
                world.is_strict = false;
                world.unavailable = Some((i64::MAX, failure.clone()));
                let before = world.requests;
                run_for(&mut world, 3 * DAY);
                let requests = world.requests - before;
                let what = format!("{flavour:?}, {situation}, {failure}: {requests} requests in three days");
                assert!((1..=MOST_REQUESTS).contains(&requests), "{what}");
                end_trouble(&mut world);
            }
        }
    }
}

#[test]
fn a_cluster_that_refuses_writes_is_asked_ever_less() {
    for flavour in [Flavour::Token, Flavour::Key] {
        for (situation, prepare) in SITUATIONS {
            let mut world = World::new(4, flavour);
            prepare(&mut world);
            world.is_strict = false;
            world.refuses_writes = true;
            let (before, minted) = (world.writes, world.minted);
            run_for(&mut world, 3 * DAY);
            let (writes, minted) = (world.writes - before, world.minted - minted);
            let what = format!("{flavour:?}, {situation}: {writes} writes and {minted} credentials in three days");
            assert!((1..=MOST_WRITES).contains(&writes) && minted <= 1, "{what}");
            end_trouble(&mut world);
        }
    }
}

/// The failures of two sides don't shorten each other's waits.
#[test]
fn failing_host_and_cluster_get_ever_fewer_requests() {
    for flavour in [Flavour::Token, Flavour::Key] {
        for (situation, prepare) in SITUATIONS {
            for failure in list_failures() {
                let mut world = World::new(4, flavour);
                prepare(&mut world);
                world.is_strict = false;
                world.refuses_writes = true;
                world.unavailable = Some((i64::MAX, failure.clone()));
                let before = (world.requests, world.writes);
                run_for(&mut world, 3 * DAY);
                let (requests, writes) = (world.requests - before.0, world.writes - before.1);
                let what = format!(
                    "{flavour:?}, {situation}, {failure}: {requests} requests and {writes} writes in three days"
                );
                assert!(
                    requests <= MOST_REQUESTS && (1..=MOST_WRITES).contains(&writes),
                    "{what}"
                );
                end_trouble(&mut world);
            }
        }
    }
}

/// Changes the authority in the Secret or at the host.
type Change = (&'static str, fn(&mut World));

const CHANGES: [Change; 3] = [
    ("another user writes one", |world| {
        world.edit_secret(|secret| secret.authority = Some("of-somebody".to_owned()));
    }),
    ("another user removes it", |world| {
        world.edit_secret(|secret| secret.authority = None)
    }),
    ("the host has a new one", |world| {
        world.host_authority = Some("new".to_owned());
        world.authority = Some("new".to_owned());
        world.wake();
    }),
];

/// A source can't use a Secret with a wrong authority, so the repair waits for nothing, and makes no new credential.
#[test]
fn wrong_authority_is_replaced_without_new_credential() {
    let mut during_rotation = 0;
    for (what, change) in CHANGES {
        for seed in 1..=60 {
            let flavour = [Flavour::Token, Flavour::Key][usize::try_from(seed % 2).unwrap()];
            let mut world = World::new(seed, flavour);
            world.host_authority = Some("own".to_owned());
            world.authority = Some("own".to_owned());
            let mut chance = Chance(seed);
            // Some changes come while a new credential is distributed.
            let established = [
                DAY / 2 + i64::try_from(chance.draw_below(86_400)).unwrap(),
                i64::try_from(chance.draw_below(90)).unwrap(),
            ];
            run_for(&mut world, established[usize::try_from(seed / 2 % 2).unwrap()]);
            world.is_strict = false;
            let Some(before) = world.secret.clone() else { continue };
            during_rotation += u64::from(world.ledger.next.is_some());
            let minted = world.minted;
            change(&mut world);
            run_for(&mut world, 60);
            let after = world.secret.as_ref().unwrap_or_else(|| panic!("{what}, seed {seed}"));
            assert_eq!(
                after.authority, world.authority,
                "{what}, seed {seed}: {:?}",
                world.ledger
            );
            assert_eq!(
                (&after.fingerprint, world.minted),
                (&before.fingerprint, minted),
                "{what}, seed {seed}"
            );
            world.heal_sources();
            world.is_strict = true;
            run_until_settled(&mut world);
        }
    }
    assert!(during_rotation > 10, "{during_rotation}");
}
