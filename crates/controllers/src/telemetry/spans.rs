//! Traces of the controllers' work: each attempt, and in it each fetch, rendering, plan and round of requests. This module has the names and the
//! attributes: object, revision and reason. A span never contains the content of an object.

use tenure_api::condition;
use tenure_planner::Status;
use tracing::Span;
use tracing::field::Empty;

use crate::cluster_view::key::Key;

/// The target of these spans.
pub const TRACED: &str = "tenure::traced";

/// Begins the span of an attempt, from its first round until it waits.
pub(crate) fn begin_attempt(key: &Key) -> Span {
    tracing::info_span!(
        target: TRACED,
        parent: None,
        "reconcile",
        kind = key.kind.name,
        namespace = key.namespace,
        name = key.name,
        revision = Empty,
        reason = Empty,
    )
}

/// Begins the span of a source's fetch.
pub(crate) fn begin_fetch() -> Span {
    tracing::info_span!(target: TRACED, "fetch", revision = Empty)
}

/// Begins the span of a Kustomization's rendering.
pub(crate) fn begin_rendering() -> Span {
    tracing::info_span!(target: TRACED, "render")
}

/// Begins the span of one plan.
pub(crate) fn begin_plan() -> Span {
    tracing::info_span!(target: TRACED, "plan")
}

/// Begins the span of a plan's requests: reads, dry-runs, applies and deletions.
pub(crate) fn begin_requests() -> Span {
    tracing::info_span!(target: TRACED, "apply")
}

/// Records the state of the current attempt.
pub(crate) fn note_status(status: &impl Status) {
    let ready = condition::find(status.conditions(), condition::READY);
    if let Some(ready) = ready {
        Span::current().record("reason", ready.reason.as_str());
    }
}

/// Records the revision of the current work.
pub(crate) fn note_revision(revision: &str) {
    Span::current().record("revision", revision);
}
