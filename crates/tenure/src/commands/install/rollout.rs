//! Waits after an installation: until the Pods of the controllers are available, and until the rules of tenancy are in force.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject};
use serde_json::Value;
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, PLATFORM_NAMESPACE};
use tenure_api::{Enforcement, ObjectView};

use super::enforcing::Enforcing;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::readiness::{Outcome, watch_outcome};

/// Waits for the installed controllers, each part at most for this time.
pub(crate) async fn wait_for_rollout(
    client: &kube::Client,
    enforcing: Enforcing,
    timeout: Duration,
    progress: &Progress,
) -> Result<(), Failure> {
    let resource = ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&());
    let api = Api::namespaced_with(client.clone(), PLATFORM_NAMESPACE, &resource);
    let subject = format!("Deployment/{PLATFORM_NAMESPACE}/{CONTROLLER_SERVICE_ACCOUNT}");
    let goal = (CONTROLLER_SERVICE_ACCOUNT, subject.as_str(), "to be available");
    wait_for(&api, goal, timeout, progress, read_deployment).await?;
    if !enforcing.admission && !enforcing.policies {
        return Ok(());
    }
    let api = Api::all_with(client.clone(), &ApiResource::erase::<Enforcement>(&()));
    let goal = (
        "tenure",
        "Enforcement/tenure",
        "to be ready, when the rules of tenancy are in force",
    );
    wait_for(&api, goal, timeout, progress, |object, _| read_enforcement(object)).await
}

async fn wait_for(
    api: &Api<DynamicObject>,
    (name, subject, goal): (&str, &str, &str),
    timeout: Duration,
    progress: &Progress,
    read: impl Fn(&Value, Option<i64>) -> Result<Outcome, String>,
) -> Result<(), Failure> {
    let waiting = progress.wait(format!("{subject} {goal}"));
    let watched = watch_outcome(api, (name, subject), &waiting, |object| {
        read(&object.data, object.metadata.generation)
    });
    let ended = tokio::time::timeout(timeout, watched).await;
    let step = waiting.step();
    drop(waiting);
    match ended {
        Ok(outcome) => progress.succeed(format!("{subject}: {}", outcome?.message)),
        Err(_) => {
            let seconds = timeout.as_secs();
            let last = if step.is_empty() {
                String::new()
            } else {
                format!(" ({step})")
            };
            return Err(Failure::negative(format!(
                "everything is applied, and {subject} was not ready in {seconds} s{last}"
            ))
            .hint(format!(
                "kubectl -n {PLATFORM_NAMESPACE} get pods, and tenure logs --all, say why; the same command waits again"
            )));
        }
    }
    Ok(())
}

/// Returns the outcome of a Deployment's rollout, or the number of available Pods.
fn read_deployment(deployment: &Value, generation: Option<i64>) -> Result<Outcome, String> {
    let deployment = ObjectView::new(deployment);
    let number = |path: &str| deployment.find_number(path).unwrap_or_default();
    let wanted = deployment.find_number("/spec/replicas").unwrap_or(1);
    // Pods of an earlier rollout may still be available.
    let available = number("/status/availableReplicas").min(number("/status/updatedReplicas"));
    let is_observed = deployment.find_number("/status/observedGeneration") >= generation;
    let counted = format!("{available} of {wanted} Pods are available");
    match is_observed && available >= wanted && number("/status/replicas") <= wanted {
        true => Ok(make_outcome(counted)),
        false => Err(counted),
    }
}

/// Returns the outcome of the Enforcement, or its message.
fn read_enforcement(enforcement: &Value) -> Result<Outcome, String> {
    let ready = ObjectView::new(enforcement).find_condition("Ready").unwrap_or_default();
    match ready.status {
        "True" => Ok(make_outcome(ready.message.to_owned())),
        _ => Err(ready.message.to_owned()),
    }
}

fn make_outcome(message: String) -> Outcome {
    Outcome {
        is_ready: true,
        reason: String::new(),
        message,
        revision: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollout_ends_with_the_last_new_pod() {
        for (status, expected) in [
            (
                json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}),
                true,
            ),
            (
                json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}),
                false,
            ),
            (
                json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "availableReplicas": 2}),
                false,
            ),
            (
                json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}),
                false,
            ),
            (json!({}), false),
        ] {
            let deployment = json!({"spec": {"replicas": 2}, "status": status});
            assert_eq!(read_deployment(&deployment, Some(2)).is_ok(), expected, "{deployment}");
        }
        assert_eq!(
            read_deployment(&json!({"spec": {"replicas": 2}}), Some(1)),
            Err("0 of 2 Pods are available".to_owned())
        );
    }
}
