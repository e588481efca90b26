//! Changes by others at the host and in the cluster, at random moments.

use std::collections::BTreeSet;

use super::super::rate_limits::HostRateLimiter;
use super::super::{Order, SecretFacts, WantedState, plan};
use super::host::Flavour;
use super::model::World;
use super::{DAY, run_for, run_until_settled};

const HOUR: i64 = 3_600;
/// The longest life of a leaked credential after the order, if nothing fails any more. A replacement in progress, and then the one for the leak, may each wait for
/// the deadline of sources. The minimum between unplanned credentials comes in addition.
const LONGEST_LEAK: i64 = 2 * HOUR;
/// The largest number of credentials in an hour that a project gets which refuses all of them: each is tried for ten minutes.
const MOST_REFUSED: usize = 6;

impl World {
    /// Lets another user interfere, at random.
    pub(super) fn interfere(&mut self) {
        if !self.chance.is_one_of(self.outside) || self.wanted != WantedState::Delivered {
            return;
        }
        // Sources fail until the damage is repaired.
        self.is_strict = false;
        let kind = self.chance.draw_below(11);
        if kind == 8 {
            self.replace_authority();
            return;
        }
        let Some(secret) = self.secret.as_mut() else { return };
        match kind {
            0 => self.secret = None,
            1 => secret.fingerprint = Some("somebody's".to_owned()),
            2 => secret.fingerprint = None,
            3 => secret.marked_for = None,
            4 => {
                secret.marked_for = None;
                secret.fingerprint = Some("somebody's".to_owned());
            }
            9 => secret.marked_for = Some("somebody's".to_owned()),
            10 => {
                secret.marked_for = Some("somebody's".to_owned());
                secret.fingerprint = Some("somebody's".to_owned());
            }
            5 => secret.authority = Some("somebody's".to_owned()),
            6 => self.revoke_by_hand(),
            _ => self.host.clear(),
        }
        if let Some(secret) = &mut self.secret {
            self.versions += 1;
            secret.resource_version = self.versions.to_string();
        }
        self.wake();
    }

    /// Lets another user edit the Secret, if there is one.
    pub(super) fn edit_secret(&mut self, edit: impl FnOnce(&mut SecretFacts)) {
        let Some(secret) = &mut self.secret else { return };
        edit(secret);
        self.versions += 1;
        secret.resource_version = self.versions.to_string();
        self.wake();
    }

    /// The host gets a certificate of another authority, and an administrator tells the provider.
    fn replace_authority(&mut self) {
        let authority = Some(format!("authority-{}", self.chance.draw_below(1 << 20)));
        self.host_authority.clone_from(&authority);
        self.authority = authority;
        self.wake();
    }

    /// Repairs the damage of other users.
    pub(super) fn heal_sources(&mut self) {
        for source in &mut self.sources {
            source.cached = None;
        }
    }

    pub(super) fn revoke_by_hand(&mut self) {
        let secret = self.secret.clone().unwrap();
        for credential in self
            .host
            .values_mut()
            .filter(|credential| Some(&credential.fingerprint) == secret.fingerprint.as_ref())
        {
            credential.is_revoked = true;
        }
    }

    pub(super) fn heal(&mut self) {
        self.unavailable = None;
    }

    /// Deletes a Secret that the plan takes for another writer's, as its condition asks. The controller died before it
    /// recorded the Secret, and then the mark was removed.
    fn delete_foreign(&mut self) {
        let (snapshot, now) = (self.snapshot(), self.moment());
        let findings = plan(&snapshot, now).findings;
        self.answer.clone_from(&snapshot.answer);
        if findings.iter().any(|finding| finding.reason == "ForeignSecret") {
            self.secret = None;
            self.wake();
        }
    }

    /// Lets no source fetch any more.
    fn stop_sources(&mut self) {
        for source in &mut self.sources {
            source.next_fetch = i64::MAX;
            source.is_dead = true;
        }
    }

    fn order_leak(&mut self, id: &str) -> BTreeSet<u64> {
        self.order = Some(Order {
            id: id.to_owned(),
            cause: "it was in a log".to_owned(),
            is_leak: true,
        });
        self.wake();
        self.live().iter().map(|credential| credential.id).collect()
    }
}

/// Runs until the others and the host leave it alone, and checks the end.
fn run_to_rest(world: &mut World) {
    world.outside = 0;
    world.trouble = 0;
    world.kills = 0;
    world.heal();
    run_for(world, DAY);
    world.delete_foreign();
    run_for(world, DAY);
    world.heal_sources();
    world.is_strict = true;
    run_until_settled(world);
    let secret = world
        .secret
        .as_ref()
        .unwrap_or_else(|| panic!("seed {}: no Secret", world.seed));
    assert_eq!(secret.marked_for.as_deref(), Some("request-1"), "seed {}", world.seed);
    assert_eq!(secret.authority, world.authority, "seed {}", world.seed);
}

#[test]
fn credential_is_delivered_once_outside_changes_stop() {
    let mut minted = 0;
    for seed in 1..=super::count_seeds() {
        let flavour = [Flavour::Token, Flavour::Key][usize::try_from(seed % 2).unwrap()];
        let mut world = World::new(seed, flavour);
        world.others = world.chance.draw_below(260);
        world.page_size = [100, 30, 1][usize::try_from(seed % 3).unwrap()];
        world.trouble = 10;
        world.kills = 3;
        world.longest_trouble = 600;
        world.outside = 2;
        if seed % 2 == 0 {
            world.host_authority = Some("own".to_owned());
            world.authority = Some("own".to_owned());
        }
        run_for(&mut world, DAY);
        run_to_rest(&mut world);
        minted += world.minted;
    }
    assert!(minted > super::count_seeds() * 4, "{minted}");
}

/// A provider without the host's authority gets no credential, and sends the host nothing.
#[test]
fn unknown_authority_blocks_new_credentials_and_keeps_delivered() {
    for seed in 1..=20 {
        let mut world = World::new(seed, Flavour::Token);
        world.host_authority = Some("own".to_owned());
        run_for(&mut world, DAY);
        assert!(world.minted == 0 && world.secret.is_none(), "seed {seed}");
        world.authority = Some("own".to_owned());
        run_for(&mut world, DAY);
        let delivered = world.secret.clone().unwrap();
        assert_eq!(delivered.authority.as_deref(), Some("own"), "seed {seed}");
        // The provider loses its authority again: nothing of what was approved is taken away.
        world.authority = None;
        run_for(&mut world, DAY / 2);
        let left = world.secret.clone().unwrap();
        assert_eq!(left.fingerprint, delivered.fingerprint, "seed {seed}");
        assert_eq!(left.authority.as_deref(), Some("own"), "seed {seed}");
        assert!(world.works(left.fingerprint.as_deref()), "seed {seed}");
        world.authority = Some("own".to_owned());
        run_until_settled(&mut world);
    }
}

/// A leak is ordered while a replacement is in progress, a source is dead, or another user interferes. All credentials of that moment end by their deadline.
#[test]
fn leaked_credentials_end_by_their_deadline() {
    for seed in 1..=super::count_seeds() {
        let flavour = [Flavour::Token, Flavour::Key][usize::try_from(seed % 2).unwrap()];
        let mut world = World::new(seed, flavour);
        world.longest_trouble = 600;
        let established = i64::try_from(world.chance.draw_below(3 * 86_400)).unwrap();
        run_for(&mut world, established);
        world.is_strict = false;
        if seed % 3 == 0 {
            world.stop_sources();
        }
        let before = i64::try_from(world.chance.draw_below(7_200)).unwrap();
        run_for(&mut world, before);
        let leaked = world.order_leak("leak");
        // Others interfere once more while the leaked one is replaced.
        let meanwhile = i64::try_from(world.chance.draw_below(1_800)).unwrap();
        let begun = world.now;
        run_for(&mut world, meanwhile);
        if seed % 4 != 0 && world.secret.is_some() {
            world.outside = 100;
            world.interfere();
            world.outside = 0;
        }
        run_for(&mut world, LONGEST_LEAK - meanwhile);
        let living: Vec<u64> = world.live().iter().map(|credential| credential.id).collect();
        let leaked: Vec<&u64> = leaked.iter().filter(|id| living.contains(id)).collect();
        assert!(
            leaked.is_empty(),
            "seed {seed}: {leaked:?} live on {} s after the leak: {:?}",
            world.now - begun,
            world.ledger
        );
    }
}

/// Several projects of one host, which refuses the new credentials of all of them.
#[test]
fn projects_of_refusing_host_share_one_rate_limit() {
    for seed in 1..=10 {
        let mut restraint = HostRateLimiter::default();
        let mut worlds: Vec<World> = (0..8)
            .map(|number| {
                let mut world = World::new(seed * 100 + number, Flavour::Token);
                world.target_id = 42 + number;
                world.refuses_new = true;
                world.most_mints = MOST_REFUSED;
                // Others delete the Secret again and again.
                world.outside = 3;
                world
            })
            .collect();
        let end = worlds[0].now + DAY;
        let mut refused: Vec<i64> = Vec::new();
        loop {
            let world = worlds.iter_mut().min_by_key(|world| world.now).unwrap();
            if world.now >= end {
                break;
            }
            let before = world.refused;
            std::mem::swap(&mut restraint, &mut world.restraint);
            let now = world.now;
            world.take_turn();
            std::mem::swap(&mut restraint, &mut world.restraint);
            if world.refused > before {
                refused.push(now);
            }
        }
        // GitLab's ban begins at thirty in three minutes.
        let in_three_minutes = |at: i64| refused.iter().filter(|other| (at..at + 180).contains(*other)).count();
        let most = refused.iter().map(|at| in_three_minutes(*at)).max().unwrap();
        assert!(
            (5..=20).contains(&most),
            "seed {seed}: {most} refused probes in three minutes"
        );
    }
}
