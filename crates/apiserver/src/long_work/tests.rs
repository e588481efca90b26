//! Order of waiting requests, and the end of running ones.

use std::sync::mpsc;

use tenure_checkpoint::checkpoint;
use tokio::sync::oneshot;

use super::*;

/// Runs work whose result is never a refusal.
async fn run<F>(turns: Option<StepLimiter>, deadline: Arc<Deadline>, work: F) -> Result<F::Output, Stopped>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    super::run(turns, deadline, work, |_| false).await
}

/// No patience ends here, and no deadline is reached, except the ones that are over at the start.
const EVER: Duration = Duration::from_secs(3600);

fn make_limiter(own: usize, all: &Arc<Semaphore>) -> StepLimiter {
    StepLimiter {
        own: vec![Arc::new(Semaphore::new(own))],
        all: all.clone(),
        line: Arc::new(Semaphore::new(1)),
        patience: EVER,
        rest: RefusalPause {
            times: 0,
            longest: EVER,
        },
    }
}

fn far_deadline() -> Arc<Deadline> {
    Deadline::new(Instant::now() + EVER)
}

/// Returns work that signals its start and blocks its thread until it is released.
fn make_blocking_work() -> (impl Future<Output = ()> + Send, oneshot::Receiver<()>, mpsc::Sender<()>) {
    let (began_sender, began) = oneshot::channel();
    let (release, released) = mpsc::channel();
    let work = async move {
        began_sender.send(()).expect("somebody listens");
        released.recv().expect("somebody lets go");
    };
    (work, began, release)
}

#[tokio::test]
async fn one_users_work_does_not_hold_up_another() {
    let all = Arc::new(Semaphore::new(2));
    let (greedy, other) = (make_limiter(1, &all), make_limiter(1, &all));
    let (work, began, release) = make_blocking_work();
    let first = tokio::spawn(run(Some(greedy.clone()), far_deadline(), work));
    began.await.expect("it began");
    let mut second = Box::pin(run(Some(greedy), far_deadline(), async { "second" }));
    assert!(futures::poll!(second.as_mut()).is_pending());
    // This thread is free, and so is a permit for another user.
    assert_eq!(run(Some(other), far_deadline(), async { "other" }).await, Ok("other"));
    assert!(
        futures::poll!(second.as_mut()).is_pending(),
        "its user has no more than one place"
    );
    release.send(()).expect("it waits");
    assert_eq!(first.await.expect("a result"), Ok(()));
    assert_eq!(second.await, Ok("second"));
}

#[tokio::test]
async fn waiting_work_holds_no_permit() {
    let turns = make_limiter(1, &Arc::new(Semaphore::new(1)));
    let (answer, answered) = oneshot::channel();
    let waits = tokio::spawn(run(
        Some(turns.clone()),
        far_deadline(),
        async move { answered.await.ok() },
    ));
    for round in 0..3 {
        assert_eq!(
            run(Some(turns.clone()), far_deadline(), async move { round }).await,
            Ok(round)
        );
    }
    answer.send("now").expect("it waits");
    assert_eq!(waits.await.expect("a result"), Ok(Some("now")));
}

#[tokio::test]
async fn work_past_its_deadline_ends_and_releases_its_permit() {
    let turns = make_limiter(1, &Arc::new(Semaphore::new(1)));
    let endless = async {
        loop {
            checkpoint();
        }
    };
    let over = Deadline::new(Instant::now());
    assert_eq!(
        run::<_>(Some(turns.clone()), over, endless).await,
        Err::<(), _>(Stopped::Ended(Ended::OutOfTime))
    );
    assert_eq!(run(Some(turns), far_deadline(), async { 1 }).await, Ok(1));
}

/// Work ends when its client is gone. Its permit stays taken while its thread is still busy.
#[tokio::test]
async fn abandoned_work_keeps_its_permit_until_its_thread_ends() {
    let turns = make_limiter(1, &Arc::new(Semaphore::new(1)));
    let (began_sender, began) = oneshot::channel();
    let (release, released) = mpsc::channel();
    let endless = async move {
        began_sender.send(()).expect("somebody listens");
        released.recv().expect("somebody lets go");
        loop {
            checkpoint();
        }
    };
    let asks: tokio::task::JoinHandle<Result<(), Stopped>> =
        tokio::spawn(run(Some(turns.clone()), far_deadline(), endless));
    began.await.expect("it began");
    asks.abort();
    assert!(asks.await.expect_err("nobody asks any more").is_cancelled());
    assert_eq!(
        turns.own[0].available_permits(),
        0,
        "its thread is still busy, and so is its user's place"
    );
    release.send(()).expect("it waits");
    assert_eq!(run(Some(turns), far_deadline(), async { 1 }).await, Ok(1));
}

/// Work that other requests wait for continues without a permit of its user.
#[tokio::test]
async fn holder_of_the_line_needs_no_permit_to_resume() {
    let turns = make_limiter(1, &Arc::new(Semaphore::new(1)));
    let (began_sender, began) = oneshot::channel();
    let (answer, answered) = oneshot::channel();
    let holder = tokio::spawn(run(Some(turns.clone()), far_deadline(), async move {
        let _line = enter_line().await;
        began_sender.send(()).expect("somebody listens");
        answered.await.ok()
    }));
    began.await.expect("it began");
    // The user's only permit is taken meanwhile, for as long as possible.
    let (work, blocks, release) = make_blocking_work();
    let other = tokio::spawn(run(Some(turns.clone()), far_deadline(), work));
    blocks.await.expect("it began");
    answer.send(1).expect("it waits");
    assert_eq!(holder.await.expect("a result"), Ok(Some(1)));
    release.send(()).expect("it waits");
    assert_eq!(other.await.expect("a result"), Ok(()));
    assert_eq!(
        run(Some(turns), far_deadline(), async { 2 }).await,
        Ok(2),
        "and all is given back"
    );
}

#[tokio::test]
async fn one_long_request_per_user_stands_in_line() {
    let turns = make_limiter(2, &Arc::new(Semaphore::new(2)));
    let (answer, answered) = oneshot::channel();
    let stands = |turns: &StepLimiter| {
        let (began_sender, began) = oneshot::channel();
        let work = async move {
            let _line = enter_line().await;
            began_sender.send(()).expect("somebody listens");
        };
        (run(Some(turns.clone()), far_deadline(), work), began)
    };
    let (began_sender, began) = oneshot::channel();
    let first = tokio::spawn(run(Some(turns.clone()), far_deadline(), async move {
        let _line = enter_line().await;
        began_sender.send(()).expect("somebody listens");
        answered.await.ok()
    }));
    began.await.expect("it began");
    let (second, mut second_began) = stands(&turns);
    let second = tokio::spawn(second);
    // No other work of this user blocks it, and it has not begun when a third request is already answered.
    assert_eq!(run(Some(turns.clone()), far_deadline(), async { 3 }).await, Ok(3));
    assert!(second_began.try_recv().is_err());
    answer.send(1).expect("it waits");
    assert_eq!(first.await.expect("a result"), Ok(Some(1)));
    assert_eq!(second.await.expect("a result"), Ok(()));
    assert!(second_began.try_recv().is_ok());
}

/// Work that waits too long for its first permit is stopped, and the client may repeat the request. Uncounted work doesn't wait.
#[tokio::test]
async fn work_that_gets_no_permit_in_time_is_refused() {
    let turns = StepLimiter {
        patience: Duration::from_millis(1),
        ..make_limiter(1, &Arc::new(Semaphore::new(1)))
    };
    let _held = turns.own[0].clone().acquire_owned().await.expect("a place");
    assert_eq!(
        run(Some(turns), far_deadline(), async { 1 }).await,
        Err(Stopped::NoTurn)
    );
    assert_eq!(
        run(None, far_deadline(), async { 1 }).await,
        Ok(1),
        "who is not counted does not wait"
    );
}

#[tokio::test]
async fn panics_of_work_reach_the_caller() {
    let faulty = async { panic!("a fault") };
    let failed = tokio::spawn(run::<_>(None, far_deadline(), faulty)).await;
    let failed: Result<Result<(), Stopped>, _> = failed;
    assert!(failed.expect_err("it panicked").is_panic());
}

#[tokio::test]
async fn refused_work_keeps_its_permit_for_a_pause() {
    let ended = async |turns: &StepLimiter, is_refused: bool| {
        let work = async move { is_refused };
        super::run(Some(turns.clone()), far_deadline(), work, |refused| *refused).await
    };
    let no_rest = make_limiter(1, &Arc::new(Semaphore::new(1)));
    let rest = RefusalPause {
        times: u32::MAX,
        longest: EVER,
    };
    let turns = StepLimiter {
        rest,
        ..no_rest.clone()
    };
    assert_eq!(ended(&turns, false).await, Ok(false));
    assert_eq!(turns.own[0].available_permits(), 1);
    // The permit is free again after the rest.
    assert_eq!(ended(&no_rest, true).await, Ok(true));
    assert_eq!(ended(&turns, true).await, Ok(true));
    assert_eq!(turns.own[0].available_permits(), 0);
    assert_eq!(turns.all.available_permits(), 1, "others have their places");
}
