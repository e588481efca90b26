//! Traces of what the controllers do, for a collector of OpenTelemetry: a span for each attempt, with its fetch, rendering, plans and requests as
//! children.
//!
//! Owns what of a span is told: names of kinds and objects, revisions and reasons, and nothing else, whatever a span may bear. It refuses to let
//! anybody wait for a collector: what doesn't fit into a queue is dropped and counted.

mod otlp;
mod queue;
mod send;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use tenure_controllers::TRACED;
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
pub(crate) use send::{Sending, start};

/// What of a span is told.
const TOLD: [&str; 5] = ["kind", "namespace", "name", "revision", "reason"];
/// The longest of these that is told, in bytes.
const LONGEST: usize = 512;

/// Where spans go, once somebody wants them.
static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();

/// The part of the log's subscriber that takes spans; it costs next to nothing before they are wanted.
pub(crate) fn layer<S>() -> impl Layer<S>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
{
    let is_ours = |metadata: &Metadata<'_>| metadata.is_span() && metadata.target() == TRACED;
    let filter = DynFilterFn::new(move |_, _: &Context<'_, S>| QUEUE.get().is_some())
        .with_callsite_filter(move |metadata| {
            if is_ours(metadata) {
                Interest::sometimes()
            } else {
                Interest::never()
            }
        })
        .with_max_level_hint(LevelFilter::INFO);
    Collector { queue: || QUEUE.get() }.with_filter(filter)
}

/// Makes spans of what the controllers trace.
struct Collector {
    queue: fn() -> Option<&'static Arc<Queue>>,
}

/// A span that is open.
struct Open(Span);

impl Visit for Open {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let Some(name) = TOLD.into_iter().find(|name| *name == field.name()) else {
            return;
        };
        let mut end = value.len().min(LONGEST);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        let value = value.get(..end).unwrap_or_default().to_owned();
        // What is said later is truer.
        self.0.attributes.retain(|(known, _)| *known != name);
        self.0.attributes.push((name, value));
    }
}

/// An identifier that nobody else has, and that isn't zero.
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
            extensions.get::<Open>().map(|open| (open.0.trace, open.0.id))
        });
        let (trace, parent) = match parent {
            Some((trace, parent)) => (trace, Some(parent)),
            None => ((u128::from(make_id()) << 64) | u128::from(make_id()), None),
        };
        let mut open = Open(Span {
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
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            values.record(open);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(Open(mut ended)) = span.extensions_mut().remove::<Open>() else {
            return;
        };
        ended.ended = SystemTime::now();
        if let Some(queue) = (self.queue)() {
            queue.push(ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    static TRIED: OnceLock<Arc<Queue>> = OnceLock::new();

    #[test]
    fn only_names_revisions_and_reasons_are_told_of_a_span() {
        let queue = TRIED.get_or_init(|| Arc::new(Queue::new(16)));
        let collector = Collector { queue: || TRIED.get() };
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
        let spans = queue.take(16);
        let [inner, outer] = spans.as_slice() else {
            panic!("two spans are wanted: {spans:?}")
        };
        assert_eq!((inner.name, outer.name), ("render", "reconcile"));
        assert_eq!((inner.trace, inner.parent), (outer.trace, Some(outer.id)));
        assert!(inner.attributes.is_empty() && outer.parent.is_none() && inner.id != outer.id);
        assert!(outer.begun <= inner.begun && inner.ended <= outer.ended);
        let told: Vec<&str> = outer.attributes.iter().map(|(name, _)| *name).collect();
        assert_eq!(told, ["kind", "name", "revision"]);
        assert!(!format!("{spans:?}").contains("sesame"));
        assert!(outer.attributes.iter().all(|(_, value)| value.len() <= LONGEST));
    }
}
