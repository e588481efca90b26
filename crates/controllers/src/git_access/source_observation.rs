//! The known facts of the sources that use a Secret.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::condition::{Condition, ConditionStatus, READY};
use tenure_api::metadata::REQUESTED_AT;
use tenure_api::reason::AUTHENTICATION_FAILED;
use tenure_api::reference::LocalObjectReference;
use tenure_api::{DurationText, GitRepository, ObjectMeta, OciRepository};
use tenure_git_access::rotation::SourceState;

use super::AccessHub;
use crate::cluster_view::key::Kind;
use crate::reconcile_loop::reconciled::Reconciled as _;

/// Returns the sources of a namespace that use a Secret.
pub(super) fn list_sources(access_hub: &AccessHub, secret: &str, namespace: &str) -> Vec<SourceState> {
    let Some(shard) = access_hub.hub.find_shard(namespace) else {
        return Vec::new();
    };
    let describe = |kind: &Kind, (metadata, reference, suspend, interval): SourceSpec<'_>, status: SourceStatus<'_>| {
        let is_used = reference.is_some_and(|reference| reference.name == secret);
        is_used.then(|| SourceState {
            name: format!("{}/{}", kind.name, metadata.name.as_deref().unwrap_or_default()),
            is_suspended: suspend,
            interval: read_interval(interval),
            asked: metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(REQUESTED_AT).cloned()),
            last_handled: status.and_then(|(_, handled)| handled.cloned()),
            refused_at: status.and_then(|(conditions, _)| find_refusal(conditions)),
        })
    };
    let mut sources = Vec::new();
    for source in shard.caches.get::<GitRepository>().in_namespace(namespace) {
        let spec = &source.spec;
        let status = source.status.as_ref();
        let status = status.map(|status| (status.conditions.as_slice(), status.last_handled_reconcile_at.as_ref()));
        let spec = (&source.metadata, spec.secret_ref.as_ref(), spec.suspend, &spec.interval);
        sources.extend(describe(GitRepository::KIND, spec, status));
    }
    for source in shard.caches.get::<OciRepository>().in_namespace(namespace) {
        let spec = &source.spec;
        let status = source.status.as_ref();
        let status = status.map(|status| (status.conditions.as_slice(), status.last_handled_reconcile_at.as_ref()));
        let spec = (&source.metadata, spec.secret_ref.as_ref(), spec.suspend, &spec.interval);
        sources.extend(describe(OciRepository::KIND, spec, status));
    }
    sources
}

/// Returns the time since when the host refuses a source, or its Secret can't be read.
fn find_refusal(conditions: &[Condition]) -> Option<Timestamp> {
    let ready = conditions.iter().find(|condition| condition.type_ == READY)?;
    let is_refused = ready.status == ConditionStatus::False && ready.reason == AUTHENTICATION_FAILED;
    is_refused.then_some(ready.last_transition_time.0)
}

/// Metadata, the Secret, whether the source is suspended, and its interval.
type SourceSpec<'a> = (&'a ObjectMeta, Option<&'a LocalObjectReference>, bool, &'a DurationText);
/// Conditions, and the last handled request.
type SourceStatus<'a> = Option<(&'a [Condition], Option<&'a String>)>;

fn read_interval(text: &DurationText) -> Duration {
    text.parse().unwrap_or_default()
}
