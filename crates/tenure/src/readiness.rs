//! Waits for the outcome of an object's reconciliation, as its conditions report it. A failed watch restarts by itself; a deleted object ends the wait.

use futures::TryStreamExt as _;
use kube::api::{Api, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::Value;
use tenure_api::ObjectView;

use crate::failure::Failure;
use crate::progress::WaitLine;

/// The outcome of a reconciliation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) is_ready: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The revision that was applied or fetched, if the kind has one.
    pub(crate) revision: Option<String>,
}

impl Outcome {
    /// Returns the result in Flux's words: the revision, or else the message.
    pub(crate) fn describe(&self, kind: &str) -> String {
        match (&self.revision, kind) {
            (Some(revision), "Kustomization") => format!("applied revision {revision}"),
            (Some(revision), _) => format!("fetched revision {revision}"),
            (None, _) => self.message.clone(),
        }
    }
}

/// Returns the end of the text "waiting for OBJECT …" for a kind, such as `to be applied`.
pub(crate) fn name_goal(kind: &str) -> &'static str {
    match kind {
        "Kustomization" => "to be applied",
        "GitRepository" | "OCIRepository" | "Bucket" | "HelmRepository" | "HelmChart" => "to be fetched",
        _ => "to be ready",
    }
}

/// Returns the outcome in the conditions, or the current step. `is_current`: the conditions are about the request that is waited for.
pub(crate) fn read_outcome(object: &Value, generation: Option<i64>, is_current: bool) -> Result<Outcome, String> {
    let object = ObjectView::new(object);
    let ready = object.find_condition("Ready").unwrap_or_default();
    let observed = object.find_number("/status/observedGeneration") == generation;
    // A stalled object waits for a change of its spec, and handles no request.
    let stalled = object
        .find_condition("Stalled")
        .is_some_and(|stalled| stalled.status == "True" && observed);
    if (is_current || stalled) && matches!(ready.status, "True" | "False") {
        let revision = ["/status/lastAppliedRevision", "/status/artifact/revision"];
        return Ok(Outcome {
            is_ready: ready.status == "True",
            reason: ready.reason.to_owned(),
            message: ready.message.split_whitespace().collect::<Vec<_>>().join(" "),
            revision: revision
                .iter()
                .find_map(|path| object.find_text(path))
                .map(str::to_owned),
        });
    }
    let step = object.find_condition("Reconciling").unwrap_or(ready);
    // While health checks run, Healthy names the object that is waited for, without the revision.
    let healthy = object.find_condition("Healthy").filter(|healthy| {
        healthy.status == "Unknown" && !healthy.message.is_empty() && step.message.contains(healthy.message)
    });
    let step = healthy.unwrap_or(step);
    Err(step.message.lines().next().unwrap_or_default().to_owned())
}

/// Returns the outcome for the current spec of an object, or the current step. Conditions of an older spec, and those of a reconciliation that goes on, are no outcome.
pub(crate) fn read_outcome_of_spec(object: &Value, generation: Option<i64>) -> Result<Outcome, String> {
    let view = ObjectView::new(object);
    let observed = view.find_number("/status/observedGeneration") == generation;
    let is_retried = view
        .find_condition("Reconciling")
        .is_some_and(|step| step.status == "True");
    let is_ready = view.find_condition("Ready").is_some_and(|ready| ready.status == "True");
    read_outcome(object, generation, observed && (is_ready || !is_retried))
}

/// Watches an object until `read` returns its outcome. `read` returns the current step otherwise.
pub(crate) async fn watch_outcome(
    api: &Api<DynamicObject>,
    (name, subject): (&str, &str),
    waiting: &WaitLine,
    read: impl Fn(&DynamicObject) -> Result<Outcome, String>,
) -> Result<Outcome, Failure> {
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let changes = watcher(api.clone(), only).default_backoff().touched_objects();
    let mut changes = std::pin::pin!(changes);
    loop {
        let object = match changes.try_next().await {
            Ok(Some(object)) => object,
            Ok(None) => return Err(Failure::environment("the watch ended")),
            Err(watcher::Error::WatchStartFailed(error) | watcher::Error::InitialListFailed(error)) => {
                return Err(Failure::from(error));
            }
            // A failed watch restarts by itself.
            Err(_) => continue,
        };
        if object.metadata.deletion_timestamp.is_some() {
            return Err(Failure::negative(format!("{subject} is being deleted")));
        }
        match read(&object) {
            Ok(outcome) => return Ok(outcome),
            Err(step) => waiting.set_step(&step),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(observed: i64, ready: &str, reconciling: &str, stalled: &str) -> Value {
        json!({"status": {"observedGeneration": observed, "lastAppliedRevision": "main@sha1:a", "conditions": [
            {"type": "Ready", "status": ready, "reason": "R", "message": "one\ntwo"},
            {"type": "Reconciling", "status": reconciling, "message": "building"},
            {"type": "Stalled", "status": stalled}]}})
    }

    #[test]
    fn an_outcome_is_of_the_current_spec() {
        for (observed, ready, reconciling, stalled, expected) in [
            (2, "True", "False", "False", Some(true)),
            (2, "False", "False", "False", Some(false)),
            (2, "Unknown", "True", "False", None),
            (1, "True", "False", "False", None),
            // A failed attempt that is retried may still succeed within the timeout.
            (2, "False", "True", "False", None),
            (2, "False", "True", "True", Some(false)),
        ] {
            let found = read_outcome_of_spec(&object(observed, ready, reconciling, stalled), Some(2));
            assert_eq!(
                found.as_ref().ok().map(|outcome| outcome.is_ready),
                expected,
                "{observed} {ready} {reconciling} {stalled}"
            );
        }
        assert_eq!(read_outcome_of_spec(&json!({}), Some(1)), Err(String::new()));
    }

    #[test]
    fn a_wait_for_health_names_the_object() {
        let wait = "applied; waiting for Deployment team-a/api to be healthy";
        let object = |reconciling: String| {
            json!({"status": {"conditions": [
                {"type": "Ready", "status": "Unknown", "message": "Reconciliation in progress"},
                {"type": "Reconciling", "status": "True", "message": reconciling},
                {"type": "Healthy", "status": "Unknown", "message": wait}]}})
        };
        let running = format!("Running health checks for revision main@sha1:a with a timeout of 5m0s ({wait})");
        assert_eq!(read_outcome(&object(running), Some(1), true), Err(wait.to_owned()));
        // Healthy is about an earlier wait.
        let applying = "Applying revision main@sha1:b".to_owned();
        assert_eq!(read_outcome(&object(applying.clone()), Some(1), true), Err(applying));
    }

    #[test]
    fn result_is_described_in_terms_of_its_kind() {
        let outcome = |revision: Option<&str>| Outcome {
            is_ready: true,
            reason: "Succeeded".to_owned(),
            message: "all is applied".to_owned(),
            revision: revision.map(str::to_owned),
        };
        let check = |kind, revision, expected| assert_eq!(outcome(revision).describe(kind), expected);
        check("Kustomization", Some("main@sha1:a"), "applied revision main@sha1:a");
        check("GitRepository", Some("main@sha1:a"), "fetched revision main@sha1:a");
        check("Surface", None, "all is applied");
    }
}
