//! The process of a lane: when it is started, checked, stopped and restarted, and its reported state meanwhile.
//!
//! The shell starts processes and reports the results as [`ProcessEvent`]s; the next action is a [`ProcessAction`]. A process in a Pod is expected instead of started: Kubernetes starts
//! it, and it begins after it has connected and has its orders. Times count from any fixed moment. A lane is never given up: a process that ends again and again is
//! started later and later, but always again, since the lane's objects may be repaired at any time.

pub mod capacity;
pub mod group;
pub mod memory;
pub mod user;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::outcome;

/// The pause after the first unexpected end; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// A process that was up for this long begins with the first pause again.
const LONG_UP: Duration = Duration::from_secs(600);
/// The time that a Pod may take until its process connects: a node has to be found for it, and its image to be fetched.
const CONNECTING: Duration = Duration::from_secs(60);
/// The time limit of a process for unfinished work after the order to stop.
const FAREWELL: Duration = Duration::from_secs(15);

/// The cause of a process's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitCause {
    /// The process could not be started.
    NotStarted(String),
    /// The process ended by itself.
    Exited(i32),
    /// A signal from outside Tenure ended the process.
    Signalled(i32),
    /// The hub ended the process because it did not answer any more.
    Silent(Duration),
    /// The hub ended the process because it sent a message that no lane sends.
    Misspoke(String),
    /// The hub ended the process because it kept a namespace that is no longer the lane's.
    HeldOn,
    /// The hub ended the process because it kept more than its part of a budget for which others waited. The text names the use of the budget.
    HeldRoom(&'static str),
    /// The hub ended the process because it used more memory than allowed.
    TooLarge {
        /// The used bytes.
        used: u64,
        /// The allowed bytes.
        limit: u64,
    },
    /// The Pod of the process did not connect.
    Absent(Duration),
    /// The connection of the process ended without a known reason.
    HungUp,
    /// The Pod of the process was told to end, for example by an eviction.
    Left,
}

impl fmt::Display for ExitCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(problem) => write!(formatter, "it could not be started: {problem}"),
            Self::Exited(code) => write!(formatter, "it ended with exit code {code}"),
            // A process that can't allocate memory aborts.
            Self::Signalled(6) => formatter.write_str("it gave up (signal 6), as it does without memory"),
            Self::Signalled(9) => formatter.write_str("it was killed (signal 9)"),
            Self::Signalled(signal) => write!(formatter, "signal {signal} ended it"),
            Self::Silent(patience) => write!(
                formatter,
                "it gave no answer for {} s and was ended",
                patience.as_secs()
            ),
            Self::Misspoke(what) => write!(
                formatter,
                "it was ended because of a message that no lane sends: {what}"
            ),
            Self::HeldOn => formatter.write_str("it was ended because it kept a namespace that it no longer has"),
            Self::HeldRoom(what) => write!(
                formatter,
                "it was ended since it held more than its share of the budget for {} s while others waited: {what}",
                capacity::HOLDING.as_secs()
            ),
            Self::TooLarge { used, limit } => write!(
                formatter,
                "it was ended since it used {} MiB of memory, and may use {} MiB",
                used >> 20,
                limit >> 20
            ),
            Self::Absent(waited) => write!(formatter, "its Pod has not connected for {} s", waited.as_secs()),
            Self::HungUp => formatter.write_str("its connection ended, as it does when its Pod is killed or deleted"),
            Self::Left => formatter.write_str("its Pod was asked to end"),
        }
    }
}

/// An event in the life of a lane's process, as the shell reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// The shell has made sure that the process's Pod exists, and waits for the connection.
    Expected,
    /// The process has connected while the shell was not waiting for it.
    Arrived,
    /// The process was started, or has connected and has its orders.
    Started,
    /// The shell does not wait for the process any more.
    GaveUp,
    /// The hub has sent a liveness check.
    Asked,
    /// The process has answered the liveness check.
    Answered,
    /// The process has received its initial state, and works.
    Works,
    /// The process received the order to stop.
    Stopped,
    /// The process is being killed.
    Killed(ExitCause),
    /// The process ended, or could not be started.
    Ended(ExitCause),
}

/// The next action of the shell for a lane's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessAction {
    /// Start the process.
    Start,
    /// Send a liveness check.
    Ask,
    /// Tell the process to finish its work and to stop.
    Stop,
    /// Stop waiting for the process.
    GiveUp,
    /// Kill the process.
    Kill(ExitCause),
    /// Wait until this time, or until there is news.
    Wait(Option<Duration>),
    /// Forget the process: it has ended, and the lane has nothing to reconcile.
    Retire,
}

/// The phase of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// No process exists.
    #[default]
    Resting,
    /// No process may start before this time.
    Pausing { until: Duration },
    /// The Pod of the process has yet to connect.
    Expecting { since: Duration },
    /// The process runs.
    Running {
        since: Duration,
        /// The time of the last liveness check, and whether the process has answered it.
        asked: Option<(Duration, bool)>,
        works: bool,
    },
    /// The process received the order to stop.
    Stopping { since: Duration },
    /// The process was killed for this cause. Without a cause, it had received the order to stop.
    Killed(Option<ExitCause>),
}

/// The state of one lane's process: its phase, and its unexpected ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRecord {
    phase: Phase,
    /// The time limit for the answer to a liveness check.
    patience: Duration,
    /// Unexpected ends in a row.
    ends: u32,
    last: Option<ExitCause>,
}

/// The reason why a lane's process is down, and the time of the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneProblem {
    /// Unexpected ends in a row.
    pub ends: u32,
    /// The cause of the last end.
    pub cause: ExitCause,
    /// The time of the next start. If this time has passed, the process is being started.
    pub until: Duration,
}

impl LaneProblem {
    /// Describes the problem for the status of objects that wait for the lane. `until` is the time of [`LaneProblem::until`].
    #[must_use]
    pub fn describe(&self, lane: &str, until: Timestamp) -> String {
        let times = match self.ends {
            0 | 1 => String::new(),
            2 => ", twice in a row".to_owned(),
            more => format!(", {more} times in a row"),
        };
        format!(
            "Waiting for lane {lane}: the last report about its process is that {}{times}; it is started again at {}. The applied objects stay",
            self.cause,
            outcome::cut_to_seconds(until).0
        )
    }
}

impl ProcessRecord {
    /// Creates the record of a process that was not started yet. An answer that takes longer than `patience` ends the process.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self {
            phase: Phase::Resting,
            patience,
            ends: 0,
            last: None,
        }
    }

    /// Takes a report of the shell.
    pub fn take_event(&mut self, fact: ProcessEvent, now: Duration) {
        match (fact, &mut self.phase) {
            (ProcessEvent::Expected, phase) => *phase = Phase::Expecting { since: now },
            // A process that connects after a long absence has to wait for no pause.
            (ProcessEvent::Arrived, phase @ Phase::Pausing { .. })
                if matches!(self.last, Some(ExitCause::Absent(_))) =>
            {
                *phase = Phase::Resting;
            }
            (ProcessEvent::GaveUp, phase @ Phase::Expecting { .. }) => *phase = Phase::Killed(None),
            // The process came while the shell was giving it up.
            (ProcessEvent::Started, Phase::Killed(_)) => {}
            (ProcessEvent::Started, phase) => {
                *phase = Phase::Running {
                    since: now,
                    asked: None,
                    works: false,
                }
            }
            (ProcessEvent::Asked, Phase::Running { asked, .. }) => *asked = Some((now, false)),
            (ProcessEvent::Answered, Phase::Running { asked, .. }) => {
                if let Some((_, answered)) = asked {
                    *answered = true;
                }
            }
            (ProcessEvent::Works, Phase::Running { works, .. }) => *works = true,
            (ProcessEvent::Stopped, phase @ Phase::Running { .. }) => *phase = Phase::Stopping { since: now },
            (ProcessEvent::Killed(cause), phase @ (Phase::Running { .. } | Phase::Expecting { .. })) => {
                *phase = Phase::Killed(Some(cause))
            }
            (ProcessEvent::Killed(_), phase @ Phase::Stopping { .. }) => *phase = Phase::Killed(None),
            (ProcessEvent::Ended(cause), _) => self.record_exit(cause, now),
            // A late report doesn't apply to the current state.
            (
                ProcessEvent::Arrived
                | ProcessEvent::GaveUp
                | ProcessEvent::Asked
                | ProcessEvent::Answered
                | ProcessEvent::Works
                | ProcessEvent::Stopped
                | ProcessEvent::Killed(_),
                _,
            ) => {}
        }
    }

    fn record_exit(&mut self, cause: ExitCause, now: Duration) {
        let (cause, up) = match std::mem::take(&mut self.phase) {
            // The end was intended.
            Phase::Stopping { .. } | Phase::Killed(None) => return,
            Phase::Killed(Some(ours)) => (ours, Duration::ZERO),
            Phase::Running { since, .. } => (cause, now.saturating_sub(since)),
            Phase::Resting | Phase::Pausing { .. } | Phase::Expecting { .. } => (cause, Duration::ZERO),
        };
        self.ends = if up >= LONG_UP { 1 } else { self.ends.saturating_add(1) };
        self.last = Some(cause);
        self.phase = Phase::Pausing {
            until: now.saturating_add(find_pause(self.ends)),
        };
    }

    /// Decides the next action; `is_wanted` is true while the lane has something to reconcile.
    #[must_use]
    pub fn decide_action(&self, is_wanted: bool, now: Duration) -> ProcessAction {
        match &self.phase {
            Phase::Resting | Phase::Pausing { .. } if !is_wanted => ProcessAction::Retire,
            Phase::Resting => ProcessAction::Start,
            Phase::Pausing { until } if *until <= now => ProcessAction::Start,
            Phase::Pausing { until } => ProcessAction::Wait(Some(*until)),
            Phase::Expecting { .. } if !is_wanted => ProcessAction::GiveUp,
            Phase::Expecting { since } => {
                let until = since.saturating_add(CONNECTING);
                if until <= now {
                    ProcessAction::Kill(ExitCause::Absent(CONNECTING))
                } else {
                    ProcessAction::Wait(Some(until))
                }
            }
            Phase::Running { .. } if !is_wanted => ProcessAction::Stop,
            Phase::Running { asked: None, .. } => ProcessAction::Ask,
            Phase::Running {
                asked: Some((at, false)),
                ..
            } => {
                let until = at.saturating_add(self.patience);
                if until <= now {
                    ProcessAction::Kill(ExitCause::Silent(self.patience))
                } else {
                    ProcessAction::Wait(Some(until))
                }
            }
            Phase::Running {
                asked: Some((at, true)),
                ..
            } => {
                let next = at.saturating_add(self.patience / 4);
                if next <= now {
                    ProcessAction::Ask
                } else {
                    ProcessAction::Wait(Some(next))
                }
            }
            Phase::Stopping { since } => {
                let until = since.saturating_add(FAREWELL);
                if until <= now {
                    ProcessAction::Kill(ExitCause::Silent(FAREWELL))
                } else {
                    ProcessAction::Wait(Some(until))
                }
            }
            Phase::Killed(_) => ProcessAction::Wait(None),
        }
    }

    /// Returns the reason for which the lane is down, from an unexpected end until it works again.
    #[must_use]
    pub fn find_problem(&self, now: Duration) -> Option<LaneProblem> {
        let until = match self.phase {
            Phase::Pausing { until } => until,
            Phase::Expecting { since }
            | Phase::Running {
                works: false, since, ..
            } => since,
            Phase::Resting | Phase::Running { .. } | Phase::Stopping { .. } | Phase::Killed(None) => return None,
            Phase::Killed(Some(_)) => now,
        };
        Some(LaneProblem {
            ends: self.ends,
            cause: self.last.clone()?,
            until,
        })
    }
}

/// Returns the pause after this many unexpected ends in a row.
#[must_use]
pub fn find_pause(ends: u32) -> Duration {
    match ends.checked_sub(1) {
        None => Duration::ZERO,
        Some(before) => FIRST_PAUSE
            .saturating_mul(2_u32.saturating_pow(before))
            .min(LONGEST_PAUSE),
    }
}

#[cfg(test)]
mod tests;
