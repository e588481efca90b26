//! Instances that learn of moves late, in any order, and release slowly: the parts with which each may begin.

use super::*;

fn make_progress(revision: u64) -> Progress {
    Progress {
        tenants: revision,
        namespaces: revision,
    }
}

fn make_part(name: &str) -> ShardUnit {
    ShardUnit::Namespace(name.to_owned())
}

fn make_parts(names: &[&str]) -> BTreeSet<ShardUnit> {
    names.iter().map(|name| make_part(name)).collect()
}

fn make_record(revision: u64) -> Option<ReleaseRecord> {
    let (seen, changed) = (make_progress(revision), make_progress(revision));
    Some(ReleaseRecord { seen, changed })
}

fn make_peer(lease: &str, released: Option<ReleaseRecord>) -> Peer {
    Peer {
        lease: lease.to_owned(),
        holder: "somebody".to_owned(),
        released,
    }
}

fn make_shard(name: &str) -> Instance {
    Instance::Shard(name.parse().expect("a name"))
}

#[test]
fn instance_waits_until_previous_owner_releases_part() {
    let mut main = OwnedParts::new(Instance::Main);
    assert_eq!(
        main.take_own(&make_parts(&["a", "b"]), make_progress(9), make_progress(9)),
        Vec::new()
    );
    // No other instance leads.
    assert_eq!(main.take_ready(&[]), [make_part("a"), make_part("b")]);
    assert_eq!(main.release_record(), make_record(9));
    let mut other = OwnedParts::new(make_shard("x"));
    assert_eq!(
        other.take_own(&make_parts(&[]), make_progress(9), make_progress(9)),
        Vec::new()
    );
    // At revision 10, one part moves to the other instance, which learns of it first.
    assert_eq!(
        other.take_own(&make_parts(&["b"]), make_progress(10), make_progress(10)),
        Vec::new()
    );
    let says = |main: &OwnedParts| [make_peer("tenure-controller", main.release_record())];
    assert_eq!(other.take_ready(&says(&main)), Vec::new());
    let message = other.describe_wait(&says(&main)).expect("it waits");
    assert!(message.contains("has released them"), "{message}");
    // The main instance learns of the move, and some work is still in progress.
    assert_eq!(
        main.take_own(&make_parts(&["a"]), make_progress(10), make_progress(10)),
        [make_part("b")]
    );
    assert_eq!(main.release_record(), make_record(9));
    assert_eq!(other.take_ready(&says(&main)), Vec::new());
    main.take_left(&make_part("b"));
    assert_eq!(main.release_record(), make_record(10));
    assert_eq!(other.take_ready(&says(&main)), [make_part("b")]);
    assert_eq!(other.describe_wait(&says(&main)), None);
    // The part comes back before the other instance has released it.
    assert_eq!(
        main.take_own(&make_parts(&["a", "b"]), make_progress(12), make_progress(12)),
        Vec::new()
    );
    assert_eq!(
        main.take_ready(&[make_peer("tenure-controller-shard-x", other.release_record())]),
        Vec::new()
    );
    assert_eq!(
        other.take_own(&make_parts(&[]), make_progress(12), make_progress(12)),
        [make_part("b")]
    );
    other.take_left(&make_part("b"));
    assert_eq!(
        main.take_ready(&[make_peer("tenure-controller-shard-x", other.release_record())]),
        [make_part("b")]
    );
}

#[test]
fn part_returning_during_release_is_taken_anew() {
    let mut holdings = OwnedParts::new(Instance::Main);
    assert_eq!(
        holdings.take_own(&make_parts(&["a"]), make_progress(1), make_progress(1)),
        Vec::new()
    );
    assert_eq!(holdings.take_ready(&[]), [make_part("a")]);
    assert_eq!(
        holdings.take_own(&make_parts(&[]), make_progress(2), make_progress(2)),
        [make_part("a")]
    );
    assert_eq!(
        holdings.take_own(&make_parts(&["a"]), make_progress(3), make_progress(3)),
        Vec::new()
    );
    assert_eq!(
        holdings.take_ready(&[]),
        Vec::new(),
        "the first of it is under way still"
    );
    assert_eq!(holdings.release_record(), make_record(1));
    holdings.take_left(&make_part("a"));
    assert_eq!(
        holdings.take_own(&make_parts(&["a"]), make_progress(3), make_progress(3)),
        Vec::new()
    );
    assert_eq!(holdings.take_ready(&[]), [make_part("a")]);
}

#[test]
fn unsharded_instance_and_shards_exclude_each_other() {
    let mut only = OwnedParts::new(Instance::Only);
    assert_eq!(
        only.take_own(&make_parts(&["a"]), make_progress(1), make_progress(1)),
        Vec::new()
    );
    let beside = [make_peer("tenure-controller-shard-x", make_record(100))];
    assert_eq!(only.take_ready(&beside), Vec::new());
    let message = only.describe_wait(&beside);
    assert!(message.is_some_and(|message| message.contains("would reconcile all of it")));
    assert_eq!(only.take_ready(&[]), [make_part("a")]);
    assert_eq!(only.release_record(), None);
    // An instance that comes later waits, and harms no other.
    assert_eq!(
        only.take_own(&make_parts(&["a", "b"]), make_progress(2), make_progress(2)),
        Vec::new()
    );
    assert_eq!(only.take_ready(&beside), [make_part("b")]);
    let mut other = OwnedParts::new(make_shard("x"));
    assert_eq!(
        other.take_own(&make_parts(&["a"]), make_progress(1), make_progress(1)),
        Vec::new()
    );
    let main = [make_peer("tenure-controller", None)];
    assert_eq!(other.take_ready(&main), Vec::new());
    assert!(
        other
            .describe_wait(&main)
            .is_some_and(|message| message.contains("may reconcile everything"))
    );
}

#[test]
fn progress_covers_tenants_and_namespaces() {
    let seen = |tenants, namespaces| Progress { tenants, namespaces };
    assert!(seen(5, 5).covers(&seen(5, 4)));
    assert!(!seen(5, 5).covers(&seen(4, 6)) && !seen(5, 5).covers(&seen(6, 4)));
    assert_eq!(seen(7, 9).to_string().parse(), Ok(seen(7, 9)));
    for odd in [
        "",
        "7,9",
        "tenants=7",
        "tenants=7,namespaces=x",
        "namespaces=9,tenants=7",
        "tenants=-1,namespaces=1",
    ] {
        assert_eq!(odd.parse::<Progress>(), Err(InvalidProgress), "{odd}");
    }
}

#[test]
fn unserved_shard_keys_are_named() {
    let keys = ["a", "b", ""].map(str::to_owned).into();
    let peers = [
        make_peer("tenure-controller-shard-a", None),
        make_peer("tenure-controller-shard-c", None),
        make_peer("other", None),
    ];
    assert_eq!(list_unserved(&keys, &peers), ["", "b"]);
}

/// Numbers that look like chance, the same each time.
struct Dice(u64);

impl Dice {
    fn throw_die(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// One instance in a random run: up to where it has seen the events, and the parts that it works on.
struct Player {
    holdings: OwnedParts,
    seen: usize,
    works: BTreeSet<ShardUnit>,
    leaving: Vec<ShardUnit>,
    lease: Option<ReleaseRecord>,
}

/// Labels move at random between three instances. Each instance learns of it, releases, writes its Lease and reads the others' at random moments. No two instances ever
/// work on the same part, and in the end the right one works on each.
#[test]
fn two_instances_never_work_on_same_part() {
    let names = ["a", "b", "c"];
    let instances = [Instance::Main, make_shard("x"), make_shard("y")];
    let mut moved = 0;
    for seed in 0..1000 {
        let mut dice = Dice(seed);
        // After each revision, the history holds the owner of each name.
        let mut history: Vec<[usize; 3]> = vec![[0; 3]];
        let mut players: Vec<Player> = instances
            .iter()
            .map(|instance| Player {
                holdings: OwnedParts::new(instance.clone()),
                seen: 0,
                works: BTreeSet::new(),
                leaving: Vec::new(),
                lease: None,
            })
            .collect();
        for step in 0..1500 {
            let (who, is_ending) = (dice.throw_die(3) as usize, step >= 500);
            match dice.throw_die(5) {
                0 if !is_ending && history.len() < 40 => {
                    let mut next = *history.last().expect("a beginning");
                    next[dice.throw_die(3) as usize] = dice.throw_die(3) as usize;
                    history.push(next);
                }
                1 => {
                    let player = &mut players[who];
                    player.seen = if is_ending {
                        history.len() - 1
                    } else {
                        (player.seen + dice.throw_die(3) as usize).min(history.len() - 1)
                    };
                    let now = history[player.seen];
                    let own: Vec<&str> = names
                        .iter()
                        .zip(now)
                        .filter(|(_, whose)| *whose == who)
                        .map(|(name, _)| *name)
                        .collect();
                    let revision = make_progress(player.seen as u64 + 1);
                    player
                        .leaving
                        .extend(player.holdings.take_own(&own_set(&own), revision, revision));
                }
                2 => {
                    let player = &mut players[who];
                    if let Some(left) = player.leaving.pop() {
                        player.works.remove(&left);
                        player.holdings.take_left(&left);
                        let now = history[player.seen];
                        let own: Vec<&str> = names
                            .iter()
                            .zip(now)
                            .filter(|(_, whose)| *whose == who)
                            .map(|(name, _)| *name)
                            .collect();
                        let revision = make_progress(player.seen as u64 + 1);
                        player
                            .leaving
                            .extend(player.holdings.take_own(&own_set(&own), revision, revision));
                    }
                }
                3 => players[who].lease = players[who].holdings.release_record(),
                _ => {
                    let peers: Vec<Peer> = players
                        .iter()
                        .zip(&instances)
                        .enumerate()
                        .filter(|(other, _)| *other != who)
                        .map(|(_, (player, instance))| make_peer(&instance.lease(), player.lease))
                        .collect();
                    for ready in players[who].holdings.take_ready(&peers) {
                        let others = players.iter().enumerate().filter(|(other, _)| *other != who);
                        let taken = others.filter(|(_, player)| player.works.contains(&ready)).count();
                        assert_eq!(taken, 0, "seed {seed}, step {step}: {ready} is worked on twice");
                        players[who].works.insert(ready);
                        moved += 1;
                    }
                }
            }
        }
        let last = *history.last().expect("a beginning");
        for (who, player) in players.iter().enumerate() {
            let expected: Vec<&str> = names
                .iter()
                .zip(last)
                .filter(|(_, whose)| *whose == who)
                .map(|(name, _)| *name)
                .collect();
            assert_eq!(player.works, own_set(&expected), "seed {seed}: {:?}", player.holdings);
        }
    }
    assert!(moved > 2000, "hardly anything moved: {moved}");
}

fn own_set(names: &[&str]) -> BTreeSet<ShardUnit> {
    make_parts(names)
}
