//! The process of a lane: when it is started, asked whether it is there, ended, and started again; and what is said of it meanwhile.
//!
//! The shell starts processes and tells what became of them as [`Fact`]s; what to do next is a [`Move`]. A process in a Pod is expected in
//! place of being started: Kubernetes starts it, and it begins when it has connected and is given its orders. Times are since any moment that
//! stays the same. It refuses to give a lane up: one that ends again and again is started later and later, and never not at all, since its
//! objects may be mended at any time.

pub mod group;
pub mod memory;
pub mod room;
pub mod user;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::ending;

/// The pause after the first unexpected end; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// A process that was up for so long begins with the first pause again.
const LONG_UP: Duration = Duration::from_secs(600);
/// How long a Pod may take until its process connects: a node has to be found for it, and its image to be fetched.
const CONNECTING: Duration = Duration::from_secs(60);
/// How long a process may take to end what is under way after it was told to stop.
const FAREWELL: Duration = Duration::from_secs(15);

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It could not be started.
    NotStarted(String),
    /// It ended by itself.
    Exited(i32),
    /// A signal ended it that nobody here sent.
    Signalled(i32),
    /// It was ended because it did not answer any more.
    Silent(Duration),
    /// It was ended because it said what no lane says.
    Misspoke(String),
    /// It was ended because it held on to a namespace that is no longer its.
    HeldOn,
    /// It was ended because it kept more than its part of a room for which others waited; what that room is for.
    HeldRoom(&'static str),
    /// It was ended because it used more memory than it may.
    TooLarge {
        /// Bytes that it used.
        used: u64,
        /// Bytes that it may use.
        limit: u64,
    },
    /// Its Pod did not connect.
    Absent(Duration),
    /// Its connection ended, and nobody said why.
    HungUp,
    /// Its Pod was told to end.
    Left,
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(problem) => write!(formatter, "it could not be started: {problem}"),
            Self::Exited(code) => write!(formatter, "it ended with exit code {code}"),
            // What it does when there is no memory left.
            Self::Signalled(6) => formatter.write_str("it gave up (signal 6), as it does without memory"),
            Self::Signalled(9) => formatter.write_str("it was killed (signal 9)"),
            Self::Signalled(signal) => write!(formatter, "signal {signal} ended it"),
            Self::Silent(patience) => write!(
                formatter,
                "it gave no answer for {} s and was ended",
                patience.as_secs()
            ),
            Self::Misspoke(what) => write!(formatter, "it was ended since it doesn't speak as a lane does: {what}"),
            Self::HeldOn => formatter.write_str("it was ended since it held on to a namespace that is no longer its"),
            Self::HeldRoom(what) => write!(
                formatter,
                "it was ended since it kept for {} s more than its part of the room that others waited for: {what}",
                room::HOLDING.as_secs()
            ),
            Self::TooLarge { used, limit } => write!(
                formatter,
                "it was ended since it used {} MiB of memory, and may use {} MiB",
                used >> 20,
                limit >> 20
            ),
            Self::Absent(waited) => write!(formatter, "its Pod has not connected for {} s", waited.as_secs()),
            Self::HungUp => formatter.write_str("its connection ended, as it does when its Pod is killed or deleted"),
            Self::Left => formatter.write_str("its Pod was told to end"),
        }
    }
}

/// What the shell tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// It was seen to that there is a Pod for it, and it is waited for.
    Expected,
    /// It has connected while nobody waited for it.
    Arrived,
    /// It was started; or it has connected and has its orders.
    Started,
    /// Nobody waits for it any more.
    GaveUp,
    /// It was asked whether it is there.
    Asked,
    /// It answered that.
    Answered,
    /// It has seen all that it is told at first, and works.
    Works,
    /// It was told to stop.
    Stopped,
    /// It is being killed.
    Killed(Cause),
    /// It ended, or could not be started.
    Ended(Cause),
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Start it.
    Start,
    /// Ask whether it is there.
    Ask,
    /// Tell it to end what is under way, and to stop.
    Stop,
    /// Don't wait for it any more.
    GiveUp,
    /// End it without asking.
    Kill(Cause),
    /// Nothing, until then, or until there is news.
    Wait(Option<Duration>),
    /// Forget it: it has ended, and nothing of its is reconciled.
    Retire,
}

/// Where a process is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// There is none.
    #[default]
    Resting,
    /// There is none before then.
    Pausing { until: Duration },
    /// Its Pod has yet to connect.
    Expecting { since: Duration },
    /// It runs.
    Running {
        since: Duration,
        /// When it was last asked, and whether it has answered that.
        asked: Option<(Duration, bool)>,
        works: bool,
    },
    /// It was told to stop.
    Stopping { since: Duration },
    /// It was killed, for a reason of ours; without one it had been told to stop.
    Killed(Option<Cause>),
}

/// What is known of one lane's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRecord {
    phase: Phase,
    /// How long an answer may take.
    patience: Duration,
    /// Unexpected ends in a row.
    ends: u32,
    last: Option<Cause>,
}

/// Why a lane is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Unexpected ends in a row.
    pub ends: u32,
    /// The last one.
    pub cause: Cause,
    /// When it is started again; it is being started, when that has passed.
    pub until: Duration,
}

impl Trouble {
    /// In words, for whoever waits for it. `until` is the time of [`Trouble::until`].
    #[must_use]
    pub fn describe(&self, lane: &str, until: Timestamp) -> String {
        let times = match self.ends {
            0 | 1 => String::new(),
            2 => ", twice in a row".to_owned(),
            more => format!(", {more} times in a row"),
        };
        format!(
            "Waiting for lane {lane}: of its process it is known that {}{times}; it is started again at {}. What is applied stays as it is",
            self.cause,
            ending::cut_to_seconds(until).0
        )
    }
}

impl ProcessRecord {
    /// One that was not started yet, and that is ended when an answer takes longer than this.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self {
            phase: Phase::Resting,
            patience,
            ends: 0,
            last: None,
        }
    }

    /// Takes what became of it.
    pub fn take(&mut self, fact: Fact, now: Duration) {
        match (fact, &mut self.phase) {
            (Fact::Expected, phase) => *phase = Phase::Expecting { since: now },
            // One that hasn't connected for long and does is kept waiting by nothing.
            (Fact::Arrived, phase @ Phase::Pausing { .. }) if matches!(self.last, Some(Cause::Absent(_))) => {
                *phase = Phase::Resting;
            }
            (Fact::GaveUp, phase @ Phase::Expecting { .. }) => *phase = Phase::Killed(None),
            // It came while it was being given up.
            (Fact::Started, Phase::Killed(_)) => {}
            (Fact::Started, phase) => {
                *phase = Phase::Running {
                    since: now,
                    asked: None,
                    works: false,
                }
            }
            (Fact::Asked, Phase::Running { asked, .. }) => *asked = Some((now, false)),
            (Fact::Answered, Phase::Running { asked, .. }) => {
                if let Some((_, answered)) = asked {
                    *answered = true;
                }
            }
            (Fact::Works, Phase::Running { works, .. }) => *works = true,
            (Fact::Stopped, phase @ Phase::Running { .. }) => *phase = Phase::Stopping { since: now },
            (Fact::Killed(cause), phase @ (Phase::Running { .. } | Phase::Expecting { .. })) => {
                *phase = Phase::Killed(Some(cause))
            }
            (Fact::Killed(_), phase @ Phase::Stopping { .. }) => *phase = Phase::Killed(None),
            (Fact::Ended(cause), _) => self.end(cause, now),
            // What comes late says nothing of what is now.
            (
                Fact::Arrived
                | Fact::GaveUp
                | Fact::Asked
                | Fact::Answered
                | Fact::Works
                | Fact::Stopped
                | Fact::Killed(_),
                _,
            ) => {}
        }
    }

    fn end(&mut self, cause: Cause, now: Duration) {
        let (cause, up) = match std::mem::take(&mut self.phase) {
            // That is what was wanted.
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

    /// What to do now; `is_wanted` while something of the lane's is reconciled.
    #[must_use]
    pub fn decide(&self, is_wanted: bool, now: Duration) -> Move {
        match &self.phase {
            Phase::Resting | Phase::Pausing { .. } if !is_wanted => Move::Retire,
            Phase::Resting => Move::Start,
            Phase::Pausing { until } if *until <= now => Move::Start,
            Phase::Pausing { until } => Move::Wait(Some(*until)),
            Phase::Expecting { .. } if !is_wanted => Move::GiveUp,
            Phase::Expecting { since } => {
                let until = since.saturating_add(CONNECTING);
                if until <= now {
                    Move::Kill(Cause::Absent(CONNECTING))
                } else {
                    Move::Wait(Some(until))
                }
            }
            Phase::Running { .. } if !is_wanted => Move::Stop,
            Phase::Running { asked: None, .. } => Move::Ask,
            Phase::Running {
                asked: Some((at, false)),
                ..
            } => {
                let until = at.saturating_add(self.patience);
                if until <= now {
                    Move::Kill(Cause::Silent(self.patience))
                } else {
                    Move::Wait(Some(until))
                }
            }
            Phase::Running {
                asked: Some((at, true)),
                ..
            } => {
                let next = at.saturating_add(self.patience / 4);
                if next <= now { Move::Ask } else { Move::Wait(Some(next)) }
            }
            Phase::Stopping { since } => {
                let until = since.saturating_add(FAREWELL);
                if until <= now {
                    Move::Kill(Cause::Silent(FAREWELL))
                } else {
                    Move::Wait(Some(until))
                }
            }
            Phase::Killed(_) => Move::Wait(None),
        }
    }

    /// Why it is down, from an unexpected end until it works again.
    #[must_use]
    pub fn trouble(&self, now: Duration) -> Option<Trouble> {
        let until = match self.phase {
            Phase::Pausing { until } => until,
            Phase::Expecting { since }
            | Phase::Running {
                works: false, since, ..
            } => since,
            Phase::Resting | Phase::Running { .. } | Phase::Stopping { .. } | Phase::Killed(None) => return None,
            Phase::Killed(Some(_)) => now,
        };
        Some(Trouble {
            ends: self.ends,
            cause: self.last.clone()?,
            until,
        })
    }
}

/// How long nothing is started after so many unexpected ends in a row.
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
