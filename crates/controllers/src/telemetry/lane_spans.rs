//! Spans of a lane that runs apart, on their way over the lane's line to the hub: one attempt with its parts at a time. This module bounds the number
//! of waiting attempts in a lane, and the number of spans that the hub takes from one lane. Spans of lanes have no identifiers. The hub gives each
//! attempt its own identifiers, so lanes never share one. The hub drops attempts that are not about an object of the lane.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The limit of attempts that wait in a lane, and of attempts in one frame.
const WAITING: usize = 256;
/// The limit of parts that are sent of one attempt.
pub const TRACED_PARTS: usize = 64;
/// The length limit of a text that a lane sends, in bytes. Longer text in a span is cut anyway.
const LONGEST: usize = 512;
/// Spans of one lane that the hub takes at once, and per second on average. All lanes share the queue to the exporter.
const AT_ONCE: u64 = 1024;
const IN_A_SECOND: u64 = 256;

/// The span of an ended attempt to reconcile an object, with the spans of its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracedAttempt {
    /// The kind of the reconciled object.
    pub kind: String,
    /// See [`TracedAttempt::kind`].
    pub namespace: String,
    /// See [`TracedAttempt::kind`].
    pub name: String,
    /// The revision, if it was known.
    pub revision: Option<String>,
    /// The final reason.
    pub reason: Option<String>,
    /// The time of the attempt.
    pub time: TracedTime,
    /// The parts of the attempt.
    pub parts: Vec<TracedPart>,
}

impl TracedAttempt {
    /// Counts the spans of the attempt.
    #[must_use]
    pub fn count(&self) -> u64 {
        (self.parts.len() as u64).saturating_add(1)
    }
}

/// The span of one piece of work in an attempt, such as a fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracedPart {
    /// The kind of work.
    pub work: TracedWork,
    /// The index of the enclosing part. Absent: the attempt itself.
    pub within: Option<usize>,
    /// The revision, if it was known.
    pub revision: Option<String>,
    /// The time of the part.
    pub time: TracedTime,
}

/// The kinds of work in an attempt, named as in `crate::telemetry::spans`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TracedWork {
    /// The fetch of a source.
    Fetch,
    /// The rendering of a Kustomization.
    Render,
    /// Planning.
    Plan,
    /// The execution of a plan.
    Apply,
}

impl TracedWork {
    /// All kinds of work.
    pub const ALL: [Self; 4] = [Self::Fetch, Self::Render, Self::Plan, Self::Apply];

    /// Returns the name of the span.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Render => "render",
            Self::Plan => "plan",
            Self::Apply => "apply",
        }
    }
}

/// Start and duration, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracedTime {
    begun_micros: u64,
    took_micros: u64,
}

impl TracedTime {
    /// Returns the time between two moments.
    #[must_use]
    pub fn between(begun: SystemTime, ended: SystemTime) -> Self {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self {
            begun_micros: micros(begun.duration_since(UNIX_EPOCH).unwrap_or_default()),
            took_micros: micros(ended.duration_since(begun).unwrap_or_default()),
        }
    }

    /// Returns both moments, if the platform's clock can represent them.
    #[must_use]
    pub fn read(self) -> Option<(SystemTime, SystemTime)> {
        let begun = UNIX_EPOCH.checked_add(Duration::from_micros(self.begun_micros))?;
        Some((begun, begun.checked_add(Duration::from_micros(self.took_micros))?))
    }
}

/// The exporter of lanes' spans.
#[derive(Clone)]
pub struct SpanSink(Arc<dyn Fn(TracedAttempt, bool) + Send + Sync>);

impl SpanSink {
    /// Creates a sink. `take` gets each attempt, and true if the attempt is to be exported. An attempt over the limit is only counted.
    pub fn new(take: impl Fn(TracedAttempt, bool) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }
}

impl fmt::Debug for SpanSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpanSink")
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Attempts of a lane that runs apart and that wait to be sent.
#[derive(Clone, Debug, Default)]
pub struct SpanOutbox(Arc<Mutex<VecDeque<TracedAttempt>>>);

impl SpanOutbox {
    /// Adds an attempt. If the outbox is full, the oldest attempt is dropped.
    pub fn push(&self, attempt: TracedAttempt) {
        let mut waiting = lock(&self.0);
        if waiting.len() >= WAITING {
            waiting.pop_front();
        }
        waiting.push_back(attempt);
    }

    /// Takes all waiting attempts.
    #[must_use]
    pub fn take_all(&self) -> Vec<TracedAttempt> {
        lock(&self.0).drain(..).collect()
    }
}

/// A token bucket for the spans that the hub takes from one lane.
#[derive(Debug)]
pub(crate) struct SpanIntake {
    left: u64,
    at: Instant,
}

impl SpanIntake {
    pub(crate) fn new(now: Instant) -> Self {
        Self { left: AT_ONCE, at: now }
    }

    /// Passes on the attempts about objects of the lane, which `is_own` recognises, within the limit.
    ///
    /// # Errors
    /// The violation, if no lane would send the attempt.
    pub(crate) fn pass_attempts(
        &mut self,
        attempts: Vec<TracedAttempt>,
        now: Instant,
        is_own: impl Fn(&TracedAttempt) -> bool,
        sink: &SpanSink,
    ) -> Result<(), String> {
        if attempts.len() > WAITING || !attempts.iter().all(is_short) {
            return Err("more spans than there can be".to_owned());
        }
        let passed = u64::try_from(now.saturating_duration_since(self.at).as_micros()).unwrap_or(u64::MAX);
        let earned = passed.saturating_mul(IN_A_SECOND) / 1_000_000;
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(AT_ONCE);
            self.at = now;
        }
        for attempt in attempts.into_iter().filter(|attempt| is_own(attempt)) {
            let left = self.left.checked_sub(attempt.count());
            self.left = left.unwrap_or(self.left);
            (sink.0)(attempt, left.is_some());
        }
        Ok(())
    }
}

/// Checks whether a lane would send the attempt: its texts are within the length limit, and each enclosing part is one of the attempt's parts.
fn is_short(attempt: &TracedAttempt) -> bool {
    let is_short = |text: &String| text.len() <= LONGEST;
    let parts = &attempt.parts;
    [&attempt.kind, &attempt.namespace, &attempt.name]
        .into_iter()
        .all(is_short)
        && [&attempt.revision, &attempt.reason].into_iter().flatten().all(is_short)
        && parts.len() <= TRACED_PARTS
        && parts.iter().all(|part| {
            part.revision.as_ref().is_none_or(is_short) && part.within.is_none_or(|within| within < parts.len())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(namespace: &str, parts: usize) -> TracedAttempt {
        let time = TracedTime::between(UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(1));
        let part = TracedPart {
            work: TracedWork::Plan,
            within: None,
            revision: None,
            time,
        };
        TracedAttempt {
            kind: "Kustomization".to_owned(),
            namespace: namespace.to_owned(),
            name: "web".to_owned(),
            revision: None,
            reason: None,
            time,
            parts: vec![part; parts],
        }
    }

    type Received = Arc<Mutex<Vec<(TracedAttempt, bool)>>>;

    fn collect() -> (SpanSink, Received) {
        let received = Arc::<Mutex<Vec<_>>>::default();
        let sink = SpanSink::new({
            let received = Arc::clone(&received);
            move |attempt, has_room| lock(&received).push((attempt, has_room))
        });
        (sink, received)
    }

    /// The hub drops attempts about another lane's object, and a noisy lane gets a bounded share of the queue.
    #[test]
    fn hub_takes_bounded_spans_of_lanes_own_objects() {
        let (sink, received) = collect();
        let now = Instant::now();
        let mut intake = SpanIntake::new(now);
        let is_own = |attempt: &TracedAttempt| attempt.namespace == "blue";
        let attempts = vec![attempt("blue", 3), attempt("red", 3)];
        intake.pass_attempts(attempts, now, is_own, &sink).unwrap();
        assert_eq!(*lock(&received), [(attempt("blue", 3), true)]);
        lock(&received).clear();
        let mut count = |second: u64| {
            for _ in 0..4 {
                let attempts = vec![attempt("blue", 63); 100];
                intake
                    .pass_attempts(attempts, now + Duration::from_secs(second), is_own, &sink)
                    .unwrap();
            }
            let received = std::mem::take(&mut *lock(&received));
            assert_eq!(received.len(), 400, "who is left out is counted");
            received.iter().filter(|(_, has_room)| *has_room).count()
        };
        assert_eq!([count(0), count(1), count(2), count(60)], [15, 4, 4, 16]);
    }

    #[test]
    fn impossible_spans_are_protocol_violations() {
        let (sink, received) = collect();
        let now = Instant::now();
        let mut long = attempt("blue", 1);
        long.reason = Some("x".repeat(LONGEST + 1));
        let mut deep = attempt("blue", 2);
        deep.parts[1].within = Some(2);
        for attempts in [
            vec![attempt("blue", 0); WAITING + 1],
            vec![attempt("blue", TRACED_PARTS + 1)],
            vec![attempt(&"x".repeat(LONGEST + 1), 0)],
            vec![long],
            vec![deep],
        ] {
            assert!(
                SpanIntake::new(now)
                    .pass_attempts(attempts, now, |_| true, &sink)
                    .is_err()
            );
        }
        assert!(lock(&received).is_empty());
        let far = TracedTime {
            begun_micros: u64::MAX,
            took_micros: u64::MAX,
        };
        // The moment may or may not be representable; reading it never panics.
        assert!(far.read().is_none_or(|(begun, ended)| begun <= ended));
    }

    #[test]
    fn full_outbox_drops_oldest_attempts() {
        let outbox = SpanOutbox::default();
        for number in 0..WAITING + 5 {
            outbox.push(attempt(&number.to_string(), 0));
        }
        let attempts = outbox.take_all();
        assert_eq!((attempts.len(), attempts[0].namespace.as_str()), (WAITING, "5"));
        assert!(outbox.take_all().is_empty());
    }
}
