//! Waits until the platform has applied the head of the branch: as the Surface reports, or Flux's own Kustomization.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::REQUESTED_AT;
use tokio::time::Instant;

use super::cluster::{Cluster, FIELD_MANAGER};
use super::git::Branch;
use crate::failure::Failure;
use crate::object_path::write_object_path;
use crate::progress::Progress;
use crate::readiness::read_outcome_of_spec;

/// The pause between two looks at the object.
const PAUSE: Duration = Duration::from_millis(200);
/// The time between two questions to the server about the branch, while the platform has applied another commit.
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(3);

/// Waits until the commit is applied, and everything is Ready. If the branch has moved on meanwhile, its new head counts.
pub(super) async fn wait_until_applied(
    cluster: &Cluster,
    branch: &mut Branch,
    head: &str,
    timeout: Duration,
    progress: &Progress,
) -> Result<(), Failure> {
    let reconciled = cluster.list_reconciled();
    let Some((version, kind, namespace, name)) = reconciled.first() else {
        return Ok(());
    };
    let subject = format!("{kind}/{namespace}/{name}");
    let waiting = progress.wait(format!("{subject} to apply {head}"));
    let path = write_object_path(&name_object(version, kind, namespace, name))?;
    let (started, mut asked) = (Instant::now(), Instant::now());
    let (mut head, mut is_requested) = (head.to_owned(), false);
    loop {
        let found = cluster.installation.find(&path).await?.unwrap_or_default();
        let applied = find_applied(&found);
        let is_applied = applied.is_some_and(|revision| is_at(revision, &head));
        let generation = ObjectView::new(&found).find_number("/metadata/generation");
        let step = match read_outcome_of_spec(&found, generation) {
            Ok(outcome) if outcome.is_ready && is_applied => {
                drop(waiting);
                progress.succeed(format!("{subject}: applied {head}"));
                return Ok(());
            }
            Ok(outcome) => outcome.message,
            Err(step) => step,
        };
        waiting.set_step(&step);
        // A new object is reconciled at once. An existing one would wait for its interval.
        if let (Some(_), false, false) = (applied, is_applied, is_requested) {
            request(cluster, &reconciled).await?;
            is_requested = true;
        }
        if applied.is_some() && !is_applied && asked.elapsed() >= BETWEEN_QUESTIONS {
            asked = Instant::now();
            head = branch.find_head().await?.unwrap_or(head);
        }
        if started.elapsed() >= timeout {
            let last = if step.is_empty() {
                "it has no status yet".to_owned()
            } else {
                step
            };
            return Err(Failure::negative(format!("{subject} has not applied {head} in {} s: {last}", timeout.as_secs()))
                .hint(format!("tenure events --for {kind}/{name} -n {namespace} shows why; a private address needs --allow-platform-source at the controllers. The same command waits again")));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns the revision that the object has applied.
fn find_applied(object: &Value) -> Option<&str> {
    let object = ObjectView::new(object);
    let paths = ["/status/sources/0/appliedRevision", "/status/lastAppliedRevision"];
    paths.iter().find_map(|path| object.find_text(path))
}

/// Whether a revision such as `main@sha1:…` is this commit.
fn is_at(revision: &str, commit: &str) -> bool {
    !commit.is_empty() && revision.rsplit(':').next() == Some(commit)
}

/// Asks the controllers to reconcile now.
async fn request(cluster: &Cluster, reconciled: &[(&str, &str, String, String)]) -> Result<(), Failure> {
    let now = jiff::Timestamp::now().to_string();
    for (version, kind, namespace, name) in reconciled {
        let mut object = name_object(version, kind, namespace, name);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("annotations".to_owned(), json!({ REQUESTED_AT: now }));
        }
        let path = write_object_path(&object)?;
        cluster.installation.apply(&path, FIELD_MANAGER, &object).await?;
    }
    Ok(())
}

fn name_object(version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": namespace } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applied_revision_is_compared_by_commit() {
        let surface = json!({ "status": { "sources": [{ "appliedRevision": "main@sha1:abc" }] } });
        let kustomization = json!({ "status": { "lastAppliedRevision": "main@sha1:abc" } });
        for object in [surface, kustomization] {
            assert!(find_applied(&object).is_some_and(|revision| is_at(revision, "abc")));
            assert!(!is_at(find_applied(&object).unwrap(), "ab") && !is_at("main@sha1:", ""));
        }
        assert_eq!(find_applied(&json!({})), None);
    }
}
