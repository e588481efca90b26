//! Turns: so many commits of the neighbour, one after the other, and GETs of the third tenant beside them all the time. Owns the samples;
//! what goes on meanwhile is for whoever takes the turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::stage::{self, Stage};

/// How long a turn takes at least: what begins slowly, such as the fetch of a large repository, has to be under way.
const TURN: Duration = Duration::from_secs(5);

/// The server is at rest when it uses less than a tenth of a processor for so long.
const QUIET: Duration = Duration::from_millis(500);

/// How long is waited for that.
const SETTLING: Duration = Duration::from_secs(60);

/// Between two GETs of the third tenant.
const PAUSE: Duration = Duration::from_millis(5);

/// Samples of one side: at rest, or under load.
#[derive(Default)]
pub(crate) struct Side {
    pub(crate) commits: Vec<Duration>,
    pub(crate) gets: Vec<Duration>,
    pub(crate) failed_gets: usize,
}

/// One turn: commits one after the other, and GETs beside them all the time.
pub(crate) async fn take_turn(stage: &Stage, samples: usize, side: &mut Side) {
    let ended = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn(ask(stage.third.clone(), stage::THIRD_OBJECT, ended.clone()));
    let pace = TURN / u32::try_from(samples.max(1)).unwrap_or(u32::MAX);
    for _ in 0..samples {
        let next = tokio::time::Instant::now() + pace;
        side.commits.push(stage.commit_to_applied().await);
        tokio::time::sleep_until(next).await;
    }
    ended.store(true, Ordering::Relaxed);
    if let Ok((gets, failed)) = asking.await {
        side.gets.extend(gets);
        side.failed_gets += failed;
    }
}

/// GETs until `ended`, on one connection; a new one after a failure.
async fn ask(target: crate::load::Target, path: &'static str, ended: Arc<AtomicBool>) -> (Vec<Duration>, usize) {
    let (mut times, mut failed) = (Vec::new(), 0);
    let mut connection = None;
    while !ended.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let answer = async {
            if connection.is_none() {
                connection = Some(target.connect().await?);
            }
            connection.as_ref().context("no connection")?.get(path).await
        };
        let answer = tokio::time::timeout(stage::PATIENCE, answer).await;
        times.push(asked.elapsed());
        if !matches!(answer, Ok(Ok(_))) {
            failed += 1;
            connection = None;
        }
        tokio::time::sleep(PAUSE).await;
    }
    (times, failed)
}

/// Waits until what a load began is done, or given up.
pub(crate) async fn settle(stage: &Stage) {
    let started = Instant::now();
    while started.elapsed() < SETTLING {
        let Ok(before) = stage.cpu() else { return };
        tokio::time::sleep(QUIET).await;
        if stage.cpu().is_ok_and(|after| after.saturating_sub(before) < QUIET / 10) {
            return;
        }
    }
}
