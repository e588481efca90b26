//! Nothing is lost, whatever fails and whenever the process is killed. Applied objects are always in the inventory. Objects that are in neither Git
//! nor the inventory are gone. The end is as if nothing had failed.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure_git_server::{Content, Repository};
use tenure_testkit::{Cluster, SOON, choose_length, eventually};

use crate::faults::Kill;
use crate::stage::{CONFIG_MAP, GIT_REPOSITORY, KUSTOMIZATION, Stage, config_map};

/// The number of requests of a reconciliation at which the process is killed while the server fails too, one after the other and then from the
/// beginning. Of kills at the first twenty-five requests, half came in time, so a reconciliation has about that many requests.
const PLACES: usize = 12;

/// The number of kills, in CI and in a long run. A reconciliation with faults has about a quarter as many requests.
const KILLS: (usize, usize) = (24, 100);
/// In CI the process is killed only at every fifth request.
const STRIDE: usize = 5;
/// The namespaces, each on its own cluster, in which kills with a failing server wait for their retries in parallel.
const FAILING: [&str; 4] = ["losing-d", "losing-e", "losing-f", "losing-g"];
/// The minimum and maximum number of commits that are applied while the server fails all the time.
const FAILING_COMMITS: std::ops::Range<usize> = 4..60;
/// Pauses after failures double up to half a minute, and a server that fails all the time causes several of them.
const PATIENCE: std::time::Duration = SOON.saturating_mul(3);
/// One request in this many fails.
const ONE_IN: usize = 16;

/// Three of these exist after each commit, another three each time.
const NAMES: usize = 6;

struct Story {
    stage: Stage,
    namespace: &'static str,
    repository: Repository,
    commits: usize,
}

impl Story {
    async fn set_up(namespace: &'static str) -> Self {
        let stage = Stage::set_failing(namespace).await;
        let repository = stage
            .repository(namespace, "app", &[("a0.yaml", &config_map("a0", "0"))])
            .await;
        let first = repository.resolve("main").await.unwrap().unwrap();
        stage
            .kustomization(namespace, "app", "app", json!({ "wait": true }))
            .await;
        stage.wait_for_commit((namespace, "app"), &first).await;
        Self {
            stage,
            namespace,
            repository,
            commits: 0,
        }
    }

    /// Returns the names that the last commit declares.
    fn list_declared(&self) -> BTreeSet<String> {
        (0..3)
            .map(|step| format!("a{}", (self.commits + step) % NAMES))
            .collect()
    }

    /// Commits a change with one new, one removed and two changed objects, and asks the source to fetch now.
    async fn commit(&mut self) -> String {
        self.commits += 1;
        let declared = self.list_declared();
        let changes = (0..NAMES).map(|number| {
            let name = format!("a{number}");
            let content = if declared.contains(&name) {
                Content::from(config_map(&name, &self.commits.to_string()))
            } else {
                Content::Removed
            };
            (format!("{name}.yaml"), content)
        });
        let existing: BTreeSet<String> = self.present_files().await;
        let changes = changes
            .filter(|(path, content)| !matches!(content, Content::Removed) || existing.contains(path))
            .collect::<Vec<_>>();
        self.repository.commit(changes, "a change").await.unwrap()
    }

    async fn present_files(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for number in 0..NAMES {
            let path = format!("a{number}.yaml");
            if self.repository.read("main", &path).await.is_ok() {
                found.insert(path);
            }
        }
        found
    }

    async fn look_at_once(&self) {
        let request =
            json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": self.commits.to_string() } } });
        let target = (self.namespace, "app");
        self.stage.admin.patch(GIT_REPOSITORY, target, request).await.unwrap();
    }

    /// Commits, and kills the process during the reconciliation. Returns whether it was killed before the end.
    async fn survive(&mut self, kill: Kill, when: &str) -> bool {
        self.stage.come_to_rest(PATIENCE, when).await;
        let commit = self.commit().await;
        self.stage.life().kill(kill);
        self.look_at_once().await;
        let died = tokio::select! {
            () = self.stage.life().until_dead() => true,
            () = self.check_the_end(&commit, when) => self.stage.life().spare().await,
        };
        if died {
            self.check_that_nothing_is_lost(when).await;
            self.stage.restart_after_death();
        }
        self.check_the_end(&commit, when).await;
        died
    }

    /// Deletes the Kustomization and, with it, its applied objects.
    async fn delete(&self, when: &str) {
        let target = (self.namespace, "app");
        self.stage.admin.delete(KUSTOMIZATION, target).await.unwrap();
        self.stage
            .wait_for(KUSTOMIZATION, target, |object| object.is_none())
            .await;
        assert_eq!(self.list_applied().await, BTreeSet::new(), "{when}");
    }

    /// Returns the existing objects that the Kustomization has applied.
    async fn list_applied(&self) -> BTreeSet<String> {
        let objects = self.stage.admin.list(CONFIG_MAP, self.namespace).await.unwrap();
        let own = |object: &&Value| object["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] == "app";
        objects
            .iter()
            .filter(own)
            .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Returns the objects in the inventory.
    async fn inventory(&self) -> BTreeSet<String> {
        let found = self.stage.get(KUSTOMIZATION, (self.namespace, "app")).await.unwrap();
        let entries = found["status"]["inventory"]["entries"].as_array().cloned();
        let name = |entry: &Value| entry["id"].as_str().unwrap().split('_').nth(1).unwrap().to_owned();
        entries.unwrap_or_default().iter().map(name).collect()
    }

    /// Checks that every applied object is in the inventory. The inventory is read last: it may only have grown.
    async fn check_that_nothing_is_lost(&self, when: &str) {
        let applied = self.list_applied().await;
        let inventory = self.inventory().await;
        let lost: Vec<_> = applied.difference(&inventory).collect();
        assert!(
            lost.is_empty(),
            "{when}: {lost:?} are in no inventory; it has {inventory:?}"
        );
    }

    /// Checks that the cluster and the inventory have exactly the objects of the last commit.
    async fn check_the_end(&self, commit: &str, when: &str) {
        let declared = self.list_declared();
        let came = eventually(PATIENCE, || async {
            let found = self.stage.get(KUSTOMIZATION, (self.namespace, "app")).await.unwrap();
            let revision = found["status"]["lastAppliedRevision"].as_str().unwrap_or_default();
            let ready = crate::stage::condition(&found, "Ready").is_some_and(|ready| ready["status"] == "True");
            if ready && revision.ends_with(commit) {
                Ok(())
            } else {
                Err(format!("{:#}", found["status"]))
            }
        });
        if let Err(last) = came.await {
            panic!("{when}: {commit} was never applied; last seen: {last}");
        }
        // An object with an unconfirmed deletion stays in the inventory for a moment longer, or for a pause after a failure.
        let came = eventually(PATIENCE, || async {
            let (applied, inventory) = (self.list_applied().await, self.inventory().await);
            if applied == declared && inventory == declared {
                Ok(())
            } else {
                Err(format!("{applied:?} are there, the inventory has {inventory:?}"))
            }
        });
        if let Err(last) = came.await {
            panic!("{when}: {declared:?} are declared, {last}");
        }
    }
}

/// The process is killed at the first request of a reconciliation, at the second, and so on, before and after its effect. When a reconciliation has
/// no more requests, this starts again from the beginning. In CI at every fifth request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_at_any_request_loses_nothing() {
    let mut story = Story::set_up("losing-a").await;
    let (mut at, mut after_effect, mut rounds) = (1, false, 0);
    let (kills, stride) = (choose_length(KILLS.0, KILLS.1), choose_length(STRIDE, 1));
    for number in 0..kills {
        let when = format!("kill {number}, {}", describe_kill(at, after_effect));
        let died = story.survive(Kill { at, after_effect }, &when).await;
        if died {
            at += stride;
        } else {
            (at, after_effect, rounds) = (1, !after_effect, rounds + 1);
        }
    }
    assert!(rounds > 0, "{kills} kills did not come to the end of one reconcile");
    story.stage.shut_down().await;
}

/// Both at once: the process is killed at each request, and one in sixteen of the other requests fails, also after the kill. A quarter of the kills
/// run on each of four clusters in parallel; half of them if all tests share one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_killed_while_server_fails_loses_nothing() {
    let stride = choose_length(STRIDE, 1);
    let at_each = |after_effect| {
        (0..choose_length(KILLS.0, KILLS.1) / FAILING.len()).map(move |number| Kill {
            at: 1 + number * stride % PLACES,
            after_effect,
        })
    };
    let parts: Vec<Vec<Kill>> = if Cluster::is_shared() {
        vec![at_each(false).chain(at_each(true)).collect()]
    } else {
        let parts = (0..FAILING.len()).map(|turn| at_each(turn % 2 == 1).collect());
        parts.collect()
    };
    let kills: usize = parts.iter().map(Vec::len).sum();
    let stories = parts.into_iter().zip(FAILING).enumerate();
    let stories = stories.map(|(turn, (kills, namespace))| async move {
        let mut story = Story::set_up(namespace).await;
        story.stage.faults.break_one_in(ONE_IN, 20_261_122 + turn as u64);
        let mut deaths = 0;
        for kill in kills {
            let when = format!("failing {namespace}, {}", describe_kill(kill.at, kill.after_effect));
            deaths += usize::from(story.survive(kill, &when).await);
        }
        story.delete("in the end").await;
        let dealt = story.stage.faults.dealt();
        story.stage.shut_down().await;
        (deaths, dealt)
    });
    let (deaths, dealt): (Vec<usize>, Vec<_>) = futures::future::join_all(stories).await.into_iter().unzip();
    let deaths: usize = deaths.into_iter().sum();
    // Few kills meet few faults, and how many depends on the number of requests: on a fast machine a story meets five. Together they meet more.
    let kinds: BTreeSet<_> = dealt.iter().flat_map(|dealt| dealt.keys()).collect();
    assert!(
        kinds.len() >= choose_length(6, 8),
        "too few faults were dealt: {dealt:?}"
    );
    // A kill at a request that the reconciliation did not reach does not count.
    assert!(deaths > kills / 2, "only {deaths} of {kills} kills came in time");
}

/// Also while the Kustomization is deleted: its applied objects are removed, however often the process is killed meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_while_it_deletes_loses_nothing() {
    let mut story = Story::set_up("losing-b").await;
    for at in (1..=PLACES).step_by(choose_length(STRIDE, 1)) {
        for after_effect in [false, true] {
            let when = format!("deletion, killed at request {at}, after its effect: {after_effect}");
            let target = (story.namespace, "app");
            story.stage.life().kill(Kill { at, after_effect });
            story.stage.admin.delete(KUSTOMIZATION, target).await.unwrap();
            let gone = story.stage.wait_for(KUSTOMIZATION, target, |object| object.is_none());
            let died = tokio::select! {
                () = story.stage.life().until_dead() => true,
                _ = gone => story.stage.life().spare().await,
            };
            if died {
                story.stage.restart_after_death();
            }
            story
                .stage
                .wait_for(KUSTOMIZATION, target, |object| object.is_none())
                .await;
            assert_eq!(story.list_applied().await, BTreeSet::new(), "{when}");
            story
                .stage
                .kustomization(story.namespace, "app", "app", json!({ "wait": true }))
                .await;
            let commit = story.commit().await;
            story.look_at_once().await;
            story.check_the_end(&commit, &when).await;
        }
    }
    story.stage.shut_down().await;
}

/// One request in sixteen fails, until each of eight faults has occurred, and while everything is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_fails_all_the_time_loses_nothing() {
    let mut story = Story::set_up("losing-c").await;
    story.stage.faults.break_one_in(ONE_IN, 20_261_122);
    for number in 0..FAILING_COMMITS.end {
        if number >= FAILING_COMMITS.start && story.stage.faults.dealt().len() == 8 {
            break;
        }
        let commit = story.commit().await;
        story.look_at_once().await;
        story.check_the_end(&commit, &format!("failing commit {number}")).await;
    }
    story.delete("while the server fails").await;
    let dealt = story.stage.faults.dealt();
    assert_eq!(dealt.len(), 8, "not every fault was dealt: {dealt:?}");
    story.stage.shut_down().await;
}

fn describe_kill(at: usize, after_effect: bool) -> String {
    let effect = if after_effect { "after its effect" } else { "before it" };
    format!("at request {at}, {effect}")
}
