//! One lane's process, from its first start until nothing of it is reconciled: the planner's moves are carried out, and it is told what came
//! of them.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tenure_cluster::LaneAccount;
use tenure_planner::lane_process::{Cause, Fact, Move, ProcessRecord, Trouble};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::pods::{self, PodState};
use super::rooms::Purse;
use super::session::{self, Session};
use super::{Fleet, Mail, Whereabouts, lock};
use crate::frames::NamespaceFacts;
use crate::key::Key;

/// One lane that is a process.
#[derive(Debug)]
pub(super) struct LaneHandle {
    pub(super) name: String,
    pub(super) account: LaneAccount,
    pub(super) mail: Mail,
    /// Whether it is wanted may have changed, or it is to be ended.
    changed: Notify,
    /// Why it is to be ended.
    condemned: Mutex<Option<Cause>>,
    /// What its process has been granted of the rooms that are everybody's.
    purse: Mutex<Weak<Purse>>,
    /// Its Pod, where it has one.
    pub(super) pod: PodState,
}

impl LaneHandle {
    /// True for the lane of a tenant.
    pub(super) fn is_tenants(&self) -> bool {
        self.name.starts_with("tenant/")
    }

    pub(super) fn new(name: &str, account: LaneAccount) -> Self {
        Self {
            name: name.to_owned(),
            account,
            mail: Mail::default(),
            changed: Notify::new(),
            condemned: Mutex::default(),
            purse: Mutex::default(),
            pod: PodState::default(),
        }
    }

    /// A namespace is its, or stands otherwise than before.
    pub(super) fn give(&self, namespace: &str, facts: NamespaceFacts) {
        self.mail.give(namespace, facts);
        self.changed.notify_one();
    }

    /// A namespace is no longer its.
    pub(super) fn take_away(&self, namespace: &str) {
        drop(self.mail.take_away(namespace));
        self.changed.notify_one();
    }

    /// The same; waits until the process has let go of it, or ended.
    pub(super) async fn ask_to_leave(&self, namespace: &str) {
        let left = self.mail.take_away(namespace);
        self.changed.notify_one();
        if let Some(left) = left {
            let _either_way = left.await;
        }
    }

    pub(super) fn note(&self, key: &Key, gone: Option<&str>) {
        self.mail.note(key, gone);
    }

    pub(super) fn note_all(&self, keys: &[Key]) {
        keys.iter().for_each(|key| self.mail.note(key, None));
    }

    pub(super) fn wake(&self, key: &Key) {
        self.mail.wake(key);
    }

    /// What its process has been granted, if there is one.
    pub(super) fn purse(&self) -> Option<Arc<Purse>> {
        lock(&self.purse).upgrade()
    }

    /// A process begins, which has been granted nothing.
    pub(super) fn open_purse(&self) -> Arc<Purse> {
        let purse = Arc::new(Purse::default());
        *lock(&self.purse) = Arc::downgrade(&purse);
        purse
    }

    /// Its Pod has connected.
    pub(super) fn notice_arrival(&self) {
        self.changed.notify_one();
    }

    /// Ends its process.
    pub(super) fn kill(&self, cause: Cause) {
        *lock(&self.condemned) = Some(cause);
        self.changed.notify_one();
    }
}

/// What is said while a process is down, at everything that it reconciles.
struct Telling {
    trouble: Trouble,
    task: JoinHandle<()>,
    end: CancellationToken,
}

impl Telling {
    /// Nothing is written any more when it returns: the process, which writes over it, comes after.
    async fn end(self) {
        self.end.cancel();
        let _either_way = self.task.await;
    }
}

/// Keeps a lane's process until nothing of it is reconciled, or everything ends.
pub(super) async fn supervise(fleet: Arc<Fleet>, lane: Arc<LaneHandle>) {
    let began = Instant::now();
    let mut record = ProcessRecord::new(fleet.standing.apart.patience);
    let (tell, mut told) = mpsc::channel::<Fact>(16);
    let mut session: Option<Session> = None;
    let mut telling: Option<Telling> = None;
    let mut pings = 0_u64;
    loop {
        if fleet.end.is_cancelled() && !fleet.farewell.is_cancelled() {
            // Not in good order: what is under way must not go on beside another leader's.
            return;
        }
        let now = began.elapsed();
        if lane.pod.is_waiting() {
            record.take(Fact::Arrived, now);
        }
        say(&fleet, &lane, (&record, now), &mut telling).await;
        let is_wanted = !fleet.end.is_cancelled() && !lane.mail.is_without_namespaces();
        let condemned = lock(&lane.condemned).take();
        let next = match condemned {
            Some(cause) if session.is_some() => Move::Kill(cause),
            _ => record.decide(is_wanted, now),
        };
        match next {
            Move::Start => {
                if let Some(telling) = telling.take() {
                    telling.end().await;
                }
                let started = match &fleet.whereabouts {
                    Whereabouts::Here(home) => session::start((&fleet, home), &lane, tell.clone()).await,
                    Whereabouts::Pods(home) => pods::expect((&fleet, home), &lane, tell.clone()).await,
                };
                match started {
                    Ok(begun) => {
                        let fact = match begun.process {
                            Some(process) => {
                                tracing::info!(lane = lane.name, process, "the process of a lane was started");
                                Fact::Started
                            }
                            None => Fact::Expected,
                        };
                        session = Some(begun);
                        record.take(fact, began.elapsed());
                    }
                    Err(problem) => record.take(Fact::Ended(Cause::NotStarted(problem)), began.elapsed()),
                }
            }
            Move::Ask => {
                pings = pings.wrapping_add(1);
                lane.mail.ping(pings);
                record.take(Fact::Asked, now);
            }
            Move::Stop => {
                lane.mail.stop();
                record.take(Fact::Stopped, now);
            }
            Move::GiveUp => {
                if let Some(session) = &session {
                    session.kill.cancel();
                }
                record.take(Fact::GaveUp, now);
            }
            Move::Kill(cause) => {
                tracing::warn!(lane = lane.name, %cause, "the process of a lane is ended");
                if let Some(session) = &session {
                    session.kill.cancel();
                }
                record.take(Fact::Killed(cause), now);
            }
            Move::Retire => {
                // Before another process can have it.
                fleet.clear_away(&lane).await;
                if fleet.retire(&lane) {
                    break;
                }
            }
            Move::Wait(until) => {
                let sleep = async {
                    match until {
                        Some(until) => tokio::time::sleep(until.saturating_sub(began.elapsed())).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    Some(fact) = told.recv() => take(&lane, &mut record, &mut session, fact, began.elapsed()),
                    () = lane.changed.notified() => {}
                    () = fleet.end.cancelled(), if is_wanted => {}
                    () = sleep => {}
                }
            }
        }
    }
    if let Some(telling) = telling {
        telling.end().await;
    }
    fleet.set_trouble(&lane, None);
}

fn take(lane: &LaneHandle, record: &mut ProcessRecord, session: &mut Option<Session>, fact: Fact, now: Duration) {
    match &fact {
        Fact::Ended(cause) => {
            *session = None;
            tracing::info!(lane = lane.name, %cause, "the process of a lane ended");
        }
        // Who tells of it has ended it.
        Fact::Killed(cause) => tracing::warn!(lane = lane.name, %cause, "the process of a lane is ended"),
        Fact::Works => tracing::info!(lane = lane.name, "the process of a lane works"),
        Fact::Expected
        | Fact::Arrived
        | Fact::Started
        | Fact::GaveUp
        | Fact::Asked
        | Fact::Answered
        | Fact::Stopped => {}
    }
    record.take(fact, now);
}

/// Says why the lane is down, or that it no longer is: to its Surfaces at once, and to everything else while it is down.
async fn say(
    fleet: &Arc<Fleet>,
    lane: &Arc<LaneHandle>,
    (record, now): (&ProcessRecord, Duration),
    telling: &mut Option<Telling>,
) {
    let Some(trouble) = record.trouble(now) else {
        fleet.set_trouble(lane, None);
        return;
    };
    let is_told = telling.as_ref().is_some_and(|telling| telling.trouble == trouble);
    if is_told || trouble.until <= now {
        return;
    }
    let at = Timestamp::now();
    let at = at.checked_add(trouble.until.saturating_sub(now)).unwrap_or(at);
    let words = trouble.describe(&lane.name, at);
    tracing::warn!("{words}");
    fleet.set_trouble(lane, Some(words.clone()));
    if let Some(before) = telling.take() {
        before.end().await;
    }
    let end = CancellationToken::new();
    let (work, ended) = (Arc::clone(fleet).tell_of_pause(Arc::clone(lane), words), end.clone());
    let task = tokio::spawn(async move {
        ended.run_until_cancelled(work).await;
    });
    *telling = Some(Telling { trouble, task, end });
}
