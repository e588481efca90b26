//! The reasons to begin a new attempt after the last one, or to plan again during a wait.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::{Kustomization, ObjectId, condition};
use tenure_tenancy::Placement;

use super::dependency_facts::DependencyFacts;
use super::siblings::{OtherOwner, Survey};
use super::types::{OngoingDeletions, Snapshot, SourceFacts, read_allowed_deletion, read_apply_mode};
use super::{inputs, kube_config, remote_cluster};
use crate::answer::Live;
use crate::comparable::select_comparable;
use tenure_remote_requests::artifact::ArtifactFacts;

/// The facts that are known now, for a comparison with the facts of the last plan.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The Kustomization.
    pub kustomization: &'a Kustomization,
    /// The owner of the Kustomization's namespace.
    pub placement: &'a Placement,
    /// The source that the Kustomization names.
    pub source: &'a SourceFacts,
    /// The Kustomizations in `spec.dependsOn`.
    pub dependencies: &'a BTreeMap<String, DependencyFacts>,
    /// The deletions of the Kustomization's own namespace or Tenant, and of namespaces in its inventory.
    pub endings: &'a OngoingDeletions,
    /// The answer to the survey of this attempt, if there was one.
    pub survey: Option<&'a Survey>,
}

impl Snapshot {
    /// Checks whether a fact other than the applied objects has changed since the last plan, so that another plan could differ.
    #[must_use]
    pub fn is_overtaken(&self, now: &Observed<'_>) -> bool {
        let metadata = &now.kustomization.metadata;
        let surveyed = |before: &Survey| now.survey.is_some_and(|now| before != now);
        self.attempt.generation != metadata.generation
            || self.attempt.requested_at != crate::read_requested_at(metadata)
            || self.attempt.allowed != read_allowed_deletion(metadata)
            || self.attempt.apply != read_apply_mode(metadata)
            || remote_cluster::read_cluster(&self.kustomization.metadata) != remote_cluster::read_cluster(metadata)
            || self.kustomization.metadata.uid != metadata.uid
            || self.kustomization.metadata.deletion_timestamp != metadata.deletion_timestamp
            || is_source_another(&self.source, now.source)
            || self.dependencies != *now.dependencies
            || self.endings != *now.endings
            || self.placement != *now.placement
            || self.survey.as_ref().is_some_and(surveyed)
    }

    /// Checks whether the owners of the wanted objects, or their answers, changed since the last plan. Only owners known then are compared.
    #[must_use]
    pub fn is_overtaken_by(&self, owners: &BTreeMap<ObjectId, String>, rivals: &BTreeMap<String, OtherOwner>) -> bool {
        !self.owners.is_empty() && (self.owners != *owners || self.rivals != *rivals)
    }

    /// Lists the other Kustomizations, by namespace and name, whose changes may change the plan: the owners of wanted objects, and the Kustomizations of the same
    /// source that this one waits for.
    #[must_use]
    pub fn list_relevant(&self) -> BTreeSet<(String, String)> {
        let namespace = self.kustomization.metadata.namespace.clone().unwrap_or_default();
        let rivals = self.rivals.values();
        let rivals = rivals.map(|rival| (rival.namespace.clone(), rival.name.clone()));
        let siblings = self.survey.iter().flat_map(|survey| {
            let wanted = survey.wanted.values().map(|by| &by.name);
            let behind = survey.behind.iter().chain(&survey.behind_us);
            behind.chain(&survey.untried).chain(wanted)
        });
        let siblings = siblings.map(|name| (namespace.clone(), name.clone()));
        rivals.chain(siblings).collect()
    }

    /// Checks whether the last failed attempt looked at this object. Then a change of the object triggers an attempt, even if the last plan did not look at it.
    #[must_use]
    pub fn was_read_by_failed_attempt(&self, id: &ObjectId) -> bool {
        let retry = self.memory.retry.as_ref();
        retry.is_some_and(|retry| retry.live.contains_key(id))
    }

    /// Checks for a relevant change of an object of this cluster, while the Kustomization applies to another one. Every change of a kubeconfig is relevant. A change of
    /// the rendering's inputs is relevant as in a Kustomization for this cluster.
    #[must_use]
    pub fn is_another_here(&self, id: &ObjectId, before: &Live, now: &Live) -> bool {
        if kube_config::is_kube_config(self, id) {
            return kube_config::is_another_kube_config(before, now);
        }
        inputs::triggers_attempt(self, before, now)
    }

    /// Checks whether an object differs from the one that the last plan saw, and whether the difference counts. A mere input of the rendering counts if its label or a
    /// failed attempt asks for it. An object's health counts only if a health check is requested; otherwise a changed status is no drift.
    #[must_use]
    pub fn is_another(&self, id: &ObjectId, before: &Live, now: &Live) -> bool {
        if let Some(is_news) = inputs::is_news(self, id, before, now) {
            return is_news;
        }
        let spec = &self.kustomization.spec;
        let health = spec.wait || !spec.health_checks.is_empty();
        match (before, now) {
            (Live::Present(before), Live::Present(now)) => {
                select_comparable(&before.0) != select_comparable(&now.0)
                    || (health && before.revision() != now.revision())
            }
            _ => true,
        }
    }
}

/// Checks by the status whether everything of this artifact is applied and healthy under the present spec, and no further attempt is requested. Then the first attempt
/// of a new process only verifies this, and Kustomizations with work go first.
#[must_use]
pub fn is_settled(kustomization: &Kustomization, artifact: &ArtifactFacts) -> bool {
    let metadata = &kustomization.metadata;
    let Some(status) = &kustomization.status else {
        return false;
    };
    metadata.deletion_timestamp.is_none()
        && status.observed_generation == metadata.generation
        && status.last_applied_revision.as_deref() == Some(&*artifact.revision)
        && status.last_handled_reconcile_at == crate::read_requested_at(metadata)
        && condition::is_true(&status.conditions, condition::READY)
}

/// Checks whether a source changed so that another attempt could end differently. The conditions of a source count only while it has no artifact.
fn is_source_another(before: &SourceFacts, now: &SourceFacts) -> bool {
    match (before, now) {
        (
            SourceFacts::Found {
                artifact: Some(before), ..
            },
            SourceFacts::Found {
                artifact: Some(now), ..
            },
        ) => before != now,
        (before, now) => before != now,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kustomization_with_pending_work_is_not_settled() {
        let artifact: ArtifactFacts =
            serde_json::from_value(json!({ "revision": "main@sha1:1", "digest": "sha256:1" })).unwrap();
        let object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": { "name": "app", "namespace": "team", "generation": 2, "annotations": { "reconcile.fluxcd.io/requestedAt": "1" } },
            "spec": { "interval": "1m", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "repo" } },
            "status": {
                "observedGeneration": 2, "lastAppliedRevision": "main@sha1:1", "lastHandledReconcileAt": "1",
                "conditions": [{ "type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            },
        });
        let judge = |pointer: &str, value: serde_json::Value| {
            let mut object = object.clone();
            *object.pointer_mut(pointer).unwrap() = value;
            is_settled(&serde_json::from_value(object).unwrap(), &artifact)
        };
        assert!(judge("/metadata/name", json!("app")));
        for (pointer, value) in [
            ("/metadata/generation", json!(3)),
            ("/metadata/annotations/reconcile.fluxcd.io~1requestedAt", json!("2")),
            ("/status/lastAppliedRevision", json!("main@sha1:0")),
            ("/status/conditions/0/status", json!("False")),
            ("/status", json!(null)),
        ] {
            assert!(!judge(pointer, value), "{pointer}");
        }
    }

    #[test]
    fn events_of_owners_and_dependencies_wake_a_kustomization() {
        let mut snapshot: Snapshot = serde_json::from_value(json!({
            "kustomization": {
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": { "name": "app", "namespace": "team" },
                "spec": { "interval": "1m", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "repo" } },
            },
            "placement": { "unclaimed": { "default_service_account": "default" } },
            "source": "notFound",
            "attempt": { "started": "2026-01-01T00:00:00Z" },
        }))
        .unwrap();
        assert_eq!(snapshot.list_relevant(), BTreeSet::new());
        snapshot.survey = Some(Survey {
            behind: Some("behind".to_owned()),
            behind_us: Some("dependent".to_owned()),
            untried: Some("behind".to_owned()),
            ..Survey::default()
        });
        let relevant = ["behind", "dependent"].map(|name| ("team".to_owned(), name.to_owned()));
        assert_eq!(snapshot.list_relevant(), BTreeSet::from(relevant));
    }

    /// As in Flux, a mere input of the rendering counts if its label says so. A failed attempt may have failed because of any input.
    #[test]
    fn labelled_render_input_triggers_reconciliation() {
        let mut snapshot: Snapshot = serde_json::from_value(json!({
            "kustomization": {
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": { "name": "app", "namespace": "team" },
                "spec": {
                    "interval": "1m", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "repo" },
                    "postBuild": { "substituteFrom": [{ "kind": "ConfigMap", "name": "vars" }] },
                },
            },
            "placement": { "unclaimed": { "default_service_account": "default" } },
            "source": "notFound",
            "attempt": { "started": "2026-01-01T00:00:00Z" },
        }))
        .unwrap();
        let id = |name: &str| -> ObjectId { format!("team_{name}__ConfigMap").parse().unwrap() };
        let live = |label: &str, value: &str| {
            let labels = json!({ "reconcile.fluxcd.io/watch": label });
            Live::Present(crate::Object(
                json!({ "metadata": { "labels": labels }, "data": { "v": value } }),
            ))
        };
        let (watched, other) = (live("Enabled", "a"), live("enabled", "a"));
        let counts = |snapshot: &Snapshot, before: &Live, now: &Live| snapshot.is_another(&id("vars"), before, now);
        assert!(counts(&snapshot, &other, &live("Enabled", "b")));
        assert!(counts(&snapshot, &Live::Absent, &watched));
        assert!(counts(&snapshot, &watched, &Live::Absent));
        assert!(!counts(&snapshot, &watched, &live("enabled", "b")));
        assert!(!counts(&snapshot, &other, &Live::Absent));
        assert!(!counts(&snapshot, &Live::Absent, &other));
        // The object is also applied: then a change of it is drift, with or without a label.
        assert!(snapshot.is_another(&id("applied"), &other, &live("", "b")));
        snapshot
            .memory
            .settled
            .insert(id("vars"), crate::kustomization::MatchedDigests::default());
        assert!(counts(&snapshot, &other, &live("enabled", "b")));
        snapshot.memory.settled.clear();
        snapshot.memory.retry = Some(crate::kustomization::Retry {
            attempt: "2026-01-01T00:00:00Z".parse().unwrap(),
            asked: crate::kustomization::AttemptInput::default(),
            surroundings: String::new(),
            live: BTreeMap::new(),
            watch: Vec::new(),
            soon: "2026-01-01T00:00:01Z".parse().unwrap(),
            until: "2026-01-01T00:01:00Z".parse().unwrap(),
            times: 1,
        });
        assert!(counts(&snapshot, &other, &Live::Absent));
    }
}
