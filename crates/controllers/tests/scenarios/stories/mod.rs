//! Random stories of commits: objects with fields that can't be changed, objects that hold data, missing rights, finalizers, refused objects and emptied
//! paths. After each turn of a story, the invariants of [`checks`] hold. When the commit is good again, the cluster is as if it were applied afresh.
//!
//! `TENURE_TEST_STORIES` is the number of stories, `TENURE_TEST_SEED` the first seed. A failure prints its seed, and the story as it was played.

mod checks;
mod objects;
mod plot;
mod world;

use std::panic::AssertUnwindSafe;

use futures::{FutureExt as _, StreamExt as _};
use tenure_testkit::choose_length;

use self::checks::{Observed, Tally};
use self::objects::{FIXED, key_of, list_definitions, write_slot};
use self::plot::{Action, Plot, Turn};
use self::world::{Rest, World};
use crate::stage::{KUSTOMIZATION, Stage};

/// The number of stories, in CI and in a long run.
const STORIES: (u64, u64) = (6, 400);
/// The number of stories that are played at a time.
const AT_ONCE: usize = 4;
/// The seeds of stories that found a fault, or nearly hid one.
const KEPT_SEEDS: [u64; 0] = [];

fn read_number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_commits_lose_nothing_and_good_commit_is_applied() {
    let first = read_number("TENURE_TEST_SEED");
    let count = read_number("TENURE_TEST_STORIES").unwrap_or_else(|| choose_length(STORIES.0, STORIES.1));
    let begin = first.unwrap_or(1);
    let kept = KEPT_SEEDS.into_iter().filter(|_| first.is_none());
    let stage = Stage::set("stories").await;
    for definition in list_definitions() {
        stage.admin.apply(definition).await.unwrap();
    }
    let played = futures::stream::iter(kept.chain(begin..begin + count)).map(|seed| play_guarded(&stage, seed));
    let played: Vec<Result<Tally, String>> = played.buffer_unordered(AT_ONCE).collect().await;
    for definition in list_definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap();
        let kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        stage.admin.delete(kind, ("", name)).await.unwrap();
    }
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    for story in played {
        match story {
            Ok(counts) => tally.add(counts),
            Err(failure) => failures.push(failure),
        }
    }
    println!("{tally:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let Tally {
        recreated,
        pruned,
        guarded,
        refused,
    } = tally;
    // The stories did real work.
    let least = [recreated, pruned, guarded, refused].into_iter().min().unwrap();
    assert!(first.is_some() || least > 0, "{tally:?}");
    stage.shut_down().await;
}

/// Plays a story.
///
/// # Errors
/// The failure, with the seed and the story as it was played.
async fn play_guarded(stage: &Stage, seed: u64) -> Result<Tally, String> {
    let plot = Plot::draw(seed);
    let namespace = format!("story-{seed}");
    let mut world = World::set_up(stage, namespace, &plot).await;
    let played = AssertUnwindSafe(play(&mut world, &plot)).catch_unwind().await;
    let failure = match played {
        Ok(Ok(())) => {
            let tally = world.tally;
            world.clean_up().await;
            return Ok(tally);
        }
        Ok(Err(failure)) => failure,
        Err(panic) => match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(_) => "it panicked".to_owned(),
        },
    };
    let log = std::mem::take(&mut world.log);
    let Plot {
        is_partial,
        force,
        adopted,
        ..
    } = plot;
    Err(format!(
        "seed {seed}: {failure}\npartial {is_partial}, force {force}, adopted {adopted:?}\n{log}"
    ))
}

async fn play(world: &mut World<'_>, plot: &Plot) -> Result<(), String> {
    let mut before = world.observe(&world.namespace).await;
    for turn in &plot.turns {
        if !world.has_own_rights(&before) {
            let marks = world.mark_events().await;
            let rest = world.restore_account().await;
            before = check_turn(world, &before, &marks, &rest).await?;
        }
        before = play_turn(world, &before, turn).await?;
    }
    before = come_to_a_good_end(world, before).await?;
    world.check_against_fresh(&before).await?;
    delete(world).await;
    world.check_end(&before).await
}

/// Plays a turn and checks everything. Returns the objects after it.
async fn play_turn(world: &mut World<'_>, before: &Observed, turn: &Turn) -> Result<Observed, String> {
    let marks = world.mark_events().await;
    let rest = world.play(turn).await;
    let after = check_turn(world, before, &marks, &rest).await?;
    let is_commit = matches!(turn.action, Action::Commit(_));
    if is_commit && !rest.is_ready() && world.must_succeed(before, turn.allows) {
        return Err(format!("nothing is in the way of the commit: {}", rest.message));
    }
    Ok(after)
}

async fn check_turn(
    world: &mut World<'_>,
    before: &Observed,
    marks: &std::collections::BTreeMap<String, String>,
    rest: &Rest,
) -> Result<Observed, String> {
    let now = world.observe(&world.namespace).await;
    world.check_deletions(before, &now, rest)?;
    let after = world.check_rest(before, rest).await?;
    let deletions = world.check_deletions(before, &after, rest)?;
    world.tally.count(&deletions, rest);
    world.check_events(marks, &deletions).await?;
    world.check_child(&after).await?;
    world.give_claims(&after).await;
    Ok(after)
}

/// Takes everything out of the way, and commits what can be applied.
async fn come_to_a_good_end(world: &mut World<'_>, mut before: Observed) -> Result<Observed, String> {
    let mut actions = vec![
        Action::SetRights(None),
        Action::Release,
        Action::SetForce(true),
        Action::SetPrune(true),
    ];
    let mut content = world.around.content.clone();
    for (slot, version) in &mut content {
        version.is_broken = false;
        for object in write_slot(*slot, *version, &world.namespace) {
            let Some(live) = before.get(&key_of(&object)) else {
                continue;
            };
            // Nothing is recreated that is not the Kustomization's.
            let is_foreign = live["metadata"]["labels"]
                .get("kustomize.toolkit.fluxcd.io/name")
                .is_none();
            let fixed = live["metadata"]["annotations"][FIXED].as_str();
            if let (true, Some(fixed)) = (is_foreign, fixed) {
                version.fixed = fixed.parse().unwrap();
            }
        }
    }
    actions.push(Action::Commit(content));
    for action in actions {
        if !world.has_own_rights(&before) {
            let marks = world.mark_events().await;
            let rest = world.restore_account().await;
            before = check_turn(world, &before, &marks, &rest).await?;
        }
        let is_last = matches!(action, Action::Commit(_));
        let turn = Turn {
            action,
            allows: is_last,
        };
        before = play_turn(world, &before, &turn).await?;
    }
    Ok(before)
}

/// Deletes the Kustomization, and allows what its guard asks.
async fn delete(world: &mut World<'_>) {
    let stage = world.stage;
    let target = (world.namespace.clone(), "app");
    let target = (&*target.0, target.1);
    stage.admin.delete(KUSTOMIZATION, target).await.unwrap();
    let object = stage
        .wait_for(KUSTOMIZATION, target, |object| {
            object.is_none_or(|object| {
                let ready = crate::stage::condition(object, "Ready");
                ready.is_some_and(|ready| ready["reason"] == "DeletionGuarded")
            })
        })
        .await;
    if let Some(object) = object {
        let ready = crate::stage::condition(&object, "Ready").unwrap();
        world.allow(ready["message"].as_str().unwrap()).await;
    }
    stage.wait_for(KUSTOMIZATION, target, |object| object.is_none()).await;
}
