//! The origin of an artifact's files, which the status and events show beside the applied revision.

use std::collections::BTreeMap;

use tenure_api::metadata::{EVENT_ORIGIN_REVISION, EVENT_REVISION};

use super::Plan;
use super::types::{Snapshot, SourceFacts};

/// Returns the revision of the artifact, and the revision of its origin.
pub(super) fn find_origin(snapshot: &Snapshot) -> Option<(&str, &str)> {
    match &snapshot.source {
        SourceFacts::Found {
            artifact: Some(artifact),
            ..
        } => Some((artifact.revision.as_str(), artifact.origin_revision.as_deref()?)),
        _ => None,
    }
}

/// Describes a revision for the history: its name, and the name of its origin.
pub(super) fn describe_revision(snapshot: &Snapshot, revision: &str) -> BTreeMap<String, String> {
    let origin = find_origin(snapshot).filter(|(of, _)| *of == revision);
    let origin = origin.map(|(_, origin)| ("originRevision".to_owned(), origin.to_owned()));
    let itself = ("revision".to_owned(), revision.to_owned());
    std::iter::once(itself).chain(origin).collect()
}

/// Adds the origin revision to the plan's events about a revision.
pub(super) fn add_origin(snapshot: &Snapshot, plan: &mut Plan) {
    let Some((revision, origin)) = find_origin(snapshot) else {
        return;
    };
    for event in &mut plan.events {
        if event
            .annotations
            .get(EVENT_REVISION)
            .is_some_and(|known| known == revision)
        {
            event
                .annotations
                .insert(EVENT_ORIGIN_REVISION.to_owned(), origin.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{context, outcome};
    use super::*;
    use crate::plan::EventKind;

    fn snapshot(artifact: serde_json::Value) -> Snapshot {
        serde_json::from_value(json!({
            "kustomization": {
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": { "name": "apps", "namespace": "team" },
                "spec": { "interval": "1m", "prune": true, "sourceRef": { "kind": "OCIRepository", "name": "app" } },
            },
            "placement": tenure_tenancy::TenancyFacts::default().find_placement("team"),
            "source": { "found": { "artifact": artifact } },
            "attempt": { "started": "2026-01-01T00:00:00Z" },
        }))
        .unwrap()
    }

    #[test]
    fn the_history_tells_what_a_revision_was_made_of() {
        let made =
            snapshot(json!({ "revision": "latest@sha256:1", "digest": "sha256:2", "originRevision": "main@sha1:3" }));
        let describe = |revision| json!(describe_revision(&made, revision));
        assert_eq!(
            describe("latest@sha256:1"),
            json!({ "revision": "latest@sha256:1", "originRevision": "main@sha1:3" })
        );
        assert_eq!(describe("latest@sha256:0"), json!({ "revision": "latest@sha256:0" }));
    }

    #[test]
    fn events_of_revision_carry_origin_revision() {
        let describe_events = |artifact| {
            let snapshot = snapshot(artifact);
            let mut plan = Plan::idle(context::name_subject(&snapshot), Default::default());
            plan.events = [Some("latest@sha256:1"), Some("latest@sha256:0"), None]
                .map(|revision| outcome::make_event(EventKind::Normal, "Progressing", String::new(), revision))
                .into();
            add_origin(&snapshot, &mut plan);
            let events = plan.events.iter();
            events
                .map(|event| event.annotations.get(EVENT_ORIGIN_REVISION).cloned())
                .collect::<Vec<_>>()
        };
        let artifact = json!({ "revision": "latest@sha256:1", "digest": "sha256:2", "originRevision": "main@sha1:3" });
        assert_eq!(describe_events(artifact), [Some("main@sha1:3".to_owned()), None, None]);
        let git = json!({ "revision": "latest@sha256:1", "digest": "sha256:2" });
        assert_eq!(describe_events(git), [None, None, None]);
    }
}
