//! Restarts a task after a panic, after a pause that becomes longer each time. The caller's function reports the panic. No panic is hidden: the
//! affected object and the log show it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

/// The first and the longest pause after a panic. After a run longer than the longest pause, the first pause applies again.
pub(crate) const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Runs the future from `start` until it ends by itself, or until `end`. `crashed` gets the number of panics in a row, and the next pause.
pub(crate) async fn supervise_task<F, C>(
    pauses: (Duration, Duration),
    end: &CancellationToken,
    mut start: impl FnMut() -> F,
    mut crashed: impl FnMut(u32, Duration) -> C,
) where
    F: Future<Output = ()>,
    C: Future<Output = ()>,
{
    let (mut pause, mut times) = (pauses.0, 0_u32);
    loop {
        let began = Instant::now();
        if AssertUnwindSafe(start()).catch_unwind().await.is_ok() {
            return;
        }
        if began.elapsed() > pauses.1 {
            (pause, times) = (pauses.0, 0);
        }
        times = times.saturating_add(1);
        // A panic in the report must not end the loop either.
        let report = Box::pin(AssertUnwindSafe(crashed(times, pause)).catch_unwind());
        if end.run_until_cancelled(report).await.is_none() {
            return;
        }
        if end.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
        pause = lengthen_pause(pause, pauses.1);
    }
}

/// Returns the next pause.
fn lengthen_pause(pause: Duration, longest: Duration) -> Duration {
    pause.saturating_mul(2).min(longest)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn panicking_task_restarts_with_growing_pauses() {
        let runs = AtomicU32::new(0);
        let reports = Arc::new(Mutex::new(Vec::new()));
        let milliseconds = Duration::from_millis;
        // No run here lasts an hour, after which the first pause would apply again.
        let longest = Duration::from_secs(3600);
        supervise_task(
            (milliseconds(1), longest),
            &CancellationToken::new(),
            || async {
                assert!(runs.fetch_add(1, Ordering::Relaxed) >= 5, "on purpose");
            },
            |times, pause| {
                reports.lock().unwrap().push((times, pause.as_millis()));
                std::future::ready(())
            },
        )
        .await;
        assert_eq!(runs.into_inner(), 6);
        let pauses: Vec<u128> = reports.lock().unwrap().iter().map(|(_, pause)| *pause).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16]);
        assert_eq!(lengthen_pause(longest / 2, longest), longest);
        assert_eq!(lengthen_pause(longest, longest), longest);
    }

    #[tokio::test]
    async fn cancellation_ends_supervisor_during_pause() {
        let end = CancellationToken::new();
        let forever = Duration::from_secs(1 << 30);
        let supervised = supervise_task(
            (forever, forever),
            &end,
            || async { panic!("on purpose") },
            |_, _| {
                end.cancel();
                std::future::ready(())
            },
        );
        supervised.await;
    }
}
