//! What of the controllers' work is traced: each attempt, and in it each fetch, rendering, plan and round of requests. Owns the names and what they bear:
//! which object, which revision, which reason. Refuses to bear what is in an object.

use tenure_api::condition;
use tenure_planner::Status;
use tracing::Span;
use tracing::field::Empty;

use crate::key::Key;

/// The target of these spans.
pub const TRACED: &str = "tenure::traced";

/// An attempt, from its first round until it waits.
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

/// What a source fetches.
pub(crate) fn begin_fetch() -> Span {
    tracing::info_span!(target: TRACED, "fetch", revision = Empty)
}

/// What a Kustomization renders.
pub(crate) fn begin_rendering() -> Span {
    tracing::info_span!(target: TRACED, "render")
}

/// One plan.
pub(crate) fn begin_plan() -> Span {
    tracing::info_span!(target: TRACED, "plan")
}

/// What a plan asks of the cluster: it looks, tries, applies and deletes.
pub(crate) fn begin_requests() -> Span {
    tracing::info_span!(target: TRACED, "apply")
}

/// Notes on the attempt under way how it stands.
pub(crate) fn note_status(status: &impl Status) {
    let ready = condition::find(status.conditions(), condition::READY);
    if let Some(ready) = ready {
        Span::current().record("reason", ready.reason.as_str());
    }
}

/// Notes which revision the work under way is about.
pub(crate) fn note_revision(revision: &str) {
    Span::current().record("revision", revision);
}
