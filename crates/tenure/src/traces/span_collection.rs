//! Collects spans in the process of a lane until their attempt ends. The number of attempts is bounded, excess parts are dropped, and no caller waits.

use std::collections::HashMap;

use parking_lot::Mutex;
use tenure_controllers::{SpanOutbox, TRACED_PARTS, TracedAttempt, TracedPart, TracedTime, TracedWork};

use super::otlp::Span;

/// The number of attempts whose parts are stored: more than a lane works on at the same time.
const ATTEMPTS: usize = 256;

/// The finished spans of a lane's process, grouped by attempt until the attempt ends.
#[derive(Debug)]
pub(super) struct SpanCollection {
    outbox: SpanOutbox,
    /// The finished parts, by their trace.
    parts: Mutex<HashMap<u128, Vec<Span>>>,
}

impl SpanCollection {
    pub(super) fn new(outbox: SpanOutbox) -> Self {
        Self {
            outbox,
            parts: Mutex::default(),
        }
    }

    /// Takes a finished span. Parts end before the spans that contain them.
    pub(super) fn record_span(&self, span: Span) {
        if span.parent.is_none() {
            let parts = self.parts.lock().remove(&span.trace).unwrap_or_default();
            self.outbox.push(describe_attempt(span, &parts));
            return;
        }
        let mut known = self.parts.lock();
        if known.len() >= ATTEMPTS && !known.contains_key(&span.trace) {
            return;
        }
        let parts = known.entry(span.trace).or_default();
        if parts.len() < TRACED_PARTS && find_work(&span).is_some() {
            parts.push(span);
        }
    }
}

fn find_work(span: &Span) -> Option<TracedWork> {
    TracedWork::ALL.into_iter().find(|work| work.name() == span.name)
}

fn find_attribute(span: &Span, name: &str) -> Option<String> {
    let mut attributes = span.attributes.iter();
    attributes
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value.clone())
}

fn describe_attempt(root: Span, parts: &[Span]) -> TracedAttempt {
    let text = |name: &str| find_attribute(&root, name).unwrap_or_default();
    let parts = parts.iter().filter_map(|part| {
        Some(TracedPart {
            work: find_work(part)?,
            within: parts.iter().position(|other| Some(other.id) == part.parent),
            revision: find_attribute(part, "revision"),
            time: TracedTime::between(part.begun, part.ended),
        })
    });
    TracedAttempt {
        kind: text("kind"),
        namespace: text("namespace"),
        name: text("name"),
        revision: find_attribute(&root, "revision"),
        reason: find_attribute(&root, "reason"),
        time: TracedTime::between(root.begun, root.ended),
        parts: parts.collect(),
    }
}
