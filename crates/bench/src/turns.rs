//! Turns: a number of commits of the neighbour, one after the other, with GETs of the third tenant all the time. The caller provides the load meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::stage::{self, Stage};

/// The shortest turn, so that slow starts, such as the fetch of a large repository, are included.
const TURN: Duration = Duration::from_secs(5);

/// How long the server must use less than a tenth of a processor to count as at rest.
const QUIET: Duration = Duration::from_millis(500);

/// The longest wait for the rest.
const SETTLING: Duration = Duration::from_secs(60);

/// The pause between two GETs of the third tenant.
const PAUSE: Duration = Duration::from_millis(5);

/// The measured times of commits and GETs, at rest or under load.
#[derive(Default)]
pub(crate) struct Side {
    pub(crate) commits: Vec<Duration>,
    pub(crate) gets: Vec<Duration>,
    pub(crate) failed_gets: usize,
}

/// Takes one turn: commits one after the other, with GETs all the time.
pub(crate) async fn take_turn(stage: &Stage, samples: usize, side: &mut Side) {
    let ended = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn(send_requests(stage.third.clone(), stage::THIRD_OBJECT, ended.clone()));
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

/// Sends GETs until `ended`, on one connection; makes a new one after a failure.
async fn send_requests(
    target: crate::load::Target,
    path: &'static str,
    ended: Arc<AtomicBool>,
) -> (Vec<Duration>, usize) {
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

/// Waits until the work of a load is done, or gives up.
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
