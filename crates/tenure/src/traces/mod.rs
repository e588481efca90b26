//! Traces of the controllers for an OpenTelemetry collector: a span for each attempt, with its fetch, rendering, plans and requests as children.
//!
//! A span exports only names of kinds and objects, revisions and reasons, even if it has other fields. No controller waits for the collector: spans that don't fit into
//! the queue are dropped and counted.

mod otlp;
mod queue;
mod send;
mod span_collection;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use tenure_controllers::{SpanOutbox, SpanSink, TRACED, TracedAttempt};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{DynFilterFn, LevelFilter};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use otlp::Span;
use queue::Queue;
pub(crate) use send::{TraceSender, start};
use span_collection::SpanCollection;

/// The fields of a span that are exported.
const EXPORTED_FIELDS: [&str; 5] = ["kind", "namespace", "name", "revision", "reason"];
/// The name of an attempt's span.
const ATTEMPT: &str = "reconcile";
/// The longest exported value, in bytes.
const LONGEST: usize = 512;

/// The queue of spans for a collector, after traces are enabled.
static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();
/// The spans for the hub, in the process of a lane after traces are enabled.
static GATHERING: OnceLock<SpanCollection> = OnceLock::new();

/// Returns the layer of the log's subscriber that takes spans. It costs next to nothing before traces are enabled.
pub(crate) fn make_layer<S>() -> impl Layer<S>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
{
    let is_ours = |metadata: &Metadata<'_>| metadata.is_span() && metadata.target() == TRACED;
    let filter = DynFilterFn::new(move |_, _: &Context<'_, S>| QUEUE.get().is_some() || GATHERING.get().is_some())
        .with_callsite_filter(move |metadata| {
            if is_ours(metadata) {
                Interest::sometimes()
            } else {
                Interest::never()
            }
        })
        .with_max_level_hint(LevelFilter::INFO);
    Collector { take: take_span }.with_filter(filter)
}

/// Puts a finished span into the collector's queue, or in a lane's process into the collection for the hub.
fn take_span(span: Span) {
    if let Some(queue) = QUEUE.get() {
        queue.push(span);
    } else if let Some(gathering) = GATHERING.get() {
        gathering.record_span(span);
    }
}

/// Sends later spans of a lane's process to the hub. Called once in a process.
pub(crate) fn send_spans_to_hub(outbox: SpanOutbox) {
    let _first_come = GATHERING.set(SpanCollection::new(outbox));
}

/// Returns the receiver of spans from lanes that run apart. The hub makes their identifiers.
pub(crate) fn take_from_lanes() -> SpanSink {
    SpanSink::new(|attempt, has_room| {
        if let Some(queue) = QUEUE.get() {
            match has_room {
                true => write_spans(attempt).into_iter().for_each(|span| queue.push(span)),
                false => queue.count_lost(usize::try_from(attempt.count()).unwrap_or(usize::MAX)),
            }
        }
    })
}

/// Turns an attempt and its parts into spans of one trace.
fn write_spans(attempt: TracedAttempt) -> Vec<Span> {
    let trace = make_trace();
    let ids: Vec<u64> = attempt.parts.iter().map(|_| make_id()).collect();
    let root = make_id();
    let attribute = |name: &'static str, value: Option<String>| value.map(|value| (name, cut_value(&value)));
    let span = |id, parent, name, time: tenure_controllers::TracedTime, attributes| {
        let (begun, ended) = time.read()?;
        Some(Span {
            trace,
            id,
            parent,
            name,
            begun,
            ended,
            attributes,
        })
    };
    let of_object = [
        attribute("kind", Some(attempt.kind)),
        attribute("namespace", Some(attempt.namespace)),
        attribute("name", Some(attempt.name)),
        attribute("revision", attempt.revision),
        attribute("reason", attempt.reason),
    ];
    let attributes = of_object.into_iter().flatten().collect();
    let first = span(root, None, ATTEMPT, attempt.time, attributes);
    let parts = attempt.parts.into_iter().zip(&ids).map(|(part, id)| {
        // A part within itself, or within a missing part, becomes a part of the attempt.
        let within = part
            .within
            .and_then(|within| ids.get(within))
            .filter(|within| *within != id);
        let parent = within.copied().unwrap_or(root);
        let attributes = attribute("revision", part.revision).into_iter().collect();
        span(*id, Some(parent), part.work.name(), part.time, attributes)
    });
    first.into_iter().chain(parts.flatten()).collect()
}

/// The layer of `tracing` that turns spans of the controllers into [`Span`] values, and passes them to `take`.
struct Collector {
    take: fn(Span),
}

/// A span of `tracing` that has not ended, with its exported fields so far.
struct OpenSpan(Span);

impl Visit for OpenSpan {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let Some(name) = EXPORTED_FIELDS.into_iter().find(|name| *name == field.name()) else {
            return;
        };
        let value = cut_value(value);
        // A later value of a field replaces the earlier one.
        self.0.attributes.retain(|(known, _)| *known != name);
        self.0.attributes.push((name, value));
    }
}

/// Cuts a text to the exported length.
fn cut_value(value: &str) -> String {
    let mut end = value.len().min(LONGEST);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    value.get(..end).unwrap_or_default().to_owned()
}

fn make_trace() -> u128 {
    (u128::from(make_id()) << 64) | u128::from(make_id())
}

/// Makes a unique identifier other than zero.
fn make_id() -> u64 {
    RandomState::new().hash_one(SystemTime::now()).max(1)
}

impl<S> Layer<S> for Collector
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let parent = span.parent().and_then(|parent| {
            let extensions = parent.extensions();
            extensions.get::<OpenSpan>().map(|open| (open.0.trace, open.0.id))
        });
        let (trace, parent) = match parent {
            Some((trace, parent)) => (trace, Some(parent)),
            None => (make_trace(), None),
        };
        let mut open = OpenSpan(Span {
            trace,
            id: make_id(),
            parent,
            name: attributes.metadata().name(),
            begun: SystemTime::now(),
            ended: SystemTime::UNIX_EPOCH,
            attributes: Vec::new(),
        });
        attributes.record(&mut open);
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<OpenSpan>()
        {
            values.record(open);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(OpenSpan(mut ended)) = span.extensions_mut().remove::<OpenSpan>() else {
            return;
        };
        ended.ended = SystemTime::now();
        (self.take)(ended);
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    static TRIED: OnceLock<Arc<Queue>> = OnceLock::new();

    /// Spans of a lane become one trace, whose identifiers the lane neither knows nor chooses.
    #[test]
    fn lane_spans_get_identifiers_of_hub() {
        let outbox = SpanOutbox::default();
        let gathering = SpanCollection::new(outbox.clone());
        let time_at = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let span = |id, parent, name, attributes| Span {
            trace: 7,
            id,
            parent,
            name,
            begun: time_at(id),
            ended: time_at(id + 10),
            attributes,
        };
        gathering.record_span(span(
            3,
            Some(2),
            "fetch",
            vec![("revision", "main@sha1:one".to_owned())],
        ));
        gathering.record_span(span(2, Some(1), "plan", Vec::new()));
        // Spans with an unknown name, or of an unknown attempt, are not exported.
        gathering.record_span(span(4, Some(1), "password", Vec::new()));
        gathering.record_span(Span {
            trace: 8,
            ..span(9, Some(8), "render", Vec::new())
        });
        let object = vec![
            ("kind", "GitRepository".to_owned()),
            ("namespace", "blue".to_owned()),
            ("name", "web".to_owned()),
            ("reason", "Succeeded".to_owned()),
        ];
        gathering.record_span(span(1, None, ATTEMPT, object.clone()));
        let attempts = outbox.take_all();
        let [attempt] = attempts.as_slice() else {
            panic!("{attempts:?}")
        };
        let spans = write_spans(attempt.clone());
        let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
        let (root, plan, fetch) = (named(ATTEMPT), named("plan"), named("fetch"));
        assert_eq!(spans.len(), 3, "{spans:?}");
        assert_eq!(
            (plan.parent, fetch.parent, root.parent),
            (Some(root.id), Some(plan.id), None)
        );
        assert_eq!(
            (root.attributes.clone(), root.begun, root.ended),
            (object, time_at(1), time_at(11))
        );
        assert_eq!(fetch.attributes, [("revision", "main@sha1:one".to_owned())]);
        assert!(
            spans
                .iter()
                .all(|span| span.trace == root.trace && ![7, 8].contains(&span.trace) && span.id > 9)
        );
        let again = write_spans(attempt.clone());
        assert!(again[0].trace != root.trace && again[0].id != root.id);
    }

    #[test]
    fn a_span_reports_only_names_revisions_and_reasons() {
        let queue = TRIED.get_or_init(|| Arc::new(Queue::new(16)));
        let collector = Collector {
            take: |span| TRIED.get().into_iter().for_each(|queue| queue.push(span.clone())),
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(collector), || {
            let outer = tracing::info_span!(
                target: TRACED,
                "reconcile",
                kind = "Kustomization",
                name = %"web",
                revision = tracing::field::Empty,
                password = "sesame",
            );
            outer.in_scope(|| {
                tracing::info_span!(target: TRACED, "render", value = "sesame").in_scope(|| {});
                tracing::Span::current().record("revision", "main@sha1:one");
                tracing::Span::current().record("revision", "x".repeat(LONGEST * 2));
            });
        });
        let spans = queue.take_oldest(16);
        let [inner, outer] = spans.as_slice() else {
            panic!("two spans are wanted: {spans:?}")
        };
        assert_eq!((inner.name, outer.name), ("render", "reconcile"));
        assert_eq!((inner.trace, inner.parent), (outer.trace, Some(outer.id)));
        assert!(inner.attributes.is_empty() && outer.parent.is_none() && inner.id != outer.id);
        assert!(outer.begun <= inner.begun && inner.ended <= outer.ended);
        let attribute_names: Vec<&str> = outer.attributes.iter().map(|(name, _)| *name).collect();
        assert_eq!(attribute_names, ["kind", "name", "revision"]);
        assert!(!format!("{spans:?}").contains("sesame"));
        assert!(outer.attributes.iter().all(|(_, value)| value.len() <= LONGEST));
    }
}
